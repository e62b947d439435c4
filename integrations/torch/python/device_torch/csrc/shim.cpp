// PyTorch's half of a device: PyTorch's interfaces, as calls of the library in Rust (`device_torch.h`).
//
// It knows no backend. It is compiled once for each minor version of PyTorch, as PyTorch's C++ interface changes
// with each, and includes nothing of Python. `dt_register` registers all of it.

#include "compositions.h"
#include "device_torch.h"
#include "profiler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

namespace {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::IValue;
using c10::Stream;
using torch::jit::Stack;

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// --- Errors ---

// Throws what PyTorch has for a failure, with the text of the library.
void check(int code) {
  if (code == DT_OK) return;
  const std::string text = dt_error();
  switch (code) {
    case DT_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case DT_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case DT_LOST:
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, text);
    default:
      TORCH_CHECK(false, text);
  }
}

std::string name_of(DeviceIndex device) {
  const char* name = nullptr;
  check(dt_device_name(device, &name));
  return name;
}

// Throws unless a number of any size is the index of a device.
void check_device(int64_t number) {
  const char* name = nullptr;
  // A number that is too large for an index is no device's.
  check(dt_device_name(static_cast<int>(std::clamp<int64_t>(number, -1, INT_MAX)), &name));
}

// --- The current device ---

thread_local DeviceIndex current_device = 0;

void set_current_device(DeviceIndex device) {
  // Only a change is checked: this is called around each operator.
  if (device == current_device) return;
  check_device(device);
  current_device = device;
}

// --- Memory ---

struct Memory final : c10::DeviceAllocator {
  static void release(void* pointer) {
    report_freed(pointer);
    dt_free(pointer);
  }

  at::DataPtr allocate(size_t len) override {
    void* pointer = nullptr;
    if (len > 0) {
      check(dt_allocate(current_device, len, &pointer));
      report_allocated(pointer);
    }
    return {pointer, pointer, &release, Device(kDevice, current_device)};
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, size_t len) const override {
    check(dt_copy(destination, source, len));
  }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t) override { check(dt_empty_caches()); }

  // Queued work owns its memory, whatever PyTorch frees.
  void recordStream(const at::DataPtr&, Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    dt_statistics found = {};
    check(dt_memory_statistics(device, &found));
    const auto set = [](c10::CachingAllocator::StatArray& stat, uint64_t current, uint64_t peak, uint64_t ever) {
      stat[0].current = static_cast<int64_t>(current);
      stat[0].peak = static_cast<int64_t>(peak);
      stat[0].allocated = static_cast<int64_t>(ever);
      stat[0].freed = static_cast<int64_t>(ever - current);
    };
    set(stats.allocated_bytes, found.allocated, found.peak_allocated, found.ever_allocated);
    set(stats.requested_bytes, found.allocated, found.peak_allocated, found.ever_allocated);
    set(stats.allocation, found.live, found.peak_live, found.ever_live);
    set(stats.active_bytes, found.active, found.active, found.active);
    set(stats.reserved_bytes, found.reserved, found.peak_reserved, found.reserved);
    stats.num_alloc_retries = static_cast<int64_t>(found.retries);
    return stats;
  }

  void resetAccumulatedStats(DeviceIndex device) override { check(dt_reset_statistics(device, 1)); }
  void resetPeakStats(DeviceIndex device) override { check(dt_reset_statistics(device, 0)); }

  // Not marked as an override: not each version declares it.
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) {
    uint64_t available = 0, total = 0;
    check(dt_memory_info(device, &available, &total));
    return {available, total};
  }
};

struct PinnedMemory final : at::HostAllocator {
  static void release(void* pointer) { dt_free_host(pointer); }

  at::DataPtr allocate(size_t len) override {
    void* pointer = nullptr;
    if (len > 0) check(dt_allocate_host(current_device, len, &pointer));
    return {pointer, pointer, &release, Device(c10::DeviceType::CPU)};
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, size_t len) const override {
    default_copy_data(destination, source, len);
  }

  bool record_event(void*, void*, Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

// Neither ends, as other threads may use them at the end of the process. Nor do the others of this file.
Memory& memory = *new Memory;
PinnedMemory& pinned_memory = *new PinnedMemory;

// Whether the program wants new memory to have a known value, as `torch.use_deterministic_algorithms` says.
bool fills_new_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

Tensor filled(Tensor made) {
  if (C10_UNLIKELY(fills_new_memory())) at::native::fill_empty_deterministic_(made);
  return made;
}

// Makes the memory of a storage longer or shorter.
void resize_bytes(c10::StorageImpl* storage, size_t len) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage->device());
  at::DataPtr resized = memory.allocate(len);
  const size_t kept = std::min(len, storage->nbytes());
  if (kept > 0) check(dt_copy(resized.get(), storage->data(), kept));
  storage->set_data_ptr_noswap(std::move(resized));
  storage->set_nbytes(len);
}

void resize_to_hold(const Tensor& self) {
  const size_t len = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.dtype().itemsize(), self.storage_offset());
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (self.numel() > 0 && len > storage->nbytes()) resize_bytes(storage, len);
}

// --- Streams and events ---

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static Stream stream(DeviceIndex device, int64_t number) {
    return Stream(Stream::UNSAFE, Device(kDevice, device), number);
  }
  static DeviceIndex index(Device device) { return device.has_index() ? device.index() : current_device; }

  c10::DeviceType type() const override { return kDevice; }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(dt_device_count()); }

  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    set_current_device(index(device));
    return before;
  }
  Device getDevice() const override { return Device(kDevice, current_device); }
  void setDevice(Device device) const override { set_current_device(index(device)); }
  void uncheckedSetDevice(Device device) const noexcept override { current_device = index(device); }

  Stream getStream(Device device) const override { return stream(index(device), dt_current_stream(index(device))); }
  Stream getDefaultStream(Device device) const override { return stream(index(device), 0); }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    int64_t number = 0;
    check(dt_new_stream(index(device), high_priority, &number));
    return stream(index(device), number);
  }
  // A lower number is a higher priority, as with CUDA.
  Stream getNewStream(Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  Stream exchangeStream(Stream chosen) const override {
    const Stream before = getStream(chosen.device());
    dt_set_current_stream(chosen.device_index(), chosen.id());
    return before;
  }
  bool queryStream(const Stream& asked) const override {
    int done = 0;
    check(dt_query_stream(asked.device_index(), asked.id(), &done));
    return done != 0;
  }
  void synchronizeStream(const Stream& asked) const override {
    check(dt_synchronize_stream(asked.device_index(), asked.id()));
  }
  void synchronizeDevice(const DeviceIndex device) const override { check(dt_synchronize(device)); }

  // PyTorch's handle of an event is its number, which stays when it is recorded again: threads may wait for it.
  void record(void** event, const Stream& asked, const DeviceIndex, const c10::EventFlag flag) const override {
    uint64_t number = number_of(*event);
    check(dt_record(asked.device_index(), asked.id(), flag == c10::EventFlag::BACKEND_DEFAULT, &number));
    *event = reinterpret_cast<void*>(number);
  }
  void block(void* event, const Stream& asked) const override {
    if (event != nullptr) check(dt_wait_event(number_of(event), asked.device_index(), asked.id()));
  }
  bool queryEvent(void* event) const override {
    int done = 1;
    if (event != nullptr) check(dt_query_event(number_of(event), &done));
    return done != 0;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) check(dt_synchronize_event(number_of(event)));
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    double milliseconds = 0;
    check(dt_elapsed(number_of(start), number_of(end), &milliseconds));
    return milliseconds;
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { dt_destroy_event(number_of(event)); }
  static uint64_t number_of(void* event) { return reinterpret_cast<uint64_t>(event); }

  // Queued work owns its memory.
  void recordDataPtrOnStream(const at::DataPtr&, const Stream&) const override {}

  // These two are not marked as overrides: not each version declares them.
  void* getStreamNativeHandle(const Stream asked) const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "a stream of `", name_of(asked.device_index()), "` has no native handle in PyTorch: those of the "
        "registry have a kind, such as `opencl.cl_command_queue`, and are valid within a kernel's launch alone");
  }
