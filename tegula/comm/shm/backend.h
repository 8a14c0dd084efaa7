// libtorch's c10d::Backend over the shared-memory engine, for CPU tensors and users of c10d. It
// adapts calls to the engine and keeps it alive; tegula::Group uses the engine itself, which can
// move regions of tensors.
//
// Calls run in the order in which they are made, together with those of the group: a synchronous
// one on the caller's thread once nothing is pending, asynchronous ones on the engine's worker
// thread, sends and recvs on another. An error is thrown by a synchronous call, and by wait() of an
// asynchronous one.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/shm/engine.h"

namespace tegula::inner::shm {

class Backend final : public c10d::Backend {
 public:
  explicit Backend(std::shared_ptr<ShmEngine> engine);

  using Work = c10::intrusive_ptr<c10d::Work>;

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
  enum class Mode { Sync, Async };
  using Body = std::function<void(Channel&)>;

  // Newer libtorch says in the options whether the caller waits at once.
  template <class Options>
  static Mode mode_of(const Options& options) {
    if constexpr (requires { options.asyncOp; }) {
      return options.asyncOp ? Mode::Async : Mode::Sync;
    } else {
      return Mode::Async;
    }
  }

  Work run(Mode mode, c10d::OpType type, std::vector<at::Tensor> kept, Body body);
  Work start_message(Kind kind, const at::Tensor& tensor, int peer, int tag);

  std::shared_ptr<ShmEngine> engine_;
};

}  // namespace tegula::inner::shm
