#!/usr/bin/env python3
"""How a flash cache comes back: Entresol is killed with its cache full, and opened again.

The volumes are those of measure.py. Each design warms its cache up without the throttle, runs with it for its usual rate, and runs
once more until it is killed. Then the database is opened again, and its throughput shown second by second. `cold` is dual-write whose
cache is taken away before that.

With --sparse the cache has that size, on a file system in a sparse file, so that it may be larger than the disk: pages enter few of its
slots. Each design is opened after a clean stop and after a kill, and its first second is shown: how many pages the cache served in it,
and how much memory the program had at most and read from devices until its end.

With --openings so is each design with the usual cache: after a clean stop, after a kill, and after another one.

    ./restart.py                                       # as measure.py: 8 GiB of data, 512 MiB of memory, 3 GiB of cache
    ./restart.py --records 1,400,000 --memory 102MiB --cache 614MiB --workloads b
    ./restart.py --records 1,400,000 --memory 102MiB --workloads b --sparse 1TiB --configurations face,lazy-cleaning
"""

import contextlib
import json
import os
import subprocess
import sys
import shutil
import time

from measure import Entresol, output, parse, run, size, slow_volume, unmount

DESIGNS = ["face", "lazy-cleaning", "dual-write", "cold"]
# The share of the usual rate that counts as recovered.
RECOVERED = 0.9


def kill_after(command, seconds):
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    if process.wait() != -9:
        raise SystemExit("the run ended before it was killed: make --seconds longer")


