#include "tegula/comm/shm/flight_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace tegula::inner::shm {
namespace flight_ring_test {

TEST(FlightRing, TellsTheLastCallsTheOldestFirst) {
  const auto ring = std::make_unique<FlightRing>();
  const std::uint64_t barrier = ring->begin(comm::Call(comm::Kind::Barrier), "world", "");
  ring->begin(comm::Call(comm::Kind::Send).tagged(7), "tp", "aten::mm");
  ring->end(barrier);
  const std::string text = ring->to_string(5);
  EXPECT_EQ(text.find("    barrier(), of world, "), 0U) << text;
  EXPECT_NE(text.find(" s ago\n    send"), std::string::npos) << text;
  EXPECT_NE(text.find(", of tp, for aten::mm, "), std::string::npos) << text;
  EXPECT_NE(text.find(" s ago, under way\n"), std::string::npos) << text;
  EXPECT_EQ(ring->to_string(1).find("barrier"), std::string::npos);
}

// Each call has one letter in all its texts. They are read while the ring goes round and round.
TEST(FlightRing, ALineIsOfOneCall) {
  const auto ring = std::make_unique<FlightRing>();
  std::atomic<bool> is_read = false;
  std::thread writer([&] {
    for (int i = 0; !is_read; ++i) {
      const std::string letters(40, static_cast<char>('a' + i % 26));
      ring->begin(comm::Call(comm::Kind::Barrier), letters, letters);
    }
  });
  for (int compared = 0; compared < 20'000;) {
    std::istringstream lines(ring->to_string(FlightRing::kKept));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t group = line.find(", of ") + 5;
      const std::string letters(40, line[group]);
      const std::string want = letters + ", for " + letters + ", ";
      EXPECT_EQ(line.substr(group, want.size()), want) << line;
      compared = HasFailure() ? 20'000 : compared + 1;
    }
  }
  is_read = true;
  writer.join();
}

}  // namespace flight_ring_test
}  // namespace tegula::inner::shm
