#!/usr/bin/env python3
"""How far predictions are off: configurations drawn by seed, each run on both clocks by 'entresol predict'.

Seven families (in memory; larger than memory; second-level caches, flash and NVEM; log, undo and temporary space on other devices; sweeps and
checkpoints; sorts and joins; a page server and its nodes over the loopback) on three kinds of devices:

  disk        the disk of --directory, as 'entresol calibrate' describes it
  throttled   a loop device on that disk, limited by the kernel (blkio, cgroup v1; needs root); described as the loop device is without
              the limit, with the limit added to the description
  described   files in memory (--memory) that show the delays of described devices

NVEM is a mapped file in memory that shows described delays, beside each of these. It has no write buffers: a database has none on what
loses its contents with the power, and msync of a file on a disk takes longer than NVEM.

A third of the configurations is held out: drawn by a seed of its own, and run only with --held-out, so that whoever works on the
models has not seen them. Every result is a line of the results file; a run that was interrupted, or whose --budget was spent, goes on
where it ended if it is started again. What the loopback takes is in the description of the disk, which is calibrated first.

    ./catalogue.py --directory /work/predictions                          # 31 configurations, for work on the models
    ./catalogue.py --directory /work/predictions --held-out               # these and the 15 that are held out
    ./catalogue.py --directory /work/predictions --held-out --table       # only the table of what is there, for BENCHMARKS.md
    ./catalogue.py --list --held-out                                      # what would be run
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.{}_iops_device"
# The kernel's blkio controller gives credit by slices of this length.
SLICE = "100 ms"
DEVICES = ["disk", "throttled", "described"]
# The size of the file that a calibration measures: that of the databases, for the host under a virtual machine keeps small files in memory.
SIZE = "128 MiB"
# What a described disk is described as.
DESCRIBED = "nvme-2026"
FAMILIES = ["in memory", "larger than memory", "caches", "placements", "sweeps", "sorts and joins", "nodes"]
CLIENTS = [1, 4, 16, 64, 256, 512]
# How many configurations a family has, of which the last third is held out; behind these, those of NVEM, of which the last is.
EACH = 6
OF_NVEM = 4
# What NVEM is described as.
NVEM = "rahm-1991:nvem"


def entresol_program():
    return os.environ.get("ENTRESOL", ROOT / "target/release/entresol")


def output(*command, seconds=600, **options):
    command = [str(part) for part in command]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, timeout=seconds, **options).stdout


# What is drawn.

def draw(family, number, seed, device):
    """One configuration of a family: the workload's words and the parts of its configuration file."""
    chance = random.Random(f"{family} {number} {seed}")
    if family == "caches" and number >= EACH:
        return in_nvem(chance, number - EACH)
    return {"in memory": in_memory, "larger than memory": larger, "caches": cached, "placements": placed,
            "sweeps": swept, "sorts and joins": spilled, "nodes": shared}[family](chance, device)


SETS = "".join(f'[partition.{name}]\norganization = "set"\n' for name in ["account", "branch", "teller"])
SETS += '[partition.history]\norganization = "arrivals"\nlocks = "none"\n'


def in_memory(chance, _):
    clients = chance.choice([1, 8, 64, 512])
    kind = chance.choice(["b-trees", "sets", "ycsb", "credit-card"])
    config = '[buffer]\nsize = "512 MiB"\n[log]\nsize = "256 MiB"\n'
    if kind == "ycsb":
        return ["ycsb", "--workload", chance.choice("abcf"), "--records", 50_000, "--clients", clients], config
    if kind == "credit-card":
        return ["credit-card", "--scale", 40_000, "--clients", clients], config
    return ["debit-credit", "--scale", 5, "--clients", clients], config + (SETS if kind == "sets" else "")


def beyond_memory(chance):
    clients = chance.choice(CLIENTS)
    kind = chance.choice(["debit-credit", "ycsb", "page-stream"])
    if kind == "debit-credit":
        return ["debit-credit", "--scale", 8, "--clients", clients]
    if kind == "ycsb":
        return ["ycsb", "--workload", chance.choice("abcf"), "--records", 80_000, "--clients", clients]
    return ["page-stream", "--stream", chance.choice(["tpc-c", "tpc-e", "uniform"]), "--pages", 12_000, "--clients", clients]


def larger(chance, _):
    return beyond_memory(chance), f'[buffer]\nsize = "{chance.choice([8, 16, 32])} MiB"\n[log]\nsize = "256 MiB"\n'


