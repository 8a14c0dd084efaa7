// RuleText: what an operator does to dims, written like an einsum and checked by the compiler.
//
//   "mk * kn -> mn"             a letter is a dim; equal letters are cut alike; a letter that only
//                               operands have is summed over
//   "mn + mk * kn -> mn"        a sum of products: linear in each factor, and in all terms together
//   "... * ~... -> ..."         ~ marks an operand in which the op is not linear; ... are any dims,
//                               aligned from the last one and broadcast
//   "~bhq!d! ... -> bhq!d!"     ! marks a dim that must stay whole
//   "~..., ~() -> ...1"         () is a tensor without dims, 1 a dim of one element
//
// An operand with fewer dims than letters has the last ones; a dim of one element where others have
// more is broadcast, but not a letter of an operand that is multiplied (*): mm of [8, 1] and [6, 4]
// has no meaning. Text that is none of this does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tegula {

// The text, taken apart.
struct RuleForm {
  static constexpr std::size_t kMostTerms = 10;
  static constexpr std::size_t kMostLetters = 8;

  struct Term {
    bool spreads = false;        // begins with ...
    bool is_linear = true;       // not marked ~
    std::size_t product = 0;     // which term of the sum it is a factor of
    bool is_multiplied = false;  // a * stands beside it
    std::size_t count = 0;
    std::array<char, kMostLetters> letters{};  // '1': one element
  };
  std::size_t operand_count = 0;
  std::size_t result_count = 0;
  std::array<Term, kMostTerms> operands{};
  std::array<Term, kMostTerms> results{};
  std::uint32_t whole = 0;  // bit k: the letter 'a' + k stays whole
};

namespace inner::rule_text {

// Reads from the front of the text. Errors are thrown as text: in a constant expression they stop
// the compiler at the line that says what is wrong.
class Reader {
 public:
  constexpr explicit Reader(std::string_view text) : rest_(text) {}

  constexpr RuleForm read() {
    RuleForm form;
    std::size_t product = 0;
    bool follows_star = false;
    do {
      check_room(form.operand_count);
      RuleForm::Term& term = form.operands[form.operand_count++];
      term = read_operand(form);
      term.product = product;
      term.is_multiplied = follows_star;
      follows_star = take("*");
      if (follows_star) {
        term.is_multiplied = true;
      } else if (take("+")) {
        ++product;
      } else if (!take(",")) {
        break;
      }
    } while (true);
    if (!take("->")) throw "a rule says -> between operands and results";
    if (is_done()) return form;
    do {
      check_room(form.result_count);
      form.results[form.result_count++] = read_term(form);
    } while (take(","));
    if (!is_done()) throw "a rule ends after its results";
    check_results(form);
    return form;
  }

 private:
  constexpr void skip_blanks() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  constexpr bool is_done() {
    skip_blanks();
    return rest_.empty();
  }
  constexpr bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  constexpr static void check_room(std::size_t count) {
    if (count == RuleForm::kMostTerms) throw "a rule has too many terms";
  }

  constexpr RuleForm::Term read_operand(RuleForm& form) {
    const bool is_marked = take("~");
    RuleForm::Term term = read_term(form);
    term.is_linear = !is_marked;
    return term;
  }

  constexpr RuleForm::Term read_term(RuleForm& form) {
    RuleForm::Term term;
    if (take("()")) return term;
    term.spreads = take("...");
    while (!rest_.empty() && is_letter(rest_.front())) {
      if (term.count == RuleForm::kMostLetters) throw "a term has too many letters";
      const char letter = rest_.front();
      rest_.remove_prefix(1);
      for (std::size_t k = 0; k < term.count; ++k) {
        if (letter != '1' && term.letters[k] == letter) throw "a letter stands once in a term";
      }
      term.letters[term.count++] = letter;
      if (!rest_.empty() && rest_.front() == '!') {
        if (letter == '1') throw "a dim of one element is whole anyway";
        form.whole |= 1U << static_cast<unsigned>(letter - 'a');
        rest_.remove_prefix(1);
      }
    }
    if (!term.spreads && term.count == 0) throw "a term has letters, ... or ()";
    return term;
  }

  constexpr static bool is_letter(char c) { return c == '1' || (c >= 'a' && c <= 'z'); }

  constexpr static void check_results(const RuleForm& form) {
    for (std::size_t r = 0; r < form.result_count; ++r) {
      for (std::size_t k = 0; k < form.results[r].count; ++k) {
        const char letter = form.results[r].letters[k];
        if (letter != '1' && !stands_in_operands(form, letter))
          throw "a letter of a result stands in an operand";
      }
    }
  }

  constexpr static bool stands_in_operands(const RuleForm& form, char letter) {
    for (std::size_t o = 0; o < form.operand_count; ++o) {
      for (std::size_t k = 0; k < form.operands[o].count; ++k) {
        if (form.operands[o].letters[k] == letter) return true;
      }
    }
    return false;
  }

  std::string_view rest_;
};

}  // namespace inner::rule_text

// The same for a text that is known only when the program runs. UsageError if it is no rule.
RuleForm parse_rule(std::string_view text);

class RuleText {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a rule is written as its text
  consteval RuleText(const char* text)
      : text_(text), form_(inner::rule_text::Reader(text).read()) {}

  constexpr std::string_view text() const { return text_; }
  constexpr const RuleForm& form() const { return form_; }

 private:
  std::string_view text_;
  RuleForm form_;
};

}  // namespace tegula
