#!/usr/bin/env bash
# Slurm 22.05.8 (Debian 12), sacct with slurmdbd: a job that was resized and then requeued loses its second
# run's beginning. The run after the requeue writes over the row of the run before it: that row keeps the job's
# first start, so the wait between the runs counts as run time, and the smaller size is in no row.
. "$(dirname "$0")/parts/begin.sh"
. "$here/parts/slurm.sh"

job=$(submit -N2 --gres=gpu:2 "sleep 8")
until_state "$job" RUNNING
sleep 2
slurm scontrol update jobid="$job" NumNodes=1
sleep 3
slurm scontrol requeue "$job"
until_done
slurm sacct -XDP -n -j "$job" --format Submit,Start,End,Elapsed,State,AllocTRES >rows
cat rows
python3 - >seen <<'PY'
import datetime

rows = sorted(line.strip().split("|") for line in open("rows"))
print("rows:", [(row[4], row[5].rpartition("gres/gpu=")[2]) for row in rows])
start, end = (datetime.datetime.fromisoformat(rows[-1][at]) for at in (1, 2))
print("the last row begins at the first start:", rows[-1][1] == rows[0][1])
print("and is longer than its last run of 8 s and the run before of 3 s:", (end - start).total_seconds() > 12)
PY
expect seen <<'SEEN'
rows: [('RESIZING', '4,node=2'), ('COMPLETED', '4,node=2')]
the last row begins at the first start: True
and is longer than its last run of 8 s and the run before of 3 s: True
SEEN
