#!/usr/bin/env python3
"""A flash cache in front of a slow volume: Entresol's designs, RocksDB with its persistent cache, PostgreSQL without one.

The slow volume is a loop device that the kernel throttles (blkio, cgroup v1), so that every engine meets the same; the cache, the
logs and the rest lie on the disk of --fast. Each engine loads YCSB's table once, without the throttle. Then, in turns and in --rounds
rounds, each configuration runs without the throttle until its cache is warm, and with it for the measurement. Figures are medians; flash B is what the cache writes to its device for a transaction. A peer that gives up has no line.
TPC-C runs on Entresol alone, which has a driver for it.

Needs root, losetup, mkfs.ext4; for the peers librocksdb-dev, libpq-dev, postgresql and a C++ compiler (Debian's packages).

    ./measure.py                                       # 8 GiB of data, 512 MiB of memory, 3 GiB of cache: about two hours
    ./measure.py --records 1,400,000 --memory 102MiB --cache 614MiB --rounds 1        # a fifth of everything
    ./measure.py --configurations none,lazy-cleaning,rocksdb --workloads c --json
    ./measure.py --workloads tpcc --warehouses 80
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RUN_AS = "postgres"
THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.{}_iops_device"
MEMORY = pathlib.Path("/sys/fs/cgroup/memory/entresol-flash-tier")
DESIGNS = ["none", "clean-write", "dual-write", "lazy-cleaning", "tac", "face", "frequency"]
PEERS = ["rocksdb", "rocksdb-none", "postgresql"]
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def count(text):
    return int(text.replace(",", ""))


def size(text):
    found = re.fullmatch(r"([\d,.]+) ?(KiB|MiB|GiB|TiB)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 512MiB")
    return int(float(found[1].replace(",", "")) * UNITS[found[2]])


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, **options)


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, **options).stdout


def unmount(folder):
    """Unmounts a file system: what a killed program has begun to write there is under way for a moment."""
    while folder.is_mount() and subprocess.run(["umount", str(folder)], check=False).returncode:
        time.sleep(1)


class SlowVolume:
    """A file as a loop device with a file system, mounted, whose rate the kernel limits while it is asked to."""

    def __init__(self, folder, gigabytes, iops):
        self.image, self.mount, self.iops = folder / "slow.img", folder / "slow", iops
        self.mount.mkdir(parents=True, exist_ok=True)
        with open(self.image, "wb") as file:
            file.truncate(gigabytes << 30)
        self.loop = output("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.loop)
        run("mount", self.loop, self.mount)
        self.number = pathlib.Path(f"/sys/block/{os.path.basename(self.loop)}/dev").read_text().strip()

    def limit(self, iops):
        for way in ("read", "write"):
            pathlib.Path(THROTTLE.format(way)).write_text(f"{self.number} {iops}")

    @contextlib.contextmanager
    def throttled(self):
        self.limit(self.iops)
        try:
            yield
        finally:
            self.limit(0)

    def close(self):
        self.limit(0)
        unmount(self.mount)
        subprocess.run(["losetup", "--detach", self.loop], check=False)
        self.image.unlink(missing_ok=True)


def database_of(workload):
    return "tpcc" if workload == "tpcc" else "ycsb"


@contextlib.contextmanager
def slow_volume(arguments):
    """The slow volume, in a folder that is made anew for it and removed behind it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    slow = SlowVolume(arguments.fast, 40, arguments.iops)
    try:
        yield slow
    finally:
        slow.close()
        shutil.rmtree(arguments.fast, ignore_errors=True)


