// A table of texts, printed in aligned columns.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace tegula {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  // One cell per column of the head.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Columns whose cells below the head are all numbers are aligned to the right.
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// 2048 -> "2,048"
std::string in_thousands(std::int64_t number);

}  // namespace tegula
