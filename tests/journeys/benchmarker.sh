#!/usr/bin/env bash
# A benchmarker goes from a trace to a table (README, "From a trace to a table").
# Needs no GPU, daemon or TensorFlow. It ends with a table of three policies and a report.
LIMIT_S=90
. "$(dirname "$(realpath "$0")")/start.sh"

step "has a trace: a line for each job"
head -3 examples/trace/trace.csv

step "makes a workload of it"
reshape workload convert examples/trace/trace.csv --submit submit_time --gpus gpu_num --duration duration --out jobs.csv

step "compares three policies"
reshape compare --workload jobs.csv --cluster 8xV100 --policies default,termination,adaptive --seeds 6 --out compared | tee table.txt

for policy in default termination adaptive; do
  grep -q "$policy" table.txt || { echo "no line of $policy" >&2; exit 1; }
done
test -s compared/report.md
test -s compared/summary.json
step "ok: a table of three policies, and compared/report.md"
