// What a benchmark run yields, and how it is shown.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tegula::bench {

// `who` did the work of `name` (the case) in `value` units. Equal names mean equal work.
struct Measurement {
  std::string group;
  std::string name;
  std::string who;
  double value = 0;
  std::string unit;
  std::string failure = {};  // "refused" or "wrong": there is no value then
};

// The unit of what says that two did the same work.
inline constexpr const char* kChecksum = "checksum";

// {"group": "core", "case": "local shape", "who": "tegula", "value": 0.02, "unit": "us"}
// {"group": "ops", "case": "sort", "who": "torch-dtensor", "value": null, "unit": "ms",
//  "failure": "refused"}
std::string to_json(const Measurement& measurement);
// The reverse; UsageError if the line is none.
Measurement from_json(const std::string& line);

// InternalError if checksums of one case differ.
void compare_checksums(const std::vector<Measurement>& measurements);

// One row per case (checksums have none), one column per who, what tegula adds to plain, and how
// often tegula's time fits into each other one's.
void print_table(const std::vector<Measurement>& measurements, std::ostream& out);

}  // namespace tegula::bench
