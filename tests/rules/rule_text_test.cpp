#include "tegula/rules/rule_text.h"

#include <gtest/gtest.h>

#include <string>

namespace tegula::inner {
namespace rule_text_test {

// All of this is known to the compiler.
constexpr RuleText kProduct = "mn + mk * kn -> mn";
static_assert(kProduct.form().operand_count == 3 && kProduct.form().result_count == 1);
static_assert(kProduct.form().operands[0].product == 0);
static_assert(kProduct.form().operands[1].product == 1 && kProduct.form().operands[2].product == 1);
static_assert(!kProduct.form().operands[0].is_multiplied &&
              kProduct.form().operands[1].is_multiplied);
static_assert(kProduct.form().operands[2].is_multiplied && kProduct.form().operands[2].is_linear);
static_assert(kProduct.form().whole == 0);

constexpr RuleText kMarked = "~...q!d!,~()->...1,d";
static_assert(kMarked.form().operands[0].spreads && !kMarked.form().operands[0].is_linear);
static_assert(kMarked.form().operands[0].count == 2 && kMarked.form().operands[1].count == 0);
static_assert(!kMarked.form().operands[1].spreads && !kMarked.form().operands[0].is_multiplied);
static_assert(kMarked.form().results[0].spreads && kMarked.form().results[0].letters[0] == '1');
static_assert(kMarked.form().whole == (1U << ('q' - 'a') | 1U << ('d' - 'a')));

// What stops the compiler, or "" if nothing does.
std::string complaint_about(const char* text) {
  try {
    rule_text::Reader(text).read();
    return "";
  } catch (const char* complaint) {
    return complaint;
  }
}

TEST(RuleText, KeepsItsText) { EXPECT_EQ(kProduct.text(), "mn + mk * kn -> mn"); }

TEST(RuleText, MayHaveNoResults) {
  EXPECT_EQ(complaint_about("~..., ~... ->"), "");
  EXPECT_EQ(rule_text::Reader("~... ->").read().result_count, 0U);
}

TEST(RuleText, MustHaveAnArrow) {
  EXPECT_EQ(complaint_about("mk * kn"), "a rule says -> between operands and results");
  EXPECT_EQ(complaint_about("mk kn -> mn"), "a rule says -> between operands and results");
}

TEST(RuleText, HasTermsOfLettersDotsOrNothing) {
  EXPECT_EQ(complaint_about("-> mn"), "a term has letters, ... or ()");
  EXPECT_EQ(complaint_about("mk * -> mn"), "a term has letters, ... or ()");
  EXPECT_EQ(complaint_about("MK -> MK"), "a term has letters, ... or ()");
}

TEST(RuleText, HasALetterOncePerTerm) {
  EXPECT_EQ(complaint_about("mm -> m"), "a letter stands once in a term");
  EXPECT_EQ(complaint_about("m11 -> m"), "");
}

TEST(RuleText, TakesLettersOfResultsFromOperands) {
  EXPECT_EQ(complaint_about("mk -> mn"), "a letter of a result stands in an operand");
  EXPECT_EQ(complaint_about("mk -> m1"), "");
}

TEST(RuleText, EndsAfterItsResults) {
  EXPECT_EQ(complaint_about("m -> m + m"), "a rule ends after its results");
}

TEST(RuleText, IsNotLongerThanItsForm) {
  EXPECT_EQ(complaint_about("a,a,a,a,a,a,a,a,a,a -> a"), "");
  EXPECT_EQ(complaint_about("a,a,a,a,a,a,a,a,a,a,a -> a"), "a rule has too many terms");
  EXPECT_EQ(complaint_about("abcdefghi -> a"), "a term has too many letters");
  EXPECT_EQ(complaint_about("a1! -> a"), "a dim of one element is whole anyway");
}

}  // namespace rule_text_test
}  // namespace tegula::inner
