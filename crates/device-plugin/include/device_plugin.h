/*
 * device_plugin.h: a device backend in a shared library, version 0.3 of the interface.
 *
 * A program that uses the Rust crate `device-registry` finds backends in files through the crate `device-plugin`. Such
 * a file is a shared library that exports one function, `device_plugin_v0`, and a manifest beside it. The library may
 * be written in any language: only the types below cross the border. This file has all rules of the interface.
 *
 * Additions at the ends of tables raise the minor version. Any other change raises the major version, which is a part
 * of the function's name, so that a program never calls a library of another one. Major version 0 says that the next
 * one may come soon.
 *
 * WHAT THE PROGRAM CHECKS
 *
 * The program has checked every argument before it calls the library. Ranges lie inside their memory, begin and end at
 * multiples of `copy_alignment` (or end where the memory ends: rule D2), are never empty, and have matching lengths. Source and
 * destination of a copy do not overlap; they may be parts of one memory. A fill begins and ends at multiples of its
 * pattern, of 1, 2, 4, 8 or 16 bytes. Every memory belongs to the device that gets it, except the source of
 * `copy_from_peer`, which belongs to another device of the same backend. An ordinal is below the count.
 *
 * RULES OF THE INTERFACE
 *
 *  1. Tables. A struct that begins with `struct_size` may grow at its end. Its writer sets `struct_size` to the size
 *     that the writer knows. A reader takes no more than that, and zero for the rest. So zero means the default, and a
 *     function that is NULL is one that the library does not have. (Two numbers of bytes need DP_UNKNOWN for "not
 *     known": dp_failure.free and those of dp_memory_info.) In C, name the members: `{.struct_size = sizeof entry}`.
 *     Compilers warn of a list by position once the struct has grown, which -Werror makes an error. In C++, begin with
 *     `dp_entry entry{};` and assign, as some warn of names too. A struct that the other side fills, dp_memory_info and
 *     dp_backend, has its size already: the side that fills it writes no more than that. Other structs never change.
 *     `reserved` is 0.
 *  2. Status. A function that can fail returns DP_OK or another status, which is the kind of the error. Before it
 *     returns an error, it calls `report->fail(report->context, &failure)` once, on the same thread, which copies the
 *     message. So no error object changes hands. Without that call the program says that there is no message. Of two
 *     calls the last counts.
 *  3. Strings (dp_str) are UTF-8 with a length of at most 65536 bytes, and need no zero at the end. The program reads
 *     no longer one, and escapes control characters. Strings are valid during the call that passes them, and so is all
 *     else that a pointer leads to, such as spans and patterns: queued work keeps a copy. Objects of the library, and
 *     bytes with an owner, are valid for longer. A call that makes a device, memory, a stream or an event and returns
 *     DP_OK has written an object that is not NULL. (The place is NULL before the call.) The object in dp_backend may
 *     be NULL. What a library returns in dp_plugin is valid forever.
 *  4. Bytes (dp_host_bytes) that outlive a call have an owner. The side that has them calls `release(owner)` once, on
 *     any thread, when it no longer reads or writes them. Nothing else frees memory of the other side.
 *  5. Threads. Any function may be called from any thread, at the same time as others. Two exceptions: the program
 *     never calls two functions of one stream at once, except `flush`, `query`, `synchronize` and `native_handle`; and
 *     `close` and `reset` are called once at a time. The functions of the program (`finish`, `watch`, `report`, `log`,
 *     `panicked`, `release`) may be called from any thread too, and within any call of the library: `finish` within
 *     `read`, before it returns, and `report` within `open`. `log` and `panicked` run code that may call any function
 *     of the library. The others may call `release` of the library's own host memory, and nothing else of it. But a
 *     waker or a logger of the program may wait for a thread that is in any function. So the library holds no lock that
 *     its functions take, except in calls of `fail`, `watch` and the functions of dp_watch.
 *  6. Blocking. Functions of a device block until their work is done. Functions of a stream submit and return, except
 *     `synchronize`. `query` and `is_over` never wait.
 *  7. No function unwinds: no C++ exception and no longjmp leaves the library, and none enters it.
 *  8. The library stays loaded until the process ends. A device that was opened is never destroyed (D20, D21). At exit
 *     nothing is called, and threads of the program may be inside of the library while its static destructors run:
 *     these must not free what the functions use.
 *
 * RULES OF DRIVERS
 *
 * One text with the rules of drivers in Rust. A test compares the two.
 *
 * Memory
 *
 *  D1. New memory is initialised, with unspecified content. It has no bytes of other processes.
 *  D2. Alignment. `copy_alignment` is for copies and fills alike. Where the device needs more for a fill, by its
 *      pattern or by its range, the library returns DP_UNSUPPORTED, and the program writes and copies instead. A
 *      range that reaches the end of its buffer may have any length: the bytes up to the next multiple belong to no
 *      other buffer.
 *  D3. Addresses. Where a native handle of memory is an address, it is a multiple of 16, unless the owner of the kind
 *      documents another number.
 *  D4. Parts. With DP_REUSE_DIVIDED the program gives out parts of what the library allocates, at multiples of the
 *      declared alignment. That suits addresses, and interfaces that bind a buffer with an offset: declare what the
 *      interface requires of the offset, and at least D3. Small buffers then share an allocation of the library, so
 *      that a limit on their number is seldom reached.
 *  D5. Failures. A failed operation leaves its destination unspecified, and nothing else.
 *  D6. Races. Two operations at once on the same bytes, one of them writing, leave them unspecified, and do no more
 *      harm.
 *
 * Streams
 *
 *  D7. Order. A stream runs its work in the order of submission. The program never calls two of its functions at
 *      once, except `flush`, `query`, `synchronize` and `native_handle`, which may run at the same time as any other
 *      call. `destroy` of a stream is the last call: no other runs then, or comes later.
 *  D8. Refusals. An error of a function that submits is a refusal: the stream continues as if there had been no call.
 *  D9. Flush. A library may gather work until `flush`. The program calls that before it waits for work or looks at
 *      it. A query counts, so a program that polls an event or a stream sees it done without any other call.
 * D10. What work uses stays alive and in place: memory, events, and the bytes of writes and reads. The program keeps
 *      memory and events until an event behind the work is over, a query of the stream says that all is done, or
 *      `synchronize` succeeds.
 * D11. Waits. `synchronize` returns when all work that was submitted before it has ended, also with an error, unless
 *      the device is lost. A query never waits.
 * D12. Failed work. `query` and `synchronize` return a failure at least once. Events that are recorded behind the
 *      work, and before that report, return it every time. Work behind it may be skipped or done until the report,
 *      and is done after it.
 * D13. Events. An event is done when all work that was submitted before it is done. It may outlive its stream.
 *      `elapsed_since` returns DP_INVALID if the start was reached later than the event itself.
 * D14. Waiting for events. `wait` gets an event whose stream was flushed after it was recorded. So two streams never
 *      wait for work that is not submitted, not even in one queue of the hardware. A stream that waits for an event
 *      that fails, or whose device is lost, fails with it, because the work behind the wait may use data that was
 *      never written. Either the library fails that work, by D12. Or it runs the work, and the program asks the event
 *      when the library reports the work as done: then the program fails the stream, and the reads and events behind
 *      the wait.
 * D15. Reads. The library finishes the completion of each read once, on any thread. It may do so before the stream
 *      counts the read as done, or later than `synchronize` returns. When it refuses a read, it finishes the read
 *      with DP_DROPPED and releases the destination, in any order; the error of the call says why. The destination
 *      has the length of the source. Finishing a read with bytes of another length is an error of the read.
 * D16. Events behind a failed read. An event fails if an earlier read of its stream fails that was not finished when
 *      the event was *recorded*. Once the read is finished, the program has its error: it fails new events itself
 *      until the error is reported, and the library fails none for it. `watch` says whether the read is finished.
 * D17. `destroy` of a stream. The program destroys a stream when it knows that all of its work is done, or after a
 *      loss. So without a loss no work is under way or gathered. `destroy` waits for nothing but work that ends by
 *      itself. A thread of the stream belongs to the library. It may end after `destroy`, and a reset or a close ends
 *      those that are left.
 *
 * The end of a device
 *
 * D18. Loss. A library reports a loss by DP_LOST from any call, or by dp_loss. From then on the program calls only
 *      `reset`, `clear_faults`, `destroy`, `free` and `release`, and not `close`. Calls that wait in the library
 *      return. An error that another device has caused, such as a lost peer, is no loss.
 * D19. Work at a loss. What is gathered and not submitted is never submitted. What runs may run on: a loss frees
 *      nothing that unfinished work of a stream uses. The program destroys the stream first, and then frees the
 *      memory and destroys the events. In `destroy` of the stream the library ends that work: it discards what is not
 *      submitted, and stops or waits for what runs. What the library cannot end, it keeps alive itself. The bytes of
 *      writes and reads that were not done are freed by the library alone, or never.
 * D20. Reset and close. A reset follows a loss, and other calls may still be under way. A close comes without a loss,
 *      when the work of the device's own streams is done and no call is under way. Streams of another device may
 *      still copy from its memory. After either, only `destroy`, `free` and `release` come, of streams, events and
 *      memory that programs still hold. They come when a program drops its handle, in a later call for any device, or
 *      never, but not while the library itself uses another device within a call of the program. They may run at the
 *      same time as the reset or the close, on another thread.
 * D21. Open again. The program opens a device again only after a reset that succeeded or a close. The new one has an
 *      object of its own. The old one is never freed, so keep little in it.
 * D22. Processes. At exit nothing is called. In a child of `fork` the program uses no backend that the parent has
 *      used: no device of it is called, opened or counted.
 *
 * Lists, errors and faults
 *
 * D23. The number of devices may grow, or be counted once and stay. An ordinal names the same device until the
 *      process ends.
 * D24. Messages are in lower case without a full stop, and do not repeat the kind of the error, which the program
 *      prints before them. The text of a system or of a library below this one is a cause, as it is.
 * D25. Faults. An *operation* is an allocation, or a write, read, copy or fill, when it runs. Events, queries,
 *      kernels and host memory are none. A fault of copies counts all operations but allocations. Numbers count from
 *      1, and 0 is DP_INVALID. A new fault replaces an earlier one of its kind. One that the library does not have is
 *      DP_UNSUPPORTED.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEVICE_PLUGIN_MAJOR 0u
#define DEVICE_PLUGIN_MINOR 3u

#if defined(_WIN32)
#define DEVICE_PLUGIN_EXPORT __declspec(dllexport)
#else
#define DEVICE_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/* A number of bytes that is not known. */
#define DP_UNKNOWN UINT64_MAX

