#include <array>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tests/composition/train.h"

namespace tegula::composition {
namespace {

constexpr std::array<std::pair<std::string_view, Mutant>, 6> kMutants = {
    {{"skip-tp-reduction", Mutant::SkipTpReduction},
     {"tie-counts-twice", Mutant::TieCountsTwice},
     {"unweighted-mean", Mutant::UnweightedMean},
     {"clip-per-mesh", Mutant::ClipPerMesh},
     {"skip-dp-reduction", Mutant::SkipDpReduction},
     {"drop-micro-batch", Mutant::DropMicroBatch}}};

}  // namespace

Mutant mutant_named(std::string_view name) {
  std::string all;
  for (const auto& [known, mutant] : kMutants) {
    if (known == name) return mutant;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  throw UsageError("there is no mutant of this name").fact("name", in_quotes(name)).hint(all);
}

bool matters(Mutant mutant, const Settings& settings) {
  if (settings.numbers == Numbers::BF16) return false;  // what it rounds away is as large
  switch (mutant) {
    case Mutant::None:
      return false;
    case Mutant::SkipTpReduction:
      // filters of which a rank has none are gathered, and nothing is owed
      return settings.tp > 0 && (settings.net == Net::Transformer || settings.cuts != Cuts::Empty);
    case Mutant::TieCountsTwice:
      return settings.tied;
    case Mutant::UnweightedMean:
      return settings.data_ranks() > 1 && settings.cuts != Cuts::Even;
    case Mutant::ClipPerMesh:
      return settings.clip && (settings.tp > 0 || settings.loss > 0);
    case Mutant::SkipDpReduction:
      return settings.dp > 0 && settings.fsdp == 0;
    case Mutant::DropMicroBatch:
      return settings.accumulate > 1;
  }
  return false;
}

}  // namespace tegula::composition
