#include "tegula/spec/interval.h"

#include "tegula/base/text.h"

namespace tegula {

std::string to_string(const Interval& interval) {
  return std::to_string(interval.begin) + ":" + std::to_string(interval.end());
}

std::string to_string(const std::vector<Interval>& intervals) {
  std::vector<std::string> texts;
  for (const Interval& interval : intervals) texts.push_back(to_string(interval));
  return join(texts);
}

}  // namespace tegula