def cached(chance, _):
    design = chance.choice(["dual-write", "lazy-cleaning", "tac", "face", "frequency", "migrate-all"])
    config = f'[buffer]\nsize = "8 MiB"\n[log]\nsize = "256 MiB"\n[cache]\ndevice = "other"\nsize = "{chance.choice([16, 32])} MiB"\n'
    return beyond_memory(chance), config + f'design = "{design}"\n'


def in_nvem(chance, place):
    """A cache or a log in NVEM: a file in memory whose copies take what the description says, and hold the CPU."""
    what = ["cache", "log", "log", "cache"][place % 4]
    config = '[buffer]\nsize = "8 MiB"\n'
    if what == "log":
        return beyond_memory(chance), config + '[log]\ndevice = "nvem"\nsize = "64 MiB"\n'
    config += '[log]\nsize = "256 MiB"\n'
    config += f'[cache]\ndevice = "nvem"\nsize = "{chance.choice([16, 32])} MiB"\n'
    return beyond_memory(chance), config + f'design = "{chance.choice(["migrate-all", "migrate-modified", "lazy-cleaning"])}"\n'


def placed(chance, _):
    what = chance.choice(["log", "log", "undo", "temp"])
    if what == "temp":
        words, config = spilled(chance, None)
        return words, config + '[temp]\ndevice = "other"\n'
    config = f'[buffer]\nsize = "16 MiB"\n[{what}]\ndevice = "other"\n'
    config += 'size = "256 MiB"\n' if what == "log" else '[log]\nsize = "256 MiB"\n'
    return beyond_memory(chance), config


def swept(chance, _):
    clients = chance.choice([8, 64, 512])
    config = '[buffer]\nsize = "256 MiB"\n[log]\nsize = "256 MiB"\n'
    if chance.random() < 0.25:
        return ["debit-credit", "--scale", 5, "--clients", clients], config + '[checkpoint]\ninterval = "1 s"\n'
    strategy = chance.choice(["fuzzy", "acbw", "accou", "calc"])
    interval = chance.choice(["0 s", "1 s", "off"])
    config += f'[checkpoint]\nsets = "{strategy}"\nsweep_interval = "{interval}"\n' + SETS
    return ["debit-credit", "--scale", 5, "--clients", clients], config


def spilled(chance, _):
    size = chance.choice([64, 128, 256])
    memory = size // chance.choice([2, 4, 8])
    words = [chance.choice(["sort", "join --method hash", "join --method sort-merge"])]
    words = words[0].split() + ["--size", f"{size}MiB", "--memory", f"{max(memory, 16)}MiB"]
    return words, '[buffer]\nsize = "16 MiB"\n[log]\nsize = "4 MiB"\n[checkpoint]\nlog_bytes = "off"\n'


def shared(chance, _):
    """A page server and two nodes over the loopback."""
    words = ["page-server", "--scale", chance.choice([1, 5]), "--nodes", 2]
    words += ["--clients", chance.choice([1, 1, 4, 16])]
    config = f'[buffer]\nsize = "{chance.choice([8, 128])} MiB"\n[log]\nsize = "256 MiB"\n'
    config += f'[nodes]\nbuffer = "{chance.choice([4, 128])} MiB"\nalgorithm = "{chance.choice(["cbl", "fwd", "fwd-h", "adaptive"])}"\n'
    return words, config


def catalogue(arguments):
    """All configurations in their order: family by family, each on the devices in turn."""
    found = []
    for family in arguments.families.split(","):
        place = FAMILIES.index(family)
        for number in range(EACH + OF_NVEM if family == "caches" else EACH):
            held_out = 4 <= number < EACH or number == EACH + OF_NVEM - 1
            device = DEVICES[(number + place) % 3]
            if (held_out and not arguments.held_out) or device not in arguments.devices.split(","):
                continue
            seed = arguments.held_out_seed if held_out else arguments.seed
            words, config = draw(family, number, seed, device)
            name = f"{family.replace(' ', '-')}-{number + 1}-{seed}"
            found.append({"name": name, "family": family, "device": device, "held_out": held_out,
                          "words": [str(word) for word in words], "config": config})
    return found


# Where it runs.

