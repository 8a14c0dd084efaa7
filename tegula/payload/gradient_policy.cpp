#include "tegula/payload/gradient_policy.h"

#include <array>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

std::string_view name_of(GradientReduction reduction) {
  switch (reduction) {
    case GradientReduction::Now:
      return "now";
    case GradientReduction::Async:
      return "async";
    case GradientReduction::Hold:
      return "hold";
  }
  return "";
}

[[noreturn]] void refuse(std::string_view text, std::string_view part) {
  throw UsageError("a gradient policy cannot be read")
      .fact("text", std::string(text))
      .fact("at", std::string(part))
      .hint("write \"now\", \"async\", \"hold\", or \"hold over dp, async over tp, else now\"");
}

GradientReduction reduction_named(std::string_view name, std::string_view text) {
  for (const GradientReduction one :
       {GradientReduction::Now, GradientReduction::Async, GradientReduction::Hold}) {
    if (name_of(one) == name) return one;
  }
  refuse(text, name);
}

std::vector<std::string_view> words_of(std::string_view part) {
  std::vector<std::string_view> words;
  while (!part.empty()) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    const std::size_t end = part.find(' ', begin);
    words.push_back(part.substr(begin, end == std::string_view::npos ? end : end - begin));
    part.remove_prefix(end == std::string_view::npos ? part.size() : end);
  }
  return words;
}

}  // namespace

GradientPolicy::GradientPolicy(OverAxes axes, GradientReduction otherwise)
    : axes_(std::move(axes)), otherwise_(otherwise) {
  std::erase_if(axes_, [&](const auto& one) { return one.second == otherwise_; });
}

GradientReduction GradientPolicy::over(const std::string& axis) const {
  const auto found = axes_.find(axis);
  return found == axes_.end() ? otherwise_ : found->second;
}

std::string to_string(const GradientPolicy& policy) {
  std::string text;
  for (const auto& [axis, reduction] : policy.axes()) {
    text += std::string(name_of(reduction)) + " over " + axis + ", ";
  }
  if (!text.empty()) text += "else ";
  return text + std::string(name_of(policy.otherwise()));
}

GradientPolicy parse_gradient_policy(std::string_view text) {
  GradientPolicy::OverAxes axes;
  GradientReduction otherwise = GradientReduction::Now;
  std::string_view rest = text;
  bool is_last = false;
  while (!is_last) {
    const std::size_t comma = rest.find(',');
    is_last = comma == std::string_view::npos;
    const std::string_view part = rest.substr(0, comma);
    if (!is_last) rest.remove_prefix(comma + 1);
    const std::vector<std::string_view> words = words_of(part);
    const bool is_over_axis = words.size() == 3 && words[1] == "over";
    const bool is_alone = words.size() == 1 && axes.empty() && is_last;
    const bool is_else = words.size() == 2 && words[0] == "else" && is_last;
    if (is_over_axis) {
      const bool is_new =
          axes.emplace(std::string(words[2]), reduction_named(words[0], text)).second;
      if (!is_new) refuse(text, part);
    } else if (is_alone || is_else) {
      otherwise = reduction_named(words.back(), text);
    } else {
      refuse(text, part);
    }
  }
  return {std::move(axes), otherwise};
}

}  // namespace tegula