/* The status of a call: DP_OK, or the kind of its error. An unknown number counts as DP_OTHER. */
enum {
    DP_OK = 0,
    DP_OUT_OF_MEMORY = 1, /* the device does not have enough memory: `asked` and `free` of the failure */
    DP_UNSUPPORTED = 2,   /* the library or the device does not offer this */
    DP_UNAVAILABLE = 3,   /* the machine lacks something, such as a driver; it may come */
    DP_LOST = 4,          /* the device is lost: rules D18 and D19 */
    DP_INVALID = 5,       /* the call is invalid */
    DP_OTHER = 6,         /* any other error */
    DP_DROPPED = 7,       /* only of dp_done: the work was dropped and will never be finished */
    DP_ABSENT = 8         /* only of `presence`: the device is not there now, for the reason in the report */
};

/* Text in UTF-8. `start` may be NULL if `len` is 0. */
typedef struct dp_str {
    const char *start;
    size_t len;
} dp_str;

/* The text of an error: rule D24. With DP_OUT_OF_MEMORY it may be empty: the numbers are
 * the text. */
typedef struct dp_failure {
    size_t struct_size;
    dp_str message;
    const dp_str *causes; /* what caused it, the nearest first; may be NULL */
    size_t cause_count;
    uint64_t asked; /* DP_OUT_OF_MEMORY: the number of bytes asked for */
    uint64_t free;  /* DP_OUT_OF_MEMORY: the number of free bytes, or DP_UNKNOWN */
} dp_failure;

