#!/usr/bin/env bash
# nvidia-ml-py 13.615.71 on a driver that lacks functions: most calls raise NVMLError_FunctionNotFound, but the
# three lists of processes raise NVMLLibraryMismatchError, which is no NVMLError: `except NVMLError` misses it.
# A small library plays the driver (gcc).
. "$(dirname "$0")/parts/begin.sh"
install nvidia-ml-py==13.615.71

cat >driver.c <<'C'
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { (void)index; *handle = (void *)1; return 0; }
C
gcc -shared -fPIC -o libnvidia-ml.so.1 driver.c
cat >ask.py <<'PY'
import pynvml

pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
for name in ("MemoryInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"):
    try:
        getattr(pynvml, "nvmlDeviceGet" + name)(gpu)
    except Exception as error:
        print(name, type(error).__name__, "NVMLError:", isinstance(error, pynvml.NVMLError))
PY
LD_LIBRARY_PATH=$folder "$python" ask.py >seen
expect seen <<'SEEN'
MemoryInfo NVMLError_FunctionNotFound NVMLError: True
ComputeRunningProcesses NVMLLibraryMismatchError NVMLError: False
GraphicsRunningProcesses NVMLLibraryMismatchError NVMLError: False
MPSComputeRunningProcesses NVMLLibraryMismatchError NVMLError: False
SEEN
