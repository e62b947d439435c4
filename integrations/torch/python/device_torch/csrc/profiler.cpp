// PyTorch's profilers: what devices do, from the records of the library in Rust (`device_torch.h`).
//
// PyTorch has two. `torch.autograd.profiler.profile(use_device=…)` records an event before and behind each operator:
// that is `Stubs`. `torch.profiler.profile(activities=…)` has Kineto, which asks a child profiler for what the device
// did: that is `Profiler`, with a `Session` for each recording. Neither does anything while no profiler runs.

#include "profiler.h"

#include "device_torch.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/stubs/base.h>

// A PyTorch that was built without Kineto has no header of it.
#if __has_include(<kineto/libkineto.h>)
#define DT_HAS_KINETO
#define USE_KINETO
#define KINETO_NAMESPACE libkineto
#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#define DT_HAS_REGISTRY
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif
#endif

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// --- Events around operators ---

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  // An exception would be printed with a stack for each operator: what fails has no event, and so no time.
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event, int64_t* cpu_ns)
      const override {
    // A CPU operator, which computes in place of the device, takes no device time.
    if (dt_is_computing()) return;
    try {
      const c10::impl::VirtualGuardImpl guard(kDevice);
      const auto current = guard.getDevice();
      if (device != nullptr) *device = current.index();
      if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
      auto recorded = std::make_shared<c10::Event>(kDevice, c10::EventFlag::BACKEND_DEFAULT);
      recorded->record(guard.getStream(current));
      *event = std::move(recorded);
    } catch (const c10::Error& error) {
      TORCH_WARN_ONCE("the profiler has no times of the device: ", error.what_without_backtrace());
    }
  }

  // In microseconds.
  float elapsed(
      const torch::profiler::impl::ProfilerVoidEventStub* start,
      const torch::profiler::impl::ProfilerVoidEventStub* end) const override {
    try {
      const auto* first = static_cast<const c10::Event*>(start->get());
      const auto* last = static_cast<const c10::Event*>(end->get());
      // The current device may have changed within the operator.
      if (first->device_index() != last->device_index()) return 0;
      last->synchronize();
      return static_cast<float>(first->elapsedTime(*last) * 1e3);
    } catch (const c10::Error& error) {
      TORCH_WARN_ONCE("the profiler has no times of the device: ", error.what_without_backtrace());
      return 0;
    }
  }

  void onEachDevice(std::function<void(int)> run) const override {
    for (int device = 0; device < dt_device_count(); ++device) {
      const c10::DeviceGuard guard(c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
      run(device);
    }
  }

  void synchronize() const override {
    const c10::impl::VirtualGuardImpl guard(kDevice);
    guard.synchronizeDevice(guard.getDevice().index());
  }

  bool enabled() const override { return true; }

  // Marks of other tools, which devices do not have.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
};

// --- Kineto ---

#ifdef DT_HAS_KINETO

using libkineto::ActivityType;

// One recording.
struct Session final : libkineto::IActivityProfilerSession {
  ~Session() override {
    if (recording_ != nullptr) end();
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    if (dt_begin_recording(&recording_) == DT_OK) return;
    errors_.emplace_back(dt_error());
    TORCH_WARN("the profiler does not show the device: ", errors_.back());
  }

  void stop() override {
    status_ = libkineto::TraceStatus::PROCESSING;
    if (recording_ != nullptr) end();
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override { processTrace(logger, {}, 0, 0); }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback link, int64_t, int64_t)
      override {
    for (const auto& found : found_) {
      const auto& row = found.row;
      // PyTorch would count it for thread 0.
      if (row.kind == DT_WAIT && row.thread == 0) continue;
      buffer_->emplace_activity(buffer_->span, type_of(row), found.name);
      auto& activity = libkineto::CpuTraceBuffer::toRef(buffer_->activities.back());
      activity.startTime = row.begin;
      activity.endTime = row.end;
      activity.device = row.kind == DT_WAIT ? libkineto::processId() : row.device;
      activity.resource = row.kind == DT_WAIT ? row.thread : static_cast<int64_t>(row.stream);
      activity.threadId = static_cast<int32_t>(row.thread);
      if (link && row.op != 0) activity.linked = link(static_cast<int32_t>(row.op));
      if (row.op != 0) activity.addMetadata("External id", std::to_string(row.op));
      if (row.kind != DT_WAIT) {
        activity.addMetadata("device", std::to_string(row.device));
        activity.addMetadata("stream", std::to_string(row.stream));
        devices_[row.device].try_emplace(row.stream, found.stream);
      }
      if (row.bytes != 0) activity.addMetadata("bytes", std::to_string(row.bytes));
      if (row.error > 0) activity.addMetadata("error of the clock (ns)", std::to_string(row.error));
      if (row.error < 0) activity.addMetadata("noticed later", "true");
      activity.log(logger);
    }
    found_.clear();
    // Kineto asks for one device alone.
    for (const auto& device : devices_) logger.handleDeviceInfo(info_of(device.first), buffer_->span.startTime);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (devices_.empty()) return nullptr;
    return std::make_unique<libkineto::DeviceInfo>(info_of(devices_.begin()->first));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [device, streams] : devices_) {
      for (const auto& [stream, name] : streams) {
        infos.push_back(info_of<libkineto::ResourceInfo>(device, static_cast<int64_t>(stream), name));
      }
    }
    return infos;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { dt_enter_operator(id, libkineto::systemThreadId()); }
  void popCorrelationId() override { dt_leave_operator(); }

