#!/usr/bin/env python3
"""One record updated, then a commit: Entresol, PostgreSQL and RocksDB on the same disk, in turns.

    apt install postgresql
    cargo build --release && (cd peers && cargo build --release)
    peers/update-commit.py [--clients 1,4,16,64] [--seconds 5] [--rounds 3] [--data DIR] [--fio]

100,000 records of 100 bytes in memory, each client updates one at random and commits durably, without a pause. Entresol's
clients are tasks (`entresol bench update-commit`, which also measures the device itself); PostgreSQL's are pgbench's, with a
prepared statement over a Unix socket, synchronous_commit = on; RocksDB's are threads with synced writes (`peers update-commit`),
each with records of its own. Every engine has its files in a directory of its own below --data, removed in the end. --fio adds
data-sync writes of 4 KiB by fio, one at a time.

PostgreSQL refuses to run as root: then it runs as the user 'postgres', for whom --data must be reachable.
"""

import argparse, glob, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS, SIZE = 100_000, 100


def call(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command[:4]))}...: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Entresol:
    def __init__(self, program, data):
        self.program, self.data = program, data / "entresol"

    def run(self, clients, seconds):
        report = json.loads(call([self.program, "bench", "update-commit", "--data", self.data, "--clients", clients,
                                  "--seconds", seconds, "--rounds", 1, "--json"]))
        point = report["points"][0]
        device = {"commits_per_s": point["device"]["writes_per_s"], "response_us": point["device"]["latency_us"]}
        return {"entresol": point, "  its device": device}

    def close(self):
        pass


class RocksDB:
    def __init__(self, program, data):
        self.program, self.data = program, data / "rocksdb"

    def run(self, clients, seconds):
        return {"rocksdb": json.loads(call([self.program, "update-commit", "--data", self.data, "--clients", clients,
                                            "--seconds", seconds]))[0]}

    def close(self):
        pass


