// The scanner holds a position and skips blanks before it looks; every refusal goes through fail().
#include "tegula/base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "tegula/base/error.h"

namespace tegula {
namespace {

constexpr std::size_t kLongestShown = 200;

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_name_character(char c) { return is_letter(c) || is_digit(c); }
bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_word_character(char c) {
  return is_name_character(c) || c == '.' || c == ':' || c == '/' || c == '-';
}

}  // namespace

std::string join(const std::vector<std::string>& texts, std::string_view separator) {
  std::string result;
  for (const std::string& text : texts) {
    if (&text != texts.data()) result += separator;
    result += text;
  }
  return result;
}

std::string join(const std::vector<std::int64_t>& values) {
  std::string result;
  for (const std::int64_t& value : values) {
    if (&value != values.data()) result += ", ";
    result += std::to_string(value);
  }
  return result;
}

std::string bracketed(const std::vector<std::int64_t>& values) { return "[" + join(values) + "]"; }

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + ' ' + std::string(count == 1 ? one : many);
}

bool is_identifier(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_word_character);
}

std::size_t Scanner::next() const {
  std::size_t position = position_;
  while (position < text_.size() && is_blank(text_[position])) ++position;
  return position;
}

bool Scanner::next_is(std::string_view token) const {
  return text_.substr(next()).starts_with(token);
}

bool Scanner::next_is_integer() const {
  const std::string_view rest = text_.substr(next());
  if (rest.empty()) return false;
  return is_digit(rest[0]) || (rest[0] == '-' && rest.size() > 1 && is_digit(rest[1]));
}

bool Scanner::at_end() const { return next() == text_.size(); }

bool Scanner::accept(std::string_view token) {
  if (!next_is(token)) return false;
  position_ = next() + token.size();
  return true;
}

bool Scanner::accept_word(std::string_view word) {
  const std::size_t end = next() + word.size();
  if (!next_is(word) || (end < text_.size() && is_name_character(text_[end]))) return false;
  position_ = end;
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) fail(in_quotes(token));
}

void Scanner::expect_word(std::string_view word) {
  if (!accept_word(word)) fail(in_quotes(word));
}

void Scanner::expect_end() {
  if (!at_end()) fail("the end");
}

std::int64_t Scanner::integer() {
  if (!next_is_integer()) fail("a whole number");
  const std::size_t begin = next();
  std::int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, code] = std::from_chars(text_.data() + begin, end, value);
  if (code != std::errc()) fail("a number of at most 63 bits");
  position_ = static_cast<std::size_t>(stop - text_.data());
  return value;
}

std::string Scanner::identifier() {
  const std::size_t begin = next();
  if (begin == text_.size() || !is_letter(text_[begin])) fail("a name");
  std::size_t end = begin;
  while (end < text_.size() && is_name_character(text_[end])) ++end;
  position_ = end;
  return std::string(text_.substr(begin, end - begin));
}

std::string Scanner::word() {
  const std::size_t begin = next();
  std::size_t end = begin;
  while (end < text_.size() && is_word_character(text_[end])) ++end;
  if (begin == end) fail("a word");
  position_ = end;
  return std::string(text_.substr(begin, end - begin));
}

std::vector<std::int64_t> Scanner::integers_until(std::string_view close) {
  std::vector<std::int64_t> values;
  list_until(close, [&] { values.push_back(integer()); });
  return values;
}

void Scanner::fail(const std::string& expected) const {
  const std::size_t place = next();
  const std::string found =
      place == text_.size() ? "the text ends" : in_quotes(text_.substr(place, 12)) + " stands";
  throw UsageError("cannot read " + std::string(what_) + ": expected " + expected + " where " +
                   found)
      .fact("text", text_.size() > kLongestShown
                        ? std::string(text_.substr(0, kLongestShown)) + " ..."
                        : std::string(text_))
      .fact("place", "character " + std::to_string(place + 1))
      .hint("write " + std::string(what_) + " like " + std::string(form_));
}

}  // namespace tegula
