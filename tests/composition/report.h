// What the runs of the matrix gave: lines of text, and the table that is made of them.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tests/composition/settings.h"

namespace tegula::composition {

struct Outcome {
  Settings settings;
  double difference = 0;  // from one rank; see train.h
  std::string error;      // what a rank threw, on one line; empty if none did
};

bool is_right(const Outcome& outcome);
std::string to_string(const Outcome& outcome);
// Law: parse_outcome(to_string(o)) has o's settings, and its difference or error.
Outcome parse_outcome(const std::string& line);

// "82 runs, all equal one rank; greatest difference 2.1e-15 in f64, ..."
std::string summary(const std::vector<Outcome>& outcomes);
// docs/composition.md
void write_table(const std::vector<Outcome>& outcomes, std::ostream& out);

}  // namespace tegula::composition
