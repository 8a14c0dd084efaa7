// What a run of the example was, and its report.
#pragma once

#include <tegula/tegula.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/page.h"

namespace gpt {

// Bytes that a rank holds.
struct RankMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t state = 0;  // of the optimizer
  std::int64_t peak = 0;   // of the process, all that it ever held at a time
};

using NamedSpecs = std::vector<std::pair<std::string, tegula::DTensorSpec>>;

struct Record {
  NamedSpecs parameters;
  tegula::DTensorSpec batch;
  std::vector<double> losses;
  std::vector<double> alone;  // of the first steps, on one rank with plain tensors
  double difference = 0;      // the greatest, relative
  double tolerance = 0;
  double seconds = 0;  // of training
  double tokens = 0;
  std::vector<tegula::CommTotal> communication;  // of rank 0, while it trained
  std::vector<RankMemory> memory;                // by rank
  tegula::MemoryReport expected;                 // the same, from what the specs say
  tegula::MemoryReport expected_alone;           // of the plain model
  std::string sample;
};

report::Page page_of(const Record& record);

}  // namespace gpt
