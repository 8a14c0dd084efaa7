// Meshes by their form: "2x2" has the axes a=2 and b=2.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "tegula/comm/world.h"

namespace tegula {

inline std::vector<MeshAxis> axes_of(const std::string& form) {
  std::vector<MeshAxis> axes;
  std::istringstream sizes(form);
  for (std::string size; std::getline(sizes, size, 'x');) {
    axes.push_back({std::string(1, static_cast<char>('a' + axes.size())), std::stoll(size)});
  }
  return axes;
}

inline int ranks_of(const std::string& form) {
  std::int64_t ranks = 1;
  for (const MeshAxis& axis : axes_of(form)) ranks *= axis.size;
  return static_cast<int>(ranks);
}

}  // namespace tegula