#if __has_include(<c10/core/DeviceCapability.h>)
  // All types of whole bytes that PyTorch converts: what the device lacks, the CPU computes.
  c10::DeviceCapability getDeviceCapability(Device) const {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_Bool = types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = 1;
    types.has_UInt16 = types.has_UInt32 = types.has_UInt64 = 1;
    types.has_BFloat16 = types.has_Half = types.has_Float = types.has_Double = 1;
    types.has_ComplexHalf = types.has_ComplexFloat = types.has_ComplexDouble = 1;
    types.has_Float8_e5m2 = types.has_Float8_e4m3fn = 1;
    types.has_Float8_e5m2fnuz = types.has_Float8_e4m3fnuz = types.has_Float8_e8m0fnu = 1;
    return capability;
  }
#endif
};

// --- Random numbers ---

// It contains a generator of the CPU, which a fallback gives to the CPU's kernels: those refuse others.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(DeviceIndex device, uint64_t seed = c10::detail::getNonDeterministicRandom())
      : GeneratorImpl(Device(kDevice, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(at::detail::createCPUGenerator(seed)) {}

  void set_current_seed(uint64_t seed) override { locked()->set_current_seed(seed); }
  // The CPU's generator has no offset, and PyTorch writes and reads one with the state in a pickle.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "A generator of ", device(), " has no offset: use `get_state` and `set_state`");
  }
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return locked()->current_seed(); }
  uint64_t seed() override { return locked()->seed(); }
  void set_state(const c10::TensorImpl& state) override { locked()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return locked()->get_state(); }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->set_cpu(cpu().clone());
    return copy;
  }

  // A compiled graph draws from a state of its own, which it sets for the time of an operator. It is the same generator.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    auto shared = c10::make_intrusive<Generator>(device().index(), 0);
    shared->set_cpu(cpu());
    return shared;
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    const auto* other = dynamic_cast<const Generator*>(state.get());
    TORCH_CHECK(other != nullptr, "Expected the state of a generator of ", device());
    set_cpu(other->cpu());
  }

  at::Generator cpu() const {
    const std::lock_guard<std::mutex> lock(within_);
    return cpu_;
  }

 private:
  void set_cpu(at::Generator generator) {
    const std::lock_guard<std::mutex> lock(within_);
    cpu_ = std::move(generator);
  }

  // The CPU's kernels lock the generator that they get, which is the one within.
  struct Locked {
    at::Generator generator;
    std::lock_guard<std::mutex> lock;
    explicit Locked(at::Generator within) : generator(std::move(within)), lock(generator.mutex()) {}
    c10::GeneratorImpl* operator->() const { return generator.unsafeGetGeneratorImpl(); }
  };
  Locked locked() const { return Locked(cpu()); }

  mutable std::mutex within_;
  at::Generator cpu_;
};

// The generators of devices, each made at its first use.
struct Generators {
  std::mutex mutex;
  std::map<DeviceIndex, at::Generator> made;
  // The seed of those that are not made yet: a seed for all counts no devices.
  uint64_t seed = c10::default_rng_seed_val;
};
Generators& generators = *new Generators;

// The generator of a device, whose number may be negative, for the current one, or no device's.
const at::Generator& default_generator(int64_t number) {
  if (number < 0) number = current_device;
  if (number != current_device) check_device(number);
  const auto device = static_cast<DeviceIndex>(number);
  const std::lock_guard<std::mutex> lock(generators.mutex);
  auto found = generators.made.find(device);
  if (found == generators.made.end()) {
    found = generators.made.emplace(device, at::make_generator<Generator>(device, generators.seed)).first;
  }
  return found->second;
}

void seed_all(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(generators.mutex);
  generators.seed = seed;
  for (auto& [device, generator] : generators.made) generator.set_current_seed(seed);
}

// --- Hooks ---

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return dt_device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override { return dt_is_open(device) != 0; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(dt_device_count()); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = current_device;
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current_device : exchangeDevice(device);
  }
  Device getDeviceFromPtr(void* data) const override {
    const int device = dt_device_of(data);
    TORCH_CHECK(device >= 0, "The pointer is not one of a registered device");
    return Device(kDevice, static_cast<DeviceIndex>(device));
  }
  bool isPinnedPtr(const void* data) const override { return dt_is_host_allocation(data) != 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    if (device < 0) device = current_device;
    if (device != current_device) check_device(device);
    return at::make_generator<Generator>(device, c10::default_rng_seed_val);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t len) const override {
    resize_bytes(storage.unsafeGetStorageImpl(), len);
  }
};

// --- Bytes ---

bool is_ours(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice; }

// The bytes between the first and the last element, counted from the first element of the tensor.
size_t span_of(const Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(), 0);
}

Tensor host_empty(c10::IntArrayRef size, caffe2::TypeMeta dtype) {
  return at::detail::empty_cpu(size, at::TensorOptions().device(c10::kCPU).dtype(dtype));
}

// A tensor of the CPU with the same sizes and strides, whose elements are within `len` bytes.
Tensor host_span(const Tensor& like, size_t len) {
  const auto itemsize = like.dtype().itemsize();
  const auto count = static_cast<int64_t>((len + itemsize - 1) / itemsize);
  return host_empty({count}, like.dtype()).as_strided(like.sizes(), like.strides());
}

Tensor device_empty(
    c10::IntArrayRef size, at::ScalarType dtype, DeviceIndex device,
    std::optional<at::MemoryFormat> memory_format = std::nullopt) {
  const auto allocate = [&] {
    return at::detail::empty_generic(
        size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype, memory_format);
  };
  if (device == current_device) return allocate();
  const c10::DeviceGuard guard(Device(kDevice, device));
  return allocate();
}

// --- The CPU in place of a kernel ---

int fallback_policy() {
  static const int policy = [] {
    int chosen = 0;
    check(dt_fallback_policy(&chosen));
    return chosen;
  }();
  return policy;
}

// Whether the CPU may compute for a device. `why` is what the library said of its kernels.
void check_fallback(const std::string& operator_name, Device device, const std::string& why) {
  const int policy = fallback_policy();
  if (policy == 0) return;
  const auto reason = why.empty() ? std::string("it is not one of the operators with kernels") : why;
  const auto what = operator_name + " has no kernel on `" + name_of(device.index()) + "`: " + reason;
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy == 1, what, "; DEVICE_TORCH_FALLBACK=deny forbids the CPU, which would compute it otherwise");
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard<std::mutex> lock(mutex);
  if (warned.insert(operator_name).second) TORCH_WARN(what, "; the CPU computes it");
}

// Devices have plain tensors alone.
void check_kind(const Tensor& tensor) {
  const char* kind = nullptr;
  if (tensor.is_nested()) kind = "Nested";
  if (tensor.is_quantized()) kind = "Quantized";
  if (tensor.is_mkldnn()) kind = "Mkldnn";
  if (tensor.is_sparse() || at::sparse_csr::is_sparse_compressed(tensor)) kind = "Sparse";
  TORCH_CHECK_NOT_IMPLEMENTED(
      kind == nullptr, kind, " tensors are not supported on devices of the type ", kDevice,
      ": compute with them on the CPU");
}

// A lazy clone, which is about to be written, gets bytes of its own.
void own_bytes(const Tensor& tensor) { tensor.storage().mutable_data(); }

