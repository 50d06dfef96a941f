#!/bin/sh
# Uniform point reads from a database larger than its buffer, beside fio on the same file: pages of the same size (8 KiB, the
# default), as many outstanding, direct, io_uring. Both take turns, and medians are compared, because a shared disk changes
# from one minute to the next.
#
#   peers/point-reads.sh [DIR]      DIR is kept; 8 GiB of accounts are loaded if it is missing
#
# Settings: SCALE (branches of 100,000 accounts), BUFFER, OUTSTANDING, TIME (seconds of each run), ROUNDS.
set -eu

data=${1:-point-reads.data}
: "${SCALE:=700}" "${BUFFER:=1GiB}" "${OUTSTANDING:=64}" "${TIME:=5}" "${ROUNDS:=5}"

for tool in fio python3; do
    command -v "$tool" > /dev/null || { echo "error: '$tool' is not installed" >&2; exit 1; }
done
cd "$(dirname "$0")/.."
cargo build --release --quiet
entresol="${CARGO_TARGET_DIR:-target}/release/entresol"
case $data in /*) ;; *) data="$OLDPWD/$data" ;; esac

# Key paths of a JSON document on standard input, separated by spaces.
figures() {
    python3 -c '
import json, sys
document = json.load(sys.stdin)
for path in sys.argv[1:]:
    value = document
    for key in path.split("/"):
        value = value[int(key) if isinstance(value, list) else key]
    print(value, end=" ")' "$@"
}

engine() {
    report=$("$entresol" bench point-reads --data "$data" --buffer "$BUFFER" --outstanding "$OUTSTANDING" --json "$@")
    echo "$report" | figures io_per_s/disk/reads throughput_per_s hit_ratio/account cpu_us_per_transaction
}

device() {
    report=$(fio --name=reads --filename="$data/account.pages" --readonly --rw=randread --bs=8k \
        --iodepth="$OUTSTANDING" --ioengine=io_uring --direct=1 --norandommap --randrepeat=0 --time_based --runtime="$TIME" \
        --output-format=json)
    echo "$report" | figures jobs/0/read/iops
}

# Loads the database, and fails here if it has another scale.
engine --scale "$SCALE" --seconds 0.1 > /dev/null

# A virtual disk answers from its host's memory what was read lately: all of the file, or each run would find other luck.
echo "reading the file once" >&2
dd if="$data/account.pages" of=/dev/null bs=4M iflag=direct 2> /dev/null

rounds=$(mktemp)
trap 'rm -f "$rounds"' EXIT
for round in $(seq "$ROUNDS"); do
    echo "round $round of $ROUNDS" >&2
    { device; engine --seconds "$TIME"; device; echo; } >> "$rounds"
done

# A run of the engine stands between two of fio: what the disk gave before and after is held against it.
python3 - "$rounds" << 'END'
import statistics, sys
rows = [[float(word) for word in line.split()] for line in open(sys.argv[1])]
print(f"{'fio reads/s':>12} {'entresol reads/s':>17} {'ratio':>6} {'transactions/s':>15} {'hits':>6} {'CPU us':>7}")
table = [((before + after) / 2, reads, 2 * reads / (before + after), rate, hits, cpu)
         for before, reads, rate, hits, cpu, after in rows]
def show(row, end):
    fio, reads, ratio, rate, hits, cpu = row
    print(f"{fio:12,.0f} {reads:17,.0f} {ratio:6.2f} {rate:15,.0f} {hits:6.1%} {cpu:7.2f}{end}")
for row in table:
    show(row, "")
show([statistics.median(column) for column in zip(*table)], "  median")
END
