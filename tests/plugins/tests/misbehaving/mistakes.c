/*
 * A library with one backend for each mistake. The name of a backend is its mistake; `sound` makes none.
 *
 * A device has host memory. Backends whose names begin with "queue" also have queues, which do their work at once.
 */
#include "device_plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Functions of the tables that are missing, one for each backend. */
#define REQUIRED(X)                                                                                                    \
    X(backend, device_count) X(backend, properties) X(backend, open)                                                   \
    X(device, memory_info) X(device, allocate) X(device, free) X(device, write) X(device, read) X(device, copy)        \
    X(stream, destroy) X(stream, write) X(stream, read) X(stream, copy) X(stream, record) X(stream, query)             \
    X(stream, synchronize)                                                                                             \
    X(event, destroy) X(event, query) X(event, synchronize)

#define NAME(table, function) "no_" #table "_" #function,

static const char *const MISTAKES[] = {
    REQUIRED(NAME)
    /* tables */
    "sound", "queue", "size_0", "size_1", "size_12", "size_8", "size_4097", "larger", "cut_behind_copy",
    "cut_before_copy",
    "null_backend_api", "null_device_api", "queue_null_stream_api", "queue_null_event_api", "queue_odd_event_api",
    "nothing",
    /* calls */
    "load_silent", "load_unavailable", "no_report", "unknown_status", "dropped_status", "null_message", "null_failure",
    "odd_failure", "no_causes", "null_causes", "many_causes", "no_utf8", "huge_message", "fails_twice",
    "ok_after_report",
    "no_properties", "null_properties", "odd_properties", "two_properties", "bad_pci", "bad_alignment", "unsure_properties",
    "too_many", "absent", "silently_absent", "lost_while_opening", "lost_and_not_open", "lost_later", "lost_on_a_thread",
    "lost_silently", "lost_twice", "full", "full_of_unknown",
    "full_silently",
    /* host memory */
    "host_shorter", "host_null", "host_late", "host_without_release",
    /* reads */
    "queue_dropped", "queue_dropped_refusal", "queue_refusal_kept", "queue_never", "queue_own_bytes", "queue_wrong_len",
    "queue_wrong_len_given_back", "queue_odd_failure",
    "queue_no_bytes", "queue_null_bytes", "queue_failed", "queue_failed_silently", "queue_lost", "queue_released_later",
    "queue_watched",
    /* twice, or NULL */
    "null_device", "null_memory", "queue_null_stream", "queue_null_event",
    "endless_message", "endless_cause", "controls", "endless_name",
    "queue_finished_twice", "queue_released_twice", "queue_finished_and_released", "queue_released_and_finished",
    "queue_watched_late", "queue_source_released_twice",
    /* what only the validating layer sees */
    "reads_too_far", "reads_nothing", "queue_reads_too_far", "queue_reads_the_half", "queue_keeps_sources",
    "queue_writes_late", "queue_keeps_destinations", "queue_undone_event", "queue_later_event_first",
    "queue_refused_and_finished", "queue_locks_itself", "queue_locks_the_device",
};
enum { COUNT = sizeof MISTAKES / sizeof *MISTAKES };

/* What a test reads by native handles. */
static uint64_t released, destroyed, watched_before, watched_after;

struct backend {
    const char *mistake;
    struct {
        dp_device_api api;
        void *more[4];
    } device;
    dp_backend_api backend;
    dp_stream_api stream;
    dp_event_api event;
};

struct device {
    struct backend *backend;
    dp_loss loss;
};

struct memory {
    size_t len;
    unsigned char bytes[];
};

struct stream {
    struct backend *backend;
    size_t events;
    /* A read that was not finished. */
    dp_done done;
    dp_host_bytes destination;
    /* A write that is done later. */
    unsigned char *late;
    dp_host_bytes source;
};

/* What a device and its queues lock while they finish a read. */
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER, stream_lock = PTHREAD_MUTEX_INITIALIZER;

static int wrong(const struct backend *backend, const char *mistake) {
    return strcmp(backend->mistake, mistake) == 0;
}