class Ground:
    """The directories of the three kinds of devices, and their descriptions."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.disk = arguments.directory
        self.memory = arguments.memory / "entresol-predictions"
        self.image, self.mount = self.disk / "slow.img", self.disk / "slow"
        self.loop = None

    def open(self, devices):
        for directory in [self.disk, self.memory]:
            directory.mkdir(parents=True, exist_ok=True)
        if "throttled" in devices:
            self.mount.mkdir(exist_ok=True)
            self.clear()
            with open(self.image, "wb") as file:
                file.truncate(8 << 30)
            self.loop = output("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
            output("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.loop)
            output("mount", self.loop, self.mount)
            self.number = pathlib.Path(f"/sys/block/{os.path.basename(self.loop)}/dev").read_text().strip()

    def clear(self):
        """Takes away what a run that was killed has left."""
        if os.path.ismount(self.mount):
            output("umount", self.mount)
        if self.image.exists():
            for line in output("losetup", "--associated", self.image).splitlines():
                output("losetup", "--detach", line.split(":")[0])

    def close(self):
        if self.loop:
            self.limit(0)
            subprocess.run(["umount", str(self.mount)], check=False)
            subprocess.run(["losetup", "--detach", self.loop], check=False)
            self.image.unlink(missing_ok=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def limit(self, iops):
        for way in ("read", "write"):
            pathlib.Path(THROTTLE.format(way)).write_text(f"{self.number} {iops}")

    def data(self, device):
        place = {"disk": self.disk, "throttled": self.mount, "described": self.memory}[device]
        return place / "data"

    def configuration(self, entry):
        """The file's text: the devices in front. The device 'disk' is the database's own directory."""
        device, other = entry["device"], None
        text = ""
        if device == "described":
            text += f'[device.disk]\ndescribed = "{DESCRIBED}"\n'
            other = (self.memory / "other", "do-2011:ssd")
        elif device == "throttled":
            other = (self.disk / "other", None)
        else:
            other = (self.memory / "other", "nvme-2026")
        if '"other"' in entry["config"]:
            text += f'[device.other]\npath = "{other[0]}"\n'
            text += f'described = "{other[1]}"\n' if other[1] else ""
        if '"nvem"' in entry["config"]:
            text += f'[device.nvem]\npath = "{self.memory / "nvem"}"\nkind = "mapped"\ndescribed = "{NVEM}"\n'
        path = self.disk / f"{entry['name']}.toml"
        path.write_text(text + entry["config"])
        return path

    def hardware(self, device):
        return self.disk / f"hardware-{device}.toml"

    def calibrate(self, device):
        """Describes a device that has no description yet."""
        own = self.hardware("disk")
        calibrate = [entresol_program(), "calibrate"]
        extent = [] if self.arguments.calibrate == "full" else ["--quick"]
        if not own.exists():
            say("describing this machine")
            output(*calibrate, self.disk, *extent, "--size", SIZE, "--output", own, seconds=900)
        # A described device needs no more of this machine than its CPU, which has less to do for a file in memory; the devices
        # come from the configuration.
        if device == "described" and not self.hardware("described").exists():
            say("describing the memory")
            output(*calibrate, self.memory, "--described", DESCRIBED, *extent, "--size", SIZE, "--output", self.hardware("described"),
                   seconds=900)
        slow = self.hardware("throttled")
        if device == "throttled" and not slow.exists():
            say("describing the loop device")
            unlimited = self.disk / "loop.toml"
            output(*calibrate, self.mount, *extent, "--size", SIZE, "--output", unlimited, seconds=900)
            rate = self.arguments.iops
            limits = ", ".join(f'{{ operations = {rate}, of = "{way}", slice = "{SLICE}", flushes = {str(way == "writes").lower()} }}' for way in ["reads", "writes"])
            text = device_section(unlimited.read_text()).replace("[device.disk]\n", f"[device.disk]\nlimits = [{limits}]\n", 1)
            other = device_section(own.read_text()).replace("device.disk", "device.other")
            cpu = unlimited.read_text().split("\n[device.")[0]
            slow.write_text(f"{cpu}\n{text}\n{other}\n{network_section(own.read_text())}")


def device_section(text):
    return "[device." + text.split("\n[device.", 1)[1].split("\n[network.")[0]


def network_section(text):
    return "".join("[network." + part for part in text.split("\n[network.")[1:])


def say(text):
    print(text, file=sys.stderr, flush=True)


# Running.

def run(ground, entry, arguments):
    """The comparison of one configuration."""
    data, configuration = ground.data(entry["device"]), ground.configuration(entry)
    places = [data, ground.disk / "other", ground.memory / "other", ground.memory / "nvem"]
    for directory in places:
        shutil.rmtree(directory, ignore_errors=True)
    words = [*entry["words"], "--data", data, "--config", configuration]
    is_spill = entry["words"][0] in ("sort", "join")
    if not is_spill:
        # The load is not what is predicted: without the limit it is quicker.
        output(entresol_program(), "bench", *words, "--transactions", 1, seconds=300, stderr=subprocess.PIPE)
        words += ["--seconds", arguments.seconds]
    if entry["device"] == "throttled":
        ground.limit(arguments.iops)
    try:
        hardware = ground.hardware(entry["device"])
        words += ["--hardware", hardware, "--rounds", arguments.rounds, "--json"]
        found = json.loads(output(entresol_program(), "predict", *words, seconds=arguments.at_most, stderr=subprocess.PIPE))
        return {key: found[key] for key in ["workload", "figures", "probes", "rounds", "virtual_wall_seconds",
                                            "real_wall_seconds", "notes"]}
    finally:
        if entry["device"] == "throttled":
            ground.limit(0)
        for directory in places:
            shutil.rmtree(directory, ignore_errors=True)


def known(arguments):
    file = arguments.directory / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return {line["name"]: line for line in map(json.loads, lines)}


def run_all(arguments, entries):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began, done = time.monotonic(), known(arguments)
    left = [entry for entry in entries if "comparison" not in done.get(entry["name"], {})]
    if not left:
        return
    ground = Ground(arguments)
    with contextlib.ExitStack() as stack:
        stack.callback(ground.close)
        devices = {entry["device"] for entry in left}
        ground.open(devices)
        # Each device's configurations directly behind its calibration: the host under a machine is not the same an hour later.
        left.sort(key=lambda entry: DEVICES.index(entry["device"]))
        for count, entry in enumerate(left):
            if time.monotonic() - began > arguments.budget * 60:
                say(f"the budget is spent: {len(left) - count} of {len(entries)} are left; start again to go on")
                return
            ground.calibrate(entry["device"])
            say(f"{count + 1} of {len(left)}: {entry['name']} on {entry['device']}")
            line = {**entry, "date": time.strftime("%Y-%m-%d %H:%M"), "load": os.getloadavg()[0]}
            try:
                line["comparison"] = run(ground, entry, arguments)
            except subprocess.CalledProcessError as error:
                line["failure"] = (error.stderr or "").strip().splitlines()[-1:] or [str(error)]
            except subprocess.TimeoutExpired:
                line["failure"] = ["took too long"]
            with open(arguments.directory / "results.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


# The table.

def share(values, part):
    values = sorted(values)
    return values[max(0, math.ceil(part * len(values)) - 1)]


def figure(line, *keys):
    figures = line["comparison"]["figures"]
    return next((figures[key] for key in keys if key in figures), None)


RATE, MEAN, P99 = ("throughput_per_s", "rows_per_s"), ("response_us.mean", "time_us"), ("response_us.p99",)


def percent(value):
    return "-" if value is None else f"{value * 100:+.0f} %"


def number(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def table(entries, done):
    rows = ["| family | device | configuration | here, /s | its runs | predicted | error | mean | p99 | held out |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for entry in entries:
        line = done.get(entry["name"])
        if not line:
            continue
        words = " ".join(line["words"]).replace("--", "")
        first = f"| {line['family']} | {line['device']} | {words}{config_words(line['config'])} |"
        if "comparison" not in line:
            rows.append(f"{first} failed: {line['failure'][0]} | | | | | | |")
            continue
        rate, mean, p99 = figure(line, *RATE), figure(line, *MEAN), figure(line, *P99)
        spread = rate["spread"] and " to ".join(percent(end) for end in rate["spread"])
        rows.append(f"{first} {number(rate['median'])} | {spread or '-'} | {number(rate['predicted'])} | {percent(rate['error'])} "
                    f"| {percent(mean['error'])} | {percent(p99 and p99['error'])} | {'yes' if line['held_out'] else ''} |")
    return rows


def config_words(config):
    """What a configuration says beside sizes of logs: short, on one line."""
    short = [part for part in config.replace(SETS, "sets\n").splitlines() if part and part != "sets"]
    section, words = "", ["sets"] if SETS in config else []
    for part in short:
        if part.startswith("["):
            section = part.strip("[]")
        elif (section, part.split(" ")[0]) not in {("log", "size"), ("checkpoint", "log_bytes")}:
            words.append(f"{section} {part.split(' = ')[0]} {part.split(' = ')[1]}".replace('"', ""))
    return "; " + ", ".join(words) if words else ""


def summary(lines):
    rows = ["| device | configurations | throughput: median, 90 % | mean response | p99 | within the runs' spread |",
            "| --- | --- | --- | --- | --- | --- |"]
    groups = [(device, held_out) for device in DEVICES for held_out in (False, True)]
    for device, held_out in groups:
        group = [line for line in lines if line["device"] == device and line["held_out"] == held_out]
        if not group:
            continue
        cells = [f"{device}{', held out' if held_out else ''}", str(len(group))]
        for keys in (RATE, MEAN, P99):
            found = [figure(line, *keys) for line in group]
            errors = [abs(one["error"]) for one in found if one and one["error"] is not None]
            cells.append(f"{share(errors, 0.5) * 100:.0f} %, {share(errors, 0.9) * 100:.0f} %" if errors else "-")
        inside = sum(1 for line in group if figure(line, *RATE)["is_within_spread"])
        rows.append("| " + " | ".join([*cells, f"{inside} of {len(group)}"]) + " |")
    return rows


def explained(line):
    """Where the error of the mean comes from: the part of the response that is furthest off, and what the devices were like."""
    figures = line["comparison"]["figures"]
    names = {"cpu": "CPU, and waiting for it", "lock_wait": "locks", "read_wait": "reads", "write_wait": "writes", "commit_wait": "commit"}
    parts = [(figures[f"composition_us.{key}"]["error"], name) for key, name in names.items() if f"composition_us.{key}" in figures]
    parts = [(error, name) for error, name in parts if error is not None]
    text = f"throughput {percent(figure(line, *RATE)['error'])}, mean {percent(figure(line, *MEAN)['error'])}"
    if parts:
        error, name = max(parts, key=lambda part: abs(part[0]))
        text += f", of which {percent(error)} of the mean are {name}"
    cpu = figures.get("cpu_us_per_transaction")
    if cpu and cpu["error"] is not None:
        text += f"; CPU of a transaction {percent(cpu['error'])}"
    for key, found in figures.items():
        if key.startswith("io.") and found["error"] is not None and abs(found["error"]) > 0.1:
            text += f"; {key.removeprefix('io.').replace('.', ': ')} {percent(found['error'])} in number"
    for probe in line["comparison"]["probes"]:
        rates = [look["operations_per_s"] for look in probe["looks"]]
        off = probe["described"]["operations_per_s"] / statistics.median(rates) - 1
        spread = (max(rates) - min(rates)) / statistics.median(rates)
        text += f"; '{probe['device']}' is described {percent(off)} as fast as the looks at it beside the runs, which spread by {spread * 100:.0f} %"
    return text


def print_tables(arguments, entries):
    done = known(arguments)
    lines = [done[entry["name"]] for entry in entries if "comparison" in done.get(entry["name"], {})]
    print("\n".join(table(entries, done)))
    if not lines:
        return
    print("\nErrors without their signs:\n")
    print("\n".join(summary(lines)))
    worst = sorted(lines, key=lambda line: -abs(figure(line, *RATE)["error"] or 0))[:5]
    print("\nThe worst:\n")
    for line in worst:
        print(f"- {line['family']} on {line['device']}, {' '.join(line['words']).replace('--', '')}: {explained(line)}.")
    quick = [line["comparison"] for line in lines if (figure(line, *RATE)["median"] or 0) < 10_000]
    ratios = [found["real_wall_seconds"] / found["virtual_wall_seconds"] for found in quick]
    if ratios:
        print(f"\nBelow 10,000/s a virtual run was {statistics.median(ratios):.1f} times as fast as a real one with its opening (median).")
    loads = [line["load"] for line in lines]
    print(f"\n{min(line['date'] for line in lines)} to {max(line['date'] for line in lines)}; load average {min(loads):.1f} to {max(loads):.1f} "
          f"on {os.cpu_count()} processors; {lines[0]['comparison']['rounds']} runs of {arguments.seconds} s each.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("predictions.data"), help="on the disk to be predicted; keeps the results")
    parser.add_argument("--memory", type=pathlib.Path, default=pathlib.Path("/dev/shm"), help="a directory in memory")
    parser.add_argument("--held-out", action="store_true", help="also what was not looked at while models were made")
    parser.add_argument("--seed", type=int, default=1, help="draws what is known")
    parser.add_argument("--held-out-seed", type=int, default=94_939, help="draws what is held out")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--iops", type=int, default=4_000, help="reads, and writes, per second of the throttled device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a run")
    parser.add_argument("--at-most", type=float, default=120.0, help="seconds of one configuration")
    parser.add_argument("--budget", type=float, default=22.0, help="minutes, after which no further configuration is begun")
    parser.add_argument("--calibrate", choices=["quick", "full"], default="quick")
    parser.add_argument("--list", action="store_true", help="what would be run")
    parser.add_argument("--table", action="store_true", help="runs nothing")
    arguments = parser.parse_args()
    arguments.directory = arguments.directory.absolute()
    entries = catalogue(arguments)
    if arguments.list:
        for entry in entries:
            print(entry["name"], entry["device"], " ".join(entry["words"]) + config_words(entry["config"]), sep=" | ")
        return
    if not arguments.table:
        run_all(arguments, entries)
    print_tables(arguments, entries)


main()
