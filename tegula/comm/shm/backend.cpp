// Each call becomes one of collectives.h: tensors become regions, and a Work stands for the call
// until it has ended. The Work keeps the tensors alive.
#include "tegula/comm/shm/backend.h"

#include <ATen/ATen.h>

#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/prepared_call.h"
#include "tegula/comm/reduce.h"
#include "tegula/comm/shm/collectives.h"

namespace tegula::inner::shm {
namespace {

// A call under way, or done.
class CallWork final : public c10d::Work {
 public:
  CallWork(c10d::OpType type, std::vector<at::Tensor> tensors)
      : c10d::Work(-1, type),
        tensors_(std::move(tensors)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  void end(const std::exception_ptr& error) {
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(tensors_));
    }
    finish(error);
  }
  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::Sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::Avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::Product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::Min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::Max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::Band;
    case c10d::ReduceOp::BOR:
      return ReduceOp::Bor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::Bxor;
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::UNUSED:
      break;
  }
  throw UsageError("the shm engine has no such reduction").hint("scale the tensor, then sum");
}

void check_tensor(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.layout() != at::kStrided) {
    throw UsageError("the shm engine takes contiguous CPU tensors")
        .fact("tensor", tensor.toString() + bracketed(tensor.sizes().vec()))
        .hint("call contiguous(), or choose an engine for that device");
  }
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    throw UsageError("the shm engine takes one tensor per call")
        .fact("tensors", std::to_string(tensors.size()));
  }
  check_tensor(tensors[0]);
  return tensors[0];
}

DType dtype_of(const at::Tensor& tensor) { return tegula::dtype_of(tensor.scalar_type()); }

ReduceOp checked_reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  comm::check_reducible(dtype_of(tensor), reduce_op_of(op));
  return reduce_op_of(op);
}

std::span<const std::int64_t> shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().data(), tensor.sizes().size()};
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

Region piece_of(const at::Tensor& tensor) {
  check_tensor(tensor);
  return Region::whole(tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()));
}

std::vector<Region> pieces_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Region> regions;
  for (const at::Tensor& tensor : tensors) regions.push_back(piece_of(tensor));
  return regions;
}

std::vector<std::int64_t> numels_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

// Rows of dim 0 by the splits; equal ones if there are none.
std::vector<Region> split_rows(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                               int n) {
  check_tensor(tensor);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::int64_t row = rows == 0 ? 0 : static_cast<std::int64_t>(tensor.nbytes()) / rows;
  if (splits.empty()
          ? rows % n != 0
          : (splits.size() != static_cast<std::size_t>(n) || !comm::make_up(splits, rows))) {
    throw UsageError("the splits do not cover dim 0")
        .fact("tensor", bracketed(tensor.sizes().vec()))
        .fact("splits", splits.empty() ? std::to_string(n) + " equal ones" : bracketed(splits))
        .hint("give one number of rows per rank; they add up to dim 0");
  }
  std::vector<Region> regions;
  std::byte* next = bytes_of(tensor);
  for (int rank = 0; rank < n; ++rank) {
    const std::int64_t bytes =
        (splits.empty() ? rows / n : splits[static_cast<std::size_t>(rank)]) * row;
    regions.push_back(Region::whole(next, bytes));
    next += bytes;
  }
  return regions;
}

void check_same_bytes(const Region& a, const Region& b, const char* what) {
  if (a.bytes() == b.bytes()) return;
  throw UsageError(std::string("sizes of ") + what + " differ")
      .fact("bytes", std::to_string(a.bytes()) + " and " + std::to_string(b.bytes()));
}

// What moves as bytes arrives as it was sent.
template <class Others>
void check_same_dtype(const at::Tensor& tensor, const Others& others) {
  for (const at::Tensor& other : others) {
    if (other.scalar_type() == tensor.scalar_type()) continue;
    throw UsageError("the tensors of a call have different element types")
        .fact("types", std::string(at::toString(tensor.scalar_type())) + " and " +
                           at::toString(other.scalar_type()))
        .hint("convert them to one type");
  }
}

void check_count(std::size_t count, int n) {
  if (count == static_cast<std::size_t>(n)) return;
  throw UsageError("a list needs one tensor per rank")
      .fact("tensors", std::to_string(count))
      .fact("ranks", std::to_string(n));
}

// The one list of a call that takes several.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int n) {
  if (lists.size() != 1) {
    throw UsageError("the shm engine takes one list of tensors per call")
        .fact("lists", std::to_string(lists.size()));
  }
  check_count(lists[0].size(), n);
  return lists[0];
}

