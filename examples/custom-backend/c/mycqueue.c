/*
 * The backend `mycqueue`, in C: two devices with queues, which do their work asynchronously, as CUDA, OpenCL and Vulkan do.
 * Read myc.c first: it explains the parts that every backend has. README.md says how to build both, and what to change in a
 * real one. The rules are in device_plugin.h, by number.
 *
 * STAND-IN marks what a driver and its hardware do in a real backend: a thread for each queue performs the work, memory is
 * the host's, and an event is a flag. Submitting, ownership and errors stay as they are here.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device_plugin.h"
#include "faults.h"
#include "kernels.h"

enum { DEVICES = 2 };

/* The end of a piece of work. The message is a literal, which nothing has to free. */
struct outcome {
    uint32_t status;
    const char *message;
};

static const struct outcome DONE = {DP_OK, ""};

/* An open device. It is never destroyed (rule D21), and opening it again makes another one. */
struct device {
    dp_loss loss;         /* a copy, which is valid forever */
    struct faults faults; /* for tests */
    const char *why;      /* NULL while it works; then the reason why it has stopped */
    int is_closed;
};

static struct device *devices[DEVICES]; /* the last one that was opened, of each ordinal */

/* A point in a queue. Besides the program, each job that records it or waits for it holds it: it may outlive its queue (rule
 * D13), and the program may destroy it before it is over. Once it is over it does not change. */
struct event {
    unsigned holders;
    int is_over;
    struct outcome outcome; /* of the work before it */
    uint64_t nanoseconds;   /* STAND-IN: the hardware's timestamp */
};

/* STAND-IN: a command in the hardware's queue. */
struct job {
    struct job *next;
    enum { WRITE, READ, COPY, FILL, COMPUTE, RECORD, WAIT } kind;
    dp_span source, destination;
    dp_host_bytes bytes; /* of a write or a read */
    dp_done done;        /* of a read */
    unsigned char pattern[16];
    size_t pattern_len;
    struct event *event; /* to record, or to wait for */
    struct kernel kernel;
};

struct queue {
    struct device *device;
    unsigned holders; /* the program and the thread */
    int is_destroyed;
    struct job *first, **end;
    uint64_t submitted, done; /* how many jobs; the number of a job is the count of those before it */
    struct outcome failure;   /* of a job. Those behind it are skipped for it, and their events return it. */
    uint64_t skipped_below;   /* the first job that is not skipped; UINT64_MAX until the program has the failure */
    dp_watch read;            /* whether it has the failure, if the job was a read; all NULL otherwise */
};

/* Guards all of these, for a moment at a time: `query` never waits (rule 6). No thread holds it while it calls code of the
 * program that may call this library (rule 5). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* STAND-IN for the hardware's way to memory: held while bytes are copied, as two copies may race (rule D6). A thread takes it
 * before `lock`, and both to end a device: then no work touches memory any longer. */
static pthread_mutex_t bus = PTHREAD_MUTEX_INITIALIZER;

#define TEXT(literal) {literal, sizeof(literal) - 1}

static dp_failure failure_of(struct outcome outcome) {
    return (dp_failure){.struct_size = sizeof(dp_failure), .message = {outcome.message, strlen(outcome.message)}};
}

/* Returns the status of an outcome, after a report if it is an error (rule 2). */
static uint32_t report_outcome(const dp_report *report, struct outcome outcome) {
    const dp_failure failure = failure_of(outcome);
    if (outcome.status != DP_OK) report->fail(report->context, &failure);
    return outcome.status;
}

static uint32_t fail(const dp_report *report, uint32_t status, const char *message) {
    return report_outcome(report, (struct outcome){status, message});
}

/* ---- The end of a device ---- */

/* STAND-IN: stops the device. All queued work fails, so that no thread waits for it forever, and the threads end. */
static void stop(struct device *device, const char *why) {
    pthread_mutex_lock(&bus);
    pthread_mutex_lock(&lock);
    if (!device->why) device->why = why;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&bus);
    faults_clear(&device->faults);
}

/* The driver says that the device is lost: by the status of a call, or on a thread of its own. The work stops before the
 * report, and so before the program destroys the queues and frees what the work uses (rule D19). */
static struct outcome lose(struct device *device, const char *why) {
    const struct outcome lost = {DP_LOST, why};
    const dp_failure failure = failure_of(lost);
    stop(device, why);
    device->loss.report(device->loss.context, &failure);
    return lost;
}

