// Ranks that go on together or throw together.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tegula/comm/group.h"

namespace tegula::inner {

// The texts of all members, by rank. Two all_gathers.
std::vector<std::string> gather_texts(const Group& group, const std::string& text);
// The same, or one text alone if all members have the same; then only hashes are sent.
std::vector<std::string> gather_unless_same(const Group& group, const std::string& text);
// The root's text; the others' do not matter. Two broadcasts.
std::string broadcast_text(const Group& group, const std::string& text, int root);

// What the first member says that says something.
struct FirstText {
  int rank = 0;
  std::string text;
  bool is_said_by_all = false;
};
// The same on all members; none if the texts of all are empty. An all_reduce, and gather_texts if
// one is not.
std::optional<FirstText> first_text(const Group& group, const std::string& text);

// Throws on all members if one brings an error: that of the first rank that has one, as a
// UsageError with the fact "rank", unless all have the same. What is null is no error.
void throw_together(const Group& group, const std::exception_ptr& error);

// Runs `body` here, then throw_together.
template <class Body>
void together(const Group& group, Body body) {
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  throw_together(group, error);
}

}  // namespace tegula::inner
