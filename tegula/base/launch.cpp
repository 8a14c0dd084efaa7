#include "tegula/base/launch.h"

#include <cstdlib>

namespace tegula::inner::launch {

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void set_launch(const Place& place) {
  set_variable(kRank, std::to_string(place.rank));
  set_variable(kSize, std::to_string(place.size));
  set_variable(kLocalRank, std::to_string(place.local_rank));
  set_variable(kLocalSize, std::to_string(place.local_size));
  set_variable(kJob, place.job);
}

}  // namespace tegula::inner::launch
