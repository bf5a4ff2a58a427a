#!/usr/bin/env bash
# joblib 1.6.0: a training process that preprocesses with joblib.Parallel (loky) and is killed with SIGKILL, as at
# the end of a grace time, leaves its workers behind for more than 8 s, and the folder of its shared arrays.
. "$(dirname "$0")/parts/begin.sh"
install joblib==1.6.0 numpy==2.4.6

cat >train.py <<'PY'
import time

import numpy as np
from joblib import Parallel, delayed

data = np.zeros(1_000_000)

def work(array, number):
    time.sleep(600 if number == 2 else 0.2)

Parallel(n_jobs=2, max_nbytes=1000, temp_folder="shared")(delayed(work)(data, n) for n in range(6))
PY
mkdir shared
mark=joblib-$$-finding
at_end() { for each in $(marked); do kill -9 "$each"; done; }
marked() { grep -lsz "MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
MARK=$mark setsid "$python" train.py >log 2>&1 &
pid=$!
for _ in $(seq 60); do [ "$(marked | wc -l)" -ge 3 ] && [ -n "$(find shared -name '*.pkl')" ] && break; sleep 0.5; done
sleep 2
kill -9 "$pid"
wait "$pid" 2>>log || true
sleep 8
{
    echo "processes that stay: $([ "$(marked | wc -l)" -gt 0 ] && echo yes || echo no)"
    echo "files that stay: $([ -n "$(find shared -name '*.pkl')" ] && echo yes || echo no)"
} >seen
expect seen <<'SEEN'
processes that stay: yes
files that stay: yes
SEEN