// Tensors of devices as tensors of the CPU, for one call. Those that share bytes share them there as well, so that
// elements overlap as they do on the device.
class Mirror {
 public:
  // Must be called for all tensors before `run`. One that is written has bytes of its own.
  void add(const Tensor& tensor, bool is_read, bool is_written) {
    if (tensor.numel() == 0) return;
    const auto offset = static_cast<size_t>(tensor.storage_offset()) * tensor.dtype().itemsize();
    const auto len = span_of(tensor);
    TORCH_CHECK(
        offset + len <= tensor.storage().nbytes(), "The storage of a tensor has ", tensor.storage().nbytes(),
        " bytes, and its elements end at ", offset + len);
    // What is written and has no gaps need not be read, if nothing else is there.
    const bool whole = is_written && !is_read && tensor.is_non_overlapping_and_dense();
    Area area;
    area.start = address_of(tensor);
    area.end = area.start + len;
    area.is_read = !whole;
    area.is_written = is_written;
    // Bytes may have two storages, as DLPack makes.
    for (auto known = areas_.begin(); known != areas_.end();) {
      const bool is_apart = area.end <= known->start || known->end <= area.start;
      if (is_apart) {
        ++known;
        continue;
      }
      area.start = std::min(area.start, known->start);
      area.end = std::max(area.end, known->end);
      area.is_read = true;
      area.is_written = area.is_written || known->is_written;
      known = areas_.erase(known);
    }
    areas_.push_back(std::move(area));
  }

  // Calls a function that computes with `of` each tensor. It computes in the bytes of the device where the host
  // reaches them and it `may_map`, and else in copies.
  template <typename Function>
  void run(bool may_map, Function&& compute) {
    if (may_map && !areas_.empty() && run_mapped(compute)) return;
    for (auto& area : areas_) {
      auto bytes = c10::GetCPUAllocator()->allocate(area.end - area.begin());
      if (area.is_read) {
        read(area, bytes.get());
        bytes_ += area.end - area.start;
      }
      area.set_host(std::move(bytes));
    }
    compute();
  }

  // A tensor that a CPU kernel has kept gets its own bytes, as the device's are lent for one call.
  ~Mirror() {
    for (auto& area : areas_) {
      if (!is_mapped_ || area.host.use_count() == 1 || area.host.data() != area.data) continue;
      const auto len = area.end - area.begin();
      auto bytes = c10::GetCPUAllocator()->allocate(len);
      try {
        read(area, bytes.get());
      } catch (...) {
        // The device is lost, and with it what was there.
        std::memset(bytes.get(), 0, len);
      }
      area.host.set_data_ptr_noswap(std::move(bytes));
    }
  }

  Tensor of(const Tensor& tensor) {
    const auto options = at::TensorOptions().device(c10::kCPU).dtype(tensor.dtype());
    if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
    const auto& area = *find(tensor);
    auto view = at::detail::make_tensor<at::TensorImpl>(
        c10::Storage(area.host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    auto* impl = view.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    impl->set_storage_offset(static_cast<int64_t>((address_of(tensor) - area.begin()) / tensor.dtype().itemsize()));
    if (tensor.is_conj()) view._set_conj(true);
    if (tensor.is_neg()) view._set_neg(true);
    return view;
  }

  // Writes what the CPU has computed back to `tensor`, whose mirror was `view`. What lies between its elements stays
  // as it is on the device, if the device has a way to do so.
  void write_back(const Tensor& view, const Tensor& tensor, bool by_elements) {
    if (view.sizes() != tensor.sizes()) {
      // It was an output of another shape, and the CPU has made it the right one.
      tensor.resize_(view.sizes());
    }
    if (view.strides() != tensor.strides() && view.is_non_overlapping_and_dense() &&
        tensor.is_non_overlapping_and_dense()) {
      // The CPU has chosen how it lies in memory.
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides());
    }
    if (tensor.numel() == 0) return;
    const auto* area = find(tensor);
    const bool is_there = area != nullptr && view.storage().data() == area->data;
    const bool has_gaps = by_elements && !is_mapped_ && !tensor.is_non_overlapping_and_dense() &&
        at::has_internal_overlap(tensor) == at::MemOverlap::No;
    if (!is_there || view.strides() != tensor.strides() || has_gaps) {
      at::_copy_from(view, tensor);
    } else if (!is_mapped_) {
      const auto len = span_of(tensor);
      check(dt_write(tensor.mutable_data_ptr(), view.const_data_ptr(), len));
      bytes_ += len;
    }
  }

  // A result on the device.
  Tensor to_device(const Tensor& result, Device device) {
    check_kind(result);
    const auto options = result.options().device(device);
    if (!result.is_non_overlapping_and_dense()) return to_device(result.contiguous(), device);
    const auto there = at::empty_strided(result.sizes(), result.strides(), options);
    const auto len = result.nbytes();
    if (len > 0) check(dt_write(there.mutable_data_ptr(), result.const_data_ptr(), len));
    bytes_ += len;
    return there;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  // Bytes that tensors of the call have, by their addresses on the device.
  struct Area {
    uintptr_t start = 0, end = 0;
    bool is_read = false, is_written = false;
    c10::Storage host;
    const void* data = nullptr;

    // Elements of all types lie at multiples of their size from there.
    uintptr_t begin() const { return start - start % 16; }

    // The CPU may make it longer, and has then other bytes.
    void set_host(at::DataPtr bytes) {
      data = bytes.get();
      host = c10::Storage(
          c10::Storage::use_byte_size_t(), end - begin(), std::move(bytes), c10::GetCPUAllocator(), true);
    }
  };

  static uintptr_t address_of(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()); }

  Area* find(const Tensor& tensor) {
    const auto address = address_of(tensor);
    for (auto& area : areas_) {
      if (area.start <= address && address < area.end) return &area;
    }
    return nullptr;
  }

  // Reads an area into bytes of the CPU that begin where it does.
  static void read(const Area& area, void* bytes) {
    auto* to = static_cast<char*>(bytes) + (area.start - area.begin());
    check(dt_read(to, reinterpret_cast<const void*>(area.start), area.end - area.start));
  }

  template <typename Function>
  bool run_mapped(Function& compute) {
    c10::SmallVector<dt_range, 3> ranges;
    for (const auto& area : areas_) {
      ranges.push_back({reinterpret_cast<void*>(area.start), area.end - area.start, area.is_written, nullptr});
    }
    struct Context {
      Mirror& mirror;
      Function& compute;
      c10::SmallVectorImpl<dt_range>& ranges;
      std::exception_ptr failure;
    } context = {*this, compute, ranges, nullptr};
    int mapped = 0;
    const auto call = [](void* pointer) {
      auto& [mirror, compute, ranges, failure] = *static_cast<Context*>(pointer);
      try {
        size_t next = 0;
        for (auto& area : mirror.areas_) {
          auto* bytes = static_cast<char*>(ranges[next++].host) - (area.start - area.begin());
          area.set_host(at::DataPtr(bytes, Device(c10::kCPU)));
        }
        mirror.is_mapped_ = true;
        compute();
      } catch (...) {
        failure = std::current_exception();
      }
    };
    check(dt_with_mapped(ranges.data(), ranges.size(), &context, call, &mapped));
    if (context.failure) std::rethrow_exception(context.failure);
    return mapped != 0;
  }

  // They are few.
  c10::SmallVector<Area, 3> areas_;
  bool is_mapped_ = false;
  uint64_t bytes_ = 0;
};

// Calls a function for each tensor of an argument.
template <typename Function>
void each_tensor(const IValue& value, Function&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& item : value.toListRef()) {
      if (!item.isNone() && item.toTensor().defined()) visit(item.toTensor());
    }
  }
}

