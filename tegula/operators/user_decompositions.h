// Decompositions that users have registered, by the name that rules go by.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "tegula/operators/operator_notes.h"

namespace tegula::inner {

// Any thread.
class UserDecompositions {
 public:
  // Replaces one of the same name; an empty one takes it away.
  void set(const std::string& op, Recipe recipe);
  // Null: none.
  Recipe find(const std::string& op) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Recipe> recipes_;
};

// Those of this process.
UserDecompositions& user_decompositions();

}  // namespace tegula::inner
