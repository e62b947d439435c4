/*
 * device_kernels.h: kernels for a backend in a shared library, version 0.1 of the interface.
 *
 * A library that has a backend by device_plugin.h may have kernels for it: functions that compute, such as a sum of two
 * arrays. Frameworks in Rust call them by the crate `device-kernels`, which defines the operators; a program finds them
 * through the crate `device-kernels-plugin`. The library lists an entry of the group "device.kernels" in dp_plugin, with the
 * name of its backend, and a manifest of its own beside it. dp_plugin.load_entry fills a dk_kernels. A second set for the same
 * backend has a name that continues after two underscores, as "acme__convolutions", and is asked before the first. A set gets
 * objects of the backend of its name only, also where a manifest gives another name.
 *
 * All rules of device_plugin.h hold: of tables, errors, strings, threads, unwinding and drivers. `struct_size` begins the
 * structs that may grow.
 *
 * WHAT THE PROGRAM CHECKS
 *
 * The program has checked each call against the rules of its operator, which the documentation of `device_kernels::Operator`
 * has: the number of arguments, their types and shapes. Each array lies in its span. An output has no element twice. It shares
 * elements with no other array, unless the operator is element-wise and the input is the same elements. No array is
 * empty. A call that writes nothing is never launched.
 *
 * RULES OF KERNELS
 *
 *  K1. What is supported. The rows of dk_set_api.kernels say which calls the library has kernels for, and `supports` may
 *      exclude some of them. The answer for a call is the same every time, for as long as the process runs. The program
 *      launches only calls that are supported. It does not use a row with a flag that it does not know. An operator
 *      never gains an option: one with more options has another name.
 *  K2. Where elements are. The element of an array at an index is `offset + index[0] * strides[0] + ...` elements from the
 *      start of its span. Strides count elements. They may be 0, where an input was broadcast, or negative. The span begins at a
 *      multiple of the element's size in its memory.
 *  K3. What is written. A kernel writes the elements of its outputs and no other bytes, also between them. It reads elements
 *      of its arrays only. The operators that update keep the other elements of their output.
 *  K4. When. With a queue, `launch` submits the work and returns: the work runs in the order of the queue (rule D7), and
 *      what it uses stays (rule D10), but for the call itself, which is valid during `launch`. The program calls `launched` of
 *      the queue after that. Without queues, `launch` returns when the work is done. Different streams may call it at the same
 *      time, then.
 *  K5. Failures. An error of `launch` leaves the outputs unspecified. Work that was submitted before the error ends by
 *      itself, as all work of the queue does. A failure of submitted work is one of the queue (rule D12).
 *  K6. Devices. `launch` and `supports` use no device but that of the call, and `supports` does not open one. (A set in
 *      Rust that a library exports may open it once more, in the library.)
 *  K7. Numbers. How exact a result has to be is what the crate device-kernels-conformance says, whose suite runs on kernels of
 *      libraries too.
 */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include "device_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEVICE_KERNELS_MAJOR 0u
#define DEVICE_KERNELS_MINOR 1u

/* Types of elements. */
enum {
    DK_F32 = 1,
    DK_F16 = 2,  /* IEEE 754 binary16 */
    DK_BF16 = 3, /* the upper half of a DK_F32 */
    DK_F64 = 4,
    DK_I32 = 5,
    DK_I64 = 6,
    DK_U8 = 7,
    DK_U32 = 8,
    DK_BOOL = 9 /* one byte: 0 is false, any other is true, and kernels write 0 or 1 */
};

/* A set of types, for dk_kernel.dtypes: DK_TYPE(DK_F32) | DK_TYPE(DK_I32). */
#define DK_TYPE(dtype) (1u << (dtype))

/* A number, as an integer and as a real number: a kernel takes the one that it needs. `dtype` is what it was written as:
 * DK_I64, DK_F64 or DK_BOOL. */
typedef struct dk_number {
    int64_t integer;
    double real;
    uint32_t dtype;
    uint32_t reserved;
} dk_number;

/* An option of an operator by name, such as "dim". `device_kernels::Operator::options` lists them. Most have one value.
 * The options of the operator "expression" are its steps, in their order: `device_kernels::Expression::steps`. */
typedef struct dk_option {
    dp_str name;
    const dk_number *values;
    size_t count;
} dk_option;

/* An argument of a call: an array, or a number for each element if `dtype` is 0. */
typedef struct dk_argument {
    dp_span span; /* in `launch`: where the array is. Zeros in the other functions. */
    const size_t *shape;
    const ptrdiff_t *strides; /* in elements: rule K2 */
    size_t offset;            /* in elements */
    uint32_t dtype;
    uint32_t rank;            /* the number of dimensions, at most 8 */
    dk_number number;
} dk_argument;

/* A call of an operator: valid during the function that gets it. */
typedef struct dk_call {
    size_t struct_size;
    dp_str name; /* of the operator: "add", "matmul", "reduce_sum", "acme__swiglu" */
    const dk_option *options;
    size_t option_count;
    const dk_argument *inputs;
    size_t input_count;
    const dk_argument *outputs;
    size_t output_count;
} dk_call;

/* Flags of dk_kernel. */
enum {
    DK_CONTIGUOUS = 1, /* only calls all of whose arrays have their elements one after the other, the last dimension first */
    DK_ARRAYS_ONLY = 2 /* only calls without numbers among their inputs */
};

/* What a kernel is for: the calls of one operator within these limits. Zeros are no limits. */
typedef struct dk_kernel {
    size_t struct_size;
    dp_str name;         /* of the operator */
    size_t max_rank;     /* of each array */
    size_t max_elements; /* of each array */
    uint32_t dtypes;     /* the types that arrays may have: see DK_TYPE */
    uint32_t flags;
} dk_kernel;

/* The functions of a set. `set` is dk_kernels.set. */
typedef struct dk_set_api {
    size_t struct_size;

    /* What it has kernels for, valid forever: tables and choices are made of it. */
    const dk_kernel *const *kernels;
    size_t kernel_count;

    /* Returns 1 if there is a kernel for a call on the device with this ordinal, which may not be open. It is only called
     * for calls that a row of `kernels` covers. Does not block. NULL: there is one for each of those. */
    uint32_t (*supports)(void *set, size_t ordinal, const dk_call *call);

    /* Returns 1 if the kernel for a call takes some tens of microseconds at most, and waits for nothing. Then the program may
     * run it on the thread that enqueues it. Only called for backends without queues. NULL: the program decides by the number
     * of elements. */
    uint32_t (*is_short)(void *set, const dk_call *call);

    /* Computes a call: rules K2 to K6. `device` is the open device, and `stream` the queue, or NULL for a backend without
     * queues. Required. */
    uint32_t (*launch)(void *set, void *device, void *stream, const dk_call *call, const dp_report *report);
} dk_set_api;

/* What dp_plugin.load_entry fills for the group "device.kernels". */
typedef struct dk_kernels {
    size_t struct_size; /* set by the program */
    uint32_t major;     /* DEVICE_KERNELS_MAJOR */
    uint32_t minor;     /* DEVICE_KERNELS_MINOR */
    void *set;
    const dk_set_api *api;
} dk_kernels;

#ifdef __cplusplus
}
#endif

#endif
