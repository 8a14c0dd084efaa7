#include "tegula/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace log_test {

// What is written to stderr of a line per level, with TEGULA_LOG set so.
std::string shown_at(const char* level) {
  setenv("TEGULA_LOG", level, 1);
  testing::internal::CaptureStderr();
  log_line(LogLevel::Error, "an error");
  log_line(LogLevel::Warn, "a warning");
  log_line(LogLevel::Info, "a remark");
  unsetenv("TEGULA_LOG");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, ShowsWhatTheVariableAsksFor) {
  EXPECT_EQ(shown_at("error"), "an error\n");
  EXPECT_EQ(shown_at("warn"), "an error\na warning\n");
  EXPECT_EQ(shown_at("info"), "an error\na warning\na remark\n");
  EXPECT_EQ(shown_at(""), "an error\na warning\na remark\n");
}

TEST(Log, ALevelThatDoesNotExistIsRefused) {
  setenv("TEGULA_LOG", "loud", 1);
  try {
    log_level();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: TEGULA_LOG names no level: \"loud\"\n  hint    use error, warn or info");
  }
  unsetenv("TEGULA_LOG");
  EXPECT_EQ(log_level(), LogLevel::Info);
}

}  // namespace log_test
}  // namespace tegula::inner