static int has_queues(const struct backend *backend) {
    return strncmp(backend->mistake, "queue", 5) == 0 || strncmp(backend->mistake, "no_stream", 9) == 0 ||
           strncmp(backend->mistake, "no_event", 8) == 0;
}

static dp_str text(const char *text) {
    return (dp_str){text, strlen(text)};
}

static uint32_t fail(const dp_report *report, uint32_t status, const char *message) {
    dp_failure failure = {.struct_size = sizeof failure, .message = text(message), .free = DP_UNKNOWN};
    report->fail(report->context, &failure);
    return status;
}

/* The mistakes of an error. Returns DP_OK for backends that make another one. */
static uint32_t mistaken_error(const struct backend *backend, const dp_report *report) {
    dp_failure failure = {.struct_size = sizeof failure, .message = text("the fan is stuck"), .free = DP_UNKNOWN};
    const dp_str causes[] = {text("no current"), text("a fuse is gone")};
    uint32_t status = DP_OTHER;
    if (wrong(backend, "no_report")) {
        return DP_OTHER;
    } else if (wrong(backend, "unknown_status")) {
        status = 4711;
    } else if (wrong(backend, "dropped_status")) {
        status = DP_DROPPED;
    } else if (wrong(backend, "null_message")) {
        failure.message = (dp_str){NULL, 99};
    } else if (wrong(backend, "null_failure")) {
        report->fail(report->context, NULL);
        return DP_OTHER;
    } else if (wrong(backend, "odd_failure")) {
        failure.struct_size = 3;
    } else if (wrong(backend, "no_causes")) {
        failure.causes = causes;
    } else if (wrong(backend, "null_causes")) {
        failure.cause_count = 99;
    } else if (wrong(backend, "many_causes")) {
        static dp_str many[1 << 20];
        failure.cause_count = sizeof many / sizeof *many;
        failure.causes = many;
        for (size_t at = 0; at < failure.cause_count; at++) {
            many[at] = causes[at % 2];
        }
    } else if (wrong(backend, "no_utf8")) {
        failure.message = text("the fan \xff\xfe is stuck");
    } else if (wrong(backend, "huge_message")) {
        size_t len = 1u << 16;
        char *huge = malloc(len);
        memset(huge, 'x', len);
        failure.message = (dp_str){huge, len};
        report->fail(report->context, &failure);
        free(huge);
        return DP_OTHER;
    } else if (wrong(backend, "endless_message")) {
        failure.message.len = SIZE_MAX;
    } else if (wrong(backend, "endless_cause")) {
        static const dp_str endless = {"no current", (1u << 16) + 1};
        failure.causes = &endless;
        failure.cause_count = 1;
    } else if (wrong(backend, "controls")) {
        failure.message = (dp_str){"the \033[31mfan\nis\0stuck", 21};
    } else if (wrong(backend, "fails_twice")) {
        fail(report, DP_OTHER, "the first report");
        failure.message = text("the second report");
    } else if (wrong(backend, "ok_after_report")) {
        status = DP_OK;
    } else if (wrong(backend, "full")) {
        status = DP_OUT_OF_MEMORY;
        failure.message = text("the memory is full");
        failure.asked = 64;
        failure.free = 5;
    } else if (wrong(backend, "full_of_unknown")) {
        status = DP_OUT_OF_MEMORY;
        failure.message = text("the memory is full");
        failure.asked = 64;
    } else if (wrong(backend, "full_silently")) {
        status = DP_OUT_OF_MEMORY;
        failure.message = text("");
        failure.asked = 64;
        failure.free = 5;
    } else {
        return DP_OK;
    }
    report->fail(report->context, &failure);
    return status;
}

/* Devices. */

static uint32_t device_memory_info(void *device, dp_memory_info *info, const dp_report *report) {
    (void)device, (void)report;
    pthread_mutex_lock(&device_lock);
    info->total = 1000;
    pthread_mutex_unlock(&device_lock);
    return DP_OK;
}

