/* A stand-in for the few functions of NVIDIA's driver that this run calls itself: which GPUs a process
 * sees, and its pause and resume. GPUs are those of the stand-in of NVML whose UUID the variable names;
 * a paused process is stopped, and its memory (a file named like it) is set aside. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_DEVICE 100
#define INVALID_VALUE 1

static const char *visible = NULL;

int cuInit(unsigned flags) {
    (void)flags;
    if (!visible) visible = getenv("CUDA_VISIBLE_DEVICES"); /* as the driver: at the first call */
    return visible && *visible ? 0 : NO_DEVICE;
}

int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }

int cuDeviceGetUuid(unsigned char *into, int device) {
    const char *text = visible + 4; /* behind "GPU-" */
    (void)device;
    for (int at = 0; at < 16 && *text; text++) {
        unsigned byte;
        if (*text == '-') continue;
        if (sscanf(text, "%2x", &byte) != 1) return INVALID_VALUE;
        into[at++] = (unsigned char)byte;
        text++;
    }
    return 0;
}

static int moved(int pid, const char *from, const char *to) {
    char old[512], new[512];
    const char *folder = getenv("GPU_RUN_STAND_IN");
    if (!folder) return INVALID_VALUE;
    snprintf(old, sizeof old, "%s/%s%d", folder, from, pid);
    snprintf(new, sizeof new, "%s/%s%d", folder, to, pid);
    return rename(old, new) == 0 ? 0 : INVALID_VALUE;
}

int cuCheckpointProcessLock(int pid, void *options) { (void)options; return kill(pid, SIGSTOP) ? INVALID_VALUE : 0; }
int cuCheckpointProcessCheckpoint(int pid, void *options) { (void)options; return moved(pid, "", "paused-"); }
int cuCheckpointProcessRestore(int pid, void *options) { (void)options; return moved(pid, "paused-", ""); }
int cuCheckpointProcessUnlock(int pid, void *options) { (void)options; return kill(pid, SIGCONT) ? INVALID_VALUE : 0; }