def restart(entresol, slow, name, workload):
    seconds = entresol.arguments.seconds
    design = "dual-write" if name == "cold" else name
    entresol.warm(design, workload)
    with slow.throttled():
        usual = entresol.measure(design, workload)["per_second"]
        kill_after(entresol.command(design, workload, 10 * seconds), seconds)
        if name == "cold":
            entresol.take_cache_away(workload)
        again = subprocess.run([str(part) for part in entresol.command(design, workload, 3 * seconds)] + ["--course", "1"], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    report = json.loads(again.stdout)
    course = report["course"]
    recovered = (part["seconds"] for part in course["parts"] if part["throughput_per_s"] >= RECOVERED * usual)
    hits = sum(tier["reads"] for tier in report["tiers"] if tier["name"] == "cache")
    return {"design": name, "workload": workload, "usual_per_second": usual, "recovered_seconds": next(recovered, None), "cache_reads": hits} | course


class SparseCache(Entresol):
    """The same with a cache on a device of its own."""

    def configuration(self, design, workload):
        path = super().configuration(design, workload)
        text = path.read_text().replace('[cache]\ndevice = "fast"', '[cache]\ndevice = "sparse"')
        path.write_text(f'[device.sparse]\npath = "{self.arguments.sparse_mount}"\n{text}')
        return path

    def take_cache_away(self, workload):
        for name in ("cache.tier", "cache-table.tier"):
            (self.arguments.sparse_mount / name).unlink(missing_ok=True)
        # A process that was killed keeps its files until the kernel has ended what it had under way.
        for _ in range(100):
            if shutil.disk_usage(self.arguments.sparse_mount).free > self.arguments.sparse:
                return
            time.sleep(0.2)


@contextlib.contextmanager
def sparse_volume(folder, bytes_max):
    """A file system with room for a cache of this size and its table, in a sparse file, mounted."""
    image, mount = folder / "sparse.img", folder / "sparse"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate((bytes_max + bytes_max // 20 + (2 << 30)) >> 20 << 20)
    loop = output("losetup", "--find", "--show", "--direct-io=on", image).strip()
    try:
        run("mkfs.ext4", "-q", "-T", "largefile4", "-m", "0", "-J", "size=64", "-E", "lazy_itable_init=1,nodiscard", loop)
        run("mount", "-o", "noinit_itable", loop, mount)
        yield mount
    finally:
        unmount(mount)
        subprocess.run(["losetup", "--detach", loop], check=False)
        image.unlink(missing_ok=True)


def first_second(entresol, design, workload):
    """Opens the database for a second."""
    command = entresol.command(design, workload, 1) + ["--course", "1"]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    report = json.loads(process.stdout.read())
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{design} ended with {status}")
    reads = sum(tier["reads"] for tier in report["tiers"] if tier["name"] == "cache")
    return {"opening_seconds": report["course"]["opening_seconds"], "per_second": report["throughput_per_s"], "cache_reads": reads, "memory_bytes": used.ru_maxrss << 10, "read_bytes": used.ru_inblock << 9}


def openings(entresol, slow, design, workload, stops):
    """What the first second is like behind each of these stops."""
    results = []
    with slow.throttled():
        for stop in stops:
            if stop != "close":
                kill_after(entresol.command(design, workload, 10 * entresol.arguments.seconds), entresol.arguments.seconds)
            results.append({"design": design, "workload": workload, "stop": stop} | first_second(entresol, design, workload))
    return results


def restart_sparse(entresol, slow, design, workload):
    began = time.monotonic()
    entresol.take_cache_away(workload)
    entresol.bench(design, workload, 1)
    created = time.monotonic() - began
    entresol.bench(design, workload, entresol.arguments.warm_up)
    results = openings(entresol, slow, design, workload, ["close", "kill"])
    results[0]["creation_seconds"] = created
    return results


def measure_openings(arguments, slow, names):
    results, entresol = [], Entresol(arguments, slow.mount)
    entresol.load()
    for workload in arguments.workloads.split(","):
        for name in names:
            entresol.warm(name, workload)
            results += openings(entresol, slow, name, workload, ["close", "kill", "again"])
    return results


def sparse_table(results):
    lines = ["workload  design          stop   opening s  first second/s   from cache   memory MiB   read MiB", "-" * 90]
    for found in results:
        memory, read = found["memory_bytes"] / 2**20, found["read_bytes"] / 2**20
        lines.append(f"{found['workload']:9} {found['design']:14}  {found['stop']:5} {found['opening_seconds']:10.2f} {found['per_second']:15,.0f} {found['cache_reads']:12,} {memory:12,.0f} {read:10,.0f}")
    return "\n".join(lines)


def measure_sparse(arguments, slow, names):
    results = []
    with sparse_volume(arguments.fast, arguments.sparse) as mount:
        arguments.sparse_mount, arguments.cache = mount, arguments.sparse
        entresol = SparseCache(arguments, slow.mount)
        entresol.load()
        for workload in arguments.workloads.split(","):
            for name in names:
                results += restart_sparse(entresol, slow, name, workload)
                print(f"{workload}, {name}: made and opened in {results[-2]['creation_seconds']:.1f} s", file=sys.stderr)
    return results


def table(results):
    lines = ["workload  design          usual/s  opening s  first second/s   90 % after s", "-" * 74]
    for found in results:
        after = found["recovered_seconds"]
        shown = f"{after:12.0f}" if after else f"> {found['parts'][-1]['seconds']:10.0f}"
        first = found["parts"][0]["throughput_per_s"]
        lines.append(f"{found['workload']:9} {found['design']:14} {found['usual_per_second']:8,.0f} {found['opening_seconds']:10.2f} {first:15,.0f}   {shown}")
    return "\n".join(lines)


def main():
    def add(parser):
        parser.add_argument("--sparse", type=size, help="a cache of this size on a sparse volume")
        parser.add_argument("--openings", action="store_true", help="show the first second after each kind of stop")

    arguments = parse(__doc__, add)
    names = arguments.configurations.split(",") if "--configurations" in sys.argv else DESIGNS
    started, results = time.strftime("%Y-%m-%d %H:%M"), []
    with slow_volume(arguments) as slow:
        if arguments.sparse or arguments.openings:
            measure = measure_sparse if arguments.sparse else measure_openings
            results = measure(arguments, slow, [name for name in names if name != "cold"])
            print(json.dumps({"started": started, "results": results}) if arguments.json else f"{started}\n\n{sparse_table(results)}")
            return
        entresol = Entresol(arguments, slow.mount)
        entresol.load()
        for workload in arguments.workloads.split(","):
            for name in names:
                results.append(restart(entresol, slow, name, workload))
                print(f"{workload}, {name}: {results[-1]['usual_per_second']:,.0f}/s before", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"started": started, "results": results}))
    else:
        print(f"{started}, {arguments.iops:,} reads and writes a second of the slow volume\n\n{table(results)}")


if __name__ == "__main__":
    main()
