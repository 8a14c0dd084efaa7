#include "tegula/base/text.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"

namespace tegula {
namespace text_test {

TEST(Text, ListsAreJoinedByCommas) {
  EXPECT_EQ(bracketed({}), "[]");
  EXPECT_EQ(bracketed({1, -2, 3}), "[1, -2, 3]");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, " x "), "a x b");
}

TEST(Text, CountsAgreeWithTheirNoun) {
  EXPECT_EQ(counted(1, "axis", "axes"), "1 axis");
  EXPECT_EQ(counted(0, "axis", "axes"), "0 axes");
}

TEST(Scanner, BlanksBetweenTokensDoNotMatter) {
  Scanner scan("  a = -12 ,b ", "a test", "a=1");
  EXPECT_EQ(scan.identifier(), "a");
  scan.expect("=");
  EXPECT_EQ(scan.integer(), -12);
  scan.expect(",");
  EXPECT_EQ(scan.identifier(), "b");
  EXPECT_TRUE(scan.at_end());
  scan.expect_end();
}

TEST(Scanner, AWordIsNotTakenFromALongerOne) {
  Scanner scan("one", "a test", "on");
  EXPECT_FALSE(scan.accept_word("on"));
  EXPECT_TRUE(scan.accept_word("one"));
}

TEST(Scanner, AMisfitNamesWhatWasExpectedAndWhere) {
  Scanner scan("a ? b", "a test", "a = b");
  scan.identifier();
  try {
    scan.expect("=");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: cannot read a test: expected \"=\" where \"? b\" stands\n"
                 "  text    a ? b\n"
                 "  place   character 3\n"
                 "  hint    write a test like a = b");
  }
}

TEST(Scanner, NumbersThatDoNotFitAreRefused) {
  Scanner scan("99999999999999999999", "a test", "1");
  EXPECT_THROW(scan.integer(), UsageError);
}

TEST(Scanner, AVeryLongTextIsShownInPart) {
  const std::string text(100'000, '?');
  Scanner scan(text, "a test", "1");
  try {
    scan.integer();
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_LT(std::string(error.what()).size(), 500U);
  }
}

}  // namespace text_test
}  // namespace tegula