/* The end by `close`, or by `reset` after a loss (rule D20). A driver's context ends here. Its memory ends in `free`, as a queue
 * of another device may still copy from it. Without `copy_from_peer` it can end here too, as in myc.c. */
static uint32_t end_device(void *object, const dp_report *report) {
    struct device *device = object;
    (void)report;
    stop(device, "the device was closed");
    pthread_mutex_lock(&lock);
    device->is_closed = 1;
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

/* ---- Memory. STAND-IN: it is the host's, and its address is the object. ---- */

static uint32_t memory_info(void *device, dp_memory_info *info, const dp_report *report) {
    (void)device, (void)info, (void)report;
    return DP_OK; /* Both numbers stay DP_UNKNOWN. */
}

static uint32_t allocate(void *object, const dp_allocate_options *options, void **memory, const dp_report *report) {
    struct device *device = object;
    const enum faults_effect effect = faults_before(&device->faults, 1);
    if (effect == FAULTS_LOSE) return report_outcome(report, lose(device, "by an injected fault"));
    *memory = effect == FAULTS_FAIL ? NULL : calloc(1, options->len); /* initialised (rule D1) */
    if (*memory) return DP_OK;
    const dp_failure failure = {.struct_size = sizeof failure, .asked = options->len, .free = DP_UNKNOWN};
    report->fail(report->context, &failure);
    return DP_OUT_OF_MEMORY;
}

/* The program keeps memory until the work that uses it is over or its queue is destroyed: this waits for nothing (rule D19). */
static void free_memory(void *device, void *memory) {
    (void)device;
    free(memory);
}

/* ---- Performing work. STAND-IN: all but `end_job`, which a driver's callback does. ---- */

static void release_event(void *object) {
    struct event *event = object;
    pthread_mutex_lock(&lock);
    const int is_last = --event->holders == 0;
    pthread_mutex_unlock(&lock);
    if (is_last) free(event);
}

/* Gives back what a job has, whatever its outcome is: a thread or a task may wait for that. DP_DROPPED: it was refused. */
static void end_job(struct job *job, struct outcome outcome) {
    const dp_failure failure = failure_of(outcome);
    if (job->kind == READ && outcome.status == DP_OK) {
        job->done.finish(job->done.context, DP_OK, &job->bytes, NULL); /* takes the bytes */
    } else if (job->kind == READ) {
        job->bytes.release(job->bytes.owner);
        job->done.finish(job->done.context, outcome.status, NULL, outcome.status == DP_DROPPED ? NULL : &failure);
    } else if (job->kind == WRITE) {
        job->bytes.release(job->bytes.owner); /* once, and only now (rule 4) */
    } else if (job->kind == RECORD) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        pthread_mutex_lock(&lock);
        job->event->nanoseconds = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        job->event->outcome = outcome;
        job->event->is_over = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    if (job->event) release_event(job->event);
}

static unsigned char *start_of(const dp_span *span) {
    return (unsigned char *)span->memory + span->offset;
}

static struct outcome perform(struct device *device, const struct job *job) {
    struct outcome outcome = DONE;
    if (job->kind == RECORD) return outcome;
    if (job->kind == WAIT) { /* for an event that was recorded before, so two queues never wait for each other */
        pthread_mutex_lock(&lock);
        while (!job->event->is_over && !device->why) pthread_cond_wait(&changed, &lock);
        if (device->why) {
            outcome = (struct outcome){DP_LOST, device->why};
        } else if (job->event->outcome.status != DP_OK) { /* not its status: rule D18 */
            outcome = (struct outcome){DP_OTHER, "the work before an event that this queue waits for has failed"};
        }
        pthread_mutex_unlock(&lock);
        return outcome;
    }
    if (job->kind != COMPUTE) { /* no fault is for kernels (rule D25) */
        const enum faults_effect effect = faults_before(&device->faults, 0);
        if (effect == FAULTS_LOSE) return lose(device, "by an injected fault");
        if (effect == FAULTS_FAIL) return (struct outcome){DP_OTHER, "an injected fault fails this operation"};
    }
    pthread_mutex_lock(&bus);
    if (device->why) {
        outcome = (struct outcome){DP_LOST, device->why};
    } else if (job->kind == WRITE) {
        memcpy(start_of(&job->destination), job->bytes.start, job->bytes.len);
    } else if (job->kind == READ) {
        memcpy(job->bytes.start, start_of(&job->source), job->bytes.len);
    } else if (job->kind == COMPUTE) {
        kernel_compute(&job->kernel, start_of);
    } else if (job->kind == COPY) {
        memcpy(start_of(&job->destination), start_of(&job->source), job->source.len);
    } else {
        unsigned char *start = start_of(&job->destination);
        for (size_t at = 0; at < job->destination.len; at++) start[at] = job->pattern[at % job->pattern_len];
    }
    pthread_mutex_unlock(&bus);
    return outcome;
}

static void release_queue(struct queue *queue) { /* with the lock */
    if (--queue->holders > 0) return;
    if (queue->read.release) queue->read.release(queue->read.watch);
    free(queue);
}

/* The thread of a queue. It ends with the queue or with the device, when no job is left. */
static void *work(void *object) {
    struct queue *queue = object;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!queue->first && !queue->is_destroyed && !queue->device->why) pthread_cond_wait(&changed, &lock);
        struct job *job = queue->first;
        if (!job) break;
        queue->first = job->next;
        if (!queue->first) queue->end = &queue->first;
        const int is_skipped = queue->done < queue->skipped_below;
        struct outcome outcome = queue->failure;
        pthread_mutex_unlock(&lock);
        if (!is_skipped) outcome = perform(queue->device, job);
        if (!is_skipped && outcome.status != DP_OK) {
            pthread_mutex_lock(&lock);
            queue->failure = outcome;
            queue->skipped_below = UINT64_MAX;
            if (job->kind == READ) job->done.watch(job->done.context, &queue->read); /* before it is finished */
            pthread_mutex_unlock(&lock);
        }
        end_job(job, outcome);
        free(job);
        pthread_mutex_lock(&lock);
        queue->done += 1; /* last: work that is done has nothing any more */
        pthread_cond_broadcast(&changed);
    }
    release_queue(queue);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- Submitting work, which returns at once (rule 6) ---- */

