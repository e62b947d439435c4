// What the shim calls of the library in Rust. `src/abi.rs` has the other side, in the same order.
//
// A function that can fail returns a code: 0 for success. `dt_error` is the text of the last failure of the
// calling thread, until its next call. Any thread may call any function. No function throws.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The codes.
enum {
  DT_OK = 0,
  // There is no kernel: the CPU has to compute. `dt_error` says why.
  DT_DECLINED = 1,
  DT_FAILED = 2,
  DT_OUT_OF_MEMORY = 3,
  DT_UNSUPPORTED = 4,
  // The device is lost.
  DT_LOST = 5,
};

const char* dt_error(void);

// What the variables chose. Loads and opens nothing. The texts come from the first call.
int dt_choose(const char** name, const char** notes);

// Devices, by their index in PyTorch. Counts, names, statistics and waits open no device and load no driver: a process
// may ask and then be forked, for its children to use the devices.
int dt_device_count(void);
int dt_is_open(int device);
// The name in the registry, such as `openreg:1`. The text lives as long as the process.
int dt_device_name(int device, const char** name);
// What is known of a device: lines of a name, the kind of the value (s, i or b) and the value, with tabs between
// them. Opens nothing. The text is the calling thread's, until its next call.
int dt_device_properties(int device, const char** lines);
// All devices and backends in words; the text is the calling thread's, until its next call.
const char* dt_describe(void);
int dt_is_forked(void);

// Memory. A pointer stands for memory of the device: the host can neither read nor write there.
int dt_allocate(int device, size_t len, void** pointer);
void dt_free(void* pointer);
// The device whose memory contains the pointer; -1 for all other pointers.
int dt_device_of(const void* pointer);
// Empties the caches of all devices that were used.
int dt_empty_caches(void);
int dt_memory_info(int device, uint64_t* available, uint64_t* total);
typedef struct {
  // Bytes that PyTorch has allocated, the most since the last reset, and all that it ever has.
  uint64_t allocated, peak_allocated, ever_allocated;
  // The number of allocations, likewise.
  uint64_t live, peak_live, ever_live;
  // Bytes that the device uses and holds, and how often it emptied its cache to have room.
  uint64_t active, reserved, peak_reserved, retries;
} dt_statistics;
int dt_memory_statistics(int device, dt_statistics* statistics);
// Resets the largest values to the present ones, or with `ever` the totals that were ever allocated.
int dt_reset_statistics(int device, int ever);

// Memory of the host that devices copy faster, if they have any.
int dt_allocate_host(int device, size_t len, void** pointer);
void dt_free_host(void* pointer);
int dt_is_host_allocation(const void* pointer);

// Copies, in the current stream of the device.
int dt_write(void* destination, const void* source, size_t len);
// Like `dt_write`, but returns before pinned memory was read, which nothing may write to until the current stream has
// done its work. It may be freed.
int dt_write_later(void* destination, const void* source, size_t len);
int dt_read(void* destination, const void* source, size_t len);
int dt_copy(void* destination, const void* source, size_t len);

// Bytes of a device where they are, for the CPU to compute with in the place of the idle device.
typedef struct {
  void* pointer;
  size_t len;
  int is_written;
  // Where the bytes are, while `compute` runs.
  void* host;
} dt_range;
// Waits for the current stream, and calls `compute` with the bytes at hand. Sets `*mapped` to 0, and calls nothing,
// if the host reaches one of the ranges by copies alone.
int dt_with_mapped(dt_range* ranges, size_t count, void* context, void (*compute)(void* context), int* mapped);

// Waits for all work of the device, and sets `*host` to where its bytes are, for code of the host that uses them while
// no work of the device does. They stay there until `dt_unshare` of `*owner`, whatever else is freed. Both are null if
// the host reaches the bytes by copies alone.
int dt_share(void* pointer, size_t len, void** host, void** owner);
void dt_unshare(void* owner);

// Streams, by their number: 0 is the default stream of the device.
int64_t dt_current_stream(int device);
void dt_set_current_stream(int device, int64_t stream);
int dt_new_stream(int device, int high_priority, int64_t* stream);
int dt_query_stream(int device, int64_t stream, int* done);
int dt_synchronize_stream(int device, int64_t stream);
int dt_synchronize(int device);

