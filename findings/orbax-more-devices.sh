#!/usr/bin/env bash
# orbax-checkpoint 0.12.8 with jax 0.10.2: an array that four devices saved and that is restored without a target
# where eight are uses four of them, with no word; the other four stay idle. (Four to two is refused.)
. "$(dirname "$0")/parts/begin.sh"
install orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2

cat >move.py <<'PY'
import os, sys

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[1]}"
import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

path = os.path.abspath("saved")
checkpointer = ocp.StandardCheckpointer()
if sys.argv[2] == "save":
    mesh = Mesh(jax.devices(), ("data",))
    value = jax.device_put(jax.numpy.arange(8.0), NamedSharding(mesh, PartitionSpec("data")))
    checkpointer.save(path, {"w": value})
    checkpointer.wait_until_finished()
else:
    found = checkpointer.restore(path)["w"]
    print(f"{len(jax.devices())} devices, {len(found.sharding.device_set)} used")
PY
export JAX_PLATFORMS=cpu
"$python" move.py 4 save 2>log || { tail log; exit 1; }
"$python" move.py 8 load >seen 2>>log || { tail log; exit 1; }
expect seen <<'SEEN'
8 devices, 4 used
SEEN
