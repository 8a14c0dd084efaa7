// Names of parameters and buffers, and patterns of them. A name consists of parts between dots
// ("layers.0.weight"). In a pattern * stands for any characters of one part, ? for one character,
// and a part ** for any number of parts, none included:
//
//   layers.*.weight   layers.0.weight, layers.1.weight; not layers.0.norm.weight
//   layers.**.weight  all three, and layers.weight
//   **.bias           bias, head.bias, layers.0.bias
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tegula::inner {

// Whether the pattern stands for this whole name.
bool matches(std::string_view pattern, std::string_view name);

// For each tensor, given by all of its names, the index of the last pattern that matches one of
// them; none if no pattern does. UsageError: a pattern that matches no name, with the names that
// come nearest; a pattern all of whose tensors are taken by later ones.
std::vector<std::optional<std::size_t>> last_matches(
    const std::vector<std::string>& patterns, const std::vector<std::vector<std::string>>& tensors);

}  // namespace tegula::inner