// Replaces each tensor of an argument by what a function returns for it.
template <typename Function>
void replace_tensors(IValue& value, Function&& replace) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = replace(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const IValue& item : value.toListRef()) {
      const Tensor& tensor = item.toTensor();
      list.push_back(tensor.defined() ? replace(tensor) : tensor);
    }
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const IValue& item : value.toListRef()) {
      const auto tensor = item.isNone() ? Tensor() : item.toTensor();
      list.push_back(tensor.defined() ? std::optional<Tensor>(replace(tensor)) : std::nullopt);
    }
    value = list;
  }
}

bool is_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
      type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

// The device of a call: its first tensor's, else the one that it names.
Device device_of_call(c10::ArrayRef<IValue> arguments) {
  std::optional<Device> found;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const Tensor& tensor) {
      if (!is_ours(tensor)) return;
      TORCH_CHECK(
          !found.has_value() || *found == tensor.device(),
          "Expected all tensors to be on the same device, but found at least two devices, ",
          *found, " and ", tensor.device(), "!");
      found = tensor.device();
    });
  }
  if (found.has_value()) return *found;
  for (const auto& argument : arguments) {
    if (argument.isDevice() && argument.toDevice().type() == kDevice) {
      return Device(kDevice, Guard::index(argument.toDevice()));
    }
  }
  return Device(kDevice, current_device);
}

// Whether an operator writes to an argument. Of these two, the schema does not say that running statistics change.
bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  const std::string_view name = argument.name();
  if (name != "running_mean" && name != "running_var") return false;
  return schema.name() == "aten::native_batch_norm" || schema.name() == "aten::batch_norm_update_stats";
}

// Whether an argument may be on the CPU beside one on the device: those that CUDA's kernels take from there.
bool may_be_on_cpu(const c10::Argument& argument, const Tensor& tensor) {
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return false;
  // A number. Indices as in `x[i]`, which are a list with gaps. Lengths of sequences, which PyTorch reads on the CPU.
  const auto& name = argument.name();
  return tensor.dim() == 0 || argument.type()->isSubtypeOf(*c10::ListType::ofOptionalTensors()) ||
      name == "lengths" || name == "batch_sizes" || name == "input_lengths" || name == "target_lengths";
}

// Whether a tensor's elements are floats that lie one after the other, and are what they seem.
bool is_plain(const Tensor& tensor) {
  return is_ours(tensor) && at::isFloatingType(tensor.scalar_type()) && tensor.is_contiguous() &&
      !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

// Computes an operator on the CPU. `why` is what the library said of its kernels.
void compute_on_cpu(const c10::OperatorHandle& op, Stack* stack, const std::string& why) {
  const auto begun = std::chrono::steady_clock::now();
  const auto& schema = op.schema();
  const auto name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  const auto count = schema.arguments().size();
  const auto device = device_of_call(torch::jit::last(*stack, count));
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), name, " has no kernel on `", name_of(device.index()),
      "`, and PyTorch has none for the CPU, which would compute it otherwise");
  check_fallback(name, device, why);
  const c10::SmallVector<IValue, 8> originals(
      std::make_move_iterator(stack->end() - static_cast<int64_t>(count)), std::make_move_iterator(stack->end()));
  torch::jit::drop(*stack, count);

  for (size_t at = 0; at < count; ++at) {
    if (!is_written(schema, schema.arguments()[at])) continue;
    each_tensor(originals[at], [&](const Tensor& tensor) {
      if (is_ours(tensor)) own_bytes(tensor);
    });
  }
  Mirror mirror;
  int dtype = -1;
  for (size_t at = 0; at < count; ++at) {
    const auto& argument = schema.arguments()[at];
    const bool writes = is_written(schema, argument);
    each_tensor(originals[at], [&](const Tensor& tensor) {
      if (dtype < 0) dtype = static_cast<int>(tensor.scalar_type());
      if (is_ours(tensor)) {
        mirror.add(tensor, !argument.is_out(), writes);
      } else {
        TORCH_CHECK(
            tensor.is_cpu() && may_be_on_cpu(argument, tensor),
            "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
            tensor.device(), "! (", name, ")");
      }
    });
  }

  c10::SmallVector<IValue, 8> arguments = originals;
  std::vector<IValue> returns;
  // A kernel that is not PyTorch's own may keep its arguments, or use the device: it gets copies.
  mirror.run(op.operator_name().getNamespace() == "aten", [&] {
    for (size_t at = 0; at < count; ++at) {
      auto& argument = arguments[at];
      replace_tensors(argument, [&](const Tensor& tensor) { return is_ours(tensor) ? mirror.of(tensor) : tensor; });
      if (argument.isDevice() && argument.toDevice().type() == kDevice) {
        argument = Device(c10::kCPU);
      } else if (is_generator(schema.arguments()[at])) {
        const auto generator = argument.isNone() ? default_generator(device.index()) : argument.toGenerator();
        if (generator.device().type() == kDevice) {
          argument = static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->cpu();
        }
      }
    }
    for (const auto& argument : arguments) stack->push_back(argument);
    // What a kernel of the CPU calls is not the program's own.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    returns = torch::jit::pop(*stack, schema.returns().size());
  });

  for (size_t at = 0; at < count; ++at) {
    if (!is_written(schema, schema.arguments()[at])) continue;
    c10::SmallVector<Tensor, 1> written;
    each_tensor(arguments[at], [&](const Tensor& tensor) { written.push_back(tensor); });
    size_t next = 0;
    each_tensor(originals[at], [&](const Tensor& tensor) {
      if (is_ours(tensor)) mirror.write_back(written[next], tensor, true);
      ++next;
    });
  }

  for (size_t at = 0; at < returns.size(); ++at) {
    const auto* alias = schema.returns()[at].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      // It is the argument with the same name.
      for (size_t from = 0; from < count; ++from) {
        const auto* other = schema.arguments()[from].alias_info();
        if (other != nullptr && *other == *alias) returns[at] = originals[from];
      }
    } else {
      TORCH_CHECK(alias == nullptr, name, " returns a view, which the CPU cannot make of memory of a device");
      replace_tensors(returns[at], [&](const Tensor& tensor) {
        if (dtype < 0) dtype = static_cast<int>(tensor.scalar_type());
        return tensor.device().is_cpu() ? mirror.to_device(tensor, device) : tensor;
      });
    }
    stack->push_back(std::move(returns[at]));
  }
  const auto took = std::chrono::steady_clock::now() - begun;
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  dt_count_fallback(name.c_str(), dtype, static_cast<uint64_t>(nanoseconds), mirror.bytes());
}

void fallback(const c10::OperatorHandle& op, Stack* stack) { compute_on_cpu(op, stack, ""); }

// --- Kernels ---

// What an operator writes to, from its schema, which takes long to read.
struct Written {
  Written() = default;
  explicit Written(const c10::FunctionSchema& schema) {
    for (size_t at = 0; at < schema.arguments().size(); ++at) {
      if (is_written(schema, schema.arguments()[at])) arguments.push_back(at);
    }
    for (const auto& result : schema.returns()) {
      for (size_t at = 0; at < schema.arguments().size(); ++at) {
        const auto* alias = schema.arguments()[at].alias_info();
        if (alias != nullptr && result.alias_info() != nullptr && *alias == *result.alias_info()) returned.push_back(at);
      }
    }
  }

  // The arguments that it writes to, and those that it returns.
  c10::SmallVector<size_t, 2> arguments, returned;
};

// The arguments of an operator, as the library takes them. What they point to lives as long as this.
class Arguments {
 public:
  Arguments(c10::ArrayRef<IValue> values, const Written& written) {
    for (const size_t at : written.arguments) {
      if (values[at].isTensor() && is_ours(values[at].toTensor())) own_bytes(values[at].toTensor());
    }
    for (const auto& value : values) values_.push_back(of(value));
  }

  Arguments() = default;

