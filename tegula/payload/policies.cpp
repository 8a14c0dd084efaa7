#include "tegula/payload/policies.h"

namespace tegula::inner {
namespace {

std::string to_text(const std::optional<GradientPolicy>& policy) {
  return policy ? to_string(*policy) : "none";
}

}  // namespace

std::string to_string(const Policies& policies) {
  return "leaf: " + to_text(policies.gradient_of_leaf) +
         "; module: " + to_text(policies.gradient_of_module);
}

std::shared_ptr<const PolicyTable::Entry> PolicyTable::entry(const Policies& policies) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Entry>& known = entries_[to_string(policies)];
  if (!known) known = std::make_shared<const Entry>(Entry{entries_.size(), policies});
  return known;
}

}  // namespace tegula::inner