int checked_rank(std::int64_t rank, int n, const char* what) {
  if (rank >= 0 && rank < n) return static_cast<int>(rank);
  throw UsageError(std::string(what) + " " + std::to_string(rank) + " is not in a group of " +
                   counted(n, "rank", "ranks"))
      .hint("ranks of a group are its members' indices, from 0");
}

}  // namespace

Backend::Backend(std::shared_ptr<ShmEngine> engine)
    : c10d::Backend(engine->channel().index(), engine->channel().size()),
      engine_(std::move(engine)) {}

Backend::Work Backend::run(Mode mode, c10d::OpType type, std::vector<at::Tensor> kept, Body body) {
  engine_->home().check();
  auto work = c10::make_intrusive<CallWork>(type, std::move(kept));
  if (mode == Mode::Sync) {
    const std::unique_lock<std::mutex> lock = engine_->worker().lock_when_idle();
    engine_->run(body);
    work->end(nullptr);
    return work;
  }
  engine_->channel().throw_if_broken();
  // The worker ends before the engine does.
  engine_->worker().queue(
      [engine = engine_.get(), work, body = std::move(body)]() -> comm::Worker::Announcement {
        std::exception_ptr error;
        try {
          engine->run(body);
        } catch (...) {
          error = std::current_exception();
        }
        return [work, error] { work->end(error); };
      });
  return work;
}

Backend::Work Backend::broadcast(std::vector<at::Tensor>& tensors,
                                 const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors);
  Call call(Kind::Broadcast, dtype_of(tensor), shape_of(tensor));
  call.rooted_at(checked_rank(options.rootRank, getSize(), "root"));
  return run(mode_of(options), c10d::OpType::BROADCAST, tensors,
             [call, region = piece_of(tensor)](Channel& channel) {
               shm::broadcast(channel, call, region);
             });
}

Backend::Work Backend::allreduce(std::vector<at::Tensor>& tensors,
                                 const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  Call call(Kind::AllReduce, dtype_of(tensor), shape_of(tensor));
  call.reduced_by(checked_reduction(tensor, options.reduceOp));
  return run(mode_of(options), c10d::OpType::ALLREDUCE, tensors,
             [call, data = bytes_of(tensor), count = tensor.numel()](Channel& channel) {
               shm::all_reduce(channel, call, data, data, count);
             });
}

Backend::Work Backend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                 std::vector<at::Tensor>& inputs,
                                 const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs);
  std::vector<Region> to = pieces_of(only_list(outputs, getSize()));
  check_same_bytes(piece_of(input), to[static_cast<std::size_t>(getRank())], "my input and output");
  check_same_dtype(input, outputs[0]);
  Call call(Kind::AllGather, dtype_of(input), {});
  call.with_sizes(numels_of(outputs[0]));
  std::vector<at::Tensor> kept = outputs[0];
  kept.push_back(input);
  return run(mode_of(options), c10d::OpType::ALLGATHER, std::move(kept),
             [call, from = piece_of(input), to](Channel& channel) {
               shm::all_gather(channel, call, from, to);
             });
}

Backend::Work Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const c10d::AllgatherOptions& options) {
  const std::vector<Region> to = split_rows(output.view(-1), {}, getSize());
  check_same_bytes(piece_of(input), to[0], "my input and its place in the output");
  check_same_dtype(input, at::TensorList(output));
  const Call call(Kind::AllGather, dtype_of(input), shape_of(input));
  return run(mode_of(options), c10d::OpType::_ALLGATHER_BASE, {output, input},
             [call, from = piece_of(input), to](Channel& channel) {
               shm::all_gather(channel, call, from, to);
             });
}

Backend::Work Backend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                              std::vector<at::Tensor>& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs);
  const int root = checked_rank(options.rootRank, getSize(), "root");
  std::vector<Region> from(static_cast<std::size_t>(getSize())), to(from);
  std::vector<at::Tensor> kept{input};
  if (getRank() == root) {
    to = pieces_of(only_list(outputs, getSize()));
    check_same_dtype(input, outputs[0]);
    kept.insert(kept.end(), outputs[0].begin(), outputs[0].end());
  }
  from[static_cast<std::size_t>(root)] = piece_of(input);
  Call call(Kind::Gather, dtype_of(input), {});
  call.rooted_at(root);
  return run(mode_of(options), c10d::OpType::GATHER, std::move(kept),
             [call, from, to](Channel& channel) { shm::exchange(channel, call, from, to); });
}

