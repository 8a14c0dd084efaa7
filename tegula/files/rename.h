// Names by patterns: what an asterisk of one stands for takes the place of the asterisk of the
// other.
//
//   {"model.layers.*.w1", "layers.*.gate"}    model.layers.7.w1 -> layers.7.gate
//   {"model.**", "**"}                        model.norm.weight -> norm.weight
//
// * stands for any characters up to a dot, ** for any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tegula::inner {

using Renames = std::vector<std::pair<std::string, std::string>>;

// What the pattern `from` makes of the name, in the form `to`; none if it does not match.
std::optional<std::string> renamed(std::string_view name, std::string_view from,
                                   std::string_view to);
// By the first pattern that matches; the name itself if none does.
std::string renamed(const std::string& name, const Renames& renames);
// UsageError: a form with more asterisks than its pattern.
void check_renames(const Renames& renames);

}  // namespace tegula::inner
