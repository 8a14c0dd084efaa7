#include "tegula/payload/policies.h"

namespace tegula::inner {
namespace {

std::string to_text(const std::optional<GradientPolicy>& policy) {
  return policy ? to_string(*policy) : "none";
}

std::string to_text(const Gathering& gathering) {
  std::string text = "; gathered over";
  for (const std::string& axis : gathering.over) text += " " + axis;
  text += ", " + std::to_string(gathering.most_bytes) + " bytes";
  if (gathering.is_kept) text += ", kept";
  if (gathering.whole_gradient) text += ", gradient whole";
  if (gathering.prefetches) text += ", next one too";
  return text;
}

// Two hooks are the same only if they are one object, which the table keeps.
std::string to_text(const BucketOptions& buckets) {
  std::string text = "; buckets of " + std::to_string(buckets.bytes) + " bytes";
  if (buckets.hook) {
    text += ", hook " + std::to_string(reinterpret_cast<std::uintptr_t>(&buckets));
  }
  return text;
}

}  // namespace

std::string to_string(const Policies& policies) {
  std::string text = "leaf: " + to_text(policies.gradient_of_leaf) +
                     "; module: " + to_text(policies.gradient_of_module);
  if (policies.gradient_wire) text += std::string("; wire ") + toString(*policies.gradient_wire);
  if (policies.gradient_buckets) text += to_text(*policies.gradient_buckets);
  if (policies.gathering) text += to_text(*policies.gathering);
  return text;
}

std::shared_ptr<const PolicyTable::Entry> PolicyTable::entry(const Policies& policies) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Entry>& known = entries_[to_string(policies)];
  if (!known) known = std::make_shared<const Entry>(Entry{entries_.size(), policies});
  return known;
}

}  // namespace tegula::inner
