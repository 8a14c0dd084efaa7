// Attention, whatever is cut: batches, heads, rows of the query, keys; causal, masked, with heads
// that queries share.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <stdexcept>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace attention_test {

// [b, h, q, d] and [b, h, k, d].
Tensors query_key_value(std::int64_t heads) {
  return {leaf({3, 4, 5, 8}), leaf({3, heads, 6, 8}, 2), leaf({3, heads, 6, 8}, 3)};
}

at::Tensor attend(const Tensors& t, bool is_causal, bool shares_heads = false) {
  const std::optional<at::Tensor> mask = t.size() > 3 ? std::optional(t[3]) : std::nullopt;
  return at::scaled_dot_product_attention(t[0], t[1], t[2], mask, 0.0, is_causal, {}, shares_heads);
}

// A row without any key, and rows of which some keys are hidden.
at::Tensor mask_with_a_hidden_row() {
  const double hidden = -std::numeric_limits<double>::infinity();
  at::Tensor mask = numbers({5, 6}, 7);
  mask.select(0, 1).fill_(hidden);
  mask.select(0, 2).narrow(0, 0, 3).fill_(hidden);
  mask.select(0, 3).narrow(0, 3, 3).fill_(hidden);
  return mask;
}

// Everything cut along one dim, queries and keys by themselves as well.
std::vector<Way> ways_of_attention(const DeviceMesh& mesh, const Tensors& inputs) {
  std::vector<Way> ways;
  for (const std::int64_t query : {0, 1, 2, -1}) {
    for (const std::int64_t key : {1, 2, -1}) {
      const auto along = [&](std::int64_t dim, std::int64_t other) {
        Placements placements(mesh.ndim(), Replicate());
        if (dim >= 0) placements.back() = Shard(dim);
        if (mesh.ndim() > 1 && other >= 0) placements.front() = Shard(other);
        return placements;
      };
      Way way = {along(query, 0), along(key, 0), along(key, 0)};
      if (inputs.size() > 3) way.push_back(along(query == 2 ? 0 : -1, -1));
      ways.push_back(way);
    }
  }
  return ways;
}

void expect_attention_as_plain(const Tensors& inputs, bool is_causal, bool shares_heads = false) {
  expect_as_plain(inputs,
                  [=](const Tensors& t) { return Tensors{attend(t, is_causal, shares_heads)}; },
                  {.ways = ways_of_attention});
}

TEST(Attention, IsAsOnPlainTensorsHoweverItIsCut) {
  expect_attention_as_plain(query_key_value(4), false);
}

TEST(Attention, CausalKnowsWhichRowsATileHolds) {
  expect_attention_as_plain(query_key_value(4), true);
}

TEST(Attention, ARowWithoutKeysGivesZeros) {
  Tensors inputs = query_key_value(4);
  inputs.push_back(mask_with_a_hidden_row());
  expect_attention_as_plain(inputs, false);
}

TEST(Attention, HeadsMayBeShared) {
  expect_attention_as_plain(query_key_value(2), false, true);
  expect_attention_as_plain(query_key_value(2), true, true);
}

TEST(Attention, CutRowsOfTheQueryNeedNoCommunicationAndCutKeysTwoTotals) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  const Tensors plain = query_key_value(4);
  run_impatient(2, [&](const World& world) {
    const DeviceMesh mesh = world.mesh({{"sp", 2}});
    const auto placed = [&](std::size_t index, const Placement& placement) {
      return distribute_tensor(plain[index].detach(), mesh, {placement});
    };
    for (const bool is_causal : {false, true}) {
      CommLog log(world);
      {
        const StrictMode strict;
        const at::Tensor out = attend(
            {placed(0, Shard(2)), placed(1, Replicate()), placed(2, Replicate())}, is_causal);
        if (placements_of(out) != Placements{Shard(2)}) throw std::runtime_error("rows moved");
      }
      if (log.bytes() != 0 && log.entries().back().op != "distribute_tensor") {
        throw std::runtime_error(log.to_string());
      }
      log.clear();
      attend({placed(0, Replicate()), placed(1, Shard(2)), placed(2, Shard(2))}, is_causal);
      const std::int64_t totals = 2 * 3 * 4 * 5 * 8;  // two numbers per row
      std::int64_t bytes = 0;
      for (const CommEntry& entry : log.entries()) {
        if (entry.op != "distribute_tensor") bytes += entry.bytes;
      }
      if (bytes > totals) throw std::runtime_error(log.to_string());
    }
  });
}

}  // namespace attention_test
}  // namespace tegula
