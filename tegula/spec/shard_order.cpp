// The default order lists axes as the mesh does; any other order is checked against it, entry by
// entry.
#include "tegula/spec/shard_order.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

UsageError order_error(const std::string& sentence, const ShardOrder& order,
                       const Placements& placements) {
  return UsageError(sentence)
      .fact("order", to_string(order))
      .fact("as", to_string(placements))
      .hint("list for each cut dim, by ascending dim, exactly the axes that cut it: " +
            to_string(default_shard_order(placements)) + " is the default");
}

}  // namespace

ShardOrder default_shard_order(const Placements& placements) {
  ShardOrder order;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const Shard* shard = as_shard(placements[axis]);
    if (shard == nullptr) continue;
    auto entry = std::lower_bound(
        order.begin(), order.end(), shard->dim(),
        [](const ShardOrderEntry& one, std::int64_t dim) { return one.dim < dim; });
    if (entry == order.end() || entry->dim != shard->dim()) {
      entry = order.insert(entry, {shard->dim(), {}});
    }
    entry->axes.push_back(axis);
  }
  return order;
}

void check_shard_order(const ShardOrder& order, const Placements& placements) {
  const ShardOrder expected = default_shard_order(placements);
  if (order.size() != expected.size()) {
    throw order_error("the shard order has " +
                          counted(static_cast<std::int64_t>(order.size()), "entry", "entries") +
                          " where the placements cut " +
                          counted(static_cast<std::int64_t>(expected.size()), "dim", "dims"),
                      order, placements);
  }
  for (std::size_t index = 0; index < order.size(); ++index) {
    if (order[index].dim != expected[index].dim) {
      throw order_error("the shard order names dim " + std::to_string(order[index].dim) +
                            " where dim " + std::to_string(expected[index].dim) + " is expected",
                        order, placements);
    }
    std::vector<std::size_t> axes = order[index].axes;
    std::sort(axes.begin(), axes.end());
    if (axes != expected[index].axes) {
      throw order_error("the shard order of dim " + std::to_string(order[index].dim) +
                            " does not list the axes that cut it",
                        order, placements);
    }
  }
}

std::string to_string(const ShardOrder& order) {
  std::vector<std::string> entries;
  for (const ShardOrderEntry& entry : order) {
    const std::vector<std::int64_t> axes(entry.axes.begin(), entry.axes.end());
    entries.push_back(std::to_string(entry.dim) + ": " + bracketed(axes));
  }
  return "{" + join(entries) + "}";
}

ShardOrder parse_shard_order(std::string_view text) {
  Scanner scan(text, "a shard order", "{0: [1, 0], 2: [2]}");
  ShardOrder order;
  scan.expect("{");
  scan.list_until("}", [&] {
    ShardOrderEntry entry;
    entry.dim = scan.integer();
    scan.expect(":");
    scan.expect("[");
    for (std::int64_t axis : scan.integers_until("]")) {
      if (axis < 0) scan.fail("axes that are 0 or more");
      entry.axes.push_back(static_cast<std::size_t>(axis));
    }
    order.push_back(std::move(entry));
  });
  scan.expect_end();
  return order;
}

}  // namespace tegula
