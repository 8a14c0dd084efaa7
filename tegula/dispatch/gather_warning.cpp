#include "tegula/dispatch/gather_warning.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>

#include "tegula/base/log.h"
#include "tegula/dispatch/strict.h"

namespace tegula::inner {
namespace {

// A part of a world (World::part).
class WarnedOperators {
 public:
  bool is_first(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.insert(name).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

// What is passed as out= is written, not gathered.
bool is_gathered(const Call& call, const TensorPlace& place) {
  if (!place.payload) return false;
  const Link* link = place.payload->link();
  if (call.facts().is_out[place.argument] && !link) return false;
  return !(link ? link->base : place.payload)->spec().is_replicated();
}

}  // namespace

void warn_of_gather(const Call& call) {
  const std::vector<TensorPlace>& tensors = call.tensors();
  if (call.world().rank() != 0 || gives_numbers(call) ||
      std::none_of(tensors.begin(), tensors.end(),
                   [&](const TensorPlace& place) { return is_gathered(call, place); }) ||
      !call.world().part<WarnedOperators>().is_first(call.facts().name)) {
    return;
  }
  std::ostringstream text;
  text << "tegula: an op gathers its operands: no rule covers the call\n  op      " << call.text();
  for (const TensorPlace& place : tensors) {
    if (is_gathered(call, place)) text << "\n  gather  " << described(place.tensor);
  }
  text << "\n  hint    redistribute its operands, or TEGULA_LOG=error; said once per operator";
  log_line(LogLevel::Warn, text.str());
}

}  // namespace tegula::inner
