/* A stand-in for NVIDIA's management library: the functions that the SideCar calls, for GPUs that
 * a file tells of. Each line: UUID, bytes in use, bytes in all, and the name to the end of the line.
 * The file is read at each call, so that a test can change what a GPU holds. A folder HOLDERS, if
 * there is one, has a file for each process that uses a GPU, named by its pid, with UUID and bytes:
 * they count while that process lives. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define GPUS_MAX 16
#ifndef FILE_OF_GPUS
#define FILE_OF_GPUS "/run/gpus/list"
#endif
#ifndef HOLDERS
#define HOLDERS "/run/gpus/holders"
#endif

typedef struct { char uuid[96]; unsigned long long used, total; char name[96]; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;

static int lives(const char *pid) { /* a dead process that its parent has not reaped has no program */
    char path[64], program[8];
    snprintf(path, sizeof path, "/proc/%.20s/exe", pid);
    return readlink(path, program, sizeof program) > 0;
}

static void add_holders(Gpu *gpus, int count) {
    DIR *folder = opendir(HOLDERS);
    struct dirent *entry;
    if (!folder) return;
    while ((entry = readdir(folder))) {
        char path[512], uuid[96];
        unsigned long long used;
        FILE *file;
        if (!isdigit((unsigned char)entry->d_name[0]) || !lives(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", HOLDERS, entry->d_name);
        file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%95s %llu", uuid, &used) == 2)
            for (int number = 0; number < count; number++)
                if (!strcmp(gpus[number].uuid, uuid)) gpus[number].used += used;
        fclose(file);
    }
    closedir(folder);
}

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
    add_holders(gpus, count);
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

int nvmlSystemGetDriverVersion(char *into, unsigned length) {
    snprintf(into, length, "stand-in");
    return SUCCESS;
}

static unsigned mode(const char *variable) {
    const char *text = getenv(variable);
    return text ? (unsigned)atoi(text) : 0;
}

int nvmlDeviceGetComputeMode(void *handle, unsigned *into) {
    Gpu gpu;
    *into = mode("STAND_IN_COMPUTE_MODE");
    return at(handle, &gpu);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    Gpu gpu;
    *current = *pending = mode("STAND_IN_MIG");
    return at(handle, &gpu);
}

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
