// The idea: everything that must agree is a number or a short list in the call itself, so that a
// fingerprint is one pass over it and nothing is allocated.
#include "tegula/comm/call.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

std::string_view name_of(CommKind kind) {
  switch (kind) {
    case CommKind::AllReduce:
      return "all_reduce";
    case CommKind::AllGather:
      return "all_gather";
    case CommKind::ReduceScatter:
      return "reduce_scatter";
    case CommKind::AllToAll:
      return "all_to_all";
    case CommKind::Broadcast:
      return "broadcast";
    case CommKind::Scatter:
      return "scatter";
    case CommKind::Gather:
      return "gather";
    case CommKind::Permute:
      return "permute";
    case CommKind::Barrier:
      return "barrier";
    case CommKind::Send:
      return "send";
    case CommKind::Recv:
      return "recv";
  }
  return "?";
}

}  // namespace tegula

namespace tegula::inner::comm {

void Call::List::assign(std::span<const std::int64_t> source) {
  count = static_cast<std::uint32_t>(source.size());
  std::copy_n(source.begin(), std::min(source.size(), kShown), values.begin());
  hash = Hasher().add_all(source).result();
}

std::string Call::List::to_string() const {
  const auto shown = std::min<std::size_t>(count, kShown);
  std::string text = join(std::vector<std::int64_t>(values.begin(), values.begin() + shown));
  if (count > kShown) text += ", ...";
  return "[" + text + "]";
}

Call::Call(Kind kind, DType dtype, std::span<const std::int64_t> shape)
    : kind_(kind), dtype_(dtype), has_data_(true) {
  shape_.assign(shape);
}

namespace {

// A tensor's dtype and number of dims in one number.
constexpr std::int64_t kDims = 256;
std::int64_t head_of(DType dtype, std::uint32_t dims) {
  return static_cast<std::int64_t>(dtype) * kDims + dims;
}

}  // namespace

Call Call::coalesced(Kind kind, std::span<const Call> calls) {
  Call all(kind);
  all.tensors_ = static_cast<std::int32_t>(calls.size());
  std::vector<std::int64_t> shown;
  Hasher hasher;
  for (const Call& call : calls) {
    hasher.add(call.fingerprint());
    shown.push_back(head_of(call.dtype_, call.shape_.count));
    const auto dims = std::min<std::size_t>(call.shape_.count, kShown);
    shown.insert(shown.end(), call.shape_.values.begin(), call.shape_.values.begin() + dims);
  }
  all.shape_.assign(shown);
  all.shape_.hash = hasher.result();
  return all;
}

Call& Call::typed(DType dtype) {
  dtype_ = dtype;
  return *this;
}

Call& Call::reduced_by(ReduceOp op) {
  op_ = op;
  has_op_ = true;
  return *this;
}

Call& Call::rooted_at(int rank) {
  root_ = rank;
  return *this;
}

Call& Call::along(std::int64_t dim) {
  dim_ = dim;
  return *this;
}

Call& Call::tagged(std::int64_t tag) {
  tag_ = tag;
  return *this;
}

Call& Call::with_sizes(std::span<const std::int64_t> sizes) {
  sizes_.assign(sizes);
  return *this;
}

Call& Call::agreeing_on(std::uint64_t hash, std::uint64_t errors, std::string_view what) {
  agreed_ = hash;
  errors_before_ = errors;
  agreed_on_.fill('\0');
  what.copy(agreed_on_.data(), agreed_on_.size() - 1);
  return *this;
}

bool Call::differs_in_agreement_only(const Call& other) const {
  Call same = other;
  same.agreed_ = agreed_;
  return agreed_ != other.agreed_ && fingerprint() == same.fingerprint();
}

std::uint64_t Call::fingerprint() const {
  const Kind kind = kind_ == Kind::Recv ? Kind::Send : kind_;
  const std::uint64_t words = static_cast<std::uint64_t>(kind) | std::uint64_t{has_data_} << 8 |
                              static_cast<std::uint64_t>(dtype_) << 16 |
                              static_cast<std::uint64_t>(op_) << 24 | std::uint64_t{has_op_} << 32;
  return Hasher()
      .add(sequence_)
      .add(words)
      .add(static_cast<std::uint64_t>(root_))
      .add(static_cast<std::uint64_t>(dim_))
      .add(static_cast<std::uint64_t>(tag_))
      .add(static_cast<std::uint64_t>(tensors_))
      .add(shape_.hash)
      .add(sizes_.hash)
      .add(agreed_)
      .result();
}

// The tensors that there is room for. Lists that differ in what is not shown (further tensors,
// dims, sizes per rank) differ in the number at the end.
std::string Call::list_to_string() const {
  std::vector<std::string> texts{counted(tensors_, "tensor", "tensors")};
  const auto room = std::min<std::size_t>(shape_.count, kShown);
  std::int64_t shown = 0;
  for (std::size_t at = 0; at < room; ++shown) {
    const auto dtype = static_cast<DType>(shape_.values[at] / kDims);
    const auto dims = static_cast<std::size_t>(shape_.values[at] % kDims);
    if (at + 1 + dims > room) break;
    const auto begin = shape_.values.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    texts.push_back(std::string(name_of(dtype)) +
                    bracketed({begin, begin + static_cast<std::ptrdiff_t>(dims)}));
    at += 1 + dims;
  }
  if (shown == tensors_ && kind_ == Kind::AllReduce) return join(texts);
  char number[16];
  std::snprintf(number, sizeof(number), "#%08x", static_cast<unsigned>(shape_.hash >> 32));
  return join(texts) + (shown == tensors_ ? " " : ", ... ") + number;
}

std::string Call::to_string() const { return text() + ", call " + std::to_string(sequence_); }

std::string Call::text() const {
  std::vector<std::string> arguments;
  if (is_coalesced()) arguments.push_back(list_to_string());
  if (has_data_) arguments.push_back(std::string(name_of(dtype_)) + shape_.to_string());
  if (has_op_) arguments.emplace_back(name_of(op_));
  if (dim_ >= 0) arguments.push_back("dim " + std::to_string(dim_));
  if (sizes_.count > 0) arguments.push_back("sizes " + sizes_.to_string());
  if (tag_ >= 0) arguments.push_back("tag " + std::to_string(tag_));
  if (root_ >= 0) arguments.push_back("root " + std::to_string(root_));
  std::string name(name_of(kind_));
  if (is_coalesced()) name += "_coalesced";
  if (!has_data_ && (kind_ == Kind::Send || kind_ == Kind::Recv)) name += "_with_shape";
  return name + "(" + join(arguments) + ")";
}

CommError disagreement(const std::string& group, const Call& call, const std::string& which) {
  return CommError("ranks have different values of what should be the same on all of them")
      .fact("group", group)
      .fact("what", std::string(call.agreed_on()))
      .fact("ranks", which)
      .fact("seen in", call.to_string())
      .hint(
          "make plain tensors that meet DTensors, and torch's seed, the same on all ranks, and "
          "give what a rank draws for itself a generator of its own");
}

CommError error_of_rank(const std::string& group, int rank, const std::string& text) {
  return CommError("rank " + std::to_string(rank) + " failed: " + text)
      .fact("group", group)
      .hint("if all ranks catch this, World::recover makes the world usable again");
}

}  // namespace tegula::inner::comm
