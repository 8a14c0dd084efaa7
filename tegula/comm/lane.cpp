#include "tegula/comm/lane.h"

#include <utility>

#include "tegula/base/hash.h"

namespace tegula {
namespace {

constinit thread_local const Lane* innermost = nullptr;

}  // namespace

Lane::Lane(std::string name) : name_(std::move(name)), outer_(innermost) { innermost = this; }
Lane::~Lane() { innermost = outer_; }

const std::string& Lane::current() {
  static const std::string none;
  return innermost == nullptr ? none : innermost->name_;
}

std::uint64_t inner::comm::number_of_lane(const std::string& lane) {
  return lane.empty() ? 0 : Hasher().add(lane).result();
}

}  // namespace tegula