 private:
  struct Found {
    dt_activity row;
    std::string name, stream;
  };

  static void add(void* session, const dt_activity* row) {
    static_cast<Session*>(session)->found_.push_back(
        {*row, std::string(row->name, row->len), std::string(row->stream_name, row->stream_len)});
  }

  void end() {
    const char* problems = nullptr;
    const int code = dt_end_recording(std::exchange(recording_, nullptr), this, &add, &problems);
    if (code != DT_OK) problems = dt_error();
    if (problems != nullptr) errors_.emplace_back(problems);
    for (const auto& error : errors_) TORCH_WARN("the profiler does not show all of the device: ", error);
    const auto is_noticed = [](const Found& found) { return found.row.error < 0; };
    const auto noticed = std::find_if(found_.begin(), found_.end(), is_noticed);
    if (noticed == found_.end()) return;
    TORCH_WARN(
        "`", name_of(noticed->row.device), "` has no clock: its work takes from when it was enqueued until the host ",
        "noticed its end, and of work that the host noticed together, the first has the time of all");
  }

  static ActivityType type_of(const dt_activity& row) {
    switch (row.kind) {
      case DT_COPY:
        return ActivityType::GPU_MEMCPY;
      case DT_FILL:
        return ActivityType::GPU_MEMSET;
      case DT_WAIT:
        return ActivityType::PRIVATEUSE1_RUNTIME;
      default:
        return ActivityType::CONCURRENT_KERNEL;
    }
  }

  static std::string name_of(int device) {
    const char* name = nullptr;
    return dt_device_name(device, &name) == DT_OK ? name : "device " + std::to_string(device);
  }

  static libkineto::DeviceInfo info_of(int device) {
    return {device, device + libkineto::kExceedMaxPid, name_of(device), name_of(device)};
  }

  template <typename Info>
  static Info info_of(int device, int64_t stream, const std::string& name) {
    // Versions of PyTorch differ in the order.
    if constexpr (std::is_aggregate_v<Info>) {
      return {.id = stream, .sortIndex = stream, .deviceId = device, .name = name};
    } else {
      return {device, stream, stream, name};
    }
  }

  void* recording_ = nullptr;
  std::vector<Found> found_;
  std::vector<std::string> errors_;
  // The streams with work and their names, by device.
  std::map<int, std::map<uint64_t, std::string>> devices_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

struct Profiler final : libkineto::IActivityProfiler {
  const std::string& name() const override { return name_; }

  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    // A profiler of the CPU alone has no kernels.
    if (types.count(ActivityType::CONCURRENT_KERNEL) == 0) return nullptr;
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "device_torch";
  const std::set<ActivityType> types_ = {
      ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET, ActivityType::CONCURRENT_KERNEL,
      ActivityType::PRIVATEUSE1_RUNTIME};
};

#endif // DT_HAS_KINETO

// A negative `sign` for memory that is about to be freed.
void report(void* pointer, int64_t sign) {
  size_t len = 0;
  const int device = dt_device_of(pointer);
  if (device < 0 || dt_len_of(pointer, &len) != DT_OK) return;
  dt_statistics found = {};
  if (dt_memory_statistics(device, &found) != DT_OK) found = {};
  const auto change = sign * static_cast<int64_t>(len);
  const auto allocated = sign < 0 ? found.allocated - len : found.allocated;
  c10::reportMemoryUsageToProfiler(
      pointer, change, allocated, found.reserved, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
}

} // namespace

void report_allocated(void* pointer) {
  if (c10::memoryProfilingEnabled()) report(pointer, 1);
}

void report_freed(void* pointer) {
  if (c10::memoryProfilingEnabled()) report(pointer, -1);
}

void register_profiler() {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
#ifdef DT_HAS_KINETO
  const auto make = []() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Profiler>(); };
#ifdef DT_HAS_REGISTRY
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(make);
#else
  libkineto::api().registerProfilerFactory(make);
#endif
#endif
}
