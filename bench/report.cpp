#include "bench/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/table.h"

namespace tegula::bench {
namespace {

constexpr const char* kOurs = "tegula";
constexpr const char* kPlain = "plain";

using Value = std::optional<double>;

// Three significant digits.
std::string short_number(const Value& value) {
  if (!value) return "";
  char text[32];
  std::snprintf(text, sizeof text,
                *value >= 100  ? "%.0f"
                : *value >= 10 ? "%.1f"
                : *value >= 1  ? "%.2f"
                               : "%.3f",
                *value);
  return text;
}

// How much more the first is, if it is.
Value excess(const Value& ours, const Value& plain) {
  if (!ours || !plain || *ours <= *plain) return std::nullopt;
  return *ours - *plain;
}

std::string ratio_text(const Value& theirs, const Value& ours) {
  if (!theirs || !ours || *ours <= 0) return "";
  return short_number(*theirs / *ours) + "x";
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
  std::map<std::string, std::string> units;
  std::map<std::pair<std::string, std::string>, double> found;
  for (const Measurement& measurement : measurements) {
    const std::string name = measurement.group + ": " + measurement.name;
    add_once(cases, name);
    add_once(whos, measurement.who);
    units[name] = measurement.unit;
    found[{name, measurement.who}] = measurement.value;
  }
  const auto value_of = [&](const std::string& name, const std::string& who) -> Value {
    const auto one = found.find({name, who});
    if (one == found.end()) return std::nullopt;
    return one->second;
  };
  const bool has_plain = std::find(whos.begin(), whos.end(), kPlain) != whos.end();
  std::vector<std::string> head{"case", "unit"};
  head.insert(head.end(), whos.begin(), whos.end());
  if (has_plain) head.push_back(std::string(kOurs) + "-" + kPlain);
  for (const std::string& who : whos) {
    if (who != kOurs) head.push_back(who + "/" + kOurs);
  }
  Table table(head);
  for (const std::string& name : cases) {
    std::vector<std::string> row{name, units[name]};
    const Value ours = value_of(name, kOurs);
    for (const std::string& who : whos) row.push_back(short_number(value_of(name, who)));
    if (has_plain) row.push_back(short_number(excess(ours, value_of(name, kPlain))));
    for (const std::string& who : whos) {
      if (who != kOurs) row.push_back(ratio_text(value_of(name, who), ours));
    }
    table.add(std::move(row));
  }
  table.print(out);
}

}  // namespace tegula::bench
