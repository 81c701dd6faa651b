/* A stand-in for libnvidia-ml.so.1. It answers what the file named by KVTUI_FAKE_NVML says, looked at anew by
 * every call, so that a test can change memory, processes and errors while something is reading them.
 *
 *   count N                        devices
 *   name D TEXT
 *   uuid D TEXT
 *   memory D TOTAL RESERVED USED   bytes; free is what is left
 *   process D PID BYTES            -1: the driver does not tell; -2: it is gone
 *   graphics D PID BYTES
 *   util D PERCENT
 *   display D 0|1
 *   ecc D 0|1
 *   power D MILLIWATT
 *   clock D MHZ
 *   throttle D BITS
 *   pcie D RX TX                   KB/s; a call takes 20 ms, as the real one does
 *   mig I N                        GPU I is cut into N instances
 *   error CALL CODE                the call fails
 *   hang CALL                      the call never returns
 *   generation N                   the driver was reloaded: until NVML is shut down and opened, calls fail
 *   epoch SECONDS                  CLOCK_MONOTONIC at which the scenario's time is 0 (else it stays 0)
 *   now SECONDS                    the scenario's time itself; neither may be the first line
 *
 * D is a GPU's index I, or 100 * (I + 1) + M for MIG instance M of GPU I. The last line that holds wins.
 * A line may begin with `at T` (it holds from T on) or `during T U` (from T until before U).
 * Compiled with -DOLD it lacks what drivers before 510 lack.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define MIG_BASE 100

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { char *text, *next; double now; } scenario;

static int opened, opened_generation;

static int begins(const char *line, const char *word) {
    size_t n = strlen(word);
    return !strncmp(line, word, n) && (line[n] == ' ' || !line[n]) ? (int)n : 0;
}

/* The next line that holds now, cut to its end in `line`; 0 at the end of the text. */
static int next_line(scenario *s, char *line, size_t size) {
    while (*s->next) {
        char *at = s->next, *end = strchrnul(at, '\n');
        s->next = *end ? end + 1 : end;
        double from = -1e18, until = 1e18;
        if (begins(at, "at")) {
            from = strtod(at + 2, &at);
        } else if (begins(at, "during")) {
            from = strtod(at + 6, &at);
            until = strtod(at, &at);
        }
        if (s->now < from || s->now >= until) continue;
        at += *at == ' ';
        size_t n = end > at ? (size_t)(end - at) : 0;
        if (n >= size) n = size - 1;
        memcpy(line, at, n);
        line[n] = 0;
        return 1;
    }
    return 0;
}

/* The file as it is now; read again only when it was changed or replaced. */
static scenario load(void) {
    static __thread char text[1 << 16];
    static __thread struct stat known;
    const char *path = getenv("KVTUI_FAKE_NVML");
    struct stat now;
    if (!path || stat(path, &now)) {
        text[0] = 0;
        known.st_ino = 0;
    } else if (now.st_ino != known.st_ino || now.st_size != known.st_size
               || now.st_mtim.tv_sec != known.st_mtim.tv_sec || now.st_mtim.tv_nsec != known.st_mtim.tv_nsec) {
        int file = open(path, O_RDONLY);
        ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
        if (file >= 0) close(file);
        text[n > 0 ? n : 0] = 0;
        known = now;
    }
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    char *given = strstr(text, "\nepoch "), *fixed = strstr(text, "\nnow ");
    double t = fixed ? atof(fixed + 5) : given ? clock.tv_sec + clock.tv_nsec / 1e9 - atof(given + 7) : 0;
    return (scenario){text, text, t};
}

static int find(const char *key, long index, char *rest, size_t size) {
    scenario s = load();
    int found = 0;
    char line[512];
    while (next_line(&s, line, sizeof line)) {
        char *value = line + begins(line, key);
        if (value == line) continue;
        value += *value == ' ';
        if (index >= 0) {
            char *end;
            if (strtol(value, &end, 10) != index) continue;
            value = *end ? end + 1 : end;
        }
        snprintf(rest, size, "%s", value);
        found = 1;
    }
    return found;
}

static int number(const char *key, long index, long long *out) {
    char rest[64];
    if (!find(key, index, rest, sizeof rest)) return NOT_SUPPORTED;
    *out = atoll(rest);
    return SUCCESS;
}

static int generation(void) {
    long long n = 0;
    number("generation", -1, &n);
    return (int)n;
}

