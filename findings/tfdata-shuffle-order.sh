#!/usr/bin/env bash
# tensorflow-cpu 2.21.0: a tf.data iterator with an unseeded shuffle().repeat() that a checkpoint restores goes on
# with the order of its epoch, and with another order from the next epoch on than the run that was not stopped.
. "$(dirname "$0")/parts/begin.sh"
install tensorflow-cpu==2.21.0

cat >draw.py <<'PY'
import tensorflow as tf

def iterator():
    return iter(tf.data.Dataset.range(50).shuffle(50).repeat())

def draw(source, count):
    return [int(next(source)) for _ in range(count)]

first = iterator()
draw(first, 30)
saved = tf.train.Checkpoint(data=first).save("saved/one")
rest, following = draw(first, 20), draw(first, 50)
second = iterator()
tf.train.Checkpoint(data=second).restore(saved)
print("rest of the epoch the same:", draw(second, 20) == rest)
again = draw(second, 50)
print("next epoch the same:", again == following, "and whole:", sorted(again) == list(range(50)))
PY
TF_CPP_MIN_LOG_LEVEL=3 "$python" draw.py >seen 2>log || { tail log; exit 1; }
expect seen <<'SEEN'
rest of the epoch the same: True
next epoch the same: False and whole: True
SEEN