static void report_loss(struct device *device, const char *message) {
    dp_failure failure = {.struct_size = sizeof failure, .message = text(message)};
    device->loss.report(device->loss.context, &failure);
}

static void *lose_on_a_thread(void *device) {
    report_loss(device, "the cable is out");
    return NULL;
}

static uint32_t device_allocate(void *object, const dp_allocate_options *options, void **memory,
                                const dp_report *report) {
    struct device *device = object;
    uint32_t status = mistaken_error(device->backend, report);
    if (status != DP_OK) {
        return status;
    }
    if (wrong(device->backend, "lost_later")) {
        report_loss(device, "the cable is out");
    } else if (wrong(device->backend, "lost_silently")) {
        device->loss.report(device->loss.context, NULL);
    } else if (wrong(device->backend, "lost_twice")) {
        report_loss(device, "the cable is out");
        report_loss(device, "and the plug too");
    } else if (wrong(device->backend, "lost_on_a_thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, lose_on_a_thread, device);
        pthread_join(thread, NULL);
    }
    struct memory *allocated = calloc(1, sizeof *allocated + options->len);
    if (!allocated) {
        return fail(report, DP_OUT_OF_MEMORY, "the host's memory is full");
    }
    allocated->len = options->len;
    if (wrong(device->backend, "null_memory")) {
        free(allocated);
        return DP_OK;
    }
    *memory = allocated;
    return DP_OK;
}

static void device_free(void *device, void *memory) {
    (void)device;
    free(memory);
}

static unsigned char *at(const dp_span *span) {
    return ((struct memory *)span->memory)->bytes + span->offset;
}

static uint32_t device_write(void *device, const dp_span *destination, const void *source, const dp_report *report) {
    (void)device, (void)report;
    memcpy(at(destination), source, destination->len);
    return DP_OK;
}

static uint32_t device_read(void *device, const dp_span *source, void *destination, const dp_report *report) {
    const struct backend *backend = ((struct device *)device)->backend;
    (void)report;
    if (wrong(backend, "reads_nothing")) {
        return DP_OK;
    }
    memcpy(destination, at(source), source->len + wrong(backend, "reads_too_far"));
    return DP_OK;
}

static uint32_t device_copy(void *device, const dp_span *source, const dp_span *destination, const dp_report *report) {
    (void)device, (void)report;
    memcpy(at(destination), at(source), source->len);
    return DP_OK;
}

static void release_own(void *owner) {
    released += 1;
    free(owner);
}

static dp_host_bytes own_bytes(size_t len, int byte) {
    void *bytes = malloc(len);
    memset(bytes, byte, len);
    return (dp_host_bytes){bytes, len, bytes, 0, release_own};
}

static uint32_t device_allocate_host(void *object, size_t len, dp_host_bytes *bytes, const dp_report *report) {
    const struct backend *backend = ((struct device *)object)->backend;
    (void)report;
    if (wrong(backend, "host_null")) {
        bytes->len = len;
        bytes->release = release_own;
    } else if (wrong(backend, "host_without_release")) {
        static char forever[4096];
        *bytes = (dp_host_bytes){forever, len, NULL, 0, NULL};
    } else {
        *bytes = own_bytes(wrong(backend, "host_shorter") ? len / 2 : len, 7);
    }
    return DP_OK;
}

/* A table that the author of a backend offers besides. */
static int twice(int number) { return 2 * number; }
static const char *mistake_of(void *device) { return ((struct device *)device)->backend->mistake; }
static const void *device_extension(void *device, dp_str name) {
    static const struct {
        int (*twice)(int);
        const char *(*mistake_of)(void *device);
    } numbers = {twice, mistake_of};
    (void)device;
    return name.len == 12 && memcmp(name.start, "test.numbers", 12) == 0 ? &numbers : NULL;
}

static uint32_t device_native_handle(void *device, dp_str kind, uint64_t *handle) {
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"test.released", released},
                  {"test.destroyed", destroyed},
                  {"test.watched_before", watched_before},
                  {"test.watched_after", watched_after}};
    (void)device;
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++) {
        if (kind.len == strlen(counts[at].name) && memcmp(kind.start, counts[at].name, kind.len) == 0) {
            *handle = counts[at].value;
            return 1;
        }
    }
    return 0;
}