class Entresol:
    """One database of each kind for all designs; each opening has another configuration and, after the warm-up, the cache as it was left."""

    def __init__(self, arguments, slow):
        self.arguments, self.data = arguments, slow / "entresol"
        self.fast = arguments.fast / "entresol"

    def configuration(self, design, workload):
        database = database_of(workload)
        text = [f'[device.fast]\npath = "{self.fast / database}"', f'[buffer]\nsize = "{self.arguments.memory >> 20} MiB"', '[undo]\ndevice = "fast"']
        text += ['[temp]\ndevice = "fast"', '[log]\ndevice = "fast"\nsize = "1 GiB"']
        if design != "none":
            text.append(f'[cache]\ndevice = "fast"\nsize = "{self.arguments.cache >> 20} MiB"\ndesign = "{design}"')
        path = self.fast.parent / f"{database}-{design}.toml"
        path.write_text("\n".join(text) + "\n")
        return path

    def bench(self, design, workload, seconds):
        return json.loads(output(*self.command(design, workload, seconds), stderr=subprocess.DEVNULL))

    def command(self, design, workload, seconds):
        if workload == "tpcc":
            command = ["tpcc", "--data", self.data / "tpcc", "--warehouses", self.arguments.warehouses]
        else:
            command = ["ycsb", "--workload", workload, "--data", self.data / "ycsb", "--records", self.arguments.records]
        command += ["--clients", self.arguments.clients, "--seconds", seconds, "--config", self.configuration(design, workload)]
        return [self.arguments.entresol, "bench", *command, "--json"]

    def load(self):
        self.data.mkdir(parents=True, exist_ok=True)
        for database in {database_of(workload) for workload in self.arguments.workloads.split(",")}:
            (self.fast / database).mkdir(parents=True, exist_ok=True)
            self.bench("none", "tpcc" if database == "tpcc" else "c", 1)

    def warm(self, design, workload):
        self.take_cache_away(workload)
        self.bench(design, workload, self.arguments.warm_up)

    def take_cache_away(self, workload):
        for name in ("cache.tier", "cache-table.tier"):
            (self.fast / database_of(workload) / name).unlink(missing_ok=True)

    def measure(self, design, workload):
        report = self.bench(design, workload, self.arguments.seconds)
        response = report["response_us"]
        figures = {"per_second": report["throughput_per_s"], "p50_us": response["p50"], "p99_us": response["p99"]}
        flash = [tier["bytes_written_per_transaction"] for tier in report["tiers"]]
        return figures | {"flash_bytes_written": sum(flash) if flash else None, "report": report}


class Rocks:
    def __init__(self, arguments, slow):
        self.arguments, self.data, self.fast = arguments, slow / "rocksdb", arguments.fast / "rocksdb"

    def call(self, what, *more):
        options = [f"records={self.arguments.records}", f"wal={self.fast / 'wal'}", f"memory={self.arguments.memory}"]
        return output(self.arguments.driver, "rocksdb", what, self.data, *options, *more)

    def load(self):
        (self.fast / "cache").mkdir(parents=True, exist_ok=True)
        self.call("load")

    def bench(self, name, workload, seconds, warm_up):
        cache = [] if name == "rocksdb-none" else [f"cache={self.fast / 'cache'}", f"cache_size={self.arguments.cache}"]
        options = [f"workload={workload}", f"seconds={seconds}", f"warm_up={warm_up}", f"clients={self.arguments.clients}"]
        return json.loads(self.call("run", *cache, *options))

    def warm(self, name, workload):
        """Its cache is empty after each opening, so the measurement itself warms it up."""

    def measure(self, name, workload):
        return self.bench(name, workload, self.arguments.seconds, 4 * self.arguments.warm_up)


class Postgres:
    """Its server and the page cache that it uses have --memory of shared buffers, as much again, and 8 MiB for each client."""

    def __init__(self, arguments, slow):
        self.arguments, self.data, self.fast = arguments, slow / "postgresql", arguments.fast / "postgresql"
        self.tools = pathlib.Path(output("pg_config", "--bindir").strip())
        self.conninfo = f"host={self.fast} dbname=postgres user={RUN_AS}"

    def server(self, action, *more):
        text = f"echo $$ > {MEMORY}/cgroup.procs; exec su {RUN_AS} -c '{self.tools}/pg_ctl -w -D {self.data} -l {self.fast}/log {action} {' '.join(more)}'"
        run("sh", "-c", text, stdout=subprocess.DEVNULL)

    def call(self, what, *options):
        return output(self.arguments.driver, "postgresql", what, self.conninfo, f"records={self.arguments.records}", *options)

    def load(self):
        MEMORY.mkdir(exist_ok=True)
        (MEMORY / "memory.limit_in_bytes").write_text(str(2 * self.arguments.memory + self.arguments.clients * (8 << 20)))
        for folder in (self.data, self.fast):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.chown(folder, RUN_AS, RUN_AS)
        run("su", RUN_AS, "-c", f"{self.tools}/initdb -D {self.data} -X {self.fast}/wal", stdout=subprocess.DEVNULL)
        settings = {"shared_buffers": f"'{self.arguments.memory >> 20}MB'", "max_wal_size": "'4GB'", "max_connections": 200}
        settings |= {"listen_addresses": "''", "unix_socket_directories": f"'{self.fast}'", "autovacuum": "off"}
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.server("start")
        self.call("load")
        self.server("stop", "-m", "fast")

    def warm(self, name, workload):
        """It has no cache beside memory."""

    def measure(self, name, workload):
        self.server("start")
        try:
            options = [f"workload={workload}", f"seconds={self.arguments.seconds}", f"warm_up={self.arguments.warm_up}"]
            return json.loads(self.call("run", *options, f"clients={self.arguments.clients}"))
        finally:
            self.server("stop", "-m", "fast")


