#include "tegula/base/sentence.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace sentence_test {

template <class Thrown>
std::string sentence_about(Thrown thrown) {
  return sentence_of(std::make_exception_ptr(std::move(thrown)));
}

TEST(Sentence, IsOneLineWhateverWasThrown) {
  EXPECT_EQ(sentence_about(CommError("a link failed").fact("link", "7")), "a link failed");
  EXPECT_EQ(sentence_about(std::runtime_error("too much\nbacktrace")), "too much");
  EXPECT_EQ(sentence_about(42), "something that is no exception was thrown");
}

}  // namespace sentence_test
}  // namespace tegula::inner
