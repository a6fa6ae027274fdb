/* libcuda.so.1 whose GPU is the emulator, for programs in C: of the driver's calls those that packages make.

   Modules are CUDA C++, which Python has compiled: the folder NF_EMULATOR has each as N.cu, its library N.so and N.txt,
   a line "symbol parameters" for each kernel. NF_EMULATOR_ARCHITECTURE is the GPU's, 90 for sm_90; calls go to the file
   calls.txt there, a line each. What a program leaves undone is an error: a thread without a context, a stream of a
   graph that is never joined. Copies to the host come late, when they are waited for. NF_EMULATOR_FAILS is the call that
   fails. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NO_IMAGE = 209, UNJOINED = 904, ILLEGAL = 401, NOT_FOUND = 500, FAULT = 719 };
enum { WINDOW = 256 << 10, GAP = 64 << 10, MOST = 64 };
#define GLOBAL ((uint64_t)WINDOW * 4096)

/* The machine's, see runtime/memory.cpp and include/emulator.h. */
typedef struct { unsigned x, y, z; } Dim;
typedef struct {
    void *function, **arguments;
    unsigned argument_count;
    Dim grid, block;
    const uint32_t *order;
    uint64_t shared[64][2];
    unsigned shared_count;
    int checked, early_exit;
} Launch;
typedef struct {
    int kind, line;
    unsigned block[3], thread[3];
    uint64_t address, pc;
    char text[512];
} Report;
typedef struct {
    const char *function, *name;
    unsigned long window, bytes, element, unused[3];
} Variable;
int emu_open(void);
uint64_t emu_base(void);
uint32_t emu_map(uint64_t offset, uint64_t bytes, unsigned shift, int written);
void emu_unmap(uint32_t number);
int emu_launch(const Launch *launch, Report *report);

typedef struct { int number; void *library; } Module;
typedef struct { char symbol[200]; unsigned count; Module *module; } Kernel;
typedef struct Work { /* a copy, a clearing or a launch */
    struct Work *next;
    char *to;
    const char *from;
    size_t bytes;
    Kernel *kernel;
    void *arguments[MOST];
    unsigned grid, block, shared;
} Work;
typedef struct Stream { Work *first, **last; struct Stream *captures; int open; } Stream;
typedef struct { Stream *recorded; } Event;

static const char *folder(void) { return getenv("NF_EMULATOR"); }
static _Thread_local int current;
static int retained, live;
static uint64_t end = GLOBAL + GAP;
static char *memory;
static uint64_t memory_bytes;

static FILE *opened(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return fopen(path, mode);
}

/* A line of calls.txt; whether this call fails, as it was asked to. */
static int fails(const char *call, const char *rest) {
    FILE *file = opened("calls.txt", "a");
    const char *failing = getenv("NF_EMULATOR_FAILS");
    fprintf(file, "%s%s%s\n", call, *rest ? " " : "", rest);
    fclose(file);
    return failing != NULL && strcmp(failing, call) == 0;
}

static char line[4096];
#define BEGIN(...)                                                                                                      \
    do {                                                                                                                \
        snprintf(line, sizeof line, __VA_ARGS__);                                                                       \
        if (fails(__func__, line))                                                                                      \
            return OUT_OF_MEMORY;                                                                                       \
        if (!current)                                                                                                   \
            return NO_CONTEXT;                                                                                          \
    } while (0)

static uint64_t place(const void *address) { return (uint64_t)((const char *)address - memory); }
static int there(const void *address, uint64_t bytes) {
    return (const char *)address >= memory && place(address) + bytes <= memory_bytes;
}

int cuInit(unsigned flags) { return fails(__func__, "") || flags != 0 || !emu_open() ? 100 : 0; }
int cuDeviceGet(int *device, int ordinal) {
    *device = 7;
    return fails(__func__, "") || ordinal != 0 ? 101 : 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int here = atoi(getenv("NF_EMULATOR_ARCHITECTURE"));
    if (fails(__func__, "") || device != 7 || (attribute != 75 && attribute != 76))
        return INVALID;
    *value = attribute == 75 ? here / 10 : here % 10;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (fails(__func__, "") || device != 7)
        return INVALID;
    *context = &retained;
    retained++;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    snprintf(line, sizeof line, "live %d", live);
    return fails(__func__, line) || device != 7 || --retained < 0 ? INVALID : 0;
}
int cuCtxSetCurrent(void *context) {
    current = context == &retained;
    return fails(__func__, "") || !current ? INVALID : 0;
}
int cuGetErrorString(int code, const char **words) {
    *words = code == NO_CONTEXT ? "invalid device context" : code == OUT_OF_MEMORY ? "out of memory" :
             code == FAULT ? "unspecified launch failure" : code == 101 ? "invalid device ordinal" : "some error";
    return 0;
}

