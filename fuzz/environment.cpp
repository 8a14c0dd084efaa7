// The environment of a launcher, one NAME=value per line.
#include "tegula/comm/environment.h"

#include <map>

#include "fuzz/target.h"

using namespace tegula;
using namespace tegula::fuzz;
using inner::comm::Place;

namespace {

// Law: a place that is given can be one.
void check_place(const Place& place) {
  require(place.rank >= 0 && place.rank < place.size, "a rank lies in its job", place.rank);
  require(place.local_rank >= 0 && place.local_rank < place.local_size,
          "a rank lies among those of its host", place.local_rank);
  require(place.local_size <= place.size, "a host has some of the job's ranks", place.local_size);
  require(place.store_port >= 0 && place.store_port <= 65535, "a port is one", place.store_port);
  const std::int64_t timeout = place.timeout ? place.timeout->count() : 1;
  require(timeout > 0, "a timeout is some time", timeout);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> variables;
  for (const std::string_view line : lines_of(text_of(data, size))) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  try {
    check_place(inner::comm::place_in([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    }));
  } catch (const UsageError&) {
  }
  return 0;
}