/* Queues, which do the work at once. */

static uint32_t device_create_stream(void *object, const dp_stream_options *options, void **place,
                                     const dp_report *report) {
    (void)options, (void)report;
    struct stream *stream = calloc(1, sizeof *stream);
    stream->backend = ((struct device *)object)->backend;
    if (wrong(stream->backend, "queue_null_stream")) {
        free(stream);
        *place = NULL;
        return DP_OK;
    }
    *place = stream;
    return DP_OK;
}

static void stream_destroy(void *object) {
    struct stream *stream = object;
    if (stream->destination.release && wrong(stream->backend, "queue_released_later")) {
        stream->destination.release(stream->destination.owner);
    }
    destroyed += 1;
    free(stream);
}

static uint32_t stream_write(void *stream, const dp_span *destination, const dp_host_bytes *source,
                             const dp_report *report) {
    (void)report;
    if (wrong(((struct stream *)stream)->backend, "queue_keeps_sources")) {
        memcpy(at(destination), source->start, source->len);
        return DP_OK;
    } else if (wrong(((struct stream *)stream)->backend, "queue_writes_late")) {
        ((struct stream *)stream)->late = at(destination);
        ((struct stream *)stream)->source = *source;
        source->release(source->owner);
        return DP_OK;
    }
    memcpy(at(destination), source->start, source->len);
    source->release(source->owner);
    if (wrong(((struct stream *)stream)->backend, "queue_source_released_twice")) {
        source->release(source->owner);
    }
    return DP_OK;
}

