// Patterns of names: which they match, and which of several counts.
#include "tegula/tensor/name_patterns.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "tests/tensor/as_plain.h"

namespace tegula::inner {
namespace name_patterns_test {

using Names = std::vector<std::vector<std::string>>;

TEST(NamePatterns, AStarStaysWithinAPart) {
  EXPECT_TRUE(matches("layers.*.weight", "layers.0.weight"));
  EXPECT_TRUE(matches("layers.*.weight", "layers.10.weight"));
  EXPECT_FALSE(matches("layers.*.weight", "layers.0.norm.weight"));
  EXPECT_FALSE(matches("layers.*.weight", "layers.weight"));
  EXPECT_TRUE(matches("*", "weight"));
  EXPECT_FALSE(matches("*", "layers.weight"));
  EXPECT_TRUE(matches("lay*s.0.w*", "layers.0.weight"));
  EXPECT_FALSE(matches("*.x", "a.b.x"));
}

TEST(NamePatterns, TwoStarsAreAnyNumberOfParts) {
  EXPECT_TRUE(matches("**.bias", "bias"));
  EXPECT_TRUE(matches("**.bias", "head.bias"));
  EXPECT_TRUE(matches("**.bias", "layers.0.up.bias"));
  EXPECT_FALSE(matches("**.bias", "layers.0.up.unbias"));
  EXPECT_TRUE(matches("layers.**", "layers.0.up.bias"));
  EXPECT_TRUE(matches("layers.**.bias", "layers.bias"));
  EXPECT_TRUE(matches("a.**.b.**.c", "a.b.b.x.c"));
  EXPECT_FALSE(matches("a.**.b.**.c", "a.x.c"));
  EXPECT_TRUE(matches("**", "a.b.c"));
}

TEST(NamePatterns, AQuestionMarkIsOneCharacter) {
  EXPECT_TRUE(matches("layers.?.weight", "layers.7.weight"));
  EXPECT_FALSE(matches("layers.?.weight", "layers.17.weight"));
  EXPECT_FALSE(matches("a?b", "a.b"));
}

TEST(NamePatterns, WholeNamesAreMatched) {
  EXPECT_TRUE(matches("up.weight", "up.weight"));
  EXPECT_FALSE(matches("up", "up.weight"));
  EXPECT_FALSE(matches("weight", "up.weight"));
  EXPECT_FALSE(matches("up.weight", "up.weights"));
  EXPECT_FALSE(matches("", "weight"));
}

// By chance, against the same patterns as regular expressions.
TEST(NamePatterns, MatchAsRegularExpressionsDo) {
  std::mt19937 random(3);
  const auto one_of = [&](const std::vector<std::string>& texts) {
    return texts[random() % texts.size()];
  };
  const auto some_of = [&](const std::vector<std::string>& parts) {
    std::string text = one_of(parts);
    for (std::size_t more = random() % 4; more > 0; --more) text += "." + one_of(parts);
    return text;
  };
  int matched = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string name = some_of({"a", "b", "ab", "ba", "aab"});
    const std::string pattern =
        some_of({"a", "ab", "*", "**", "a*", "*b", "?", "a?", "*a*b", "**"});
    std::string expression = "\\." + pattern;  // a dot before each part makes ** plain
    const auto replace = [&](const std::string& from, const std::string& to) {
      for (std::size_t at = 0; (at = expression.find(from, at)) != std::string::npos;
           at += to.size()) {
        expression.replace(at, from.size(), to);
      }
    };
    for (std::size_t at = 2; (at = expression.find('.', at)) != std::string::npos; at += 2) {
      expression.insert(at, "\\");
    }
    replace("\\.**", "<any>");
    replace("*", "[^.]*");
    replace("?", "[^.]");
    replace("<any>", "(\\.[^.]*)*");
    const bool wanted = std::regex_match("." + name, std::regex(expression));
    EXPECT_EQ(matches(pattern, name), wanted) << pattern << " and " << name;
    matched += wanted ? 1 : 0;
  }
  EXPECT_GT(matched, 100);
}

TEST(NamePatterns, TheLastThatMatchesCounts) {
  const Names names = {{"a.weight"}, {"a.bias"}, {"b.weight"}, {"c"}};
  EXPECT_EQ(last_matches({"*.weight", "a.*", "a.bias"}, names),
            (std::vector<std::optional<std::size_t>>{1, 2, 0, std::nullopt}));
  EXPECT_EQ(last_matches({}, names), std::vector<std::optional<std::size_t>>(4));
}

TEST(NamePatterns, ATensorOfSeveralNamesIsMatchedByEach) {
  const Names names = {{"embed.weight", "head.weight"}, {"up.weight"}};
  EXPECT_EQ(last_matches({"head.*"}, names),
            (std::vector<std::optional<std::size_t>>{0, std::nullopt}));
  EXPECT_EQ(
      last_matches({"head.*", "embed.*", "up.*"}, {{"embed.w", "head.w"}, {"up.w"}, {"head.b"}}),
      (std::vector<std::optional<std::size_t>>{1, 2, 0}));
}

TEST(NamePatterns, OneThatMatchesNothingIsNamedWithTheNearestNames) {
  const Names names = {{"embed.weight"},
                       {"layers.0.up.weight"},
                       {"layers.0.up.bias"},
                       {"layers.1.up.weight"},
                       {"head.weight"}};
  const std::string text = error_of([&] { last_matches({"layer.*.up.weight"}, names); });
  EXPECT_EQ(text,
            "tegula: a pattern matches no parameter or buffer\n"
            "  pattern \"layer.*.up.weight\"\n"
            "  nearest layers.0.up.weight, layers.1.up.weight, layers.0.up.bias\n"
            "  hint    whole names are matched: * stands for any characters up to a dot, ** for "
            "any number of parts");
  EXPECT_TRUE(contains(error_of([&] { last_matches({"haed.weight"}, names); }),
                       "nearest head.weight, embed.weight"));
  EXPECT_TRUE(contains(error_of([&] { last_matches({"*"}, {}); }), "has no parameters or buffers"));
}

TEST(NamePatterns, OneThatLaterOnesHideIsNamed) {
  const std::string text =
      error_of([&] { last_matches({"a.weight", "**"}, {{"a.weight"}, {"b.weight"}}); });
  EXPECT_EQ(text,
            "tegula: a pattern has no effect: later ones match all of its names, too\n"
            "  pattern \"a.weight\"\n"
            "  later   \"**\"\n"
            "  hint    the last pattern that matches a name counts: put exceptions after what "
            "they except");
}

}  // namespace name_patterns_test
}  // namespace tegula::inner