static int fate(const char *call) {
    scenario s = load();
    int code = SUCCESS;
    char line[512];
    while (next_line(&s, line, sizeof line)) {
        int hang = begins(line, "hang"), error = begins(line, "error");
        if (!hang && !error) continue;
        char *name = line + (hang ? hang : error) + 1;
        int n = begins(name, call);
        if (n && hang) for (;;) pause();
        if (n) code = atoi(name + n);
    }
    return code;
}

#define FATE do { int code = fate(__func__); if (code) return code; } while (0)
#define BEGIN do { FATE; if (!opened || opened_generation != generation()) return UNINITIALIZED; } while (0)
#define INDEX(device) ((long)(device) - 1)
#define DEVICE(index) ((void *)(long)((index) + 1))

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    FATE;
    if (!opened++) opened_generation = generation();
    return SUCCESS;
}

int nvmlShutdown(void) {
    FATE;
    if (!opened) return UNINITIALIZED;
    opened--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) { (void)code; return "fake \033[31merror"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN;
    long long n = 0;
    number("count", -1, &n);
    *count = (unsigned)n;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    BEGIN;
    *device = DEVICE(index);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    BEGIN;
    return find("name", INDEX(device), name, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    BEGIN;
    return find("uuid", INDEX(device), text, size) ? SUCCESS : NOT_SUPPORTED;
}

static int memory(void *device, memory_v2 *out) {
    char rest[128];
    if (!find("memory", INDEX(device), rest, sizeof rest)) return NOT_SUPPORTED;
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
    scenario s = load();
    process_info all[64];
    unsigned n = 0, kept = 0, room = out ? *count : 0;
    char line[512];
    while (next_line(&s, line, sizeof line)) {
        int at = begins(line, key);
        long index, pid;
        long long bytes;
        if (!at || sscanf(line + at, "%ld %ld %lld", &index, &pid, &bytes) != 3 || index != INDEX(device)) continue;
        unsigned slot = 0;
        while (slot < n && all[slot].pid != (unsigned)pid) slot++;
        if (slot == n && n < 64) n++;
        if (slot < 64) all[slot] = (process_info){(unsigned)pid, (u64)bytes, ~0u, ~0u};
    }
    for (unsigned i = 0; i < n; i++) {
        if (all[i].bytes == (u64)-2) continue;
        if (kept < room) out[kept] = all[i];
        kept++;
    }
    *count = kept;
    return kept > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(call, key) int call(void *d, unsigned *n, process_info *out) { BEGIN; return processes(key, d, n, out); }
#ifdef OLD
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "process")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
#else
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "process")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *out) { BEGIN; return memory(device, out); }
#endif

int nvmlDeviceGetUtilizationRates(void *device, utilization *out) {
    BEGIN;
    long long n;
    int code = number("util", INDEX(device), &n);
    if (!code) *out = (utilization){(unsigned)n, 0};
    return code;
}

#define UNSIGNED(call, key) int call(void *device, unsigned *out) { \
    BEGIN; long long n; int code = number(key, INDEX(device), &n); if (!code) *out = (unsigned)n; return code; }
UNSIGNED(nvmlDeviceGetDisplayActive, "display")
UNSIGNED(nvmlDeviceGetPowerUsage, "power")

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *out) {
    BEGIN;
    long long n;
    int code = type == 1 ? number("clock", INDEX(device), &n) : NOT_SUPPORTED;
    if (!code) *out = (unsigned)n;
    return code;
}

int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
    BEGIN;
    long long n;
    int code = number("ecc", INDEX(device), &n);
    if (!code) *current = *pending = (unsigned)n;
    return code;
}

#ifdef OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *out) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *out) {
#endif
    BEGIN;
    long long n;
    int code = number("throttle", INDEX(device), &n);
    if (!code) *out = (u64)n;
    return code;
}

int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *out) {
    BEGIN;
    char rest[64];
    unsigned rx, tx;
    if (!find("pcie", INDEX(device), rest, sizeof rest)) return NOT_SUPPORTED;
    if (sscanf(rest, "%u %u", &rx, &tx) != 2) return INVALID_ARGUMENT;
    usleep(20000);
    *out = counter ? rx : tx;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    BEGIN;
    long long n;
    int code = number("mig", INDEX(device), &n);
    *current = *pending = !code && n > 0;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { (void)device; BEGIN; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig) {
    BEGIN;
    long long n;
    if (number("mig", INDEX(device), &n) || index >= n) return NOT_FOUND;
    *mig = DEVICE(MIG_BASE * (INDEX(device) + 1) + index);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    BEGIN;
    if (INDEX(device) >= MIG_BASE) return INVALID_ARGUMENT;
    *major = 9; *minor = 0;
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN; *version = 13020; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { BEGIN; snprintf(text, size, "590.48.01"); return SUCCESS; }