// Events, by their number, which is never 0. `dt_record` makes one of 0, and records any other again: what waits for it
// waits for what was recorded before. No event is used after `dt_destroy_event`.
int dt_record(int device, int64_t stream, int timed, uint64_t* event);
int dt_wait_event(uint64_t event, int device, int64_t stream);
int dt_query_event(uint64_t event, int* done);
int dt_synchronize_event(uint64_t event);
int dt_elapsed(uint64_t start, uint64_t end, double* milliseconds);
void dt_destroy_event(uint64_t event);

// Operators. A value is an argument of PyTorch's, or a result.
enum { DT_NONE = 0, DT_TENSOR, DT_FLOAT, DT_INT, DT_BOOL, DT_INTS, DT_TEXT, DT_TENSORS, DT_OTHER };

typedef struct dt_value {
  int32_t kind;
  // Of a tensor: PyTorch's number of the type, its device (-1 for the CPU), and where its first element is.
  int32_t dtype;
  int32_t device;
  // How many sizes and strides, integers, bytes of text, or tensors there are.
  size_t len;
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  // Of a list, its tensors; those that are absent have the kind DT_NONE.
  const struct dt_value* values;
  double number;
  int64_t integer;
} dt_value;

typedef struct {
  const dt_value* arguments;
  size_t argument_count;
  // Makes a tensor on a device for a result, or for what is needed meanwhile. Its elements are not set, and contiguous
  // without strides. What `made` points to lives as long as the call. A negative device is a result that was not asked
  // for.
  void* context;
  int (*empty)(
      void* context, int device, int dtype, const int64_t* sizes, const int64_t* strides, size_t rank, int result,
      dt_value* made);
  // Draws a seed from the call's generator, or else the device's. Returns a code.
  int (*seed)(void* context, uint64_t* drawn);
} dt_call;

// The name of the operator with this number, such as `add.out`, and its length; null behind the last.
const char* dt_operator(size_t number, size_t* len);
// Whether the device has kernels at all.
int dt_has_kernels(int device);
int dt_run(size_t number, const dt_call* call);

// An expression: many operators on elements and reductions in one call. It is made of its text once, and stays.
int dt_expression(const char* text, size_t len, const void** expression);
// The arguments are the inputs of the expression, and behind them tensors for its first results. It makes the others.
int dt_run_expression(const void* expression, const dt_call* call);

// Counts a call that the CPU computed.
void dt_count_fallback(const char* name, int dtype, uint64_t nanoseconds, uint64_t bytes);
// All counts, a line for each; the text is the calling thread's, until its next call.
const char* dt_counts(void);
void dt_reset_counts(void);
// What DEVICE_TORCH_FALLBACK says: 0 for the CPU, 1 for a warning with each operator, 2 for an error.
int dt_fallback_policy(int* policy);

// What devices do, for PyTorch's profiler.
enum { DT_KERNEL = 0, DT_COPY = 1, DT_FILL = 2, DT_WAIT = 3 };

// A piece of work of a device, or a wait of a thread of the host.
typedef struct {
  int32_t kind;
  int32_t device;
  // Its name, such as the kernel's. Texts have a length, and live until `each` returns.
  const char* name;
  size_t len;
  // The registry's number of the stream, and its name; 0 for a call that the host waited for.
  uint64_t stream;
  const char* stream_name;
  size_t stream_len;
  // The system's number of the thread that asked for it; 0 if it is not known.
  int64_t thread;
  // PyTorch's number of the operator; 0 for work outside of one.
  uint64_t op;
  uint64_t bytes;
  // Nanoseconds since 1970.
  int64_t begin, end;
  // By how many nanoseconds they may be wrong; negative for an end that was only noticed later.
  int64_t error;
} dt_activity;

// Begins a recording, of which there is one at a time.
int dt_begin_recording(void** recording);
// Waits for all work that was enqueued, and ends the recording. Calls `each` with each piece, in the order of their
// times. `*problems` says what is missing, until the thread's next call; null if all is there.
int dt_end_recording(void* recording, void* context, void (*each)(void* context, const dt_activity* activity),
                     const char** problems);
// The calling thread, by the system's number, enters an operator, by PyTorch's. Without a recording, they do nothing.
void dt_enter_operator(uint64_t op, int64_t thread);
void dt_leave_operator(void);
// Whether the thread is in the `compute` of `dt_with_mapped`, where it may use no device.
int dt_is_computing(void);
// The length of the allocation that contains the pointer.
int dt_len_of(const void* pointer, size_t* len);

#ifdef __cplusplus
}
#endif
