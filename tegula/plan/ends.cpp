#include "tegula/plan/ends.h"

#include <array>
#include <vector>

namespace tegula::inner {
namespace {

using Orders = std::array<std::vector<std::uint64_t>, 1U << StateSpace::kMostSlots>;

void list_orders(std::uint32_t waiting, std::uint64_t place, std::uint64_t bits,
                 std::vector<std::uint64_t>& orders) {
  if (waiting == 0) orders.push_back(bits);
  for_each_slot(waiting, [&](std::uint8_t slot) {
    list_orders(waiting & ~(1U << slot), place + 1, bits | place_bits(slot, place), orders);
  });
}

Orders list_orders() {
  Orders orders;
  for (std::uint32_t slots = 0; slots < orders.size(); ++slots) {
    list_orders(slots, 0, 0, orders[slots]);
  }
  return orders;
}

}  // namespace

std::span<const std::uint64_t> orders_of(std::uint32_t slots) {
  static const Orders kOrders = list_orders();
  return kOrders[slots];
}

}  // namespace tegula::inner