  // Adds an argument, or a result that the caller has made.
  void add(const Tensor& tensor) { values_.push_back(of_tensor(tensor)); }
  void add(const at::Scalar& number) { values_.push_back(of_scalar(number)); }

  static dt_value of_tensor(const Tensor& tensor) {
    dt_value value = {};
    if (!tensor.defined()) return value;
    if (tensor.is_cpu() && tensor.dim() == 0) return of_number(tensor);
    if (tensor.layout() != c10::kStrided || tensor.is_conj() || tensor.is_neg()) {
      value.kind = DT_OTHER;
      return value;
    }
    value.kind = DT_TENSOR;
    value.dtype = static_cast<int32_t>(tensor.scalar_type());
    value.device = is_ours(tensor) ? tensor.device().index() : -1;
    value.len = static_cast<size_t>(tensor.dim());
    value.data = tensor.numel() == 0 ? nullptr : tensor.const_data_ptr();
    value.sizes = tensor.sizes().data();
    value.strides = tensor.strides().data();
    return value;
  }

  c10::ArrayRef<dt_value> values() const { return values_; }

 private:
  // An element of the CPU is a number.
  static dt_value of_number(const Tensor& tensor) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return of_scalar(tensor.item());
  }

  static dt_value of_scalar(const at::Scalar& scalar) {
    dt_value value = {};
    if (scalar.isBoolean()) {
      value.kind = DT_BOOL;
      value.integer = scalar.toBool();
    } else if (scalar.isIntegral(false)) {
      value.kind = DT_INT;
      value.integer = scalar.toLong();
    } else if (scalar.isFloatingPoint()) {
      value.kind = DT_FLOAT;
      value.number = scalar.toDouble();
    } else {
      value.kind = DT_OTHER;
    }
    return value;
  }

  dt_value of_ints(std::vector<int64_t> ints) {
    dt_value value = {};
    value.kind = DT_INTS;
    value.len = ints.size();
    value.sizes = ints_.emplace_back(std::move(ints)).data();
    return value;
  }

  dt_value of(const IValue& argument) {
    dt_value value = {};
    if (argument.isNone()) return value;
    if (argument.isTensor()) return of_tensor(argument.toTensor());
    if (argument.isBool() || argument.isInt() || argument.isDouble()) return of_scalar(argument.toScalar());
    if (argument.isIntList()) return of_ints(argument.toIntVector());
    if (argument.isBoolList()) {
      const auto list = argument.toBoolList();
      return of_ints(std::vector<int64_t>(list.begin(), list.end()));
    }
    if (argument.isString()) {
      value.kind = DT_TEXT;
      value.data = argument.toStringRef().data();
      value.len = argument.toStringRef().size();
      return value;
    }
    if (argument.isTensorList() || argument.isOptionalTensorList()) {
      auto& list = lists_.emplace_back();
      for (const IValue& item : argument.toListRef()) {
        list.push_back(item.isNone() ? dt_value{} : of_tensor(item.toTensor()));
      }
      value.kind = DT_TENSORS;
      value.values = list.data();
      value.len = list.size();
      return value;
    }
    value.kind = DT_OTHER;
    return value;
  }

  c10::SmallVector<dt_value, 8> values_;
  std::list<std::vector<int64_t>> ints_;
  std::list<std::vector<dt_value>> lists_;
};

// What the library asks for during a call.
struct Made {
  c10::ArrayRef<IValue> arguments;
  c10::SmallVector<Tensor, 2> results;
  std::list<Tensor> all;
  std::exception_ptr failure;

  static int empty(
      void* context, int device, int dtype, const int64_t* sizes, const int64_t* strides, size_t rank, int is_result,
      dt_value* made) {
    auto* self = static_cast<Made*>(context);
    try {
      if (device < 0) {
        // A result that was not asked for.
        self->results.emplace_back();
        return DT_OK;
      }
      const auto index = static_cast<DeviceIndex>(device);
      const auto type = static_cast<at::ScalarType>(dtype);
      const c10::IntArrayRef size(sizes, rank);
      const auto& tensor = self->all.emplace_back(
          strides == nullptr ? device_empty(size, type, index)
                             : at::empty_strided(size, {strides, rank}, at::device(Device(kDevice, index)).dtype(type)));
      if (is_result) self->results.push_back(tensor);
      *made = Arguments::of_tensor(tensor);
      return DT_OK;
    } catch (...) {
      self->failure = std::current_exception();
      return DT_FAILED;
    }
  }

  static int seed(void* context, uint64_t* drawn) {
    auto* self = static_cast<Made*>(context);
    try {
      at::Generator generator = default_generator(self->arguments[0].toTensor().device().index());
      for (const auto& argument : self->arguments) {
        if (argument.isGenerator()) generator = argument.toGenerator();
      }
      TORCH_CHECK(
          generator.device().type() == kDevice, "Expected a generator of the device, but found one of ",
          generator.device());
      auto cpu = static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->cpu();
      const std::lock_guard<std::mutex> lock(cpu.mutex());
      *drawn = at::check_generator<at::CPUGeneratorImpl>(cpu)->random64();
      return DT_OK;
    } catch (...) {
      self->failure = std::current_exception();
      return DT_FAILED;
    }
  }
};

// Has a function of the library run a call, with the results that it returns. The reason, if it was declined.
template <typename Run>
std::optional<std::string> run_call(const Arguments& arguments, Made& made, Run&& run) {
  const dt_call call = {arguments.values().data(), arguments.values().size(), &made, &Made::empty, &Made::seed};
  const int code = run(&call);
  if (made.failure) std::rethrow_exception(made.failure);
  if (code == DT_DECLINED) return dt_error();
  check(code);
  return std::nullopt;
}

std::optional<std::string> run_kernel(size_t number, const Arguments& arguments, Made& made) {
  return run_call(arguments, made, [number](const dt_call* call) { return dt_run(number, call); });
}

// --- Expressions ---

// The expression with a text, which the library parses once.
const void* expression_of(const std::string& text) {
  static auto& known = *new std::unordered_map<std::string, const void*>;
  static auto& mutex = *new std::shared_mutex;
  {
    const std::shared_lock<std::shared_mutex> lock(mutex);
    const auto found = known.find(text);
    if (found != known.end()) return found->second;
  }
  const void* expression = nullptr;
  check(dt_expression(text.data(), text.size(), &expression));
  const std::lock_guard<std::shared_mutex> lock(mutex);
  known.emplace(text, expression);
  return expression;
}

// `expression(text, inputs, scalars)`, whose scalars are the last inputs, and `expression_`, which writes its first
// results to tensors. Both return the results that they make. What no kernel has is an error, as the caller has the
// operators that the expression is made of.
void run_expression(const c10::OperatorHandle& op, Stack* stack) {
  const auto count = op.schema().arguments().size();
  const auto values = torch::jit::last(*stack, count);
  const void* expression = expression_of(values[0].toStringRef());
  Arguments arguments;
  for (const IValue& input : values[1].toListRef()) arguments.add(input.toTensor());
  for (const IValue& scalar : values[2].toListRef()) arguments.add(scalar.toScalar());
  if (count > 3) {
    for (const IValue& out : values[3].toListRef()) {
      own_bytes(out.toTensor());
      if (!out.toTensor().is_inference()) out.toTensor().unsafeGetTensorImpl()->bump_version();
      arguments.add(out.toTensor());
    }
  }
  Made made;
  made.arguments = values;
  const auto run = [expression](const dt_call* call) { return dt_run_expression(expression, call); };
  const auto declined = run_call(arguments, made, run);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !declined.has_value(), "no kernel of the device computes the expression `", values[0].toStringRef(), "`",
      declined.value_or("").empty() ? "" : ": ", declined.value_or(""));
  c10::List<Tensor> results;
  for (const auto& result : made.results) results.push_back(result);
  torch::jit::drop(*stack, count);
  stack->push_back(results);
}