def parse(description, add=lambda parser: None):
    """What the command line says; `add` adds options of one command."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", type=pathlib.Path, default=pathlib.Path("flash-tier.data"), help="folder on the fast disk")
    parser.add_argument("--entresol", type=pathlib.Path, default=HERE / "../../target/release/entresol", help="the program")
    parser.add_argument("--records", type=count, default=7_000_000, help="records of 1,000 bytes")
    parser.add_argument("--memory", type=size, default=512 << 20)
    parser.add_argument("--cache", type=size, default=3 << 30)
    parser.add_argument("--iops", type=count, default=3_000, help="reads and writes a second of the slow volume")
    parser.add_argument("--clients", type=count, default=64)
    parser.add_argument("--seconds", type=count, default=40, help="of each measurement")
    parser.add_argument("--warm-up", type=count, default=40, help="seconds before it; four times as many for RocksDB")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--workloads", default="b,c", help="of YCSB: a, b, c; or tpcc")
    parser.add_argument("--warehouses", type=count, default=80, help="of TPC-C, about 100 MiB each")
    parser.add_argument("--configurations", default=",".join(DESIGNS + PEERS))
    parser.add_argument("--json", action="store_true")
    add(parser)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("loop devices and throttles need root")
    arguments.fast = arguments.fast.resolve()
    arguments.driver = arguments.fast / "ycsb"
    shutil.rmtree(arguments.fast, ignore_errors=True)
    arguments.fast.mkdir(parents=True)
    os.chmod(arguments.fast, 0o755)
    return arguments


def engine_of(name):
    return Rocks if name.startswith("rocksdb") else Postgres if name == "postgresql" else Entresol


def measure_all(arguments, slow):
    names = arguments.configurations.split(",")
    engines = {kind: kind(arguments, slow.mount) for kind in map(engine_of, names)}
    for engine in engines.values():
        print(f"loading {type(engine).__name__}", file=sys.stderr)
        engine.load()
    results = []
    for number in range(arguments.rounds):
        for workload in arguments.workloads.split(","):
            for name in names:
                if workload == "tpcc" and name in PEERS:
                    continue
                engine = engines[engine_of(name)]
                engine.warm(name, workload)
                try:
                    with slow.throttled():
                        found = engine.measure(name, workload)
                except subprocess.CalledProcessError as error:
                    if name not in PEERS:
                        raise
                    print(f"round {number + 1}, {workload}, {name}: gave up, {error.returncode}", file=sys.stderr)
                    continue
                results.append({"round": number + 1, "workload": workload, "configuration": name} | found)
                print(f"round {number + 1}, {workload}, {name}: {found['per_second']:,.0f}/s", file=sys.stderr)
    return results


def table(results, workloads, names):
    lines = []
    for workload in workloads:
        lines += [workload if workload == "tpcc" else f"ycsb {workload}", "configuration        per second     min..max   : none   p50 ms   p99 ms   flash B", "-" * 82]
        of = {name: [r for r in results if r["workload"] == workload and r["configuration"] == name] for name in names}
        rates = {name: [run["per_second"] for run in runs] for name, runs in of.items()}
        for name, runs in ((name, runs) for name, runs in of.items() if runs):
            base = "rocksdb-none" if name == "rocksdb" else "none"
            ratio = f"{statistics.median(rates[name]) / statistics.median(rates[base]):8.2f}" if rates.get(base) else "       -"
            middle = [statistics.median(run[key] for run in runs) / 1e3 for key in ("p50_us", "p99_us")]
            spread = f"{min(rates[name]):,.0f}..{max(rates[name]):,.0f}"
            written = [run["flash_bytes_written"] for run in runs if run.get("flash_bytes_written") is not None]
            flash = f"{statistics.median(written):9,.0f}" if written else "        -"
            lines.append(
                f"{name:18} {statistics.median(rates[name]):12,.0f} {spread:>14} {ratio} {middle[0]:8.2f} {middle[1]:8.1f} {flash}"
            )
        lines.append("")
    return "\n".join(lines)


def main():
    arguments = parse(__doc__)
    if any(engine_of(name) is not Entresol for name in arguments.configurations.split(",")):
        include = output("pg_config", "--includedir").strip()
        run("c++", "-O2", "-std=c++17", "-o", arguments.driver, HERE / "ycsb.cc", f"-I{include}", "-lrocksdb", "-lpq", "-lpthread")
    started = time.strftime("%Y-%m-%d %H:%M")
    with slow_volume(arguments) as slow:
        results = measure_all(arguments, slow)
    if arguments.json:
        print(json.dumps({"started": started, "results": results}))
    else:
        print(f"{started}, {arguments.records:,} records, {arguments.iops:,} reads and writes a second of the slow volume\n")
        print(table(results, arguments.workloads.split(","), arguments.configurations.split(",")))


if __name__ == "__main__":
    main()