/* Where a function reports its error, on the caller's stack: valid during the call only. */
typedef struct dp_report {
    size_t struct_size;
    void *context;
    void (*fail)(void *context, const dp_failure *failure);
} dp_report;

/* Bytes of memory on a device: `len` bytes, `offset` bytes into the memory that `allocate` returned. */
typedef struct dp_span {
    void *memory;
    size_t offset;
    size_t len;
} dp_span;

/* Bytes of the host that outlive a call: rule 4. `release` is never NULL; `owner` may be. */
typedef struct dp_host_bytes {
    void *start;
    size_t len;
    void *owner;
    size_t reserved;
    void (*release)(void *owner);
} dp_host_bytes;

/* Whether a read is finished: dp_done.watch. The library calls `release` once when it no longer looks. */
typedef struct dp_watch {
    void *watch;
    size_t reserved;
    uint32_t (*is_finished)(void *watch); /* 1 if the program has the result. Never waits. */
    void (*release)(void *watch);
} dp_watch;

/*
 * The end of a queued read. The library calls `finish` once, on any thread. After that `context` is invalid.
 *
 *   DP_OK       `bytes` has the destination of the read, filled, which goes back and is not released by the library; or
 *               other bytes of the library of this length, which the program releases. `failure` is NULL.
 *   DP_DROPPED  the work will never be done. `bytes` and `failure` are NULL. A library that refuses a read by returning
 *               an error finishes it so, and releases the destination before or after that.
 *   an error    `failure` has the message (or is NULL), and `bytes` is NULL. The library calls `release` of the
 *               destination when the device no longer writes there.
 *
 * `finish` does not wait for work, and may be called where the library may not call its driver. Rule D16 says which events
 * fail for a read. `watch`, which is called before `finish`, gives a flag to look at in `record`:
 *
 *   if (stream->failed_read && !stream->failed_read->watch.is_finished(stream->failed_read->watch.watch))
 *       event->failure = stream->failed_read->failure;
 */
