#!/usr/bin/env bash
# tensorboard 2.21.0 with tensorboardX 2.6.5: a run that was killed at step 13 and resumed from step 10 shows the
# steps 11 to 13 twice. With purge_step=11 in the second writer TensorBoard shows each step once.
. "$(dirname "$0")/parts/begin.sh"
install tensorboard==2.21.0 tensorboardX==2.6.5

cat >run.py <<'PY'
from collections import Counter

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

def run(folder, first, last, **options):
    with SummaryWriter(folder, **options) as writer:
        for step in range(first, last + 1):
            writer.add_scalar("loss", 1 / step, step)

def shown(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    steps = Counter(event.step for event in events.Scalars("loss"))
    return sum(steps.values()), sorted(step for step, count in steps.items() if count > 1)

for folder, options in (("plain", {}), ("purged", {"purge_step": 11})):
    run(folder, 1, 13)
    run(folder, 11, 20, filename_suffix=".second", **options)
    print(folder, *shown(folder))
PY
"$python" run.py >seen 2>log || { cat log; exit 1; }
expect seen <<'SEEN'
plain 23 [11, 12, 13]
purged 20 []
SEEN