// --- Operators with kernels ---

// An operator that the library has kernels for. What it declines, the CPU computes.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(size_t number, const c10::FunctionSchema& schema) : number_(number), written_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const auto declined = run(stack, op.schema().arguments().size());
    if (declined.has_value()) in_its_place(op, stack, *declined);
  }

  // Runs the operator, and replaces its arguments on the stack by its results. The reason, if it was declined.
  std::optional<std::string> run(Stack* stack, size_t count) const {
    const auto values = torch::jit::last(*stack, count);
    const Arguments arguments(values, written_);
    Made made;
    made.arguments = values;
    auto declined = run_kernel(number_, arguments, made);
    if (declined.has_value()) return declined;
    c10::SmallVector<IValue, 2> results(made.results.begin(), made.results.end());
    if (results.empty()) {
      // It has written to arguments, which it returns.
      for (const size_t at : written_.returned) results.push_back(values[at]);
    }
    torch::jit::drop(*stack, count);
    for (auto& result : results) stack->push_back(std::move(result));
    return std::nullopt;
  }

 private:
  // The CPU has other operators for these. Results of convolutions are contiguous, as PyTorch's fake tensors say.
  static void in_its_place(const c10::OperatorHandle& op, Stack* stack, const std::string& why) {
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto name = op.schema().name();
    if (name == "aten::convolution_overrideable") {
      compute_on_cpu(dispatcher.findSchemaOrThrow("aten::convolution", ""), stack, why);
    } else if (name == "aten::convolution_backward_overrideable") {
      // It has the sizes of the bias, behind the weights.
      const auto at = stack->end() - static_cast<int64_t>(op.schema().arguments().size());
      const auto weight = at[2].toTensor();
      const bool transposed = at[6].toBool();
      const auto channels = transposed ? weight.size(1) * at[8].toInt() : weight.size(0);
      stack->insert(at + 3, IValue(std::vector<int64_t>{channels}));
      compute_on_cpu(dispatcher.findSchemaOrThrow("aten::convolution_backward", ""), stack, why);
    } else if (name == "aten::relu" && is_plain(stack->back().toTensor()) && fallback_policy() == 0) {
      // The CPU's is this operator, which writes its result where it belongs.
      const auto input = stack->back().toTensor();
      stack->push_back(at::Scalar(0));
      stack->push_back(device_empty(input.sizes(), input.scalar_type(), input.device().index()));
      return compute_on_cpu(dispatcher.findSchemaOrThrow("aten::clamp_min", "out"), stack, why);
    } else {
      return compute_on_cpu(op, stack, why);
    }
    for (size_t from_end = 1; from_end <= op.schema().returns().size(); ++from_end) {
      auto& result = stack->end()[-static_cast<int64_t>(from_end)];
      if (result.toTensor().defined()) result = result.toTensor().contiguous();
    }
  }

  size_t number_;
  Written written_;
};

// A form of an operator on elements that has no output as an argument: it makes its result, or writes to its first
// argument. For all devices, PyTorch has one kernel for it, which finds out the shape and the type of the result and
// calls the form with an output. Mostly they are the same as the inputs', and this calls the library at once.
class Form final : public c10::OperatorKernel {
 public:
  // `number` is the number of the form with an output, which is `with_output`, and `inputs` how many tensors
  // are first.
  Form(size_t number, c10::OperatorHandle with_output, size_t inputs, bool in_place)
      : number_(number), with_output_(with_output), inputs_(inputs), in_place_(in_place) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    if (!run(stack, op.schema().arguments().size())) {
      // A key for which nothing is registered has PyTorch's own kernel.
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse2), stack);
    }
  }

 private:
  bool run(Stack* stack, size_t count) const {
    const auto values = torch::jit::last(*stack, count);
    const Tensor& first = values[0].toTensor();
    if (!is_plain(first)) return false;
    for (size_t at = 1; at < inputs_; ++at) {
      if (!values[at].isTensor() || !is_like(values[at].toTensor(), first)) return false;
      // PyTorch's own kernel says what is wrong.
      const auto overlap = at::get_overlap_status(values[at].toTensor(), first);
      if (in_place_ && overlap == at::MemOverlapStatus::Partial) return false;
    }
    const bool has_kernels = dt_has_kernels(first.device().index());
    // What to say then is known to the form with an output.
    if (!has_kernels && fallback_policy() != 0) return false;
    if (in_place_) first.storage().mutable_data();
    const Tensor result =
        in_place_ ? first : device_empty(first.sizes(), first.scalar_type(), first.device().index());
    if (!has_kernels) {
      stack->push_back(result);
      compute_on_cpu(with_output_, stack, "");
      return true;
    }
    Arguments arguments(values, Written());
    arguments.add(result);
    Made made;
    made.arguments = values;
    if (run_kernel(number_, arguments, made).has_value()) return false;
    torch::jit::drop(*stack, count);
    stack->push_back(result);
    return true;
  }

  static bool is_like(const Tensor& tensor, const Tensor& first) {
    // An element of the CPU is a number. One of another type is converted by some operators, and refused by others.
    if (tensor.is_cpu()) {
      const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number() && !at::isComplexType(tensor.scalar_type());
      return tensor.dim() == 0 && first.dim() > 0 && (is_number || tensor.scalar_type() == first.scalar_type());
    }
    return is_plain(tensor) && tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
        tensor.sizes() == first.sizes();
  }

  size_t number_;
  c10::OperatorHandle with_output_;
  size_t inputs_;
  bool in_place_;
};

// --- Copies ---

// The kernel of `_copy_from`.
const Kernel* copy_kernel = nullptr;

// Copies elements of one shape between tensors without lazy bits.
void copy_elements(const Tensor& source, const Tensor& destination, bool non_blocking = false) {
  const bool same_bytes = source.dtype() == destination.dtype() && source.strides() == destination.strides() &&
      source.is_non_overlapping_and_dense();
  const auto len = source.nbytes();
  if (is_ours(source) && is_ours(destination)) {
    if (same_bytes) {
      check(dt_copy(destination.mutable_data_ptr(), source.const_data_ptr(), len));
    } else if (source.device() == destination.device()) {
      Stack stack = {source, destination, false};
      const auto why = copy_kernel->run(&stack, stack.size());
      if (!why.has_value()) return;
      check_fallback("aten::_copy_from", source.device(), *why);
      const auto begun = std::chrono::steady_clock::now();
      Mirror mirror;
      own_bytes(destination);
      mirror.add(source, true, false);
      mirror.add(destination, false, true);
      Tensor there;
      mirror.run(true, [&] {
        there = mirror.of(destination);
        there.copy_(mirror.of(source));
      });
      mirror.write_back(there, destination, false);
      const auto took = std::chrono::steady_clock::now() - begun;
      dt_count_fallback(
          "aten::_copy_from", static_cast<int>(source.scalar_type()),
          std::chrono::duration_cast<std::chrono::nanoseconds>(took).count(), mirror.bytes());
    } else {
      // As they are, and then into the layout and type of the destination.
      const auto dense = source.is_non_overlapping_and_dense() ? source : source.contiguous();
      const auto there = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(destination.device()));
      check(dt_copy(there.mutable_data_ptr(), dense.const_data_ptr(), dense.nbytes()));
      copy_elements(there, destination);
    }
  } else if (is_ours(destination)) {
    TORCH_CHECK(source.is_cpu(), "Cannot copy from ", source.device(), " to ", destination.device());
    if (same_bytes) {
      const auto write = non_blocking ? dt_write_later : dt_write;
      check(write(destination.mutable_data_ptr(), source.const_data_ptr(), len));
    } else if (destination.is_non_overlapping_and_dense()) {
      const auto here = at::empty_strided(destination.sizes(), destination.strides(), destination.options().device(c10::kCPU));
      here.copy_(source);
      check(dt_write(destination.mutable_data_ptr(), here.const_data_ptr(), here.nbytes()));
    } else {
      const auto here = source.to(destination.scalar_type()).contiguous();
      const auto there = at::empty(here.sizes(), destination.options());
      check(dt_write(there.mutable_data_ptr(), here.const_data_ptr(), here.nbytes()));
      copy_elements(there, destination);
    }
  } else {
    TORCH_CHECK(destination.is_cpu(), "Cannot copy from ", source.device(), " to ", destination.device());
    if (same_bytes) {
      check(dt_read(destination.mutable_data_ptr(), source.const_data_ptr(), len));
    } else {
      // With few elements in a large range, the device collects them first.
      const auto span = span_of(source);
      const auto near = span > 4 * len ? source.contiguous() : source;
      const auto near_len = span_of(near);
      const auto here = host_span(near, near_len);
      check(dt_read(here.mutable_data_ptr(), near.const_data_ptr(), near_len));
      destination.copy_(here);
    }
  }
}

