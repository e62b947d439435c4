/*
 * kernels.h: three operators for the templates, over memory of the host: `add`, `relu` and `matmul` of 32-bit floats. The rules
 * are in device_kernels.h, by number.
 *
 * A real backend keeps the first half, which copies what the queued work needs of a call (rule K4), and has the driver's
 * kernels in the place of the second.
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <string.h>

#include "device_kernels.h"

enum { KERNEL_RANK = 8, KERNEL_INPUTS = 3 };

enum kernel_operator { KERNEL_ADD, KERNEL_RELU, KERNEL_MATMUL };

/* An argument: an array, or a number. */
struct kernel_array {
    dp_span span;
    size_t shape[KERNEL_RANK];
    ptrdiff_t strides[KERNEL_RANK]; /* in elements; 0 where an input is broadcast, and perhaps negative (rule K2) */
    size_t offset, rank;
    int is_number;
    float number;
};

/* A call, with everything in place. */
struct kernel {
    enum kernel_operator op;
    size_t inputs;
    struct kernel_array in[KERNEL_INPUTS], out;
};

#define KERNEL_ROW(text)                                                                                     \
    {.struct_size = sizeof(dk_kernel), .name = {text, sizeof(text) - 1}, .dtypes = DK_TYPE(DK_F32)}

/* What there is, in the order of the operators above. The program launches no other call. */
static const dk_kernel kernel_rows[] = {KERNEL_ROW("add"), KERNEL_ROW("relu"), KERNEL_ROW("matmul")};
static const dk_kernel *const kernel_list[] = {&kernel_rows[0], &kernel_rows[1], &kernel_rows[2]};

static void kernel_copy_argument(struct kernel_array *to, const dk_argument *from) {
    memset(to, 0, sizeof *to);
    to->is_number = from->dtype == 0;
    to->number = (float)from->number.real;
    to->span = from->span;
    to->offset = from->offset;
    to->rank = from->rank;
    for (size_t dim = 0; dim < to->rank; dim++) {
        to->shape[dim] = from->shape[dim];
        to->strides[dim] = from->strides[dim];
    }
}

/* Copies a call. Returns 0 if the rows do not have it, which a program never launches (rule K1). */
static int kernel_copy(struct kernel *kernel, const dk_call *call) {
    size_t row = 0;
    const size_t rows = sizeof kernel_rows / sizeof *kernel_rows;
    while (row < rows && (kernel_rows[row].name.len != call->name.len
                          || memcmp(kernel_rows[row].name.start, call->name.start, call->name.len) != 0))
        row++;
    if (row == rows || call->input_count > KERNEL_INPUTS) return 0;
    kernel->op = (enum kernel_operator)row;
    kernel->inputs = call->input_count;
    for (size_t at = 0; at < call->input_count; at++) kernel_copy_argument(&kernel->in[at], &call->inputs[at]);
    kernel_copy_argument(&kernel->out, &call->outputs[0]);
    return 1;
}

/* ---- What a driver's kernels do ---- */

/* Where the bytes of a span are. */
typedef unsigned char *(*kernel_start)(const dp_span *span);

/* The place of an element, in elements of the span. */
static ptrdiff_t kernel_place(const struct kernel_array *array, const size_t *index) {
    ptrdiff_t place = (ptrdiff_t)array->offset;
    for (size_t dim = 0; dim < array->rank; dim++) place += (ptrdiff_t)index[dim] * array->strides[dim];
    return place;
}

static float kernel_read(const struct kernel_array *array, const size_t *index, kernel_start start) {
    if (array->is_number) return array->number;
    return ((const float *)start(&array->span))[kernel_place(array, index)];
}

/* `sum(a[i][k] * b[k][j])`, and a bias if there is a third input, for the last two dimensions. */
static float kernel_product(const struct kernel *kernel, const size_t *index, kernel_start start) {
    const size_t row = kernel->out.rank - 2, column = kernel->out.rank - 1;
    size_t of_a[KERNEL_RANK], of_b[KERNEL_RANK];
    float sum = 0;
    memcpy(of_a, index, sizeof of_a);
    memcpy(of_b, index, sizeof of_b);
    for (size_t k = 0; k < kernel->in[0].shape[column]; k++) {
        of_a[column] = of_b[row] = k;
        sum += kernel_read(&kernel->in[0], of_a, start) * kernel_read(&kernel->in[1], of_b, start);
    }
    return kernel->inputs == 3 ? sum + kernel_read(&kernel->in[2], index, start) : sum;
}

static float kernel_element(const struct kernel *kernel, const size_t *index, kernel_start start) {
    if (kernel->op == KERNEL_MATMUL) return kernel_product(kernel, index, start);
    const float a = kernel_read(&kernel->in[0], index, start);
    if (kernel->op == KERNEL_ADD) return a + kernel_read(&kernel->in[1], index, start);
    return a < 0 ? 0 : a; /* A NaN stays one. */
}

/* Computes each element of the output, in the order of their indices. */
static void kernel_compute(const struct kernel *kernel, kernel_start start) {
    size_t index[KERNEL_RANK] = {0};
    float *out = (float *)start(&kernel->out.span);
    for (;;) {
        out[kernel_place(&kernel->out, index)] = kernel_element(kernel, index, start);
        size_t dim = kernel->out.rank;
        while (dim > 0 && ++index[dim - 1] == kernel->out.shape[dim - 1]) index[--dim] = 0;
        if (dim == 0) return;
    }
}

#endif
