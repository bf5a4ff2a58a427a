#!/usr/bin/env bash
# datasets 5.2.0: a streaming dataset that split_dataset_by_node gives to two nodes, and whose state goes on with
# three: the positions are those of the two, and part of the samples is trained by no node, with no word.
. "$(dirname "$0")/parts/begin.sh"
install datasets==5.2.0

cat >stream.py <<'PY'
from datasets import Dataset
from datasets.distributed import split_dataset_by_node

def node(rank, size):
    rows = Dataset.from_dict({"n": list(range(128))}).to_iterable_dataset(num_shards=1)
    return split_dataset_by_node(rows, rank=rank, world_size=size)

seen, states = [], []
for rank in range(2):
    source = node(rank, 2)
    reader = iter(source)
    seen += [next(reader)["n"] for _ in range(20)]
    states.append(source.state_dict())
for rank in range(3):
    source = node(rank, 3)
    source.load_state_dict(states[0])
    seen += [row["n"] for row in source]
twice = len(seen) - len(set(seen))
print(f"128 samples, 40 of them before: {128 - len(set(seen))} never trained, {twice} twice")
PY
"$python" stream.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
128 samples, 40 of them before: 20 never trained, 0 twice
SEEN
