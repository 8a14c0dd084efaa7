// What views do to placements, along one axis: ops that move no data, decided by spec/views.h.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::cli {

// A call that shows a view: `view_of` gives the view of its tensor, however that is placed; none if
// the ranks cannot make it of their tiles.
struct ViewExample {
  std::string call;  // "view(f32[4, 6], size=[24])"
  TensorMeta self;
  std::function<std::optional<DTensorSpec>(const DTensorSpec&)> view_of;
};

struct ViewRule {
  std::vector<std::string> ops;  // that share it
  std::string text;
  std::vector<ViewExample> examples;
};

const std::vector<ViewRule>& view_rules();
// Nullptr if there is none. An overload does not matter.
const ViewRule* find_view_rule(const std::string& op);

void show_view_rule(const std::string& op, const ViewRule& rule, std::ostream& out);

}  // namespace tegula::cli
