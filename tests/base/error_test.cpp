#include "tegula/base/error.h"

#include <gtest/gtest.h>

namespace tegula {
namespace error_test {

TEST(Error, ReadsAsASentenceTheFactsAndAHint) {
  const UsageError error = UsageError("cannot do it")
                               .fact("op", "aten::add")
                               .fact("a longer label", "x")
                               .hint("do it so");
  EXPECT_STREQ(error.what(),
               "tegula: cannot do it\n"
               "  op      aten::add\n"
               "  a longer label x\n"
               "  hint    do it so");
  EXPECT_EQ(error.sentence(), "cannot do it");
  EXPECT_EQ(error.facts().size(), 2U);
}

TEST(Error, KeepsItsFamilyWhenBuiltUpAndThrown) {
  EXPECT_THROW(throw CommError("a peer is gone").hint("restart"), CommError);
  EXPECT_THROW(throw InternalError("a bug").fact("a", "b"), InternalError);
  EXPECT_THROW(throw UsageError("a mistake"), Error);
}

}  // namespace error_test
}  // namespace tegula