static uint32_t create_stream(void *device, const dp_stream_options *options, void **stream, const dp_report *report) {
    (void)options; /* the priority is a hint */
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue) return fail(report, DP_OTHER, "the host's memory is full");
    queue->device = device;
    queue->holders = 2;
    queue->end = &queue->first;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, queue) != 0) {
        free(queue);
        return fail(report, DP_OTHER, "the queue's thread does not start");
    }
    pthread_detach(thread); /* `destroy` does not wait for it */
    *stream = queue;
    return DP_OK;
}

static void destroy_stream(void *object) {
    struct queue *queue = object;
    pthread_mutex_lock(&lock);
    queue->is_destroyed = 1;
    pthread_cond_broadcast(&changed);
    release_queue(queue);
    pthread_mutex_unlock(&lock);
}

/* The program has the failure. Work that it submitted without knowing of that is skipped. */
static void resume(struct queue *queue) {
    queue->skipped_below = queue->submitted;
    if (queue->read.release) queue->read.release(queue->read.watch);
    queue->read = (dp_watch){0};
}

/* Submits a job. One that is refused gives back what it has, as the library owns it from the call on (rule 4). */
static uint32_t submit(void *stream, struct job job, const dp_report *report) {
    struct queue *queue = stream;
    struct job *queued = malloc(sizeof *queued);
    struct outcome outcome = queued ? DONE : (struct outcome){DP_OTHER, "the host's memory is full"};
    pthread_mutex_lock(&lock);
    if (queue->device->why) outcome = (struct outcome){DP_LOST, queue->device->why};
    if (outcome.status == DP_OK) {
        if (queue->read.is_finished && queue->read.is_finished(queue->read.watch)) resume(queue);
        *queued = job;
        *queue->end = queued;
        queue->end = &queued->next;
        queue->submitted += 1;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (outcome.status != DP_OK) {
        free(queued);
        end_job(&job, (struct outcome){DP_DROPPED, ""});
    }
    return report_outcome(report, outcome);
}

static uint32_t write_bytes(void *stream, const dp_span *destination, const dp_host_bytes *source,
                            const dp_report *report) {
    return submit(stream, (struct job){.kind = WRITE, .destination = *destination, .bytes = *source}, report);
}

static uint32_t read_bytes(void *stream, const dp_span *source, const dp_host_bytes *destination, const dp_done *done,
                           const dp_report *report) {
    return submit(stream, (struct job){.kind = READ, .source = *source, .bytes = *destination, .done = *done}, report);
}

/* Also from a peer, whose memory is the host's too. */
static uint32_t copy(void *stream, const dp_span *source, const dp_span *destination, const dp_report *report) {
    return submit(stream, (struct job){.kind = COPY, .source = *source, .destination = *destination}, report);
}

static uint32_t fill(void *stream, const dp_span *destination, const void *pattern, size_t pattern_len,
                     const dp_report *report) {
    struct job job = {.kind = FILL, .destination = *destination, .pattern_len = pattern_len};
    memcpy(job.pattern, pattern, pattern_len);
    return submit(stream, job, report);
}

/* A kernel: the queue computes later, so the job has a copy of the call (rule K4). */
static uint32_t launch(void *set, void *device, void *stream, const dk_call *call, const dp_report *report) {
    struct job job = {.kind = COMPUTE};
    (void)set, (void)device;
    if (!kernel_copy(&job.kernel, call)) return fail(report, DP_UNSUPPORTED, "there is no kernel for this operator");
    return submit(stream, job, report);
}

static uint32_t record(void *stream, const dp_event_options *options, void **place, const dp_report *report) {
    (void)options; /* Each event has a timestamp here. */
    struct event *event = calloc(1, sizeof *event);
    if (!event) return fail(report, DP_OTHER, "the host's memory is full");
    event->holders = 2;
    const uint32_t status = submit(stream, (struct job){.kind = RECORD, .event = event}, report);
    if (status == DP_OK) *place = event;
    else release_event(event);
    return status;
}

/* The queue waits, not the caller. */
static uint32_t wait_event(void *stream, void *object, const dp_report *report) {
    struct event *event = object;
    pthread_mutex_lock(&lock);
    event->holders += 1;
    pthread_mutex_unlock(&lock);
    return submit(stream, (struct job){.kind = WAIT, .event = event}, report);
}

/* ---- How far the work is ---- */

/* The failure of work that is done, once. That of a read is not returned here: `finish` has it. */
static struct outcome take_failure(struct queue *queue) {
    if (queue->skipped_below != UINT64_MAX || queue->read.release) return DONE;
    resume(queue);
    return queue->failure;
}

static uint32_t query(void *stream, uint32_t *done, const dp_report *report) {
    struct queue *queue = stream;
    pthread_mutex_lock(&lock);
    *done = queue->done == queue->submitted;
    const struct outcome outcome = *done ? take_failure(queue) : DONE;
    pthread_mutex_unlock(&lock);
    return report_outcome(report, outcome);
}

static uint32_t synchronize(void *stream, const dp_report *report) {
    struct queue *queue = stream;
    pthread_mutex_lock(&lock);
    const uint64_t all = queue->submitted; /* Another thread may submit more meanwhile. */
    while (queue->done < all) pthread_cond_wait(&changed, &lock);
    const struct outcome outcome = take_failure(queue);
    pthread_mutex_unlock(&lock);
    return report_outcome(report, outcome);
}

/* Also behind a failure: then no work before the event still runs. */
static uint32_t is_over(void *object, uint32_t *over, const dp_report *report) {
    const struct event *event = object;
    (void)report;
    pthread_mutex_lock(&lock);
    *over = event->is_over;
    pthread_mutex_unlock(&lock);
    return DP_OK;
}

static uint32_t query_event(void *event, uint32_t *done, const dp_report *report) {
    is_over(event, done, report);
    return *done ? report_outcome(report, ((struct event *)event)->outcome) : DP_OK;
}

static uint32_t synchronize_event(void *object, const dp_report *report) {
    const struct event *event = object;
    pthread_mutex_lock(&lock);
    while (!event->is_over) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return report_outcome(report, event->outcome);
}

static uint32_t elapsed_since(void *event, void *start, uint64_t *nanoseconds, const dp_report *report) {
    const uint64_t from = ((struct event *)start)->nanoseconds, to = ((struct event *)event)->nanoseconds;
    *nanoseconds = to - from;
    return from <= to ? DP_OK : fail(report, DP_INVALID, "the start was reached after the end");
}

/* ---- Fault injection, for tests: faults.h ---- */

static uint32_t has_faults(void *device) {
    (void)device;
    return 1;
}

static uint32_t inject(void *object, const dp_fault *fault, const dp_report *report) {
    struct device *device = object;
    if (fault->kind == DP_UNPLUG) {
        lose(device, "by an injected fault");
        return DP_OK;
    }
    pthread_mutex_lock(&lock);
    const char *why = device->why; /* A stall after the end of the device would never end. */
    const int happens = !why && faults_inject(&device->faults, fault);
    pthread_mutex_unlock(&lock);
    if (why) return fail(report, DP_LOST, why);
    return happens ? DP_OK : fail(report, DP_INVALID, "this fault never happens");
}

static void clear_faults(void *device) {
    faults_clear(&((struct device *)device)->faults);
}

/* ---- The backend: myc.c explains it ---- */

static uint32_t device_count(void *backend, size_t *count, const dp_report *report) {
    (void)backend, (void)report;
    *count = DEVICES;
    return DP_OK;
}

static uint32_t properties(void *backend, size_t ordinal, void *context,
                           void (*receive)(void *context, const dp_properties *properties), const dp_report *report) {
    static const dp_properties found = {
        .struct_size = sizeof found, .name = TEXT("a thread for each queue, in C"), .kind = DP_KIND_SIMULATED};
    (void)backend, (void)ordinal, (void)report;
    receive(context, &found);
    return DP_OK;
}

static uint32_t open_device(void *backend, size_t ordinal, const dp_loss *loss, void **device,
                            const dp_report *report) {
    (void)backend;
    struct device *made = calloc(1, sizeof *made);
    if (!made) return fail(report, DP_OTHER, "the host's memory is full");
    made->loss = *loss;
    pthread_mutex_lock(&lock);
    const int is_open = devices[ordinal] && !devices[ordinal]->is_closed;
    if (!is_open) *device = devices[ordinal] = made;
    pthread_mutex_unlock(&lock);
    if (!is_open) return DP_OK;
    free(made);
    return fail(report, DP_OTHER, "the device is open already, under another name of the backend");
}

static const dp_backend_api backend_api = {
    .struct_size = sizeof backend_api,
    .device_count = device_count,
    .properties = properties,
    .open = open_device,
};

/* Without `write`, `read` and `copy` the program does its blocking calls in a queue. */
static const dp_device_api device_api = {
    .struct_size = sizeof device_api,
    .memory_info = memory_info,
    .allocate = allocate,
    .free = free_memory,
    .create_stream = create_stream,
    .reset = end_device,
    .close = end_device,
    .has_faults = has_faults,
    .inject = inject,
    .clear_faults = clear_faults,
};

/* A driver that collects commands before it sends them needs `flush` too. */
static const dp_stream_api stream_api = {
    .struct_size = sizeof stream_api,
    .destroy = destroy_stream,
    .write = write_bytes,
    .read = read_bytes,
    .copy = copy,
    .fill = fill,
    .copy_from_peer = copy,
    .record = record,
    .wait = wait_event,
    .query = query,
    .synchronize = synchronize,
};

static const dp_event_api event_api = {
    .struct_size = sizeof event_api,
    .destroy = release_event,
    .query = query_event,
    .is_over = is_over,
    .synchronize = synchronize_event,
    .elapsed_since = elapsed_since,
};

static const dk_set_api set_api = {
    .struct_size = sizeof set_api,
    .kernels = kernel_list,
    .kernel_count = sizeof kernel_list / sizeof *kernel_list,
    .launch = launch,
};

/* The library has one backend and no options. */
static uint32_t load(dp_str name, const dp_option *const *options, size_t option_count, dp_backend *backend,
                     const dp_report *report) {
    (void)name, (void)options, (void)option_count, (void)report;
    backend->backend_api = &backend_api;
    backend->device_api = &device_api;
    backend->stream_api = &stream_api;
    backend->event_api = &event_api;
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

static const dp_entry entry = {
    .struct_size = sizeof entry,
    .group = TEXT("device.backends"),
    .name = TEXT("mycqueue"),
    .package = TEXT("device-mycqueue"),
    .version = TEXT("0.1.0"),
};

static const dp_entry kernels_entry = {
    .struct_size = sizeof kernels_entry,
    .group = TEXT("device.kernels"),
    .name = TEXT("mycqueue"), /* the backend's */
    .package = TEXT("device-mycqueue"),
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