typedef struct dp_done {
    void *context;
    size_t reserved;
    void (*finish)(void *context, uint32_t status, const dp_host_bytes *bytes, const dp_failure *failure);
    void (*watch)(void *context, dp_watch *watch);
} dp_done;

/*
 * How an open device reports that it is lost, without a call. The library may copy it and call `report` at any time, on
 * any thread: it is valid forever. Only the first report counts, and none for a device that did not open, or was
 * closed. It does not wait for work.
 */
typedef struct dp_loss {
    void *context;
    size_t reserved;
    void (*report)(void *context, const dp_failure *failure);
} dp_loss;

/* Kinds of devices. */
enum {
    DP_KIND_OTHER = 0,
    DP_KIND_CPU = 1,
    DP_KIND_GPU = 2,            /* with memory of its own */
    DP_KIND_INTEGRATED_GPU = 3, /* shares the host's memory */
    DP_KIND_ACCELERATOR = 4,
    DP_KIND_SIMULATED = 5
};

/* Flags of dp_properties. */
enum {
    DP_SERIAL_STREAMS = 1,  /* work of several streams never runs at the same time */
    DP_NO_TIMED_EVENTS = 2, /* events have no timestamps */
    DP_PINNED_MEMORY = 4    /* `allocate_host` returns memory that the device reaches faster */
};

/* How the program uses freed memory again, where allocating is slow. */
enum {
    DP_REUSE_NEVER = 0,   /* each allocation and each free reaches the library */
    DP_REUSE_EXACT = 1,   /* memory serves allocations of the same length */
    DP_REUSE_ROUNDED = 2, /* lengths are rounded up, by an eighth or 512 bytes at most */
    DP_REUSE_DIVIDED = 3, /* several buffers at once, at multiples of `memory_reuse_alignment`: rule D4 */
    DP_REUSE_LARGE = 4    /* DP_REUSE_ROUNDED from `memory_reuse_from` bytes on, and DP_REUSE_NEVER below */
};

