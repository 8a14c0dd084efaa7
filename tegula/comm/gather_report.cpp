#include "tegula/comm/gather_report.h"

#include <cstdlib>
#include <sstream>

#include "tegula/base/table.h"

namespace tegula::inner::comm {
namespace {

constexpr const char* kVariable = "TEGULA_REPORT";

// Operators have a namespace in their names; what a user calls has not.
bool is_operator(const std::string& label) { return label.find("::") != std::string::npos; }

bool is_gather(Kind kind) { return kind == Kind::AllGather || kind == Kind::Gather; }

}  // namespace

std::unique_ptr<GatherReport> GatherReport::if_asked_for() {
  const char* value = std::getenv(kVariable);
  if (value == nullptr || std::string_view(value).empty() || std::string_view(value) == "0") {
    return nullptr;
  }
  return std::make_unique<GatherReport>();
}

void GatherReport::add(const CommEntry& entry) {
  if (is_operator(entry.op) && is_gather(entry.kind)) add_to(totals_, entry);
}

std::string GatherReport::to_string() const {
  if (totals_.empty()) return "tegula: no operator gathered its operands\n";
  Table table({"op", "axis", "calls", "bytes"});
  for (const auto& [entry, calls] : by_bytes(totals_)) {
    table.add({entry.op, entry.axis, in_thousands(calls), in_thousands(entry.bytes)});
  }
  std::ostringstream text;
  text << "tegula: operators that gathered their operands, with the bytes that rank 0 gave\n";
  table.print(text);
  return text.str();
}

}  // namespace tegula::inner::comm
