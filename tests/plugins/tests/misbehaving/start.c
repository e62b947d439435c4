/*
 * Libraries whose start goes wrong. Each is this file with one macro:
 *
 *   NO_SYMBOL        exports another function
 *   LATER_SYMBOL     exports `device_plugin_v1` alone
 *   LATER_MAJOR      is of another major version
 *   REFUSES          returns NULL after a report
 *   REFUSES_SILENTLY returns NULL without one
 *   SIZE=n           has a table of this size
 *   NULL_ENTRIES     has entries, at NULL
 *   NULL_ENTRY       has an entry that is NULL
 *   ODD_ENTRY        has an entry of an odd size
 *   NULL_OPTIONS     has an entry with options at NULL, and no function `load`
 *   UNRESOLVED       calls a function that does not exist
 *   STRANGER         offers something for another group
 *   NO_ENTRIES       offers nothing
 */
#include "device_plugin.h"

#ifdef UNRESOLVED
void a_function_that_no_library_has(void);

__attribute__((constructor)) static void run(void) {
    a_function_that_no_library_has();
}
#endif

#ifdef NO_SYMBOL
#define device_plugin_v0 another_function
DEVICE_PLUGIN_EXPORT const dp_plugin *another_function(const dp_host *host, const dp_report *report);
#endif

#ifdef LATER_SYMBOL
#define device_plugin_v0 device_plugin_v1
DEVICE_PLUGIN_EXPORT const dp_plugin *device_plugin_v1(const dp_host *host, const dp_report *report);
#endif

#define TEXT(text) {text, sizeof text - 1}

const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    static dp_entry entry = {
        .struct_size = sizeof entry,
        .group = TEXT("device.backends"),
        .name = TEXT("started"),
        .package = TEXT("starts"),
        .version = TEXT("1.0.0"),
    };
    static const dp_entry *entries[] = {&entry};
    static dp_plugin plugin = {
        .struct_size = sizeof plugin,
        .major = DEVICE_PLUGIN_MAJOR,
        .minor = DEVICE_PLUGIN_MINOR,
        .entries = entries,
        .entry_count = 1,
    };
    (void)host, (void)report;
#if defined(LATER_MAJOR)
    plugin.major = 3;
#elif defined(REFUSES)
    static const dp_str cause = TEXT("the key is under the mat");
    const dp_failure failure = {
        .struct_size = sizeof failure,
        .message = TEXT("the licence is missing"),
        .causes = &cause,
        .cause_count = 1,
    };
    report->fail(report->context, &failure);
    return NULL;
#elif defined(REFUSES_SILENTLY)
    return NULL;
#elif defined(SIZE)
    plugin.struct_size = SIZE;
#elif defined(NULL_ENTRIES)
    plugin.entries = NULL;
#elif defined(NULL_ENTRY)
    entries[0] = NULL;
#elif defined(ODD_ENTRY)
    entry.struct_size = 13;
#elif defined(NULL_OPTIONS)
    entry.option_count = 5;
#elif defined(STRANGER)
    entry.group = (dp_str)TEXT("codec.decoders");
#elif defined(NO_ENTRIES)
    plugin.entry_count = 0;
#endif
    return &plugin;
}
