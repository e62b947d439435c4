/* `myc` with kernel sets that are wrong in one way each: the name of the entry, after `myc__`. `other` is `myc` again. */
#include <stdlib.h>

#define device_plugin_v0 myc_v0
#include "myc.c"
#undef device_plugin_v0

static uint32_t launch_fails(void *set, void *device, void *stream, const dk_call *call, const dp_report *report) {
    (void)set, (void)device, (void)stream, (void)call;
    return fail(report, DP_OTHER, "the kernel is not in the mood");
}

/* A status that the interface does not have. */
static uint32_t launch_invents(void *set, void *device, void *stream, const dk_call *call, const dp_report *report) {
    (void)set, (void)device, (void)stream, (void)call, (void)report;
    return 77;
}

/* A report whose text is longer than all memory. */
static uint32_t launch_shouts(void *set, void *device, void *stream, const dk_call *call, const dp_report *report) {
    (void)set, (void)device, (void)stream, (void)call;
    const dp_failure failure = {.struct_size = sizeof failure, .message = {"x", SIZE_MAX}};
    report->fail(report->context, &failure);
    return DP_OTHER;
}

/* Supports what has 4 elements. */
static uint32_t supports_four(void *set, size_t ordinal, const dk_call *call) {
    (void)set, (void)ordinal;
    return call->outputs[0].rank == 1 && call->outputs[0].shape[0] == 4 && !call->outputs[0].span.memory;
}

static const dk_kernel *const one_null[] = {NULL};

static const dk_kernel long_name = {.struct_size = sizeof(dk_kernel), .name = {"x", SIZE_MAX}};
static const dk_kernel no_utf8 = {.struct_size = sizeof(dk_kernel), .name = {"add\xff", 4}};
static const dk_kernel small = {.struct_size = sizeof(size_t)};
static const dk_kernel *const one_long_name[] = {&long_name}, *const one_no_utf8[] = {&no_utf8},
                              *const one_small[] = {&small};

static const dk_set_api sound = {
    .struct_size = sizeof(dk_set_api),
    .kernels = kernel_list,
    .kernel_count = 3,
    .launch = launch,
};

static int is(dp_str text, const char *other) {
    const size_t before = strlen("myc__");
    return text.len == before + strlen(other) && memcmp(text.start + before, other, text.len - before) == 0;
}

static uint32_t load_broken(dp_str group, dp_str name, const dp_option *const *options, size_t option_count, void *table,
                            const dp_report *report) {
    dk_kernels *kernels = table;
    (void)group, (void)options, (void)option_count;
    if (is(name, "refuses")) return fail(report, DP_UNAVAILABLE, "there is no compiler");
    kernels->major = is(name, "later") ? 7 : DEVICE_KERNELS_MAJOR;
    kernels->minor = DEVICE_KERNELS_MINOR;
    if (is(name, "without_table")) return DP_OK;
    dk_set_api *api = malloc(sizeof *api); /* valid forever */
    *api = sound;
    if (is(name, "without_launch")) api->launch = NULL;
    if (is(name, "without_rows")) api->kernels = NULL;
    if (is(name, "null_row")) api->kernels = one_null, api->kernel_count = 1;
    if (is(name, "endless")) api->kernel_count = SIZE_MAX;
    if (is(name, "long_name")) api->kernels = one_long_name, api->kernel_count = 1;
    if (is(name, "no_utf8")) api->kernels = one_no_utf8, api->kernel_count = 1;
    if (is(name, "small_row")) api->kernels = one_small, api->kernel_count = 1;
    if (is(name, "invents")) api->launch = launch_invents;
    if (is(name, "shouts")) api->launch = launch_shouts;
    if (is(name, "fails")) api->launch = launch_fails;
    if (is(name, "four")) api->supports = supports_four;
    kernels->api = api;
    return DP_OK;
}

#define ENTRY(text, needs_minor)                    \
    {.struct_size = sizeof(dp_entry),               \
     .group = TEXT("device.kernels"),               \
     .name = TEXT("myc__" text),                    \
     .package = TEXT("device-broken"),              \
     .version = TEXT("0.1.0"),                      \
     .requires_minor = needs_minor}
static const dp_entry broken[] = {
    ENTRY("refuses", 0),  ENTRY("later", 0), ENTRY("without_table", 0), ENTRY("without_launch", 0), ENTRY("without_rows", 0),
    ENTRY("null_row", 0), ENTRY("fails", 0), ENTRY("four", 0),          ENTRY("next", 99),         ENTRY("endless", 0),
    ENTRY("long_name", 0), ENTRY("no_utf8", 0), ENTRY("small_row", 0),  ENTRY("invents", 0),       ENTRY("shouts", 0),
};
static const dp_entry other = {
    .struct_size = sizeof(dp_entry),
    .group = TEXT("device.backends"),
    .name = TEXT("other"),
    .package = TEXT("device-myc"),
    .version = TEXT("0.1.0"),
};
static const dp_entry *const list[] = {&entry, &other, &broken[0], &broken[1], &broken[2], &broken[3],
                                       &broken[4], &broken[5], &broken[6], &broken[7], &broken[8],
                                       &broken[9], &broken[10], &broken[11], &broken[12], &broken[13],
                                       &broken[14]};

static const dp_plugin broken_plugin = {
    .struct_size = sizeof broken_plugin,
    .major = DEVICE_PLUGIN_MAJOR,
    .minor = DEVICE_PLUGIN_MINOR,
    .entries = list,
    .entry_count = sizeof list / sizeof *list,
    .load = load,
    .load_entry = load_broken,
};

DEVICE_PLUGIN_EXPORT const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    (void)myc_v0(host, report);
    return &broken_plugin;
}