static uint32_t stream_read(void *object, const dp_span *source, const dp_host_bytes *destination, const dp_done *done,
                            const dp_report *report) {
    struct stream *stream = object;
    const struct backend *backend = stream->backend;
    dp_failure failure = {.struct_size = sizeof failure, .message = text("the link is down")};
    uint32_t status = DP_OK;
    if (wrong(backend, "queue_dropped")) {
        done->finish(done->context, DP_DROPPED, NULL, NULL);
    } else if (wrong(backend, "queue_dropped_refusal")) {
        done->finish(done->context, DP_DROPPED, NULL, NULL);
        status = fail(report, DP_OTHER, "the queue is full");
    } else if (wrong(backend, "queue_refusal_kept")) {
        /* It keeps the destination and never finishes the read. */
        return fail(report, DP_OTHER, "the queue is full");
    } else if (wrong(backend, "queue_never")) {
        stream->done = *done;
        stream->destination = *destination;
        return DP_OK;
    } else if (wrong(backend, "queue_own_bytes")) {
        dp_host_bytes own = own_bytes(source->len, 7);
        done->finish(done->context, DP_OK, &own, NULL);
    } else if (wrong(backend, "queue_wrong_len")) {
        dp_host_bytes own = own_bytes(source->len + 1, 7);
        done->finish(done->context, DP_OK, &own, NULL);
    } else if (wrong(backend, "queue_wrong_len_given_back")) {
        dp_host_bytes longer = *destination;
        longer.len += 8;
        done->finish(done->context, DP_OK, &longer, NULL);
        return DP_OK;
    } else if (wrong(backend, "queue_odd_failure")) {
        const dp_failure odd = {0};
        done->finish(done->context, DP_OTHER, NULL, &odd);
    } else if (wrong(backend, "queue_no_bytes")) {
        done->finish(done->context, DP_OK, NULL, NULL);
    } else if (wrong(backend, "queue_null_bytes")) {
        dp_host_bytes none = {NULL, source->len, NULL, 0, NULL};
        done->finish(done->context, DP_OK, &none, NULL);
    } else if (wrong(backend, "queue_failed")) {
        done->finish(done->context, DP_OTHER, NULL, &failure);
    } else if (wrong(backend, "queue_failed_silently")) {
        done->finish(done->context, DP_OTHER, NULL, NULL);
    } else if (wrong(backend, "queue_lost")) {
        done->finish(done->context, DP_LOST, NULL, &failure);
    } else if (wrong(backend, "queue_refused_and_finished")) {
        memcpy(destination->start, at(source), source->len);
        done->finish(done->context, DP_OK, destination, NULL);
        return fail(report, DP_OTHER, "the queue is full");
    } else if (wrong(backend, "queue_released_and_finished")) {
        destination->release(destination->owner);
        done->finish(done->context, DP_OK, destination, NULL);
        return DP_OK;
    } else if (wrong(backend, "queue_released_later")) {
        done->finish(done->context, DP_OTHER, NULL, &failure);
        stream->destination = *destination;
        return DP_OK;
    } else {
        if (stream->late) {
            memcpy(stream->late, stream->source.start, stream->source.len);
        }
        dp_watch watch;
        size_t len = source->len + wrong(backend, "queue_reads_too_far");
        memcpy(destination->start, at(source), wrong(backend, "queue_reads_the_half") ? len / 2 : len);
        if (wrong(backend, "queue_keeps_destinations")) {
            dp_host_bytes own = own_bytes(source->len, 7);
            done->finish(done->context, DP_OK, &own, NULL);
            return DP_OK;
        }
        if (wrong(backend, "queue_watched")) {
            done->watch(done->context, &watch);
            watched_before = watch.is_finished(watch.watch);
        }
        pthread_mutex_t *lock = wrong(backend, "queue_locks_itself")       ? &stream_lock
                                : wrong(backend, "queue_locks_the_device") ? &device_lock
                                                                           : NULL;
        if (lock) {
            pthread_mutex_lock(lock);
        }
        done->finish(done->context, DP_OK, destination, NULL);
        if (lock) {
            pthread_mutex_unlock(lock);
        }
        if (wrong(backend, "queue_watched")) {
            watched_after = watch.is_finished(watch.watch);
            watch.release(watch.watch);
        }
        if (wrong(backend, "queue_finished_twice")) {
            done->finish(done->context, DP_OK, destination, NULL);
        } else if (wrong(backend, "queue_finished_and_released")) {
            destination->release(destination->owner);
        } else if (wrong(backend, "queue_watched_late")) {
            done->watch(done->context, &watch);
            watched_after = watch.is_finished(watch.watch);
            watch.release(watch.watch);
            watch.release(watch.watch);
        } else if (wrong(backend, "queue_released_twice")) {
            dp_host_bytes second = own_bytes(4, 7);
            destination->release(destination->owner);
            destination->release(destination->owner);
            second.release(second.owner);
        }
        return DP_OK;
    }
    destination->release(destination->owner);
    return status;
}

static uint32_t stream_copy(void *stream, const dp_span *source, const dp_span *destination, const dp_report *report) {
    (void)stream, (void)report;
    memcpy(at(destination), at(source), source->len);
    return DP_OK;
}

static uint32_t stream_record(void *stream, const dp_event_options *options, void **event, const dp_report *report) {
    (void)options, (void)report;
    if (wrong(((struct stream *)stream)->backend, "queue_null_event")) {
        return DP_OK;
    }
    char *recorded = malloc(1);
    *recorded = wrong(((struct stream *)stream)->backend, "queue_undone_event");
    if (wrong(((struct stream *)stream)->backend, "queue_later_event_first")) {
        /* The first one is never done. */
        *recorded = ((struct stream *)stream)->events++ == 0 ? 2 : 0;
    }
    *event = recorded;
    return DP_OK;
}

static uint32_t stream_flush(void *stream, const dp_report *report) {
    (void)stream, (void)report;
    pthread_mutex_lock(&stream_lock);
    pthread_mutex_unlock(&stream_lock);
    return DP_OK;
}

