// Stands in for gloo's header, which the libtorch wheel does not ship: names for
// ProcessGroupGloo.hpp. Nothing of these types is made or called here.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
}  // namespace transport

}  // namespace gloo
