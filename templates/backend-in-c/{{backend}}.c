/*
 * The backend `{{backend}}`, in C: two devices with 256 MiB each, which is memory of the host. README.md says how to build and
 * install it, and what to change in a real one. The rules are in device_plugin.h, by number.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_plugin.h"
#include "kernels.h"

enum { DEVICES = 2 };

/* The memory of each device, in bytes. The option `megabytes` sets it. */
static uint64_t total = (uint64_t)256 << 20;

/*
 * One allocation. The program has its address as a `void *` and passes that to the other functions. A real one has the
 * driver's handle in the place of `bytes`.
 */
struct memory {
    struct memory *previous, *next; /* in the list of its device */
    unsigned char *bytes; /* NULL once the device is closed */
    size_t len;
};

/* One device. It is static, as a device is never destroyed (rule D21): the program may open, close and open it again. */
static struct device {
    int is_open;
    struct memory *first;
    uint64_t used;
} devices[DEVICES];

/*
 * Any thread may call any function at any time (rule 5), and two copies may race for the same bytes (rule D6). In C
 * that is undefined behaviour, so one lock is held while bytes are copied too. Where a driver copies, it needs none.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define TEXT(literal) {literal, sizeof(literal) - 1}

/* Reports an error and returns its status (rule 2). The program copies the message. */
static uint32_t fail(const dp_report *report, uint32_t status, const char *message) {
    const dp_failure failure = {.struct_size = sizeof failure, .message = {message, strlen(message)}};
    report->fail(report->context, &failure);
    return status;
}

/* ---- The backend: which devices exist. Nothing here opens one. ---- */

static uint32_t device_count(void *backend, size_t *count, const dp_report *report) {
    (void)backend, (void)report;
    *count = DEVICES;
    return DP_OK;
}

static uint32_t properties(void *backend, size_t ordinal, void *context,
                           void (*receive)(void *context, const dp_properties *properties), const dp_report *report) {
    (void)backend, (void)ordinal, (void)report;
    dp_properties found = {.struct_size = sizeof found, .name = TEXT("memory of the host, in C"), .kind = DP_KIND_CPU};
    pthread_mutex_lock(&lock);
    found.total_memory = total;
    pthread_mutex_unlock(&lock);
    receive(context, &found); /* copies it */
    return DP_OK;
}

/* The program has compared the ordinal with the count. The device is open already if a manifest gives the backend a second
 * name, which is in use too. */
static uint32_t open_device(void *backend, size_t ordinal, const dp_loss *loss, void **device,
                            const dp_report *report) {
    struct device *opened = &devices[ordinal];
    (void)backend;
    (void)loss; /* This device is never lost. One that can be keeps a copy of `*loss`. */
    pthread_mutex_lock(&lock);
    const int was_open = opened->is_open;
    opened->is_open = 1;
    pthread_mutex_unlock(&lock);
    if (was_open) return fail(report, DP_OTHER, "the device is open already, under another name of the backend");
    *device = opened;
    return DP_OK;
}

/* ---- An open device ---- */