static uint32_t event_query(void *object, uint32_t *done, const dp_report *report) {
    char *event = object;
    (void)report;
    /* Done, and then not. */
    *done = *event != 2;
    *event = *event ? 2 : 0;
    return DP_OK;
}

static uint32_t is_done(void *object, uint32_t *done, const dp_report *report) {
    (void)object, (void)report;
    *done = 1;
    return DP_OK;
}

static uint32_t synchronize(void *object, const dp_report *report) {
    (void)object, (void)report;
    return DP_OK;
}

static uint32_t event_elapsed_since(void *event, void *start, uint64_t *nanoseconds, const dp_report *report) {
    (void)event, (void)start, (void)report;
    *nanoseconds = 0;
    return DP_OK;
}

/* Backends. */

static uint32_t backend_device_count(void *backend, size_t *count, const dp_report *report) {
    (void)report;
    *count = wrong(backend, "too_many") ? 70000 : 1;
    return DP_OK;
}

static uint32_t backend_presence(void *backend, size_t ordinal, const dp_report *report) {
    (void)ordinal;
    if (wrong(backend, "absent")) {
        return fail(report, DP_ABSENT, "the cable is out");
    }
    return wrong(backend, "silently_absent") ? DP_ABSENT : DP_OK;
}

static uint32_t backend_properties(void *backend, size_t ordinal, void *context,
                                   void (*receive)(void *context, const dp_properties *properties),
                                   const dp_report *report) {
    dp_properties properties = {.struct_size = sizeof properties, .name = text("a device with a mistake")};
    (void)ordinal;
    if (wrong(backend, "no_properties")) {
        return DP_OK;
    } else if (wrong(backend, "null_properties")) {
        receive(context, NULL);
        return DP_OK;
    } else if (wrong(backend, "odd_properties")) {
        properties.struct_size = 7;
    } else if (wrong(backend, "two_properties")) {
        receive(context, &properties);
        properties.name = text("the second name");
    } else if (wrong(backend, "bad_pci")) {
        properties.pci = text("slot 3");
    } else if (wrong(backend, "bad_alignment")) {
        properties.copy_alignment = 3;
    } else if (wrong(backend, "endless_name")) {
        properties.name.len = SIZE_MAX / 2;
    } else if (wrong(backend, "unsure_properties")) {
        receive(context, &properties);
        return fail(report, DP_OTHER, "the properties may be wrong");
    }
    receive(context, &properties);
    return DP_OK;
}

static uint32_t backend_open(void *backend, size_t ordinal, const dp_loss *loss, void **device,
                             const dp_report *report) {
    struct device *opened = calloc(1, sizeof *opened);
    (void)ordinal;
    opened->backend = backend;
    opened->loss = *loss;
    if (wrong(backend, "lost_while_opening")) {
        report_loss(opened, "the cable was out at once");
    } else if (wrong(backend, "lost_and_not_open")) {
        report_loss(opened, "the cable was out at once");
        free(opened);
        return fail(report, DP_OTHER, "the door is shut");
    }
    if (wrong(backend, "null_device")) {
        free(opened);
        return DP_OK;
    }
    *device = opened;
    return DP_OK;
}

static void make_mistakes_in_tables(struct backend *made, dp_backend *loaded) {
    const struct {
        const char *mistake;
        size_t size;
    } sizes[] = {{"size_0", 0},
                 {"size_1", 1},
                 {"size_8", 8},
                 {"size_12", 12},
                 {"size_4097", 4097},
                 {"larger", sizeof made->device},
                 {"cut_behind_copy", offsetof(dp_device_api, fill)},
                 {"cut_before_copy", offsetof(dp_device_api, copy)}};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        if (wrong(made, sizes[at].mistake)) {
            made->device.api.struct_size = sizes[at].size;
        }
    }
    memset(made->device.more, 0xff, sizeof made->device.more);