/* Facts about a device that do not change while the program runs. A zero is an unknown value, or the default. */
typedef struct dp_properties {
    size_t struct_size;
    dp_str name;   /* a model, for people */
    dp_str vendor; /* may be empty */
    dp_str driver; /* the driver and its version; may be empty */
    dp_str pci;    /* the PCI address, as "0000:3b:00.0"; may be empty */
    uint8_t uuid[16];
    uint32_t kind;
    uint32_t flags;
    uint64_t total_memory;       /* in bytes */
    uint64_t largest_allocation; /* in bytes */
    size_t copy_alignment;       /* a power of two, at most 1 MiB; 0 is 1 */
    uint32_t memory_reuse;
    uint32_t memory_reuse_alignment; /* DP_REUSE_DIVIDED: a power of two, at most 1 MiB */
    size_t memory_reuse_from;        /* DP_REUSE_LARGE: a number of bytes; 0 for the other values */

    /* Since 0.3. Each may be empty. */
    dp_str driver_version;     /* the version alone, as the driver gives it */
    dp_str api;                /* the interface that the library uses, such as "OpenCL" */
    dp_str api_version;        /* two numbers, such as "3.0" */
    dp_str compute_capability; /* two numbers, such as "9.0" */
    /* The types of numbers with which the device computes by itself, as "f32,f16,i32", or "none". */
    dp_str native_dtypes;
    /* Further facts by name, a line each, without a line break after the last: "compute_units=32" for a number,
       "subgroups=true" or "=false", and "isa:gfx90a" for a text. A name is 1 to 48 bytes of a-z, 0-9 and _. */
    dp_str attributes;
} dp_properties;

typedef struct dp_memory_info {
    size_t struct_size; /* set by the program */
    uint64_t total;     /* in bytes, or DP_UNKNOWN, which the program has set */
    uint64_t free;      /* the same */
} dp_memory_info;

typedef struct dp_allocate_options {
    size_t struct_size;
    size_t len; /* never 0 */
} dp_allocate_options;

typedef struct dp_stream_options {
    size_t struct_size;
    int32_t priority; /* -1 low, 0 normal, 1 high: a hint */
    uint32_t reserved;
} dp_stream_options;

typedef struct dp_event_options {
    size_t struct_size;
    uint32_t timed; /* 1 if the event needs a timestamp */
    uint32_t reserved;
} dp_event_options;

/* Faults that a test injects into a device: dp_device_api.inject, and rule D25. Numbers count from 1, the next one. */
enum {
    DP_FAIL_ALLOCATION = 1, /* the nth allocation fails with DP_OUT_OF_MEMORY, once */
    DP_FAIL_COPY = 2,       /* the nth write, read, copy or fill fails, once */
    DP_LOSE_DEVICE = 3,     /* the nth operation loses the device */
    DP_UNPLUG = 4,          /* the device is lost at once: it is reported by dp_loss */
    DP_SLOW = 5,            /* every operation takes longer, by `nanoseconds` */
    DP_STALL = 6            /* the nth operation stalls until the faults are cleared or the device has ended */
};

typedef struct dp_fault {
    size_t struct_size;
    uint32_t kind;
    uint32_t reserved;
    uint64_t nth;
    uint64_t nanoseconds;
} dp_fault;

/* An option that a user sets by name: its name (a-z, 0-9 and _, at most 32 bytes) and one line about its values. */
typedef struct dp_option_spec {
    size_t struct_size;
    dp_str name;
    dp_str description;
} dp_option_spec;

/* The value of an option. `variable` is the environment variable that sets it, and empty if the program does. */
typedef struct dp_option {
    size_t struct_size;
    dp_str name;
    dp_str value;
    dp_str variable;
} dp_option;

/* One thing that a library offers. For a backend, `group` is "device.backends". For kernels it is "device.kernels", whose
 * table device_kernels.h declares. The manifest says the same. */
