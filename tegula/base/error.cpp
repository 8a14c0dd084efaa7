// The message is composed anew whenever a fact or the hint is added, so that what() cannot fail.
#include "tegula/base/error.h"

#include <algorithm>

namespace tegula {
namespace {

constexpr std::size_t kLabelWidth = 8;

void append_line(std::string& message, const std::string& label, const std::string& text) {
  message += "\n  " + label +
             std::string(std::max(kLabelWidth, label.size() + 1) - label.size(), ' ') + text;
}

}  // namespace

Error::Error(std::string sentence) : sentence_(std::move(sentence)) { compose(); }

void Error::add_fact(std::string name, std::string value) {
  facts_.emplace_back(std::move(name), std::move(value));
  compose();
}

void Error::set_hint(std::string text) {
  hint_ = std::move(text);
  compose();
}

void Error::compose() {
  message_ = "tegula: " + sentence_;
  for (const auto& [name, value] : facts_) append_line(message_, name, value);
  if (!hint_.empty()) append_line(message_, "hint", hint_);
}

}  // namespace tegula
