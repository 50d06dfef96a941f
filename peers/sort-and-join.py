#!/usr/bin/env python3
"""External sort and hash join beside DuckDB: the same numbers of rows of the same size with the same memory, in turns.

    pip install duckdb pyarrow
    cargo build --release
    peers/sort-and-join.py [--size 4GiB] [--sort-memory 256MiB] [--join-memory 1GiB] [--rounds 3] [--data DIR]

Both make their rows while they run: a random key of 8 bytes and 92 bytes of other random numbers, which DuckDB has in
12 columns of fixed width. A join's right rows have distinct keys and every left row has one right row. All answers are
taken: in DuckDB as Arrow batches, one at a time, in Entresol row by row, with all bytes looked at.

DuckDB's temporary files go through the page cache, which its memory limit does not count; Entresol's do not. With
--cgroup DuckDB runs in a control group whose memory, page cache included, is limited to the operation's memory and
256 MiB for the program itself (needs root).
"""

import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile

ROW = 100
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a DuckDB of a control group may use beside the memory limit: the interpreter, libraries, and Arrow batches.
BESIDE = 256 << 20
# Where memory is limited: cgroup version 1 and 2.
CGROUPS = [(pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (pathlib.Path("/sys/fs/cgroup"), "memory.max")]


def size(text):
    for unit in ("GiB", "MiB", "KiB", "B"):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * UNITS[unit])
    return int(text)


def columns(source):
    """Eleven columns of 8 bytes and one of 4."""
    others = [f"hash({source} + {n} * 1000003) AS v{n}" for n in range(1, 12)]
    return ", ".join([*others, f"(hash({source} + 77) >> 32)::UINTEGER AS v12"])


def duckdb_run(arguments):
    """In a process of its own, so that its memory and its CPU time are its own. Prints JSON."""
    import duckdb, resource, time

    operation, rows, memory, threads, directory = arguments
    rows, memory, threads = int(rows), int(memory), int(threads)
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = '{memory // 1024}KiB'")
    connection.execute(f"SET temp_directory = '{directory}'")
    if operation == "join":
        connection.execute("SET preserve_insertion_order = false")
    if threads:
        connection.execute(f"SET threads = {threads}")
    if operation == "sort":
        query = f"SELECT hash(i) AS k, {columns('i')} FROM range({rows}) t(i) ORDER BY k"
    else:
        half = rows // 2
        left = f"SELECT hash((hash(i + 5) % {half})::BIGINT) AS k, {columns('i')} FROM range({half}) t(i)"
        right = f"SELECT hash(i) AS k, {columns('i + 13')} FROM range({half}) t(i)"
        query = f"SELECT l.*, r.* EXCLUDE (k) FROM ({left}) l JOIN ({right}) r ON l.k = r.k"
    began = time.monotonic()
    reader = connection.sql(query).to_arrow_reader(65536)
    found, last, ordered = 0, -1, True
    for batch in reader:
        if batch.num_rows == 0:
            continue
        found += batch.num_rows
        if operation == "sort":
            ordered = ordered and last <= batch.column(0)[0].as_py()
            last = batch.column(0)[batch.num_rows - 1].as_py()
    seconds = time.monotonic() - began
    expected = rows if operation == "sort" else rows // 2
    assert found == expected and ordered, f"{found} of {expected} rows"
    usage = resource.getrusage(resource.RUSAGE_SELF)
    io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    print(json.dumps({"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "written": int(io["write_bytes"]),
                      "rss": usage.ru_maxrss * 1024}))


def duckdb(operation, rows, memory, threads, data, cgroup):
    directory = tempfile.mkdtemp(prefix="duckdb-", dir=data)
    command = [sys.executable, __file__, "--duckdb", operation, str(rows), str(memory), str(threads), directory]
    group = None
    try:
        if cgroup:
            group, limit = next((base / "entresol-peer", limit) for base, limit in CGROUPS if (base / "cgroup.procs").exists())
            group.mkdir(exist_ok=True)
            (group / limit).write_text(str(memory + BESIDE))
            command = ["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec \"$@\"", "sh", *command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"failure": (done.stderr.strip().splitlines() or ["killed"])[-1]}
        return json.loads(done.stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if group:
            group.rmdir()


def entresol(program, operation, rows, memory, data, cluster):
    directory = tempfile.mkdtemp(prefix="entresol-", dir=data)
    method, name = (["--method", "sort-merge"], "join") if operation == "sort-merge join" else ([], operation)
    command = [program, "bench", name, *method, "--rows", str(rows), "--row-size", str(ROW), "--memory", str(memory),
               "--data", directory, "--json", *(["--cluster-size", cluster] if cluster else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"failure": done.stderr.strip()}
        report = json.loads(done.stdout)
        return {"seconds": report["seconds"], "cpu": report["cpu_seconds"], "written": report["spilled_bytes"],
                "device": report["device_seconds"]}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size, default=size("1GiB"))
    parser.add_argument("--sort-memory", type=size, default=size("256MiB"))
    parser.add_argument("--join-memory", type=size, default=size("1GiB"))
    parser.add_argument("--cluster-size", help="of Entresol's temporary space")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=".", help="both put their temporary files below this directory")
    parser.add_argument("--only", choices=["sort", "join", "sort-merge join"])
    parser.add_argument("--cgroup", action="store_true", help="count DuckDB's page cache, too")
    terms = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = str(target / "release" / "entresol")
    rows = terms.size // ROW
    print(f"{rows:,} rows of {ROW} bytes, {terms.size / (1 << 30):.2f} GiB; medians of {terms.rounds} rounds")
    print(f"{'':34} {'memory':>9} {'wall s':>8} {'CPU s':>8} {'written':>10} {'over device':>12}")
    for operation, memory in (("sort", terms.sort_memory), ("join", terms.join_memory),
                              ("sort-merge join", terms.join_memory)):
        if terms.only not in (None, operation):
            continue
        contenders = {"entresol": lambda: entresol(program, operation, rows, memory, terms.data, terms.cluster_size)}
        if operation != "sort-merge join":
            for threads, name in ((0, "duckdb"), (1, "duckdb, 1 thread")):
                contenders[name] = lambda threads=threads: duckdb(
                    operation, rows, memory, threads, terms.data, terms.cgroup)
        found = {name: [] for name in contenders}
        for _ in range(terms.rounds):
            for name, run in contenders.items():
                found[name].append(run())
        device = statistics.median([run["device"] for run in found["entresol"] if "device" in run] or [float("nan")])
        for name, runs in found.items():
            failed = [run["failure"] for run in runs if "failure" in run]
            if failed:
                print(f"{operation + ', ' + name:34} {memory >> 20:5} MiB  failed: {failed[0][:120]}")
                continue
            median = lambda key: statistics.median(run[key] for run in runs)
            print(f"{operation + ', ' + name:34} {memory >> 20:5} MiB {median('seconds'):8.2f} {median('cpu'):8.2f} "
                  f"{median('written') / (1 << 20):6.0f} MiB {median('seconds') / device:12.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--duckdb"]:
        duckdb_run(sys.argv[2:])
    else:
        main()