typedef struct dp_entry {
    size_t struct_size;
    dp_str group;
    dp_str name;    /* a-z, 0-9 and _, at most 32 bytes, no digit first: the name in device strings */
    dp_str package; /* the package that it comes from, and its version */
    dp_str version;
    const dp_option_spec *const *options; /* may be NULL */
    size_t option_count;

    /* Since 0.2. The lowest minor version of the interface with which the entry works: a program of an earlier one
     * does not load it. 0: any. */
    uint32_t requires_minor;
    uint32_t reserved;
} dp_entry;

/* Functions of a backend. All are required, except `presence`. `backend` is dp_backend.backend. */
typedef struct dp_backend_api {
    size_t struct_size;

    /* The number of devices at the moment, at most 65536. No devices are not an error. The count may grow, and an
     * ordinal names the same device until the process ends. Claims no device. */
    uint32_t (*device_count)(void *backend, size_t *count, const dp_report *report);

    /* DP_OK if the device is there now, DP_ABSENT if it is not, with the reason; or an error, such as DP_LOST. NULL:
     * all are there. */
    uint32_t (*presence)(void *backend, size_t ordinal, const dp_report *report);

    /* Calls `receive(context, &properties)` once, before it returns DP_OK. Claims no device, allocates nothing on it. */
    uint32_t (*properties)(void *backend, size_t ordinal, void *context,
                           void (*receive)(void *context, const dp_properties *properties), const dp_report *report);

    /* Opens a device, and writes a new object, which only the library understands, to `*device`: rule D21. */
    uint32_t (*open)(void *backend, size_t ordinal, const dp_loss *loss, void **device, const dp_report *report);
} dp_backend_api;

/*
 * Functions of an open device, which block.
 *
 * Required: `memory_info`, `allocate`, `free`, and one of two ways to move bytes: `write`, `read` and `copy`, or
 * `create_stream`, from which the program builds the other three. Where a function is NULL, or returns DP_UNSUPPORTED,
 * the program does the work itself if it can.
 */
typedef struct dp_device_api {
    size_t struct_size;

    uint32_t (*memory_info)(void *device, dp_memory_info *info, const dp_report *report);

    /* Writes an object for new memory to `*memory`. Lengths come from users, and may be anything up to PTRDIFF_MAX. */
    uint32_t (*allocate)(void *device, const dp_allocate_options *options, void **memory, const dp_report *report);

    /* Frees memory that no work uses any longer, or whose streams are destroyed: rule D19. Also called after `close` and
     * `reset`, or never. */
    void (*free)(void *device, void *memory);

    uint32_t (*write)(void *device, const dp_span *destination, const void *source, const dp_report *report);
    uint32_t (*read)(void *device, const dp_span *source, void *destination, const dp_report *report);
    uint32_t (*copy)(void *device, const dp_span *source, const dp_span *destination, const dp_report *report);

    /* Repeats the pattern up to the end of the destination. */
    uint32_t (*fill)(void *device, const dp_span *destination, const void *pattern, size_t pattern_len,
                     const dp_report *report);

    /* `source` is memory of another device of this backend. Also called when that device was closed or lost. */
    uint32_t (*copy_from_peer)(void *device, const dp_span *source, const dp_span *destination,
                               const dp_report *report);

    /* Writes an object for a new queue to `*stream`, and does not wait for work. If it returns DP_UNSUPPORTED or is
     * NULL, the program runs a thread for each stream, which calls the functions above. */
    uint32_t (*create_stream)(void *device, const dp_stream_options *options, void **stream, const dp_report *report);

    /* Host memory that the device reaches faster: `len` initialised bytes, which the library owns. The program calls
     * `release`, perhaps after `close`. */
    uint32_t (*allocate_host)(void *device, size_t len, dp_host_bytes *bytes, const dp_report *report);

    /* Prepares a lost device to be opened again. Other calls may still be under way. DP_OK is the end of this object. */
    uint32_t (*reset)(void *device, const dp_report *report);

    /* The end of a device: gives its threads and its context back, and its memory. The work of its queues is done, and no
     * call is under way. But queues of other devices may still copy from its memory: a library with such copies gives it
     * back when they are done, or in `free`. Only `free`, `destroy` of streams and
     * events, and `release` of host memory may follow. The device counts as closed after an error too. */
    uint32_t (*close)(void *device, const dp_report *report);

    /* Fault injection, for tests. `has_faults` returns 1 if the device offers it; NULL: it does not. */
    uint32_t (*has_faults)(void *device);
    uint32_t (*inject)(void *device, const dp_fault *fault, const dp_report *report);
    void (*clear_faults)(void *device);

    /* Native handles, for kernels. The kind is a name that its owner defines, such as "opencl.cl_mem". Writes the
     * handle and returns 1, or returns 0 if there is none of this kind. It is valid while the memory or the device
     * is. Kernels pass it to the interface of its owner: return only what the owner's documentation says it is, of this
     * very object. */
    uint32_t (*native_handle)(void *device, dp_str kind, uint64_t *handle);
    uint32_t (*memory_native_handle)(void *device, void *memory, dp_str kind, uint64_t *handle);

    /* A table of functions that the library's author defines, by name; NULL if there is none. It is valid forever. */
    const void *(*extension)(void *device, dp_str name);
} dp_device_api;

