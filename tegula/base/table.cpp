// Columns are as wide as their widest cell; nothing is printed before all rows are known.
#include "tegula/base/table.h"

#include <algorithm>
#include <cctype>
#include <ostream>

namespace tegula {
namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
}

std::string padding(std::size_t width, const std::string& cell) {
  return std::string(width - cell.size(), ' ');
}

}  // namespace

void Table::print(std::ostream& out) const {
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> numeric(columns, true);
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < columns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
      if (&row != rows_.data())
        numeric[column] = numeric[column] && (row[column].empty() || is_number(row[column]));
    }
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < columns; ++column) {
      const std::string pad = padding(widths[column], row[column]);
      line += numeric[column] ? pad + row[column] : row[column] + pad;
      line += "  ";
    }
    out << line.erase(line.find_last_not_of(' ') + 1) << '\n';
  }
}

std::string in_thousands(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace tegula
