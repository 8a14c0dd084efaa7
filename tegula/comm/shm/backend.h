// libtorch's c10d::Backend over the shared-memory engine, for CPU tensors. Any c10d user can hold
// one; tegula::Group uses the channel beneath it, which can move pieces of tensors.
//
// Calls run in the order in which they are made: a synchronous one on the caller's thread, once
// nothing is pending. Asynchronous calls run on the
// backend's worker thread, sends and recvs on another. An error is thrown by a synchronous call,
// and by wait() of an asynchronous one. Destroying the backend ends pending calls with an error.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/shm/channel.h"
#include "tegula/comm/shm/collectives.h"
#include "tegula/comm/worker.h"

namespace tegula::shm {

class Postman;

class Backend final : public c10d::Backend {
 public:
  Backend(std::shared_ptr<Board> board, ChannelOptions options);
  ~Backend() override;

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Body = std::function<void(Channel&)>;

  // For calls on the channel itself: on the worker's thread, or under its lock.
  Channel& channel() { return channel_; }
  comm::Worker& worker() { return worker_; }
  Postman& postman() { return *postman_; }

  const std::string getBackendName() const override { return "tegula-shm"; }

  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  Work allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override;
  Work gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
              const c10d::GatherOptions& options) override;
  Work scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
               const c10d::ScatterOptions& options) override;
  Work reduce_scatter(std::vector<at::Tensor>& outputs,
                      std::vector<std::vector<at::Tensor>>& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input,
                     std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                const c10d::AllToAllOptions& options) override;
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  Work run(bool later, c10d::OpType type, std::vector<at::Tensor> kept, Body body);
  Work post(Kind kind, at::Tensor tensor, int peer, int tag);

  Channel channel_;
  std::unique_ptr<Postman> postman_;
  comm::Worker worker_;
};

}  // namespace tegula::shm
