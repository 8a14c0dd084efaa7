// What a rank asks of its group, in a form that the ranks compare: if two ranks' calls differ in
// anything that must agree, their fingerprints differ.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tegula/base/error.h"
#include "tegula/placement/reduce_op.h"
#include "tegula/spec/dtype.h"

namespace tegula {

enum class CommKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Scatter,
  Gather,
  Permute,
  Barrier,
  Send,
  Recv,
};

std::string_view name_of(CommKind kind);

}  // namespace tegula

namespace tegula::inner::comm {

using Kind = CommKind;

// A plain value that fits in shared memory. Lists longer than the room are cut for display but
// count whole in the fingerprint.
class Call {
 public:
  Call() = default;
  // Of nothing, or (Send, Recv) of a message that carries its shape.
  explicit Call(Kind kind) : kind_(kind) {}
  Call(Kind kind, DType dtype, std::span<const std::int64_t> shape);
  // One call for a list of tensors, given as their single calls, which are all of this kind. The
  // fingerprint covers each of them.
  static Call coalesced(Kind kind, std::span<const Call> calls);

  Call& reduced_by(ReduceOp op);
  Call& rooted_at(int rank);
  Call& along(std::int64_t dim);
  // What each rank contributes or receives, where all ranks know it.
  Call& with_sizes(std::span<const std::int64_t> sizes);
  // A send and the recv that awaits it have equal fingerprints.
  Call& tagged(std::int64_t tag);
  void number(std::uint64_t sequence) { sequence_ = sequence; }
  // The dtype of one of the tensors of a coalesced call.
  Call& typed(DType dtype);
  // What the ranks have to agree on beside the call (agreements.h): a hash of it, how many errors
  // are part of it, and of what it is the hash.
  Call& agreeing_on(std::uint64_t hash, std::uint64_t errors, std::string_view what);

  Kind kind() const { return kind_; }
  DType dtype() const { return dtype_; }
  ReduceOp op() const { return op_; }
  bool has_op() const { return has_op_; }
  int root() const { return root_; }
  int tag() const { return static_cast<int>(tag_); }
  std::uint64_t sequence() const { return sequence_; }
  bool is_coalesced() const { return tensors_ >= 0; }
  // One, or as many as the list of a coalesced call has.
  std::int64_t tensors() const { return is_coalesced() ? tensors_ : 1; }

  std::uint64_t agreed() const { return agreed_; }
  std::uint64_t errors_before() const { return errors_before_; }
  std::string_view agreed_on() const { return agreed_on_.data(); }

  // Over everything above; equal calls have equal fingerprints.
  std::uint64_t fingerprint() const;
  // Whether all is equal but what the ranks have to agree on beside the call.
  bool differs_in_agreement_only(const Call& other) const;

  // all_reduce(f32[8, 16], sum), call 17
  // all_reduce_coalesced(9 tensors, f32[8, 16], f32[16], ... #5f3a9c01, sum), call 18
  std::string to_string() const;
  // The same without its number.
  std::string text() const;

 private:
  static constexpr std::size_t kShown = 8;
  struct List {
    std::array<std::int64_t, kShown> values{};
    std::uint32_t count = 0;
    std::uint64_t hash = 0;
    void assign(std::span<const std::int64_t> source);
    std::string to_string() const;
  };
  std::string list_to_string() const;

  std::uint64_t sequence_ = 0;
  List shape_;  // of a coalesced call: for each tensor a word of dtype and dims, then its shape
  List sizes_;
  std::int64_t dim_ = -1;
  std::int64_t tag_ = -1;
  std::int32_t root_ = -1;
  std::int32_t tensors_ = -1;  // of a coalesced call
  Kind kind_ = Kind::Barrier;
  DType dtype_ = DType::U8;
  ReduceOp op_ = ReduceOp::Sum;
  bool has_data_ = false;
  bool has_op_ = false;
  std::uint64_t agreed_ = 0;
  std::uint64_t errors_before_ = 0;
  std::array<char, 120> agreed_on_{};
};

// What the members of a group throw if they do not agree. `which`: "rank 1 differs from rank 0".
CommError disagreement(const std::string& group, const Call& call, const std::string& which);
// The same where one has thrown and the others have not.
CommError error_of_rank(const std::string& group, int rank, const std::string& text);

}  // namespace tegula::inner::comm