Tensor copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (destination.numel() == 0) return destination;
  // A copy onto itself, also by another name.
  if (self.is_alias_of(destination) && self.const_data_ptr() == destination.const_data_ptr() &&
      self.sizes() == destination.sizes() && self.strides() == destination.strides() &&
      self.dtype() == destination.dtype() && self.is_conj() == destination.is_conj() &&
      self.is_neg() == destination.is_neg()) {
    return destination;
  }
  auto source = self.expand(destination.sizes());
  // Conjugates and negatives are copied as they lie, and computed afterwards.
  const bool conjugate = source.is_conj() != destination.is_conj();
  const bool negate = source.is_neg() != destination.is_neg();
  auto to = destination;
  if (source.is_conj()) source = source.conj();
  if (source.is_neg()) source = at::_neg_view(source);
  if (to.is_conj()) to = to.conj();
  if (to.is_neg()) to = at::_neg_view(to);
  if ((conjugate || negate) && source.is_cpu()) {
    if (conjugate) source = source.conj().resolve_conj();
    if (negate) source = source.neg();
    copy_elements(source, to);
  } else {
    copy_elements(source, to, non_blocking);
    if (conjugate) to.copy_(at::conj_physical(to));
    if (negate) to.neg_();
  }
  return destination;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

// --- Operators that are of the tensor, and compute nothing ---

Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<Device> device, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "Only strided tensors are supported on ", kDevice);
  const auto index = Guard::index(device.value_or(Device(kDevice)));
  return filled(device_empty(size, c10::dtype_or_default(dtype), index, memory_format));
}

Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "Only strided tensors are supported on ", kDevice);
  const c10::DeviceGuard guard(Device(kDevice, Guard::index(device.value_or(Device(kDevice)))));
  return filled(at::detail::empty_strided_generic(
      size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, which automatic derivation often makes.
Tensor efficient_zero_tensor(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  static std::mutex mutex;
  static auto& allocators = *new std::map<DeviceIndex, at::native::ZeroTensorAllocator>;
  const auto index = Guard::index(device.value_or(Device(kDevice)));
  const std::lock_guard<std::mutex> lock(mutex);
  auto& none = allocators.try_emplace(index, Device(kDevice, index)).first->second;
  const auto keys = c10::DispatchKeySet({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(size, &none, keys, c10::dtype_or_default(dtype), std::nullopt);
}

const Tensor& resize_(const Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto before = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
    resize_to_hold(self);
  }
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(fills_new_memory())) at::native::fill_resize_deterministic_(self, before);
  return self;
}

Tensor& set_source_storage_offset(
    Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  resize_to_hold(self);
  return self;
}

Tensor& set_source_storage(Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {count}, {});
}

Tensor& set_source_tensor(Tensor& self, const Tensor& source) {
  if (self.is_same(source)) return self;
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_to_nothing(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, memory.allocate(0), &memory, true);
  return set_source_storage_offset(self, std::move(storage), 0, {0}, {});
}

at::Scalar local_scalar_dense(const Tensor& self) {
  const auto here = host_empty({}, self.dtype());
  check(dt_read(here.mutable_data_ptr(), self.const_data_ptr(), self.dtype().itemsize()));
  return here.item();
}

void record_stream(Tensor&, Stream) {}

// Whether a tensor may become another one in place, as `Module.to` and `tensor.data =` do: with its identity, so that
// optimizers and tied weights keep it. PyTorch asks for its own devices by a list that has no other.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto is_dense = [](const Tensor& tensor) {
    return tensor.key_set().has(c10::DispatchKey::Dense) && (is_ours(tensor) || tensor.is_cpu());
  };
  return self.key_set() == from.key_set() || (is_dense(self) && is_dense(from));
}

// --- Choices that PyTorch leaves to a device ---

// The transformer encoder makes a nested tensor of a batch with a padding mask unless the mask is of another form.
// There are none on the device, so none is.
bool nested_tensor_from_mask_left_aligned(const Tensor&, const Tensor&) { return false; }

// Attention is computed by its formula, which has the number 0 among PyTorch's `SDPBackend`.
int64_t fused_sdp_choice(
    const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool, std::optional<double>,
    bool) {
  return 0;
}

// The CPU has no histogram of integers, which other devices have. All of its sums are exact in f64, up to 2^53.
Tensor histogram(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (at::isIntegralType(self.scalar_type(), false)) {
    return at::histc(self.to(at::kDouble), bins, min, max).to(self.scalar_type());
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  Stack stack = {self, bins, min, max};
  fallback(op, &stack);
  return stack[0].toTensor();
}

Tensor& histogram_out(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, Tensor& out) {
  const auto counted = histogram(self, bins, min, max);
  at::native::resize_output(out, counted.sizes());
  return out.copy_(counted);
}

// Kinds of tensors that are of the CPU alone.
template <const char* kind>
void refuse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, kind, " tensors are not supported on devices of the type ", kDevice, ": compute `", op.schema().name(),
      "` on the CPU");
}
constexpr char kQuantized[] = "Quantized", kNested[] = "Nested", kSparse[] = "Sparse";

// --- What Python needs beside it ---

int64_t initial_seed(int64_t device) { return static_cast<int64_t>(default_generator(device).current_seed()); }

void manual_seed(int64_t device, int64_t seed) {
  auto generator = default_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(seed));
}

void manual_seed_all(int64_t seed) { seed_all(static_cast<uint64_t>(seed)); }

int64_t new_seed(int64_t device) {
  auto generator = default_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return static_cast<int64_t>(generator.seed());
}

