#!/usr/bin/env bash
# Slurm 22.05.8 (Debian 12), sacct with slurmdbd: how many rows a job has, and what their times mean.
# - A resized job has two rows, also without --duplicates. The second is submitted at the resize, after its
#   start, and its Elapsed counts from the job's first start.
# - A requeued job has one row without --duplicates, submitted at the requeue; its first run is in no row.
# - A suspended job's Elapsed leaves the pause out of its start to its end.
# - AllocTRES has the GPUs twice, as gres/gpu and as gres/gpu:a100.
# ROWS=FILE keeps the rows, ROWS_JSON=FILE those of --json.
. "$(dirname "$0")/parts/begin.sh"
. "$here/parts/slurm.sh"

resized=$(submit -N2 --gres=gpu:2 "sleep 14")
requeued=$(submit --gres=gpu:2 "sleep 6")
suspended=$(submit --gres=gpu:1 "sleep 8")
for job in $resized $requeued $suspended; do until_state "$job" RUNNING; done
submit --gres=gpu:1 --array=1-2 "sleep 2" >>log/out
slurm sbatch --mem=1 -o /dev/null --gres=gpu:1 --wrap "sleep 2" : --mem=1 --gres=gpu:2 >>log/out
sleep 4
slurm scontrol update jobid="$resized" NumNodes=1
slurm scontrol requeue "$requeued"
slurm scontrol suspend "$suspended"
sleep 4
slurm scontrol resume "$suspended"
until_done

format=JobID,User,Submit,Start,End,Elapsed,Suspended,State,AllocTRES
slurm sacct -XP --format $format >rows
slurm sacct -XDP --format $format >all-rows
[ -z "${ROWS:-}" ] || cp all-rows "$ROWS"
[ -z "${ROWS_JSON:-}" ] || slurm sacct -XD --json >"$ROWS_JSON"
python3 - "$resized" "$requeued" "$suspended" >seen <<'PY'
import csv, datetime, sys

def rows(name, job):
    found = [row for row in csv.DictReader(open(name), delimiter="|") if row["JobID"] == job]
    return sorted(found, key=lambda row: row["Submit"])

def seconds(row, first, last):
    first, last = (datetime.datetime.fromisoformat(row[name]) for name in (first, last))
    return (last - first).total_seconds()

def elapsed(row):
    hours, minutes, second = map(int, row["Elapsed"].split(":"))
    return hours * 3600 + minutes * 60 + second

def gpus(row):
    return ",".join(part for part in row["AllocTRES"].split(",") if "gpu" in part)

first, second = rows("rows", sys.argv[1])
print("resized:", first["State"], gpus(first), "then", second["State"], gpus(second))
print("  second row submitted after its start:", second["Submit"] > second["Start"])
print("  and when the first ended:", second["Submit"] == first["End"])
print("  its Elapsed counts from the first start:", elapsed(second) == seconds(second, "Start", "End"))
last, = rows("rows", sys.argv[2])
runs = rows("all-rows", sys.argv[2])
print("requeued: rows", 1, "and with --duplicates", [run["State"] for run in runs])
print("  the one row is submitted at the requeue:", last["Submit"] == runs[0]["End"] > runs[0]["Submit"])
row, = rows("rows", sys.argv[3])
print("suspended: Elapsed lacks the pause:", seconds(row, "Start", "End") - elapsed(row) >= 4)
PY
expect seen <<'SEEN'
resized: RESIZING gres/gpu:a100=4,gres/gpu=4 then COMPLETED gres/gpu:a100=2,gres/gpu=2
  second row submitted after its start: True
  and when the first ended: True
  its Elapsed counts from the first start: True
requeued: rows 1 and with --duplicates ['REQUEUED', 'COMPLETED']
  the one row is submitted at the requeue: True
suspended: Elapsed lacks the pause: True
SEEN