Backend::Work Backend::scatter(std::vector<at::Tensor>& outputs,
                               std::vector<std::vector<at::Tensor>>& inputs,
                               const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  const int root = checked_rank(options.rootRank, getSize(), "root");
  std::vector<Region> from(static_cast<std::size_t>(getSize())), to(from);
  std::vector<at::Tensor> kept{output};
  if (getRank() == root) {
    from = pieces_of(only_list(inputs, getSize()));
    check_same_dtype(output, inputs[0]);
    kept.insert(kept.end(), inputs[0].begin(), inputs[0].end());
  }
  to[static_cast<std::size_t>(root)] = piece_of(output);
  Call call(Kind::Scatter, dtype_of(output), {});
  call.rooted_at(root);
  return run(mode_of(options), c10d::OpType::SCATTER, std::move(kept),
             [call, from, to](Channel& channel) { shm::exchange(channel, call, from, to); });
}

Backend::Work Backend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                      std::vector<std::vector<at::Tensor>>& inputs,
                                      const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  std::vector<Region> from = pieces_of(only_list(inputs, getSize()));
  check_same_bytes(from[static_cast<std::size_t>(getRank())], piece_of(output),
                   "my input and output");
  check_same_dtype(output, inputs[0]);
  Call call(Kind::ReduceScatter, dtype_of(output), {});
  call.reduced_by(checked_reduction(output, options.reduceOp)).with_sizes(numels_of(inputs[0]));
  std::vector<at::Tensor> kept = inputs[0];
  kept.push_back(output);
  return run(mode_of(options), c10d::OpType::REDUCE_SCATTER, std::move(kept),
             [call, from, to = piece_of(output)](Channel& channel) {
               shm::reduce_scatter(channel, call, from, to);
             });
}

Backend::Work Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  const std::vector<Region> from = split_rows(input.view(-1), {}, getSize());
  check_same_bytes(from[0], piece_of(output), "my part of the input and the output");
  check_same_dtype(output, at::TensorList(input));
  Call call(Kind::ReduceScatter, dtype_of(output), shape_of(output));
  call.reduced_by(checked_reduction(output, options.reduceOp));
  return run(mode_of(options), c10d::OpType::_REDUCE_SCATTER_BASE, {output, input},
             [call, from, to = piece_of(output)](Channel& channel) {
               shm::reduce_scatter(channel, call, from, to);
             });
}

Backend::Work Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                     std::vector<std::int64_t>& output_splits,
                                     std::vector<std::int64_t>& input_splits,
                                     const c10d::AllToAllOptions& options) {
  const std::vector<Region> from = split_rows(input, input_splits, getSize());
  const std::vector<Region> to = split_rows(output, output_splits, getSize());
  check_same_dtype(output, at::TensorList(input));
  const Call call(Kind::AllToAll, dtype_of(input), {});
  return run(mode_of(options), c10d::OpType::ALLTOALL_BASE, {output, input},
             [call, from, to](Channel& channel) { shm::exchange(channel, call, from, to); });
}

Backend::Work Backend::alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                const c10d::AllToAllOptions& options) {
  check_count(outputs.size(), getSize());
  check_count(inputs.size(), getSize());
  check_same_dtype(inputs[0], inputs);
  check_same_dtype(inputs[0], outputs);
  std::vector<at::Tensor> kept = outputs;
  kept.insert(kept.end(), inputs.begin(), inputs.end());
  const Call call(Kind::AllToAll, dtype_of(inputs[0]), {});
  return run(mode_of(options), c10d::OpType::ALLTOALL, std::move(kept),
             [call, from = pieces_of(inputs), to = pieces_of(outputs)](Channel& channel) {
               shm::exchange(channel, call, from, to);
             });
}

Backend::Work Backend::start_message(Kind kind, const at::Tensor& tensor, int peer, int tag) {
  engine_->home().check();
  checked_rank(peer, getSize(), kind == Kind::Send ? "receiver" : "sender");
  if (peer == getRank()) throw UsageError("a rank cannot send to itself").hint("copy the tensor");
  const Call call = Call(kind, dtype_of(tensor), shape_of(tensor)).tagged(tag);
  const auto type = kind == Kind::Send ? c10d::OpType::SEND : c10d::OpType::RECV;
  auto work = c10::make_intrusive<CallWork>(type, std::vector<at::Tensor>{tensor});
  engine_->message_async({call, peer, piece_of(tensor)},
                         [work](const std::exception_ptr& error) { work->end(error); });
  return work;
}

Backend::Work Backend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  return start_message(Kind::Send, only(tensors), to, tag);
}

Backend::Work Backend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  return start_message(Kind::Recv, only(tensors), from, tag);
}

Backend::Work Backend::barrier(const c10d::BarrierOptions& options) {
  return run(mode_of(options), c10d::OpType::BARRIER, {},
             [](Channel& channel) { shm::barrier(channel, Call(Kind::Barrier)); });
}

}  // namespace tegula::inner::shm
