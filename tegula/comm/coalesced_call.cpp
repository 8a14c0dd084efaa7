// A coalesced call is made of the prepared calls of its tensors, which say what must agree.
#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/comm/prepared_call.h"

namespace tegula::inner::comm {
namespace {

// make(i) for each of `count` tensors.
template <class Make>
CoalescedCall coalesced(Kind kind, std::size_t count, Make make) {
  CoalescedCall all;
  std::vector<Call> calls;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      all.parts.push_back(make(i));
    } catch (const UsageError& error) {
      throw UsageError(error).fact(
          "list", "tensor " + std::to_string(i) + " of " + std::to_string(count) + ", from 0");
    }
    calls.push_back(all.parts.back().call);
  }
  all.call = Call::coalesced(kind, calls);
  return all;
}

void check_apart(const std::vector<at::Tensor>& tensors) {
  struct Memory {
    std::uintptr_t begin, end;
  };
  std::vector<Memory> memories;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0 || tensor.is_meta()) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
    std::int64_t last = 0;
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    memories.push_back(
        {begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.element_size()});
  }
  std::sort(memories.begin(), memories.end(),
            [](const Memory& a, const Memory& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < memories.size(); ++i) {
    if (memories[i - 1].end <= memories[i].begin) continue;
    throw UsageError("two tensors of one call in place share memory")
        .hint("list each tensor once; views of one tensor can be reduced as that tensor");
  }
}

}  // namespace

CoalescedCall prepare_all_reduce_list(const Party& party, const std::vector<at::Tensor>& tensors,
                                      ReduceOp op) {
  CoalescedCall all = coalesced(Kind::AllReduce, tensors.size(), [&](std::size_t i) {
    return prepare_all_reduce(party, tensors[i], op);
  });
  all.call.reduced_by(op);
  return all;
}

CoalescedCall prepare_all_reduce_list_in_place(const Party& party,
                                               const std::vector<at::Tensor>& tensors,
                                               ReduceOp op) {
  CoalescedCall all = coalesced(Kind::AllReduce, tensors.size(), [&](std::size_t i) {
    return prepare_all_reduce_in_place(party, tensors[i], op);
  });
  check_apart(tensors);
  all.call.reduced_by(op);
  return all;
}

CoalescedCall prepare_all_gather_list(const Party& party, const std::vector<TensorAlong>& tensors) {
  return coalesced(Kind::AllGather, tensors.size(), [&](std::size_t i) {
    return prepare_all_gather(party, tensors[i].tensor, tensors[i].dim, tensors[i].sizes);
  });
}

CoalescedCall prepare_reduce_scatter_list(const Party& party,
                                          const std::vector<TensorAlong>& tensors, ReduceOp op) {
  CoalescedCall all = coalesced(Kind::ReduceScatter, tensors.size(), [&](std::size_t i) {
    return prepare_reduce_scatter(party, tensors[i].tensor, tensors[i].dim, op, tensors[i].sizes);
  });
  all.call.reduced_by(op);
  return all;
}

std::vector<at::Tensor> CoalescedCall::run(Engine& engine) const {
  try {
    carry_out(engine);
  } catch (...) {
    std::vector<at::Tensor> memory;
    for (const PreparedCall& prepared : parts) {
      for (const at::Tensor& tensor : prepared.memory()) memory.push_back(tensor);
    }
    engine.keep_after_failure(memory);
    throw;
  }
  std::vector<at::Tensor> results;
  for (const PreparedCall& prepared : parts) results.push_back(prepared.finish());
  return results;
}

void CoalescedCall::carry_out(Engine& engine) const {
  std::vector<TensorRegions> tensors;
  for (const PreparedCall& prepared : parts) {
    tensors.push_back({prepared.call.dtype(),
                       {prepared.from.data(), prepared.from.size()},
                       {prepared.to.data(), prepared.to.size()}});
  }
  switch (call.kind()) {
    case Kind::AllReduce:
      return engine.all_reduce_coalesced(call, tensors);
    case Kind::AllGather:
      return engine.all_gather_coalesced(call, tensors);
    case Kind::ReduceScatter:
      return engine.reduce_scatter_coalesced(call, tensors);
    case Kind::AllToAll:
    case Kind::Broadcast:
    case Kind::Scatter:
    case Kind::Gather:
    case Kind::Permute:
    case Kind::Barrier:
    case Kind::Send:
    case Kind::Recv:
      break;
  }
  throw InternalError("calls of this kind are not coalesced");
}

}  // namespace tegula::inner::comm