int cuMemAlloc_v2(char **address, size_t bytes) {
    BEGIN("%zu", bytes);
    emu_map(end, bytes, 2, 1);
    *address = memory = (char *)emu_base() + end;
    memory_bytes = bytes;
    memset(memory, 0xff, bytes); /* NaN: who reads what nobody has written is found out */
    end += (bytes + 255) / 256 * 256 + GAP;
    live++;
    return 0;
}
int cuMemFree_v2(char *address) {
    BEGIN(" ");
    live--;
    return address == memory ? 0 : INVALID;
}

int cuModuleLoadData(Module **module, const char *image) {
    BEGIN(" ");
    for (int n = 0;; n++) {
        char name[64], path[4096];
        snprintf(name, sizeof name, "%d.cu", n);
        FILE *file = opened(name, "r");
        if (file == NULL)
            return NO_IMAGE;
        fseek(file, 0, SEEK_END);
        size_t size = (size_t)ftell(file);
        char *text = calloc(size + 1, 1);
        rewind(file);
        int same = fread(text, 1, size, file) == size && strcmp(text, image) == 0;
        free(text);
        fclose(file);
        if (!same)
            continue;
        snprintf(path, sizeof path, "%s/%d.so", folder(), n);
        *module = malloc(sizeof **module);
        (*module)->number = n;
        (*module)->library = dlopen(path, RTLD_NOW);
        live++;
        return (*module)->library != NULL ? 0 : NO_IMAGE;
    }
}
int cuModuleUnload(Module *module) {
    BEGIN("%d", module->number);
    live--;
    return 0;
}
int cuModuleGetFunction(Kernel **kernel, Module *module, const char *symbol) {
    char name[64];
    BEGIN("%d %s", module->number, symbol);
    snprintf(name, sizeof name, "%d.txt", module->number);
    FILE *file = opened(name, "r");
    Kernel *found = malloc(sizeof *found);
    found->module = module;
    while (fscanf(file, "%199s %u", found->symbol, &found->count) == 2)
        if (strcmp(found->symbol, symbol) == 0) {
            fclose(file);
            *kernel = found;
            return 0;
        }
    fclose(file);
    return NOT_FOUND;
}
int cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
    BEGIN("%s %d %d", kernel->symbol, attribute, value);
    return 0;
}

int cuStreamCreate(Stream **stream, unsigned flags) {
    BEGIN("%u", flags);
    *stream = calloc(1, sizeof **stream);
    (*stream)->last = &(*stream)->first;
    live++;
    return 0;
}
int cuStreamDestroy_v2(Stream *stream) {
    BEGIN(" ");
    if (stream->captures == stream)
        return INVALID;
    live--;
    free(stream);
    return 0;
}
int cuEventCreate(Event **event, unsigned flags) {
    BEGIN("%u", flags);
    *event = calloc(1, sizeof **event);
    live++;
    return 0;
}
int cuEventDestroy_v2(Event *event) {
    BEGIN(" ");
    live--;
    free(event);
    return 0;
}
int cuEventRecord(Event *event, Stream *stream) {
    BEGIN(" ");
    event->recorded = stream;
    return stream->captures == NULL ? INVALID : 0;
}
/* In a graph alone: the first wait of another stream takes it into the graph, one of the graph's own stream joins it. */
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    Stream *other = event->recorded;
    BEGIN(" ");
    if (other == NULL || other->captures == NULL || flags != 0)
        return INVALID;
    if (stream == other->captures) {
        stream->open -= other->captures != other;
        other->captures = other == stream ? other : NULL;
        return 0;
    }
    stream->captures = other->captures;
    other->captures->open++;
    return 0;
}

static Work *put(Stream *stream) {
    Stream *to = stream->captures != NULL ? stream->captures : stream;
    Work *work = calloc(1, sizeof *work);
    *to->last = work;
    to->last = &work->next;
    return work;
}

static int launched(const Work *work) {
    Launch launch = {.arguments = (void **)work->arguments, .argument_count = work->kernel->count};
    Report report;
    uint32_t numbers[64];
    unsigned long count;
    void *library = work->kernel->module->library;
    Variable *(*variables)(unsigned long *) = (Variable * (*)(unsigned long *)) dlsym(library, "emu_variables");
    Variable *first = variables(&count);
    launch.function = dlsym(library, work->kernel->symbol);
    launch.grid = (Dim){work->grid, 1, 1};
    launch.block = (Dim){work->block, 1, 1};
    for (unsigned long n = 0; n < count; n++) {
        launch.shared[launch.shared_count][0] = first[n].window * WINDOW;
        launch.shared[launch.shared_count++][1] = first[n].bytes;
    }
    if (work->shared) {
        launch.shared[launch.shared_count][0] = WINDOW;
        launch.shared[launch.shared_count++][1] = work->shared;
    }
    for (unsigned n = 0; n < launch.shared_count; n++)
        numbers[n] = emu_map(launch.shared[n][0], launch.shared[n][1], 2, 0);
    int failed = emu_launch(&launch, &report);
    for (unsigned n = 0; n < launch.shared_count; n++)
        emu_unmap(numbers[n]);
    if (failed)
        fprintf(stderr, "%s: %s\n", work->kernel->symbol, report.text);
    return failed;
}

