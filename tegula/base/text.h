// Printing and reading of our notation. Every value type prints with to_string(value) and reads
// back with its own parse function; both stand on this file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tegula {

// {1, 2, 3} -> "1, 2, 3"
std::string join(const std::vector<std::int64_t>& values);
std::string join(const std::vector<std::string>& texts, std::string_view separator = ", ");
// {1, 2, 3} -> "[1, 2, 3]"
std::string bracketed(const std::vector<std::int64_t>& values);
// "dp" -> "\"dp\""
std::string in_quotes(std::string_view text);
// 1 -> "1 axis", 2 -> "2 axes"
std::string counted(std::int64_t count, std::string_view one, std::string_view many);

// A letter or _, then letters, digits and _.
bool is_identifier(std::string_view text);
// One or more letters, digits and _.:/-
bool is_word(std::string_view text);

// Reads a text from left to right; blanks between tokens do not matter. Whatever does not fit is a
// UsageError that names the expected token and shows the place.
class Scanner {
 public:
  // `what` says what the text is meant to be ("a mesh"), `form` how one is written ("dp=2, tp=4").
  // Both must outlive the scanner.
  Scanner(std::string_view text, std::string_view what, std::string_view form)
      : text_(text), what_(what), form_(form) {}

  // Consumes the token if it comes next.
  bool accept(std::string_view token);
  // As accept, for a word: "on" is not taken from "one".
  bool accept_word(std::string_view word);
  bool next_is(std::string_view token) const;
  bool next_is_integer() const;

  void expect(std::string_view token);
  void expect_word(std::string_view word);
  void expect_end();
  std::int64_t integer();
  std::string identifier();
  // What is_word accepts.
  std::string word();
  // item, item, ... up to `close`, which is consumed; an empty list is fine. `read` reads an item.
  template <class Read>
  void list_until(std::string_view close, Read read) {
    if (accept(close)) return;
    do {
      read();
    } while (accept(","));
    expect(close);
  }
  std::vector<std::int64_t> integers_until(std::string_view close);

  bool at_end() const;
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  std::size_t next() const;  // position of the next character that is no blank

  std::string_view text_;
  std::string_view what_;
  std::string_view form_;
  std::size_t position_ = 0;
};

}  // namespace tegula
