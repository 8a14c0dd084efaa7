#include "bench/report.h"

#include <algorithm>
#include <cmath>
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
constexpr double kTolerance = 1e-4;  // of a checksum

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
  if (measurement.failure.empty()) {
    line["value"] = measurement.value;
  } else {
    line["value"] = nullptr;
  }
  line["unit"] = measurement.unit;
  if (!measurement.failure.empty()) line["failure"] = measurement.failure;
  return line.dump();
}

Measurement from_json(const std::string& line) {
  try {
    const nlohmann::json value = nlohmann::json::parse(line);
    const bool failed = value.contains("failure");
    return {value.at("group"), value.at("case"),
            value.at("who"),   failed ? 0.0 : value.at("value").get<double>(),
            value.at("unit"),  failed ? value.at("failure").get<std::string>() : ""};
  } catch (const nlohmann::json::exception& error) {
    throw UsageError("a line is no measurement")
        .fact("line", line)
        .fact("why", error.what())
        .hint("one JSON object per line");
  }
}

void compare_checksums(const std::vector<Measurement>& measurements) {
  std::map<std::string, Measurement> first;
  for (const Measurement& one : measurements) {
    if (one.unit != kChecksum) continue;
    const auto [known, is_new] = first.emplace(one.group + ": " + one.name, one);
    const double expected = known->second.value;
    if (is_new || std::abs(one.value - expected) <= kTolerance * std::abs(expected)) continue;
    throw InternalError("two did not do the same work")
        .fact("case", known->first)
        .fact(known->second.who, std::to_string(expected))
        .fact(one.who, std::to_string(one.value));
  }
}

void print_table(const std::vector<Measurement>& measurements, std::ostream& out) {
  std::vector<std::string> cases;
  std::vector<std::string> whos;
  std::map<std::string, std::string> units;
  std::map<std::pair<std::string, std::string>, double> found;
  std::map<std::pair<std::string, std::string>, std::string> failures;
  for (const Measurement& measurement : measurements) {
    if (measurement.unit == kChecksum) continue;
    const std::string name = measurement.group + ": " + measurement.name;
    add_once(cases, name);
    add_once(whos, measurement.who);
    units[name] = measurement.unit;
    if (measurement.failure.empty()) {
      found[{name, measurement.who}] = measurement.value;
    } else {
      failures[{name, measurement.who}] = measurement.failure;
    }
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
    for (const std::string& who : whos) {
      const auto failure = failures.find({name, who});
      row.push_back(failure == failures.end() ? short_number(value_of(name, who))
                                              : failure->second);
    }
    if (has_plain) row.push_back(short_number(excess(ours, value_of(name, kPlain))));
    for (const std::string& who : whos) {
      if (who != kOurs) row.push_back(ratio_text(value_of(name, who), ours));
    }
    table.add(std::move(row));
  }
  table.print(out);
}

}  // namespace tegula::bench
