// A backend of `torch.distributed` for the device: gloo, PyTorch's own backend for the CPU, does its work, and gets the
// memory of the device's tensors where the host reaches it, and copies elsewhere.
//
// This is C++ and not Python. PyTorch has backends in Python since 2.15, but the work that they return never says that
// it is completed, and gloo's threads would need the interpreter, also while it ends. It includes nothing of Python all
// the same: PyTorch makes the object in Python for a backend that a process group has.

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <algorithm>

namespace {

using at::Tensor;
using c10::Device;
using c10::Stream;
using c10::ivalue::Future;
using c10d::OpType;
using Tensors = std::vector<Tensor>;
using TensorLists = std::vector<Tensors>;
using FuturePointer = c10::intrusive_ptr<Future>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// What gloo gets for the tensors of one call: their own memory if the host reaches it and they are contiguous, else
// contiguous copies. Copies of outputs go to the device in the order of the streams that were current at the call.
class Staging {
 public:
  // For gloo to read, after the work that the device has.
  Tensor input(const Tensor& tensor) {
    const auto here = in_place(tensor);
    return here.has_value() ? *here : copy(tensor);
  }
  Tensors input(const Tensors& tensors) {
    return each(tensors, [this](const Tensor& tensor) { return input(tensor); });
  }
  TensorLists input(const TensorLists& lists) {
    return each(lists, [this](const Tensors& tensors) { return input(tensors); });
  }

  // For gloo to read and to overwrite, where the tensor is no output.
  Tensor copy(const Tensor& tensor) {
    const auto host = empty(tensor);
    const at::AutoDispatchBelowADInplaceOrView raw;
    host.copy_(tensor);
    return host;
  }
  Tensors copy(const Tensors& tensors) {
    return each(tensors, [this](const Tensor& tensor) { return copy(tensor); });
  }

  // For gloo to write.
  Tensor output(const Tensor& tensor) {
    const auto here = in_place(tensor);
    return here.has_value() ? add(tensor, *here, false) : add(tensor, empty(tensor), true);
  }
  Tensors output(const Tensors& tensors) {
    return each(tensors, [this](const Tensor& tensor) { return output(tensor); });
  }
  TensorLists output(const TensorLists& lists) {
    return each(lists, [this](const Tensors& tensors) { return output(tensors); });
  }

  // For gloo to read and to write.
  Tensor both(const Tensor& tensor) {
    const auto here = in_place(tensor);
    return here.has_value() ? add(tensor, *here, false) : add(tensor, copy(tensor), true);
  }
  Tensors both(const Tensors& tensors) {
    return each(tensors, [this](const Tensor& tensor) { return both(tensor); });
  }

  // Adds an output that gloo writes to `host`, which is copied to it if `is_copy`.
  Tensor add(const Tensor& tensor, const Tensor& host, bool is_copy) {
    const auto stream = c10::impl::VirtualGuardImpl(kDevice).getStream(tensor.device());
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
    outputs_.push_back({tensor, is_copy ? host : Tensor()});
    return host;
  }

  // Writes the copies of outputs, and calls `then` while their streams and the device are current.
  template <typename Then>
  void write(Then then) const {
    c10::OptionalDeviceGuard device;
    if (!streams_.empty()) device.reset_device(streams_[0].device());
    const c10::MultiStreamGuard guard(streams_);
    for (const auto& output : outputs_) {
      const at::AutoDispatchBelowADInplaceOrView raw;
      if (output.copy.defined()) output.tensor.copy_(output.copy);
    }
    then();
  }

  std::vector<Device> devices() const {
    std::vector<Device> devices;
    for (const auto& stream : streams_) devices.push_back(stream.device());
    return devices;
  }

  // The outputs on the device.
  c10::List<Tensor> results() const {
    c10::List<Tensor> results;
    for (const auto& output : outputs_) results.push_back(output.tensor);
    return results;
  }

 private:
  struct Output {
    Tensor tensor;
    // Undefined if gloo writes to the tensor itself.
    Tensor copy;
  };

  template <typename T, typename Stage>
  static std::vector<T> each(const std::vector<T>& list, Stage stage) {
    std::vector<T> staged;
    for (const auto& item : list) staged.push_back(stage(item));
    return staged;
  }

  // The memory of the tensor, after all work of the device.
  static std::optional<Tensor> in_place(const Tensor& tensor) {
    static const auto share = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("device_torch::shared_with_host", "")
                                  .typed<std::optional<Tensor>(const Tensor&)>();
    return tensor.is_contiguous() ? share.call(tensor) : std::nullopt;
  }

