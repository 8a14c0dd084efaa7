#include "tegula/comm/call.h"

#include <algorithm>
#include <vector>

#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula::comm {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::AllReduce:
      return "all_reduce";
    case Kind::AllGather:
      return "all_gather";
    case Kind::ReduceScatter:
      return "reduce_scatter";
    case Kind::AllToAll:
      return "all_to_all";
    case Kind::Broadcast:
      return "broadcast";
    case Kind::Scatter:
      return "scatter";
    case Kind::Gather:
      return "gather";
    case Kind::Permute:
      return "permute";
    case Kind::Barrier:
      return "barrier";
    case Kind::Send:
      return "send";
    case Kind::Recv:
      return "recv";
  }
  return "?";
}

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
      .add(shape_.hash)
      .add(sizes_.hash)
      .result();
}

std::string Call::to_string() const {
  std::vector<std::string> arguments;
  if (has_data_) arguments.push_back(std::string(name_of(dtype_)) + shape_.to_string());
  if (has_op_) arguments.emplace_back(name_of(op_));
  if (dim_ >= 0) arguments.push_back("dim " + std::to_string(dim_));
  if (sizes_.count > 0) arguments.push_back("sizes " + sizes_.to_string());
  if (tag_ >= 0) arguments.push_back("tag " + std::to_string(tag_));
  if (root_ >= 0) arguments.push_back("root " + std::to_string(root_));
  return std::string(name_of(kind_)) + "(" + join(arguments) + "), call " +
         std::to_string(sequence_);
}

}  // namespace tegula::comm
