#!/usr/bin/env python3
"""How a flash cache comes back: Entresol is killed with its cache full, and opened again.

The volumes are those of measure.py. Each design warms its cache up without the throttle, runs with it for its usual rate, and runs
once more until it is killed. Then the database is opened again, and its throughput shown second by second. `cold` is dual-write whose
cache is taken away before that.

    ./restart.py                                       # as measure.py: 8 GiB of data, 512 MiB of memory, 3 GiB of cache
    ./restart.py --records 1,400,000 --memory 102MiB --cache 614MiB --workloads b
"""

import json
import subprocess
import sys
import time

from measure import Entresol, parse, slow_volume

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


def table(results):
    lines = ["workload  design          usual/s  opening s  first second/s   90 % after s", "-" * 74]
    for found in results:
        after = found["recovered_seconds"]
        shown = f"{after:12.0f}" if after else f"> {found['parts'][-1]['seconds']:10.0f}"
        first = found["parts"][0]["throughput_per_s"]
        lines.append(f"{found['workload']:9} {found['design']:14} {found['usual_per_second']:8,.0f} {found['opening_seconds']:10.2f} {first:15,.0f}   {shown}")
    return "\n".join(lines)


def main():
    arguments = parse(__doc__)
    names = [name for name in arguments.configurations.split(",") if name in DESIGNS] if "--configurations" in sys.argv else DESIGNS
    started, results = time.strftime("%Y-%m-%d %H:%M"), []
    with slow_volume(arguments) as slow:
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