  static Tensor empty(const Tensor& tensor) {
    TORCH_CHECK(
        tensor.device().type() == kDevice, "expected a tensor of `", c10::get_privateuse1_backend(),
        "`, found one of `", tensor.device(), "`");
    return at::empty(tensor.sizes(), tensor.options().device(c10::kCPU));
  }

  std::vector<Output> outputs_;
  // One for each device.
  std::vector<Stream> streams_;
};

// A collective. The thread of gloo that completes it writes the outputs, whether or not the program waits.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(int rank, OpType type, Staging staging)
      : Work(rank, type),
        staging_(std::move(staging)),
        future_(c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), staging_.devices())) {}

  void complete(std::exception_ptr failure) {
    try {
      // The future records an event in the current stream of each device.
      if (failure == nullptr) staging_.write([this] { future_->markCompleted(staging_.results()); });
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure != nullptr) future_->setErrorIfNeeded(failure);
    finish(failure);
  }

  // The current stream waits for the outputs.
  void synchronize() override { future_->wait(); }

  Tensors result() override {
    TORCH_CHECK(isCompleted(), "the work is not completed: call wait() before result()");
    return staging_.results().vec();
  }

  FuturePointer getFuture() override { return future_; }

 private:
  const Staging staging_;
  const FuturePointer future_;
};

// A send or a receive. As with gloo, which has no future for them, it completes when the program waits.
class PeerWork final : public c10d::Work {
 public:
  PeerWork(int rank, OpType type, Staging staging, WorkPointer gloo)
      : Work(rank, type), staging_(std::move(staging)), gloo_(std::move(gloo)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    if (!isCompleted()) {
      try {
        gloo_->wait(timeout);
        staging_.write([] {});
      } catch (...) {
        finishAndThrow(std::current_exception());
      }
      finish();
    }
    return true;
  }

  int sourceRank() const override { return gloo_->sourceRank(); }
  void abort() override { gloo_->abort(); }

 private:
  const Staging staging_;
  const WorkPointer gloo_;
};