Tensor get_rng_state(int64_t device) {
  auto generator = default_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(int64_t device, const Tensor& state) {
  auto generator = default_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

bool has_kernels(int64_t device) { return dt_has_kernels(static_cast<int>(device)) != 0; }

// --- DLPack ---

// A tensor of the CPU with the same bytes, after all work of the device; none if the host reaches them by copies alone.
// It keeps the memory, not the storage, which may get another one.
std::optional<Tensor> shared_with_host(const Tensor& self) {
  if (!is_ours(self) || self.layout() != c10::kStrided || self.is_conj() || self.is_neg()) return std::nullopt;
  const auto len = span_of(self);
  if (len == 0 || self._is_zerotensor()) return std::nullopt;
  void* host = nullptr;
  void* owner = nullptr;
  check(dt_share(self.mutable_data_ptr(), len, &host, &owner));
  if (host == nullptr) return std::nullopt;
  const auto options = at::TensorOptions().device(c10::kCPU).dtype(self.dtype());
  return at::from_blob(host, self.sizes(), self.strides(), [owner](void*) { dt_unshare(owner); }, options);
}

// --- Registration ---

// Forms of operators: which one is called for an output, how many tensors are first, and whether it is in
// place. All of them check their tensors only for types and shapes, which are the first tensor's here.
constexpr std::tuple<const char*, const char*, size_t, bool> kForms[] = {
    {"add.Tensor", "add.out", 2, false},
    {"add_.Tensor", "add.out", 2, true},
    {"sub.Tensor", "sub.out", 2, false},
    {"sub_.Tensor", "sub.out", 2, true},
    {"mul.Tensor", "mul.out", 2, false},
    {"mul_.Tensor", "mul.out", 2, true},
    {"div.Tensor", "div.out", 2, false},
    {"div_.Tensor", "div.out", 2, true},
    {"neg", "neg.out", 1, false},
    {"exp", "exp.out", 1, false},
    {"sqrt", "sqrt.out", 1, false},
    {"sigmoid", "sigmoid.out", 1, false},
    {"tanh", "tanh.out", 1, false},
    {"threshold_backward", "threshold_backward.grad_input", 2, false},
    {"sigmoid_backward", "sigmoid_backward.grad_input", 2, false},
    {"tanh_backward", "tanh_backward.grad_input", 2, false},
    {"lerp_.Scalar", "lerp.Scalar_out", 2, true},
    {"addcmul_", "addcmul.out", 3, true},
    {"addcdiv_", "addcdiv.out", 3, true},
};

void register_kernels(torch::Library& m) {
  std::map<std::string, std::pair<size_t, c10::OperatorHandle>> found;
  size_t len = 0;
  for (size_t number = 0; const char* text = dt_operator(number, &len); ++number) {
    const std::string name(text, len);
    const auto dot = std::min(name.find('.'), name.size());
    const auto overload = dot < name.size() ? name.substr(dot + 1) : "";
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload});
    // Not each version of PyTorch has each operator.
    if (!op.has_value()) continue;
    found.emplace(name, std::pair(number, *op));
    auto kernel = std::make_unique<Kernel>(number, op->schema());
    if (name == "_copy_from") {
      copy_kernel = kernel.release();
    } else {
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
    }
  }
  for (const auto& [name, with_output, inputs, in_place] : kForms) {
    const auto kernel = found.find(with_output);
    if (kernel == found.end()) continue;
    const auto& [number, op] = kernel->second;
    m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Form>(number, op, inputs, in_place)));
  }
}

void register_operators(torch::Library& m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage_offset));
  m.impl("set_.source_Storage", TORCH_FN(set_source_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_source_tensor));
  m.impl("set_", TORCH_FN(set_to_nothing));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(nested_tensor_from_mask_left_aligned));
  m.impl("_nested_from_padded", TORCH_FN(at::native::nested_from_padded_generic));
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  m.impl("histc", TORCH_FN(histogram));
  m.impl("histc.out", TORCH_FN(histogram_out));
}

// Its logarithms are wrong in half the precision.
Tensor binary_cross_entropy_of_autocast(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false, "binary_cross_entropy is not safe in autocast: use binary_cross_entropy_with_logits, or the module "
      "BCEWithLogitsLoss, on what goes into the sigmoid");
}

void register_autocast(torch::Library& m) {
  using namespace at;
#define DT_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define DT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define DT_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define DT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(DT_LOWER)
  AT_FORALL_FP32(DT_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(DT_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(DT_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_of_autocast));
}

// PyTorch has operators on nested tensors that compute with their buffers by other operators. It registers them for
// each device of its own.
template <c10::DispatchKey key>
void nested(const c10::OperatorHandle& op, Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// Operator by operator, as a fallback is not taken for one that PyTorch composes of others.
void register_nested(torch::Library& m) {
  using c10::DispatchKey;
  const auto known = c10::Dispatcher::singleton().getRegistrationsForDispatchKey(DispatchKey::NestedTensorHPU);
  for (const auto& name : known) {
    const auto text = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&nested<DispatchKey::NestedTensorHPU>>());
  }
  // These are registered for the CPU and for CUDA, and are such too. Others of the CPU read memory.
  for (const char* name : {"bmm", "to_padded_tensor", "_nested_tensor_softmax_with_shape"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&nested<DispatchKey::NestedTensorCPU>>());
  }
}

void register_all() {
  using c10::DispatchKey;
  auto& guard = *new Guard;
  auto& hooks = *new Hooks;
  auto& libraries = *new std::deque<torch::Library>;
  const auto library = [&](const char* name, DispatchKey key) -> torch::Library& {
    return libraries.emplace_back(torch::Library::IMPL, name, key, __FILE__, __LINE__);
  };

  c10::impl::device_guard_impl_registry[static_cast<size_t>(kDevice)].store(&guard);
  c10::SetAllocator(kDevice, &memory);
  at::setHostAllocator(kDevice, &pinned_memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);

  library("_", DispatchKey::PrivateUse1).fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  auto& aten = library("aten", DispatchKey::PrivateUse1);
  register_operators(aten);
  register_kernels(aten);
  // What has no rule computes with the types that it gets.
  library("_", DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library("aten", DispatchKey::AutocastPrivateUse1));

  using torch::CppFunction;
  library("_", DispatchKey::QuantizedPrivateUse1).fallback(CppFunction::makeFromBoxedFunction<&refuse<kQuantized>>());
  library("_", DispatchKey::NestedTensorPrivateUse1).fallback(CppFunction::makeFromBoxedFunction<&refuse<kNested>>());
  library("_", DispatchKey::SparsePrivateUse1).fallback(CppFunction::makeFromBoxedFunction<&refuse<kSparse>>());
  library("_", DispatchKey::SparseCsrPrivateUse1).fallback(CppFunction::makeFromBoxedFunction<&refuse<kSparse>>());

  register_compositions(aten, library("aten", DispatchKey::AutogradPrivateUse1));
  register_nested(library("aten", DispatchKey::NestedTensorPrivateUse1));

  // Else a conjugate is copied by `clone`, which copies it, without end.
  library("aten", DispatchKey::Conjugate).impl("_copy_from", torch::CppFunction::makeFallthrough());
  library("aten", DispatchKey::Negative).impl("_copy_from", torch::CppFunction::makeFallthrough());

  auto& own = libraries.emplace_back(torch::Library::DEF, "device_torch", std::nullopt, __FILE__, __LINE__);
  own.def("shared_with_host(Tensor self) -> Tensor?", TORCH_FN(shared_with_host));
  own.def("initial_seed(int device) -> int", TORCH_FN(initial_seed));
  own.def("manual_seed(int device, int seed) -> ()", TORCH_FN(manual_seed));
  own.def("manual_seed_all(int seed) -> ()", TORCH_FN(manual_seed_all));
  own.def("new_seed(int device) -> int", TORCH_FN(new_seed));
  own.def("get_rng_state(int device) -> Tensor", TORCH_FN(get_rng_state));
  own.def("set_rng_state(int device, Tensor state) -> ()", TORCH_FN(set_rng_state));
  own.def("has_kernels(int device) -> bool", TORCH_FN(has_kernels));
  own.def("expression(str text, Tensor[] inputs, Scalar[] scalars) -> Tensor[]");
  own.def("expression_(str text, Tensor[] inputs, Scalar[] scalars, Tensor(a!)[] out) -> Tensor[]");
  auto& expressions = library("device_torch", DispatchKey::PrivateUse1);
  for (const char* name : {"expression", "expression_"}) {
    expressions.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_expression>());
  }

  register_profiler();
}

} // namespace

// Registers the device. Returns null, or why it could not: an exception of a static initializer would end the
// process.
extern "C" __attribute__((visibility("default"))) const char* dt_register() {
  static std::string failure;
  try {
    register_all();
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}
