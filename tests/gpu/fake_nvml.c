/* A stand-in for libnvidia-ml.so.1. It answers what the file named by KVTUI_FAKE_NVML says, read anew by every
 * call, so that a test can change memory, processes and errors while something is reading them.
 *
 *   count N                        devices
 *   name I TEXT
 *   memory I TOTAL RESERVED USED   bytes; free is what is left
 *   process I PID BYTES            -1: the driver does not tell
 *   graphics I PID BYTES
 *   util I PERCENT
 *   display I 0|1
 *   error CALL CODE                the call fails
 *   hang CALL                      the call never returns
 *
 * Compiled with -DOLD it lacks what drivers before 510 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { unsigned gpu, memory; } utilization;

static FILE *scenario(void) {
    const char *path = getenv("KVTUI_FAKE_NVML");
    return path ? fopen(path, "r") : NULL;
}

static int line(const char *key, long index, char *rest, size_t size) {
    FILE *file = scenario();
    char text[512];
    int found = 0;
    while (file && !found && fgets(text, sizeof text, file)) {
        char name[64];
        int at = 0;
        if (sscanf(text, "%63s %n", name, &at) != 1 || strcmp(name, key)) continue;
        char *value = text + at;
        if (index >= 0) {
            char *end;
            if (strtol(value, &end, 10) != index) continue;
            value = end + 1;
        }
        value[strcspn(value, "\n")] = 0;
        snprintf(rest, size, "%s", value);
        found = 1;
    }
    if (file) fclose(file);
    return found;
}

static int fate(const char *call) {
    FILE *file = scenario();
    char text[512];
    int code = SUCCESS;
    while (file && fgets(text, sizeof text, file)) {
        char what[64], name[128];
        int number = 0;
        int n = sscanf(text, "%63s %127s %d", what, name, &number);
        if (n >= 2 && !strcmp(name, call)) {
            if (!strcmp(what, "hang")) for (;;) pause();
            if (n == 3 && !strcmp(what, "error")) code = number;
        }
    }
    if (file) fclose(file);
    return code;
}

#define BEGIN do { int code = fate(__func__); if (code) return code; } while (0)
#define INDEX(device) ((long)(device) - 1)

int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN; return SUCCESS; }
int nvmlShutdown(void) { BEGIN; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "fake \033[31merror"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN;
    char rest[64];
    *count = line("count", -1, rest, sizeof rest) ? (unsigned)atoi(rest) : 0;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    BEGIN;
    *device = (void *)(long)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    BEGIN;
    return line("name", INDEX(device), name, size) ? SUCCESS : NOT_SUPPORTED;
}

static int memory(void *device, memory_v2 *out) {
    char rest[128];
    if (!line("memory", INDEX(device), rest, sizeof rest)) return NOT_SUPPORTED;
    if (sscanf(rest, "%llu %llu %llu", &out->total, &out->reserved, &out->used) != 3) return INVALID_ARGUMENT;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_v1 *out) {
    BEGIN;
    memory_v2 found;
    int code = memory(device, &found);
    out->total = found.total; out->free = found.free; out->used = found.used + found.reserved;
    return code;
}

static int processes(const char *key, void *device, unsigned *count, process_info *out) {
    FILE *file = scenario();
    char text[512];
    unsigned n = 0, room = out ? *count : 0;
    while (file && fgets(text, sizeof text, file)) {
        char name[64];
        long index, pid;
        long long bytes;
        if (sscanf(text, "%63s %ld %ld %lld", name, &index, &pid, &bytes) != 4) continue;
        if (strcmp(name, key) || index != INDEX(device)) continue;
        if (n < room) out[n] = (process_info){(unsigned)pid, (u64)bytes, ~0u, ~0u};
        n++;
    }
    if (file) fclose(file);
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *n, process_info *out) { BEGIN; return processes("process", d, n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *d, unsigned *n, process_info *out) { BEGIN; return processes("graphics", d, n, out); }
#else
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process_info *out) { BEGIN; return processes("process", d, n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *n, process_info *out) { BEGIN; return processes("graphics", d, n, out); }
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *out) { BEGIN; return memory(device, out); }
#endif

int nvmlDeviceGetUtilizationRates(void *device, utilization *out) {
    BEGIN;
    char rest[64];
    if (!line("util", INDEX(device), rest, sizeof rest)) return NOT_SUPPORTED;
    out->gpu = (unsigned)atoi(rest); out->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetDisplayActive(void *device, unsigned *active) {
    BEGIN;
    char rest[64];
    if (!line("display", INDEX(device), rest, sizeof rest)) return NOT_SUPPORTED;
    *active = (unsigned)atoi(rest);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { (void)device; BEGIN; *major = 9; *minor = 0; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN; *version = 13020; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { BEGIN; snprintf(text, size, "590.48.01"); return SUCCESS; }
