#!/usr/bin/env bash
# scipy 1.14.1: non-negative least squares, which schedulers fit speeds and losses with, depends on the unit. With
# both sides in units of 1e9 (A and b times 1e-9) nnls returns zeros; scipy 1.11 and 1.17 return the solution.
. "$(dirname "$0")/parts/begin.sh"
install scipy==1.14.1 numpy==1.26.4

cat >fit.py <<'PY'
import numpy as np
from scipy.optimize import nnls

steps = np.arange(1.0, 9.0)
a, b = np.column_stack([1 / steps, np.ones(8)]), 3.0 / steps + 0.5
for scale in (1.0, 1e-9):
    print("times", scale, np.round(nnls(a * scale, b * scale)[0], 6).tolist())
PY
"$python" fit.py >seen
expect seen <<'SEEN'
times 1.0 [3.0, 0.5]
times 1e-09 [0.0, 0.0]
SEEN