class PostgreSQL:
    """A cluster of its own on a Unix socket."""

    def __init__(self, data):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]))
        if not found:
            sys.exit("error: PostgreSQL is not installed (apt install postgresql)")
        self.bin, self.data = pathlib.Path(found[-1]), data / "postgres"
        self.socket = pathlib.Path(tempfile.mkdtemp(prefix="update-commit-"))
        self.data.mkdir()
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.user:
            for path in (self.data, self.socket):
                shutil.chown(path, "postgres", "postgres")
        self.call("initdb", "-D", self.data / "cluster", "-A", "trust", "-U", "bench")
        options = f"-k {self.socket} -c listen_addresses='' -c shared_buffers=256MB -c synchronous_commit=on " \
                  "-c fsync=on -c max_connections=200 -c autovacuum=on -c max_wal_size=4GB"
        self.call("pg_ctl", "-D", self.data / "cluster", "-w", "-l", self.data / "log", "-o", options, "start")
        self.sql("CREATE TABLE record (id int PRIMARY KEY, count bigint, filler char(%d)) WITH (fillfactor = 50)" % (SIZE - 12))
        self.sql(f"INSERT INTO record SELECT i, 0, '' FROM generate_series(0, {RECORDS - 1}) i")
        self.sql("VACUUM ANALYZE record")
        self.script = self.data / "update.sql"
        self.script.write_text(f"\\set id random(0, {RECORDS - 1})\nUPDATE record SET count = count + 1 WHERE id = :id;\n")
        self.acknowledged = 0

    def call(self, program, *arguments):
        # A server that goes on in the background keeps the output open.
        with open(os.devnull, "w") as nothing:
            command = [*self.user, str(self.bin / program), *map(str, arguments)]
            if program == "pg_ctl":
                if subprocess.run(command, stdout=nothing, stderr=nothing, cwd="/").returncode:
                    sys.exit(f"error: pg_ctl failed; see {self.data / 'log'}")
                return ""
            return call(command, cwd="/")

    def sql(self, text):
        return self.call("psql", "-h", self.socket, "-U", "bench", "-d", "postgres", "-Atqc", text)

    def run(self, clients, seconds):
        common = ["-h", self.socket, "-U", "bench", "-n", "-M", "prepared", "-f", self.script, "-c", clients, "-j",
                  min(clients, 2), "postgres"]
        for stale in self.data.glob("times*"):
            stale.unlink()
        prefix = self.data / "times"
        warm = max(1, round(seconds / 5))
        out = self.call("pgbench", "-T", warm, *common[:-1], "postgres")
        self.count(out)
        out = self.call("pgbench", "-T", round(seconds), "-l", f"--log-prefix={prefix}", *common[:-1], "postgres")
        self.count(out)
        rate = next(float(line.split()[2]) for line in out.splitlines() if line.startswith("tps"))
        times = sorted(int(line.split()[2]) for path in self.data.glob("times*") for line in open(path))
        us = {"mean": statistics.fmean(times), "p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)]}
        return {"postgresql": {"commits_per_s": rate, "response_us": us}}

    def count(self, out):
        words = next(line for line in out.splitlines() if "actually processed" in line)
        self.acknowledged += int(words.split(":")[1].split("/")[0])

    def close(self):
        found = int(self.sql("SELECT sum(count) FROM record"))
        self.call("pg_ctl", "-D", self.data / "cluster", "-m", "fast", "-w", "stop")
        shutil.rmtree(self.socket, ignore_errors=True)
        if found != self.acknowledged:
            sys.exit(f"error: postgresql has {found} updates, {self.acknowledged} were acknowledged")


def fio(data, seconds):
    report = json.loads(call(["fio", "--name=sync", f"--filename={data / 'fio'}", "--rw=write", "--bs=4k", "--size=64m",
                              "--overwrite=1", "--direct=1", "--sync=dsync", "--ioengine=io_uring", "--iodepth=1",
                              "--time_based", f"--runtime={seconds}", "--output-format=json"]))
    (data / "fio").unlink()
    write = report["jobs"][0]["write"]
    share = write["lat_ns"] if "percentile" in write["lat_ns"] else write["clat_ns"]
    quantile = lambda name: share["percentile"][name] / 1e3
    us = {"mean": write["lat_ns"]["mean"] / 1e3, "p50": quantile("50.000000"), "p99": quantile("99.000000")}
    return {"  fio, depth 1": {"commits_per_s": write["iops"], "response_us": us}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,4,16,64")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=".", help="a directory on the disk that is to be measured")
    parser.add_argument("--engines", default="entresol,postgresql,rocksdb")
    parser.add_argument("--entresol", help="the program [default: target/release/entresol]")
    parser.add_argument("--peers", help="the program [default: peers/target/release/peers]")
    parser.add_argument("--fio", action="store_true")
    parser.add_argument("--json", action="store_true")
    terms = parser.parse_args()
    target = os.environ.get("CARGO_TARGET_DIR")
    entresol = terms.entresol or pathlib.Path(target or ROOT / "target") / "release/entresol"
    peers = terms.peers or pathlib.Path(target or ROOT / "peers/target") / "release/peers"
    data = pathlib.Path(tempfile.mkdtemp(prefix="update-commit-", dir=terms.data)).resolve()
    data.chmod(0o755)
    makers = {"entresol": lambda: Entresol(entresol, data), "postgresql": lambda: PostgreSQL(data),
              "rocksdb": lambda: RocksDB(peers, data)}
    engines = []
    found = {}
    try:
        for name in terms.engines.split(","):
            engines.append(makers[name]())
        for number in range(terms.rounds):
            for clients in map(int, terms.clients.split(",")):
                print(f"round {number + 1} of {terms.rounds}, {clients} clients", file=sys.stderr)
                for engine in engines:
                    for name, result in engine.run(clients, terms.seconds).items():
                        found.setdefault((clients, name), []).append(result)
                if terms.fio and clients == 1:
                    for name, result in fio(data, terms.seconds).items():
                        found.setdefault((clients, name), []).append(result)
    finally:
        for engine in engines:
            engine.close()
        shutil.rmtree(data, ignore_errors=True)
    median = lambda runs, pick: statistics.median(pick(run) for run in runs)
    rows = []
    for (clients, name), runs in found.items():
        figures = [median(runs, lambda run: run["commits_per_s"])]
        figures += [median(runs, lambda run, key=key: run["response_us"][key]) for key in ("mean", "p50", "p99")]
        rows.append({"clients": clients, "engine": name.strip(), "shown": name, "commits_per_s": figures[0],
                     "mean_us": figures[1], "p50_us": figures[2], "p99_us": figures[3],
                     "all_commits_per_s": [run["commits_per_s"] for run in runs]})
    for row in rows:
        ours = next((other for other in rows if (other["clients"], other["engine"]) == (row["clients"], "entresol")), None)
        row["ours_to_its"] = ours and ours["commits_per_s"] / row["commits_per_s"]
        row["our_p50_to_its"] = ours and ours["p50_us"] / row["p50_us"]
    if terms.json:
        print(json.dumps([{key: value for key, value in row.items() if key != "shown"} for row in rows], indent=2))
        return
    print(f"medians of {terms.rounds} rounds of {terms.seconds} s; ours : its, by rate and by median response")
    print(f"{'clients':>7} {'':15} {'commits/s':>10} {'mean us':>9} {'p50':>8} {'p99':>8} {'rate':>7} {'response':>9}")
    for row in rows:
        ratios = [f"{row[key]:.2f}" if row[key] else "" for key in ("ours_to_its", "our_p50_to_its")]
        print(f"{row['clients']:7} {row['shown']:15} {row['commits_per_s']:10,.0f} {row['mean_us']:9,.0f} {row['p50_us']:8,.0f} "
              f"{row['p99_us']:8,.0f} {ratios[0]:>7} {ratios[1]:>9}")


main()