// What gloo does not have, `c10d::Backend` refuses by name. The collectives of one tensor have the names by which all
// versions of PyTorch know them.
class Registry final : public c10d::Backend {
 public:
  explicit Registry(c10::intrusive_ptr<c10d::Backend> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "registry"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { gloo_->enableCollectivesTiming(); }
  void abort() override { gloo_->abort(); }
  void shutdown() override { gloo_->shutdown(); }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Staging staging;
    auto host = staging.both(tensors);
    return start(OpType::ALLREDUCE, std::move(staging), gloo_->allreduce(host, options));
  }

  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    Staging staging;
    auto host = staging.both(tensors);
    return start(OpType::ALLREDUCE_COALESCED, std::move(staging), gloo_->allreduce_coalesced(host, options));
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Staging staging;
    auto host = options.rootRank == getRank() ? staging.input(tensors) : staging.output(tensors);
    return start(OpType::BROADCAST, std::move(staging), gloo_->broadcast(host, options));
  }

  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Staging staging;
    auto host = options.rootRank == getRank() ? staging.both(tensors) : staging.copy(tensors);
    return start(OpType::REDUCE, std::move(staging), gloo_->reduce(host, options));
  }

  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::ALLGATHER, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->allgather(to, from, options);
    });
  }

  WorkPointer allgather_coalesced(
      TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::ALLGATHER_COALESCED, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->allgather_coalesced(to, from, options);
    });
  }

  WorkPointer _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::_ALLGATHER_BASE, output, input, [&](auto& to, auto& from) {
      return gloo_->_allgather_base(to, from, options);
    });
  }

  WorkPointer allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::COALESCED, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->allgather_into_tensor_coalesced(to, from, options);
    });
  }

  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return exchange(OpType::GATHER, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->gather(to, from, options);
    });
  }

  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return exchange(OpType::SCATTER, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->scatter(to, from, options);
    });
  }

  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return exchange(OpType::ALLTOALL, outputs, inputs, [&](auto& to, auto& from) {
      return gloo_->alltoall(to, from, options);
    });
  }

  WorkPointer alltoall_base(
      Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    return exchange(OpType::ALLTOALL_BASE, output, input, [&](auto& to, auto& from) {
      return gloo_->alltoall_base(to, from, output_sizes, input_sizes, options);
    });
  }

  WorkPointer reduce_scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK(
        outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
        "expected one output, and ", getSize(), " inputs");
    Staging staging;
    Tensors flat;
    for (const auto& input : staging.input(inputs[0])) flat.push_back(input.view(-1));
    const auto reduced = reduce_part(staging, outputs[0], at::cat(flat), options);
    return start(OpType::REDUCE_SCATTER, std::move(staging), reduced);
  }

  WorkPointer _reduce_scatter_base(
      Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    Staging staging;
    const auto reduced = reduce_part(staging, output, staging.copy(input), options);
    return start(OpType::_REDUCE_SCATTER_BASE, std::move(staging), reduced);
  }

  WorkPointer reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK(outputs.size() == inputs.size(), "expected ", inputs.size(), " outputs, found ", outputs.size());
    Staging staging;
    c10::List<FuturePointer> parts(c10::FutureType::create(c10::AnyType::get()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      parts.push_back(reduce_part(staging, outputs[i], staging.copy(inputs[i]), options));
    }
    return start(OpType::COALESCED, std::move(staging), c10::collectAll(parts));
  }

  WorkPointer send(Tensors& tensors, int rank, int tag) override {
    Staging staging;
    auto host = staging.input(tensors);
    return peer(OpType::SEND, std::move(staging), gloo_->send(host, rank, tag));
  }

  WorkPointer recv(Tensors& tensors, int rank, int tag) override {
    Staging staging;
    auto host = staging.output(tensors);
    return peer(OpType::RECV, std::move(staging), gloo_->recv(host, rank, tag));
  }

  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    Staging staging;
    auto host = staging.output(tensors);
    return peer(OpType::RECVANYSOURCE, std::move(staging), gloo_->recvAnysource(host, tag));
  }

  // The work of the current stream is done when a process arrives.
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    const c10::impl::VirtualGuardImpl guard(kDevice);
    guard.getStream(options.device.value_or(guard.getDevice())).synchronize();
    return start(OpType::BARRIER, {}, gloo_->barrier(options));
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    gloo_->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  WorkPointer start(OpType type, Staging staging, const FuturePointer& gloo) {
    auto work = c10::make_intrusive<CollectiveWork>(getRank(), type, std::move(staging));
    gloo->addCallback([work](Future& done) { work->complete(done.exception_ptr()); });
    return work;
  }

  WorkPointer start(OpType type, Staging staging, const WorkPointer& gloo) {
    return start(type, std::move(staging), gloo->getFuture());
  }

  // Calls gloo with the inputs and for the outputs.
  template <typename Outputs, typename Inputs, typename Call>
  WorkPointer exchange(OpType type, const Outputs& outputs, const Inputs& inputs, Call call) {
    Staging staging;
    auto from = staging.input(inputs);
    auto to = staging.output(outputs);
    return start(type, std::move(staging), call(to, from));
  }

  // Reduces a copy of the input; the output gets this process's part. So does gloo, but it copies the
  // part only when the program waits, and has no future.
  FuturePointer reduce_part(
      Staging& staging, const Tensor& output, const Tensor& copy, const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK(
        copy.scalar_type() == output.scalar_type() && copy.numel() == output.numel() * getSize(),
        "expected an input of ", getSize(), " times the output's elements and of its type, found ", copy.numel(),
        " elements of ", copy.scalar_type(), " for ", output.numel(), " of ", output.scalar_type());
    staging.add(output, copy.view({getSize(), output.numel()})[getRank()].view(output.sizes()), true);
    c10d::AllreduceOptions reduction;
    reduction.reduceOp = options.reduceOp;
    reduction.timeout = options.timeout;
    Tensors whole = {copy};
    return gloo_->allreduce(whole, reduction)->getFuture();
  }

  WorkPointer peer(OpType type, Staging staging, WorkPointer gloo) {
    return c10::make_intrusive<PeerWork>(getRank(), type, std::move(staging), std::move(gloo));
  }

  const c10::intrusive_ptr<c10d::Backend> gloo_;
};

// When the steps of DistributedDataParallel began and ended, for its log, by the clock of the host: without one, it
// warns in each program.
class Timer final : public c10d::Timer {
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto begun = getTimestamp(start), ended = getTimestamp(end);
    if (!begun.has_value() || !ended.has_value() || *ended < *begun) return std::nullopt;
    return *ended - *begun;
  }
};

// Gives a process group with gloo for the CPU this backend for the device.
void stage(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  group->setBackend(
      kDevice, c10d::ProcessGroup::BackendType::CUSTOM, c10::make_intrusive<Registry>(group->getBackend(c10::kCPU)));
}

} // namespace

// Registers `torch.ops.device_torch.stage`, and the timer. Returns null, or why it could not.
extern "C" __attribute__((visibility("default"))) const char* dt_register_distributed() {
  static std::string failure;
  try {
    static auto& own = *new torch::Library(torch::Library::FRAGMENT, "device_torch", std::nullopt, __FILE__, __LINE__);
    own.def("stage(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", TORCH_FN(stage));
    c10d::TimerRegistry()->Register(kDevice, [](Device) { return std::make_unique<Timer>(); });
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}
