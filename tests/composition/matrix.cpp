#include "tests/composition/matrix.h"

#include <bit>
#include <set>
#include <tuple>
#include <utility>

namespace tegula::composition {
namespace {

using Row = std::vector<int>;
// A value of one column beside a value of a later one.
using Shown = std::pair<std::pair<std::size_t, int>, std::pair<std::size_t, int>>;

std::set<Shown> shown_by(const Row& row) {
  std::set<Shown> shown;
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (std::size_t b = a + 1; b < row.size(); ++b) shown.insert({{a, row[a]}, {b, row[b]}});
  }
  return shown;
}

std::vector<Row> all_rows(const std::vector<int>& levels) {
  std::vector<Row> rows = {{}};
  for (const int level : levels) {
    std::vector<Row> longer;
    for (const Row& row : rows) {
      for (int value = 0; value < level; ++value) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

std::vector<Settings> sets_of_modes() {
  enum : unsigned { kDp = 1, kFsdp = 2, kTp = 4, kSp = 8, kLoss = 16, kAll = 32 };
  std::vector<Settings> sets;
  for (unsigned modes = 0; modes < kAll; ++modes) {
    const int count = std::popcount(modes);
    if (count != 2 && count != 3) continue;
    for (int zero = (modes & kFsdp) != 0 ? 1 : 0; zero <= ((modes & kFsdp) != 0 ? 3 : 0); ++zero) {
      Settings settings;
      settings.dp = (modes & kDp) != 0 ? 2 : 0;
      settings.fsdp = (modes & kFsdp) != 0 ? 2 : 0;
      settings.zero = zero;
      settings.tp = (modes & kTp) != 0 ? 2 : 0;
      settings.sp = (modes & kSp) != 0 ? 2 : 0;
      settings.loss = (modes & kLoss) != 0 ? 2 : 0;
      sets.push_back(settings);
    }
  }
  return sets;
}

Settings with_row(Settings settings, const Row& row) {
  settings.cuts = static_cast<Cuts>(row[0]);
  settings.numbers = static_cast<Numbers>(row[1]);
  settings.tied = row[2] != 0;
  settings.accumulate = row[3] != 0 ? 3 : 1;
  settings.clip = row[4] != 0;
  settings.ranks = static_cast<Ranks>(row[5]);
  if (settings.cuts == Cuts::Empty) {  // 4 of anything over 3 ranks leave nothing for the last
    for (int* size : {&settings.tp, &settings.sp, &settings.loss}) *size = *size > 0 ? 3 : 0;
  }
  return settings;
}

}  // namespace

std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels, std::uint64_t seed) {
  const std::vector<Row> candidates = all_rows(levels);
  std::set<Shown> missing;
  for (const Row& row : candidates) missing.merge(shown_by(row));
  std::vector<Row> chosen;
  while (!missing.empty()) {
    std::size_t most = 0, best = 0;
    for (std::size_t k = 0; k < candidates.size(); ++k) {
      const std::size_t place = (k * 31 + seed * 17 + chosen.size() * 7) % candidates.size();
      std::size_t fresh = 0;
      for (const Shown& pair : shown_by(candidates[place])) fresh += missing.count(pair);
      if (fresh > most) std::tie(most, best) = std::pair(fresh, place);
    }
    for (const Shown& pair : shown_by(candidates[best])) missing.erase(pair);
    chosen.push_back(candidates[best]);
  }
  return chosen;
}

std::vector<Settings> composition_matrix() {
  std::vector<Settings> matrix;
  std::uint64_t seed = 0;
  for (Settings settings : sets_of_modes()) {
    for (const Net net : {Net::Transformer, Net::Convolutions}) {
      settings.net = net;
      for (const Row& row : pairwise_rows({3, 3, 2, 2, 2, 2}, ++seed)) {
        matrix.push_back(with_row(settings, row));
      }
    }
  }
  return matrix;
}

}  // namespace tegula::composition