static int done(const Work *work) {
    for (; work != NULL; work = work->next) {
        if (work->kernel != NULL && launched(work))
            return FAULT;
        if (work->kernel == NULL && work->from != NULL)
            memcpy(work->to, work->from, work->bytes);
        else if (work->kernel == NULL)
            memset(work->to, 0, work->bytes);
    }
    return 0;
}

int cuMemcpyHtoDAsync_v2(char *to, const void *from, size_t bytes, Stream *stream) {
    BEGIN("%lu %zu", place(to), bytes);
    if (!there(to, bytes))
        return INVALID;
    Work *work = put(stream);
    char *copy = malloc(bytes);
    memcpy(copy, from, bytes);
    work->to = to, work->from = copy, work->bytes = bytes;
    return 0;
}
int cuMemcpyDtoHAsync_v2(char *to, const char *from, size_t bytes, Stream *stream) {
    BEGIN("%lu %zu", place(from), bytes);
    if (!there(from, bytes))
        return INVALID;
    Work *work = put(stream);
    work->to = to, work->from = from, work->bytes = bytes;
    return 0;
}
int cuMemcpyDtoDAsync_v2(char *to, const char *from, size_t bytes, Stream *stream) {
    BEGIN("%lu %lu %zu", place(to), place(from), bytes);
    if (!there(to, bytes) || !there(from, bytes))
        return INVALID;
    Work *work = put(stream);
    work->to = to, work->from = from, work->bytes = bytes;
    return 0;
}
int cuMemsetD8Async(char *to, unsigned char value, size_t bytes, Stream *stream) {
    BEGIN("%lu %zu", place(to), bytes);
    if (!there(to, bytes) || value != 0)
        return INVALID;
    Work *work = put(stream);
    work->to = to, work->bytes = bytes;
    return 0;
}
int cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **parameters, void **extra) {
    int at = snprintf(line, sizeof line, "%s %u %u %u", kernel->symbol, gx, bx, shared);
    for (unsigned n = 0; n < kernel->count; n++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %lu", place(*(void **)parameters[n]));
    if (fails(__func__, line))
        return OUT_OF_MEMORY;
    if (!current || gy * gz * by * bz != 1 || extra != NULL || kernel->count > MOST)
        return INVALID;
    Work *work = put(stream);
    work->kernel = kernel, work->grid = gx, work->block = bx, work->shared = shared;
    for (unsigned n = 0; n < kernel->count; n++)
        work->arguments[n] = *(void **)parameters[n];
    return 0;
}

int cuStreamSynchronize(Stream *stream) {
    BEGIN(" ");
    if (stream->captures != NULL)
        return INVALID;
    int result = done(stream->first);
    stream->first = NULL, stream->last = &stream->first;
    return result;
}
int cuStreamBeginCapture_v2(Stream *stream, int mode) {
    BEGIN("%d", mode);
    int result = done(stream->first); /* what was before is no part of it */
    stream->first = NULL, stream->last = &stream->first;
    stream->captures = stream;
    return result;
}
int cuStreamEndCapture(Stream *stream, Work **graph) {
    BEGIN(" ");
    if (stream->captures != stream)
        return ILLEGAL;
    if (stream->open != 0) {
        stream->captures = NULL;
        return UNJOINED;
    }
    *graph = put(stream); /* a graph is not 0, also one without work */
    (*graph)->to = memory;
    *graph = stream->first;
    stream->first = NULL, stream->last = &stream->first, stream->captures = NULL;
    live++;
    return 0;
}
int cuGraphInstantiateWithFlags(Work **ready, Work *graph, unsigned long flags) {
    BEGIN("%lu", flags);
    *ready = graph;
    live++;
    return 0;
}
int cuGraphDestroy(Work *graph) {
    BEGIN(" ");
    live--;
    return graph == NULL ? INVALID : 0;
}
int cuGraphExecDestroy(Work *graph) {
    BEGIN(" ");
    live--;
    return graph == NULL ? INVALID : 0;
}
int cuGraphLaunch(Work *graph, Stream *stream) {
    BEGIN(" ");
    for (; graph != NULL; graph = graph->next) {
        Work *work = put(stream), *next = work->next;
        *work = *graph;
        work->next = next;
    }
    return 0;
}
