// NCCL, by way of libtorch's ProcessGroupNCCL. It moves memory of GPUs, while a group's tensors are
// on the CPU: bytes are copied to this rank's device and back around each call. Code that has GPU
// tensors speaks to group.backend() directly.
//
// Checked only by its syntax and types, with the headers of libtorch 2.13, NCCL 2.32 and CUDA's
// runtime 12.9 (those of cuBLAS, cuSPARSE and cuSOLVER replaced by stubs): it was neither linked
// nor run.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <utility>

#include "tegula/comm/c10d_engine.h"
#include "tegula/comm/engines.h"

namespace tegula::inner::comm {
namespace {

using WorkHandle = c10::intrusive_ptr<c10d::Work>;

// Waits for the GPU's part, then brings the result back to the CPU.
class ReturningWork final : public c10d::Work {
 public:
  ReturningWork(c10d::OpType type, WorkHandle inner, at::Tensor on_device, at::Tensor on_host)
      : c10d::Work(-1, type),
        inner_(std::move(inner)),
        on_device_(std::move(on_device)),
        on_host_(std::move(on_host)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }

  bool wait(std::chrono::milliseconds timeout) override {
    inner_->wait(timeout);
    if (on_host_.defined()) on_host_.copy_(on_device_);
    return true;
  }

 private:
  WorkHandle inner_;
  at::Tensor on_device_;
  at::Tensor on_host_;  // undefined: nothing comes back
};

// What make_c10d_engine asks of a backend, for bytes on the CPU.
class StagedNccl final : public c10d::Backend {
 public:
  StagedNccl(c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl, at::Device device)
      : c10d::Backend(nccl->getRank(), nccl->getSize()), nccl_(std::move(nccl)), device_(device) {}

  const std::string getBackendName() const override { return "tegula-nccl"; }

  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input,
                           std::vector<std::int64_t>& output_splits,
                           std::vector<std::int64_t>& input_splits,
                           const c10d::AllToAllOptions& options) override {
    at::Tensor sent = input.to(device_);
    at::Tensor received = at::empty_like(output, output.options().device(device_));
    return returning(c10d::OpType::ALLTOALL_BASE,
                     nccl_->alltoall_base(received, sent, output_splits, input_splits, options),
                     received, output);
  }

  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) override {
    at::Tensor sent = input.to(device_);
    at::Tensor received = at::empty_like(output, output.options().device(device_));
    return returning(c10d::OpType::_ALLGATHER_BASE, nccl_->_allgather_base(received, sent, options),
                     received, output);
  }

  WorkHandle broadcast(std::vector<at::Tensor>& tensors,
                       const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> staged{tensors.at(0).to(device_)};
    return returning(c10d::OpType::BROADCAST, nccl_->broadcast(staged, options), staged[0],
                     tensors[0]);
  }

  WorkHandle send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    std::vector<at::Tensor> staged{tensors.at(0).to(device_)};
    return returning(c10d::OpType::SEND, nccl_->send(staged, to, tag), staged[0], {});
  }

  WorkHandle recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    const at::Tensor& tensor = tensors.at(0);
    std::vector<at::Tensor> staged{at::empty_like(tensor, tensor.options().device(device_))};
    return returning(c10d::OpType::RECV, nccl_->recv(staged, from, tag), staged[0], tensor);
  }

  WorkHandle barrier(const c10d::BarrierOptions& options) override {
    return nccl_->barrier(options);
  }

 private:
  static WorkHandle returning(c10d::OpType type, WorkHandle inner, const at::Tensor& on_device,
                              const at::Tensor& on_host) {
    return c10::make_intrusive<ReturningWork>(type, std::move(inner), on_device, on_host);
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
  at::Device device_;
};

}  // namespace

std::shared_ptr<Engine> make_nccl_engine(const EngineOptions& options) {
  const int devices = c10::cuda::device_count();
  if (devices == 0) {
    throw UsageError("the nccl engine needs a GPU, and this host has none")
        .fact("group", options.group)
        .hint("choose shm, gloo or mpi");
  }
  auto settings = c10d::ProcessGroupNCCL::Options::create();
  settings->timeout = options.timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(options.store, options.index,
                                                          options.size, settings);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(options.local_rank % devices));
  return make_c10d_engine(
      c10::make_intrusive<StagedNccl>(nccl, device),
      {"nccl", options.group, options.ranks, options.timeout, options.why_failed});
}

}  // namespace tegula::inner::comm
