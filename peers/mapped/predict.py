#!/usr/bin/env python3
"""Debit-Credit with its log and small partitions in mapped memory against all on disk: measured here, and predicted.

    peers/mapped/predict.py [DIR]      DIR (mapped.data) is made on the disk to be measured, and removed

The prediction is the same engine with the same configuration under the virtual clock, on this-machine.toml, which this
script writes first: what 'entresol calibrate --quick' finds, with a described device for the mapped memory. Nothing in it
comes from the runs that are predicted.

Settings, from the environment: SCALE (10), SECONDS of each run (4), ROUNDS (3, medians are taken), DESCRIBE (1; 0 takes
this-machine.toml as it is).
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MACHINE = HERE / "this-machine.toml"
PLACEMENTS = {"all on disk": "all-on-disk.toml", "log, branch, teller mapped": "mapped.toml"}
CLIENTS = [1, 64]


def setting(name, default):
    return type(default)(os.environ.get(name, default))


def entresol(*arguments):
    binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/entresol"
    run = subprocess.run([binary, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, run.args))} failed")
    return run.stdout


def bench(data, configuration, clients, *more):
    arguments = ["--data", data, "--config", configuration, "--clients", clients, "--scale", setting("SCALE", 10)]
    return json.loads(entresol("bench", "debit-credit", *arguments, *more, "--json"))


def seconds():
    return ["--seconds", setting("SECONDS", 4.0)]


def median(reports):
    rate = statistics.median(report["throughput_per_s"] for report in reports)
    mean = statistics.median(report["response_us"]["mean"] for report in reports)
    cpu = statistics.median(report["cpu_us_per_transaction"] for report in reports)
    return rate, mean, cpu


def describe(data):
    """Writes this-machine.toml."""
    print("describing this machine", file=sys.stderr)
    text = json.loads(entresol("calibrate", data, "--quick", "--size", "256 MiB", "--json"))["description"]
    nvem = [
        "\n# There is no non-volatile memory here: it is described, as in mapped.toml.",
        '[device.nvem]\nmedium = { servers = 1, service = "50 us" }\nsynchronous = true\nalignment = "64 B"\natomic_write = "any"',
    ]
    MACHINE.write_text(text.rstrip() + "\n" + "\n".join(nvem) + "\n")


def measure(data):
    """What each placement gives here, by number of clients. The rounds take turns: a shared disk changes by the minute."""
    reports = {}
    for number in range(setting("ROUNDS", 3)):
        for placement, file in PLACEMENTS.items():
            print(f"measuring, round {number + 1}: {placement}", file=sys.stderr)
            for clients in CLIENTS:
                report = bench(data / file, HERE / file, clients, *seconds())
                reports.setdefault((placement, clients), []).append(report)
    return {key: median(runs) for key, runs in reports.items()}


def predict():
    answers = {}
    for placement, file in PLACEMENTS.items():
        for clients in CLIENTS:
            print(f"predicting: {placement}, {clients} clients", file=sys.stderr)
            report = bench("described", HERE / file, clients, "--hardware", MACHINE, "--transactions", 600_000)
            answers[placement, clients] = median([report])
    return answers


def main():
    data = Path(sys.argv[1] if len(sys.argv) > 1 else "mapped.data").absolute()
    memory = Path(re.search(r'path = "(.*)"', (HERE / "mapped.toml").read_text())[1])
    for directory in [data, memory]:
        if directory.exists():
            sys.exit(f"error: '{directory}' exists; remove it or name another")
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    load = os.getloadavg()[0]
    try:
        data.mkdir()
        if setting("DESCRIBE", 1):
            describe(data)
        measured = measure(data)
    finally:
        for directory in [data, memory]:
            shutil.rmtree(directory, ignore_errors=True)
    predicted = predict()
    print(MACHINE.read_text())
    print(f"Load average at the start: {load:.1f} on {os.cpu_count()} processors"
          + (": too busy, durable writes wait for the kernel's time slice\n" if load > 1.0 else "\n"))
    print("| placement | clients | measured tx/s | predicted | ratio | measured mean | predicted | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for key, (rate, mean, _) in measured.items():
        rate_predicted, mean_predicted, _ = predicted[key]
        print(f"| {key[0]} | {key[1]} | {rate:,.0f} | {rate_predicted:,.0f} | {rate_predicted / rate:.2f} "
              f"| {mean:,.1f} us | {mean_predicted:,.1f} us | {mean_predicted / mean:.2f} |")


main()
