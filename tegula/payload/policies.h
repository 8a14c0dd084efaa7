// Policies: what is to be done with a tensor beyond where it is. They ride along with its payload,
// views carry them on, and they are part of the key of every call on it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tegula/payload/gradient_buckets.h"
#include "tegula/payload/gradient_policy.h"

namespace tegula::inner {

// A tensor that is cut at rest, and whole over some axes while an op uses it together with others
// (dispatch/gather_for_use.h).
struct Gathering {
  std::vector<std::string> over;  // axes
  bool is_kept = false;           // it stays gathered until it is written
  bool whole_gradient = false;    // its gradient is whole over these axes, too
  bool prefetches = false;        // the tensor that is used after it is gathered meanwhile
  std::int64_t most_bytes = 0;    // of gathered tensors that are kept because of later uses
};

struct Policies {
  // For its gradient, if it is a leaf: what was said for the module outranks what was said for it.
  std::optional<GradientPolicy> gradient_of_leaf;
  std::optional<GradientPolicy> gradient_of_module;
  // The element type that its gradient travels in.
  std::optional<at::ScalarType> gradient_wire;
  // With which others it is reduced, where that is async.
  BucketOptionsPtr gradient_buckets;
  std::optional<Gathering> gathering;
};

// "leaf: hold over dp, else now; module: none; gathered over dp, 64 bytes"
std::string to_string(const Policies& policies);

// Policies of one rank, numbered: world.part<PolicyTable>(). Any thread.
class PolicyTable {
 public:
  struct Entry {
    std::uint64_t id;  // equal policies have one id, never 0
    Policies policies;
  };
  std::shared_ptr<const Entry> entry(const Policies& policies);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Entry>> entries_;
};

using PoliciesPtr = std::shared_ptr<const PolicyTable::Entry>;  // null: none

}  // namespace tegula::inner
