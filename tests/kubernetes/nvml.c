/* A stand-in for NVIDIA's management library: the functions that the SideCar calls, for GPUs that
 * a file tells of. Each line: UUID, bytes in use, bytes in all, and the name to the end of the line.
 * The file is read at each call, so that a test can change what a GPU holds. */
#include <stdio.h>
#include <string.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define GPUS_MAX 16
#define FILE_OF_GPUS "/run/gpus/list"

typedef struct { char uuid[96]; unsigned long long used, total; char name[96]; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;

static int all(Gpu *gpus) {
    FILE *file = fopen(FILE_OF_GPUS, "r");
    int count = 0;
    if (!file) return 0;
    while (count < GPUS_MAX) {
        Gpu *gpu = &gpus[count];
        int read = fscanf(file, "%95s %llu %llu %95[^\n]", gpu->uuid, &gpu->used, &gpu->total, gpu->name);
        if (read != 4) break;
        count++;
    }
    fclose(file);
    return count;
}

static int at(void *handle, Gpu *gpu) {
    Gpu gpus[GPUS_MAX];
    long number = (long)handle - 1;
    if (number < 0 || number >= all(gpus)) return NOT_FOUND;
    *gpu = gpus[number];
    return SUCCESS;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_FOUND ? "Not Found" : "Invalid Argument"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    Gpu gpus[GPUS_MAX];
    *count = (unsigned)all(gpus);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    Gpu gpus[GPUS_MAX];
    if (index >= (unsigned)all(gpus)) return INVALID_ARGUMENT;
    *handle = (void *)(long)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    Gpu gpus[GPUS_MAX];
    int count = all(gpus);
    for (int number = 0; number < count; number++)
        if (!strcmp(gpus[number].uuid, uuid)) {
            *handle = (void *)(long)(number + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *into, unsigned length) {
    Gpu gpu;
    int code = at(handle, &gpu);
    if (code == SUCCESS) snprintf(into, length, "%s", gpu.uuid);
    return code;
}

int nvmlDeviceGetName(void *handle, char *into, unsigned length) {
    Gpu gpu;
    int code = at(handle, &gpu);
    if (code == SUCCESS) snprintf(into, length, "%s", gpu.name);
    return code;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *into) {
    Gpu gpu;
    int code = at(handle, &gpu);
    if (code == SUCCESS) *into = (Memory){gpu.total, gpu.total - gpu.used, gpu.used};
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *into) {
    Gpu gpu;
    int code = at(handle, &gpu);
    if (code == SUCCESS)
        *into = (Memory2){into->version, gpu.total, 0, gpu.total - gpu.used, gpu.used};
    return code;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *into) {
    Gpu gpu;
    int code = at(handle, &gpu);
    if (code == SUCCESS) *into = (Utilization){gpu.used ? 50 : 0, 0};
    return code;
}
