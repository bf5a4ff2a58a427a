#!/usr/bin/env bash
# An operator reaches a first job on a cluster (README, "A first job on a cluster").
# Needs a cluster that `kubectl` reaches, the cluster file CLUSTER_FILE, and ADDRESS of this machine
# as pods reach it. It ends with a job that ran in a pod, on GPUs that it was given there.
LIMIT_S=300
. "$(dirname "$(realpath "$0")")/start.sh"
job=first
cp "${CLUSTER_FILE:?}" cluster.yaml
: "${ADDRESS:?}"

step "asks whether everything is there"
reshape doctor --launcher kubernetes --cluster cluster.yaml --simulated-gpus 4 --sidecar-bind "$ADDRESS"

step "starts the daemon"
up --launcher kubernetes --cluster cluster.yaml --simulated-gpus 4 --sidecar-bind "$ADDRESS"
until reshape gpus | grep -q idle; do sleep 0.5; done
reshape gpus

step "submits a first job"
cat >first.yaml <<'YAML'
name: first
command: [python3, -c, "import os; print('trains on', os.environ['RESHAPE_DEVICES'])"]
framework: other
optional_gpus: [2]
code: /tmp
YAML
reshape submit first.yaml
await state completed
reshape describe first
if grep -q storage_folder cluster.yaml; then
  reshape logs first | grep "trains on"
fi
step "ok: a job ran in a pod, and has completed"
