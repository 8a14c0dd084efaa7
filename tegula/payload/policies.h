// Policies: what is to be done with a tensor beyond where it is. They ride along with its payload,
// views carry them on, and they are part of the key of every call on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tegula/payload/gradient_policy.h"

namespace tegula::inner {

struct Policies {
  // For its gradient, if it is a leaf: what was said for the module outranks what was said for it.
  std::optional<GradientPolicy> gradient_of_leaf;
  std::optional<GradientPolicy> gradient_of_module;
};

// "leaf: hold over dp, else now; module: none"
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
