// What every engine must do, as bodies that any way of running ranks can run.
#pragma once

#include <map>
#include <string>

#include "tests/comm/ranks.h"

namespace tegula {

// By name; each throws std::runtime_error if a result differs from a plain computation.
const std::map<std::string, RankBody>& suite();

}  // namespace tegula
