// What the library and `tegula run` say of themselves on stderr, beyond errors that are thrown. The
// environment variable TEGULA_LOG says how much: error, warn, or info, which is the default.
#pragma once

#include <string>

namespace tegula::inner {

enum class LogLevel { Error, Warn, Info };

// As TEGULA_LOG says. UsageError if it names no level.
LogLevel log_level();

// Writes the text and a line end at once, so that lines of several ranks do not mix. Nothing if
// TEGULA_LOG asks for less; never throws for what it names.
void log_line(LogLevel level, const std::string& text);

}  // namespace tegula::inner
