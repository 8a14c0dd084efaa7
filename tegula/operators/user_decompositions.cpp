#include "tegula/operators/user_decompositions.h"

namespace tegula::inner {

void UserDecompositions::set(const std::string& op, Recipe recipe) {
  const std::lock_guard lock(mutex_);
  if (recipe) {
    recipes_.insert_or_assign(op, std::move(recipe));
  } else {
    recipes_.erase(op);
  }
}

Recipe UserDecompositions::find(const std::string& op) const {
  const std::lock_guard lock(mutex_);
  const auto found = recipes_.find(op);
  return found == recipes_.end() ? nullptr : found->second;
}

UserDecompositions& user_decompositions() {
  static UserDecompositions& all = *new UserDecompositions;  // outlives every kernel
  return all;
}

}  // namespace tegula::inner
