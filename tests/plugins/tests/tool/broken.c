/* A library with the backend `acme`. A macro chooses its mistake. */
#include <stdio.h>
#include <stdlib.h>

#include "device_plugin.h"

#define TEXT(text) { text, sizeof(text) - 1 }

#ifdef EXPORTED
DEVICE_PLUGIN_EXPORT int EXPORTED(void);
int EXPORTED(void) { return 1; }
#endif

#ifdef CONSTRUCTOR
__attribute__((constructor)) static void construct(void) {
    printf("in the constructor\n");
    fflush(stdout);
    CONSTRUCTOR;
}
#endif

static uint32_t device_count(void *backend, size_t *count, const dp_report *report) {
    (void)backend, (void)report;
    *count = 0;
    return DP_OK;
}

static uint32_t properties(void *backend, size_t ordinal, void *context,
                           void (*receive)(void *context, const dp_properties *properties), const dp_report *report) {
    (void)backend, (void)ordinal, (void)context, (void)receive, (void)report;
    return DP_OTHER;
}

static uint32_t open_device(void *backend, size_t ordinal, const dp_loss *loss, void **device, const dp_report *report) {
    (void)backend, (void)ordinal, (void)loss, (void)device, (void)report;
    return DP_OTHER;
}

static uint32_t memory_info(void *device, dp_memory_info *info, const dp_report *report) {
    (void)device, (void)info, (void)report;
    return DP_OTHER;
}

static uint32_t allocate(void *device, const dp_allocate_options *options, void **memory, const dp_report *report) {
    (void)device, (void)options, (void)memory, (void)report;
    return DP_OTHER;
}

static void free_memory(void *device, void *memory) { (void)device, (void)memory; }

static uint32_t write_bytes(void *device, const dp_span *destination, const void *source, const dp_report *report) {
    (void)device, (void)destination, (void)source, (void)report;
    return DP_OTHER;
}

static uint32_t read_bytes(void *device, const dp_span *source, void *destination, const dp_report *report) {
    (void)device, (void)source, (void)destination, (void)report;
    return DP_OTHER;
}

static uint32_t copy(void *device, const dp_span *source, const dp_span *destination, const dp_report *report) {
    (void)device, (void)source, (void)destination, (void)report;
    return DP_OTHER;
}

static const dp_backend_api BACKEND = {
    .struct_size = sizeof(dp_backend_api),
    .device_count = device_count,
    .properties = properties,
    .open = open_device,
};

static const dp_device_api DEVICE = {
    .struct_size = sizeof(dp_device_api),
    .memory_info = memory_info,
    .allocate = allocate,
    .free = free_memory,
    .write = write_bytes,
#ifndef NO_READ
    .read = read_bytes,
#endif
    .copy = copy,
};

static uint32_t load(dp_str name, const dp_option *const *options, size_t option_count, dp_backend *backend,
                     const dp_report *report) {
    (void)name, (void)options, (void)option_count, (void)report, (void)read_bytes;
#ifdef LOAD
    LOAD;
#endif
    backend->backend_api = &BACKEND;
    backend->device_api = &DEVICE;
    return DP_OK;
}

#ifndef MAJOR
#define MAJOR DEVICE_PLUGIN_MAJOR
#endif

const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    static const dp_option_spec LEVEL = {
        .struct_size = sizeof(dp_option_spec),
        .name = TEXT("level"),
        .description = TEXT("a number"),
    };
    static const dp_option_spec *const OPTIONS[] = { &LEVEL };
    static const dp_entry ACME = {
        .struct_size = sizeof(dp_entry),
        .group = TEXT("device.backends"),
        .name = TEXT("acme"),
        .package = TEXT("device-acme"),
        .version = TEXT("1.2.0"),
        .options = OPTIONS,
        .option_count = 1,
    };
    static const dp_entry *const ENTRIES[] = { &ACME };
    static const dp_plugin PLUGIN = {
        .struct_size = sizeof(dp_plugin),
        .major = MAJOR,
        .minor = DEVICE_PLUGIN_MINOR,
        .entries = ENTRIES,
        .entry_count = 1,
        .load = load,
    };
    (void)host, (void)report;
    return &PLUGIN;
}