#define REMOVE(table, function) REMOVE_##table(function)
#define REMOVE_backend(function) REMOVE_FROM(made->backend, "no_backend_", function)
#define REMOVE_device(function) REMOVE_FROM(made->device.api, "no_device_", function)
#define REMOVE_stream(function) REMOVE_FROM(made->stream, "no_stream_", function)
#define REMOVE_event(function) REMOVE_FROM(made->event, "no_event_", function)
#define REMOVE_FROM(table, prefix, function)                                                                           \
    if (wrong(made, prefix #function)) {                                                                               \
        table.function = NULL;                                                                                         \
    }
    REQUIRED(REMOVE)
    if (wrong(made, "queue_odd_event_api")) {
        made->event.struct_size = 9;
    } else if (wrong(made, "null_backend_api")) {
        loaded->backend_api = NULL;
    } else if (wrong(made, "null_device_api")) {
        loaded->device_api = NULL;
    } else if (wrong(made, "queue_null_stream_api")) {
        loaded->stream_api = NULL;
    } else if (wrong(made, "queue_null_event_api")) {
        loaded->event_api = NULL;
    }
}

static uint32_t load(dp_str name, const dp_option *const *options, size_t option_count, dp_backend *backend,
                     const dp_report *report) {
    struct backend *made = calloc(1, sizeof *made);
    (void)options, (void)option_count;
    for (size_t at = 0; at < COUNT; at++) {
        if (strlen(MISTAKES[at]) == name.len && memcmp(MISTAKES[at], name.start, name.len) == 0) {
            made->mistake = MISTAKES[at];
        }
    }
    if (wrong(made, "load_silent")) {
        return DP_OTHER;
    } else if (wrong(made, "load_unavailable")) {
        return fail(report, DP_UNAVAILABLE, "no driver: looked for libdriver.so.1");
    } else if (wrong(made, "nothing")) {
        return DP_OK;
    }
    made->backend = (dp_backend_api){.struct_size = sizeof made->backend,
                                     .device_count = backend_device_count,
                                     .presence = backend_presence,
                                     .properties = backend_properties,
                                     .open = backend_open};
    made->device.api = (dp_device_api){.struct_size = sizeof made->device.api,
                                       .memory_info = device_memory_info,
                                       .allocate = device_allocate,
                                       .free = device_free,
                                       .write = device_write,
                                       .read = device_read,
                                       .copy = device_copy,
                                       .allocate_host = device_allocate_host,
                                       .native_handle = device_native_handle,
                                       .extension = device_extension};
    made->stream = (dp_stream_api){.struct_size = sizeof made->stream,
                                   .destroy = stream_destroy,
                                   .write = stream_write,
                                   .read = stream_read,
                                   .copy = stream_copy,
                                   .record = stream_record,
                                   .flush = stream_flush,
                                   .query = is_done,
                                   .synchronize = synchronize};
    made->event = (dp_event_api){.struct_size = sizeof made->event,
                                 .destroy = free,
                                 .query = event_query,
                                 .is_over = is_done,
                                 .synchronize = synchronize,
                                 .elapsed_since = event_elapsed_since};
    backend->backend = made;
    backend->backend_api = &made->backend;
    backend->device_api = &made->device.api;
    if (has_queues(made)) {
        made->device.api.create_stream = device_create_stream;
        backend->stream_api = &made->stream;
        backend->event_api = &made->event;
    }
    make_mistakes_in_tables(made, backend);
    return DP_OK;
}

const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    static dp_entry entries[COUNT];
    static const dp_entry *pointers[COUNT];
    static dp_plugin plugin = {.struct_size = sizeof plugin,
                               .major = DEVICE_PLUGIN_MAJOR,
                               .minor = DEVICE_PLUGIN_MINOR,
                               .entries = pointers,
                               .entry_count = COUNT,
                               .load = load};
    (void)host, (void)report;
    for (size_t at = 0; at < COUNT; at++) {
        entries[at] = (dp_entry){.struct_size = sizeof entries[at],
                                 .group = text("device.backends"),
                                 .name = text(MISTAKES[at]),
                                 .package = text("mistakes"),
                                 .version = text("1.0.0")};
        pointers[at] = &entries[at];
    }
    return &plugin;
}
