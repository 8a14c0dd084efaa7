#include "tegula/comm/flight_report.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tegula::inner::comm {

void write_flight_report(const shm::Board& board) {
  const char* const name = std::getenv("TEGULA_RECORDER");
  if (name != nullptr && std::string(name) == "off") return;
  const std::string text = board.flight_report();
  std::FILE* const file = name == nullptr || *name == '\0' ? stderr : std::fopen(name, "a");
  if (file == nullptr) return;  // the error itself matters more
  std::fputs(text.c_str(), file);
  file == stderr ? std::fflush(file) : std::fclose(file);
}

}  // namespace tegula::inner::comm