/*
 * Functions of a queue, which runs work in order. A library whose `create_stream` makes queues has them; `destroy`,
 * `write`, `read`, `copy`, `record`, `query` and `synchronize` are required then.
 *
 * Rules D7 to D17 are about these. `query` and `synchronize` do not return the failure of a read, which dp_done reports.
 */
typedef struct dp_stream_api {
    size_t struct_size;

    /* The last call: rules D7 and D17. */
    void (*destroy)(void *stream);

    /* Submits a copy from the host. The library owns `source` from the call on, even if it returns an error. It
     * reads the bytes and never writes to them: the program may read them too. */
    uint32_t (*write)(void *stream, const dp_span *destination, const dp_host_bytes *source, const dp_report *report);

    /* Submits a copy to the host. The library owns `destination` and `done` from the call on, even if it returns an
     * error: see dp_done. */
    uint32_t (*read)(void *stream, const dp_span *source, const dp_host_bytes *destination, const dp_done *done,
                     const dp_report *report);

    uint32_t (*copy)(void *stream, const dp_span *source, const dp_span *destination, const dp_report *report);
    uint32_t (*fill)(void *stream, const dp_span *destination, const void *pattern, size_t pattern_len,
                     const dp_report *report);
    uint32_t (*copy_from_peer)(void *stream, const dp_span *source, const dp_span *destination,
                               const dp_report *report);

    /* Writes an object for a new event to `*event`. It is done when all work that was submitted before it is done. */
    uint32_t (*record)(void *stream, const dp_event_options *options, void **event, const dp_report *report);

    /* Makes later work wait for an event of a stream of this backend, perhaps of another device. The program keeps the
     * event as it keeps memory. If the event fails, this queue may fail too, or run the later work: rule D14. A lost
     * device of the event is no loss of this one: rule D18. */
    uint32_t (*wait)(void *stream, void *event, const dp_report *report);

    /* A kernel has returned that may have submitted native work to the queue. */
    void (*launched)(void *stream);

    /* Ensures that submitted work begins without further calls. A library may gather work and events until then. The
     * program calls it before `query`, `synchronize` and `destroy`; between `record` and the first function of the event
     * or the first `wait` for it; and between `read` and a thread's wait for the bytes. One call is for all that came
     * before it. After a loss it is not called, and the library never submits what it has gathered. */
    uint32_t (*flush)(void *stream, const dp_report *report);

    /* Writes 1 to `*done` if all work that was submitted before is done, and 0 if it is not, or if that is not known. */
    uint32_t (*query)(void *stream, uint32_t *done, const dp_report *report);

    /* Waits until all work that was submitted before is done. Also with an error it returns only then, unless the device
     * is lost: before `close` it is called last, and what the work used is freed. */
    uint32_t (*synchronize)(void *stream, const dp_report *report);

    /* As of a device: the queue itself, to which kernels submit native work. */
    uint32_t (*native_handle)(void *stream, dp_str kind, uint64_t *handle);
} dp_stream_api;

