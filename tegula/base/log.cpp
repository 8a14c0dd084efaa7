#include "tegula/base/log.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

constexpr const char* kVariable = "TEGULA_LOG";
constexpr std::array<std::pair<std::string_view, LogLevel>, 3> kLevels = {
    {{"error", LogLevel::Error}, {"warn", LogLevel::Warn}, {"info", LogLevel::Info}}};

std::optional<LogLevel> level_named(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (name == text) return level;
  }
  return std::nullopt;
}

}  // namespace

LogLevel log_level() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return LogLevel::Info;
  if (const std::optional<LogLevel> level = level_named(text)) return *level;
  throw UsageError(std::string(kVariable) + " names no level: " + in_quotes(text))
      .hint("use error, warn or info");
}

void log_line(LogLevel level, const std::string& text) {
  const char* asked = std::getenv(kVariable);
  const LogLevel shown = level_named(asked == nullptr ? "" : asked).value_or(LogLevel::Info);
  if (level > shown) return;
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);  // a program may have given it a buffer
}

}  // namespace tegula::inner