static uint32_t memory_info(void *object, dp_memory_info *info, const dp_report *report) {
    struct device *device = object;
    (void)report;
    pthread_mutex_lock(&lock);
    info->total = total;
    info->free = total - device->used;
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

static uint32_t allocate(void *object, const dp_allocate_options *options, void **memory, const dp_report *report) {
    struct device *device = object;
    pthread_mutex_lock(&lock);
    const uint64_t left = total - device->used;
    struct memory *made = options->len <= left ? malloc(sizeof *made) : NULL;
    /* New memory is initialised (rule D1), so it is not from `malloc`. */
    unsigned char *bytes = made ? calloc(1, options->len) : NULL;
    if (bytes) {
        *made = (struct memory){NULL, device->first, bytes, options->len};
        if (made->next) made->next->previous = made;
        device->first = made;
        device->used += options->len;
    }
    pthread_mutex_unlock(&lock);
    if (bytes) {
        *memory = made;
        return DP_OK;
    }
    free(made);
    /* The program makes the message of the two numbers. */
    const dp_failure failure = {.struct_size = sizeof failure, .asked = options->len, .free = left};
    report->fail(report->context, &failure);
    return DP_OUT_OF_MEMORY;
}

/* Also called for memory of a device that was closed since, and perhaps opened again. */
static void free_memory(void *object, void *memory) {
    struct device *device = object;
    struct memory *old = memory;
    pthread_mutex_lock(&lock);
    if (old->bytes) {
        *(old->previous ? &old->previous->next : &device->first) = old->next;
        if (old->next) old->next->previous = old->previous;
        device->used -= old->len;
    }
    pthread_mutex_unlock(&lock);
    free(old->bytes);
    free(old);
}

/* Where the bytes of a span begin. Nothing in this file checks a range: the program has done so. */
static unsigned char *start_of(const dp_span *span) {
    return ((struct memory *)span->memory)->bytes + span->offset;
}

static uint32_t write_bytes(void *device, const dp_span *destination, const void *source, const dp_report *report) {
    (void)device, (void)report;
    pthread_mutex_lock(&lock);
    memcpy(start_of(destination), source, destination->len);
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

static uint32_t read_bytes(void *device, const dp_span *source, void *destination, const dp_report *report) {
    (void)device, (void)report;
    pthread_mutex_lock(&lock);
    memcpy(destination, start_of(source), source->len);
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

/* Both may be parts of one memory, and never overlap. */
static uint32_t copy(void *device, const dp_span *source, const dp_span *destination, const dp_report *report) {
    (void)device, (void)report;
    pthread_mutex_lock(&lock);
    memcpy(start_of(destination), start_of(source), source->len);
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

/* Gives all memory back. The program frees the objects later, or never. */
static uint32_t close_device(void *object, const dp_report *report) {
    struct device *device = object;
    (void)report;
    pthread_mutex_lock(&lock);
    for (struct memory *each = device->first; each; each = each->next) {
        free(each->bytes);
        each->bytes = NULL;
    }
    *device = (struct device){0};
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

/* For kernels. The owner of a kind defines what its number is; this one is the address of the bytes. */
static uint32_t memory_native_handle(void *device, void *memory, dp_str kind, uint64_t *handle) {
    (void)device;
    if (kind.len != strlen("host.pointer") || memcmp(kind.start, "host.pointer", kind.len) != 0) return 0;
    *handle = (uintptr_t)((struct memory *)memory)->bytes;
    return 1;
}

/* ---- Kernels. Without queues they have done their work when they return (rule K4). ---- */

static uint32_t launch(void *set, void *device, void *stream, const dk_call *call, const dp_report *report) {
    struct kernel kernel;
    (void)set, (void)device, (void)stream;
    if (!kernel_copy(&kernel, call)) return fail(report, DP_UNSUPPORTED, "there is no kernel for this operator");
    pthread_mutex_lock(&lock);
    kernel_compute(&kernel, start_of);
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

/* Never: each kernel here waits for the one lock, and so for kernels of other streams. */
static uint32_t is_short(void *set, const dk_call *call) {
    (void)set, (void)call;
    return 0;
}

static const dk_set_api set_api = {
    .struct_size = sizeof set_api,
    .kernels = kernel_list,
    .kernel_count = sizeof kernel_list / sizeof *kernel_list,
    .is_short = is_short,
    .launch = launch,
};

/* ---- What the library offers ---- */

static const dp_backend_api backend_api = {
    .struct_size = sizeof backend_api,
    .device_count = device_count,
    .properties = properties,
    .open = open_device,
};

/* A function that is missing is NULL, and the program does without it: it fills by writing, copies between devices by way of
 * the host, and has a thread for each stream. */
static const dp_device_api device_api = {
    .struct_size = sizeof device_api,
    .memory_info = memory_info,
    .allocate = allocate,
    .free = free_memory,
    .write = write_bytes,
    .read = read_bytes,
    .copy = copy,
    .close = close_device,
    .memory_native_handle = memory_native_handle,
};

/* Sets the memory of each device. The message of an error says what is wrong, who set it and what is expected. */
static uint32_t set_megabytes(const dp_option *option, const dp_report *report) {
    static const dp_str program = TEXT("the program");
    const dp_str setter = option->variable.len ? option->variable : program;
    char text[8] = "", *end = text, message[160];
    if (option->value.len < sizeof text) memcpy(text, option->value.start, option->value.len);
    const unsigned long megabytes = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || megabytes == 0) {
        snprintf(message, sizeof message, "option megabytes=\"%.*s\", set by %.*s, is invalid: expected 1 to 9999999",
                 (int)(option->value.len < 40 ? option->value.len : 40), option->value.start, (int)setter.len, setter.start);
        return fail(report, DP_INVALID, message);
    }
    /* `load` runs again for a second name of the backend, perhaps with devices open. */
    int is_open = 0;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < DEVICES; at++) is_open |= devices[at].is_open;
    if (!is_open) total = (uint64_t)megabytes << 20;
    pthread_mutex_unlock(&lock);
    return is_open ? fail(report, DP_INVALID, "option megabytes comes too late: a device of this library is open") : DP_OK;
}

/* Runs when a device of this name is first used. Find the driver here, by `dlopen`, and start no device. If it is not
 * there, return DP_UNAVAILABLE: the program calls this again at a later use. The program passes only options that
 * `entry` has, and only those that are set. */
static uint32_t load(dp_str name, const dp_option *const *options, size_t option_count, dp_backend *backend,
                     const dp_report *report) {
    (void)name; /* There is one. */
    if (option_count == 1 && set_megabytes(options[0], report) != DP_OK) return DP_INVALID;
    backend->backend_api = &backend_api;
    backend->device_api = &device_api;
    return DP_OK;
}

/* The only entry of another group than "device.backends" is that of the kernels. */
static uint32_t load_entry(dp_str group, dp_str name, const dp_option *const *options, size_t option_count, void *table,
                           const dp_report *report) {
    dk_kernels *kernels = table;
    (void)group, (void)name, (void)options, (void)option_count, (void)report;
    kernels->major = DEVICE_KERNELS_MAJOR;
    kernels->minor = DEVICE_KERNELS_MINOR;
    kernels->api = &set_api;
    return DP_OK;
}

static const dp_option_spec megabytes = {
    .struct_size = sizeof megabytes,
    .name = TEXT("megabytes"),
    .description = TEXT("the memory of each device, in MiB"),
};

static const dp_entry entry = {
    .struct_size = sizeof entry,
    .group = TEXT("device.backends"),
    .name = TEXT("{{backend}}"),
    .package = TEXT("{{project-name}}"),
    .version = TEXT("0.1.0"),
    .options = (const dp_option_spec *const[]){&megabytes},
    .option_count = 1,
};

static const dp_entry kernels_entry = {
    .struct_size = sizeof kernels_entry,
    .group = TEXT("device.kernels"),
    .name = TEXT("{{backend}}"), /* the backend's */
    .package = TEXT("{{project-name}}"),
    .version = TEXT("0.1.0"),
};

static const dp_plugin plugin = {
    .struct_size = sizeof plugin,
    .major = DEVICE_PLUGIN_MAJOR,
    .minor = DEVICE_PLUGIN_MINOR,
    .entries = (const dp_entry *const[]){&entry, &kernels_entry},
    .entry_count = 2,
    .load = load,
    .load_entry = load_entry,
};

const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    (void)host, (void)report;
    return &plugin;
}