/* Functions of an event. They return the error of failed work before it, every time. Required with queues, except
 * `is_over`, and `elapsed_since` where no device has timed events. */
typedef struct dp_event_api {
    size_t struct_size;

    /* The event may not be done yet. */
    void (*destroy)(void *event);

    /* Writes 1 to `*done` if the work before it is done. */
    uint32_t (*query)(void *event, uint32_t *done, const dp_report *report);

    /* Writes 1 to `*over` if all work before it has ended, even with a failure, so that its memory may be freed.
     * NULL: the program calls `query`, and keeps memory behind a failure until `synchronize`. */
    uint32_t (*is_over)(void *event, uint32_t *over, const dp_report *report);

    uint32_t (*synchronize)(void *event, const dp_report *report);

    /* The time since `start`, a timed event of the same device. Both are done. If `start` was reached later than this
     * event: DP_INVALID. */
    uint32_t (*elapsed_since)(void *event, void *start, uint64_t *nanoseconds, const dp_report *report);
} dp_event_api;

/* A backend that was loaded. All tables are valid forever. */
typedef struct dp_backend {
    size_t struct_size; /* set by the program */
    void *backend;
    const dp_backend_api *backend_api;
    const dp_device_api *device_api;
    const dp_stream_api *stream_api; /* NULL: without queues */
    const dp_event_api *event_api;   /* NULL: without queues */
} dp_backend;

/* What a library offers. */
typedef struct dp_plugin {
    size_t struct_size;
    uint32_t major; /* DEVICE_PLUGIN_MAJOR */
    uint32_t minor; /* DEVICE_PLUGIN_MINOR */
    const dp_entry *const *entries;
    size_t entry_count;

    /* Loads the backend of the entry `name`, with the options that are set. DP_UNAVAILABLE: this machine lacks a
     * driver or hardware; the program then calls it again at a later use, after the time that the crate
     * entry-points calls LoadFailure::UNAVAILABLE_FOR. Any other error is permanent. After DP_OK it is called
     * again only for a manifest that gives the backend another name. Both are then in use. */
    uint32_t (*load)(dp_str name, const dp_option *const *options, size_t option_count, dp_backend *backend,
                     const dp_report *report);

    /* Since 0.2. Loads an entry of another group than "device.backends". `table` is the struct that the header of the
     * group declares, which begins with its size, as dp_backend does. Otherwise as `load`. NULL: the library has backends only. */
    uint32_t (*load_entry)(dp_str group, dp_str name, const dp_option *const *options, size_t option_count, void *table,
                           const dp_report *report);
} dp_plugin;

/* Levels of dp_host.log. */
enum { DP_LOG_OFF = 0, DP_LOG_ERROR = 1, DP_LOG_WARN = 2, DP_LOG_INFO = 3, DP_LOG_DEBUG = 4, DP_LOG_TRACE = 5 };

/* The program. Valid forever. */
typedef struct dp_host {
    size_t struct_size;
    uint32_t major;
    uint32_t minor;
    dp_str name;    /* "device-plugin" */
    dp_str version; /* its version */
    dp_str file;    /* the library, as it was opened */
    void *context;  /* the first argument of the functions below, which may be called on any thread */

    /* The most detailed level that the program logs, when the library was opened. */
    uint32_t log_level;
    uint32_t reserved;

    void (*log)(void *context, uint32_t level, dp_str target, dp_str message);

    /* The library has caught a panic of its own, or an exception. The program runs its panic hook. `place` is
     * "file:line:column", or empty. */
    void (*panicked)(void *context, dp_str message, dp_str place);
} dp_host;

/*
 * The function that a library exports. The program calls it right after it has opened the library, and again at a later
 * use if it returned NULL, which it does after a report if the library cannot work.
 */
DEVICE_PLUGIN_EXPORT const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report);

#ifdef __cplusplus
}
#endif

#endif
