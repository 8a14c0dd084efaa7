#include "bench/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/table.h"

namespace tegula::bench {
namespace {

constexpr const char* kOurs = "tegula";

// Three significant digits.
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text,
                value >= 100  ? "%.0f"
                : value >= 10 ? "%.1f"
                : value >= 1  ? "%.2f"
                              : "%.3f",
                value);
  return text;
}

template <class T>
void add_once(std::vector<T>& list, const T& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace

std::string to_json(const Measurement& measurement) {
  nlohmann::ordered_json line;
  line["group"] = measurement.group;
  line["case"] = measurement.name;
  line["who"] = measurement.who;
  line["value"] = measurement.value;
  line["unit"] = measurement.unit;
  return line.dump();
}

Measurement from_json(const std::string& line) {
  try {
    const nlohmann::json value = nlohmann::json::parse(line);
    return {value.at("group"), value.at("case"), value.at("who"), value.at("value"),
            value.at("unit")};
  } catch (const nlohmann::json::exception& error) {
    throw UsageError("a line is no measurement")
        .fact("line", line)
        .fact("why", error.what())
        .hint("one JSON object per line");
  }
}

void print_table(const std::vector<Measurement>& measurements, std::ostream& out) {
  std::vector<std::string> cases;
  std::vector<std::string> whos;
  std::map<std::pair<std::string, std::string>, Measurement> found;
  for (const Measurement& measurement : measurements) {
    const std::string name = measurement.group + ": " + measurement.name;
    add_once(cases, name);
    add_once(whos, measurement.who);
    found[{name, measurement.who}] = measurement;
  }
  std::vector<std::string> head{"case", "unit"};
  head.insert(head.end(), whos.begin(), whos.end());
  for (const std::string& who : whos) {
    if (who != kOurs) head.push_back(who + "/" + kOurs);
  }
  Table table(head);
  for (const std::string& name : cases) {
    std::vector<std::string> row{name, ""};
    std::vector<std::string> ratios;
    const auto ours = found.find({name, kOurs});
    for (const std::string& who : whos) {
      const auto theirs = found.find({name, who});
      row.push_back(theirs == found.end() ? "" : short_number(theirs->second.value));
      if (theirs != found.end()) row[1] = theirs->second.unit;
      if (who == kOurs) continue;
      const bool comparable =
          theirs != found.end() && ours != found.end() && ours->second.value > 0;
      ratios.push_back(comparable ? short_number(theirs->second.value / ours->second.value) + "x"
                                  : "");
    }
    row.insert(row.end(), ratios.begin(), ratios.end());
    table.add(std::move(row));
  }
  table.print(out);
}

}  // namespace tegula::bench
