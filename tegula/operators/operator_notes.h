// What a family of operators says about one of them beyond its schema. Everything is empty for an
// operator about which the schema says enough.
#pragma once

#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tegula/operators/arguments.h"
#include "tegula/operators/view_plan.h"

namespace tegula::inner {

class Call;
class OperatorEntry;
struct ViewOfTile;
struct BuiltTensor;

// How a kind of call is carried out where no rule says it, worked out once: a function of the
// arguments of each such call. It may depend on nothing that is not in the call's key (call_key.h).
using Recipe = std::function<Values(Arguments)>;
// Null: not for this kind of call.
using MakeRecipe = Recipe (*)(const Call& call);

// A rank's part of a view, made of its own tile. None: it cannot be made so.
using MakeTileView = std::optional<TileView> (*)(const ViewOfTile& view);

// The row that a view is, where the dim that it goes along is cut. None: it is no row.
using FindRow = std::optional<Row> (*)(const ViewOfTile& view);

// Makes the kernel with the operator's own C++ signature (dispatch/unboxed.h).
using MakeUnboxed = torch::CppFunction (*)(const OperatorEntry& entry);

// Which owed reductions a view passes: those for which the view of what is reduced is the reduction
// of the views.
enum class ViewPasses : std::uint8_t {
  None,
  All,        // elements go elsewhere and stay what they are
  Linear,     // sums and averages
  Conjugate,  // ... and products
  SameType    // all if the element type stays, else none: bits are no numbers to reduce
};

struct OperatorNotes {
  // Ways to carry out a call, in the order in which they are tried -------------------------------

  // The op changes what its tensor is, not its values: runs each time, nothing is decided.
  Values (*change)(const Call& call) = nullptr;

  // A view of a tensor that is cut; null: a link.
  MakeTileView view = nullptr;
  // What a link can know about the view.
  FindRow row = nullptr;
  // ... that owes reductions; those that it does not pass make it a link.
  ViewPasses passes = ViewPasses::None;
  // The view is the tensor itself under another name.
  bool keeps_tile = false;
  // The same view by another op, whose arguments suit tiles better.
  Call (*same_view)(const Call& call) = nullptr;
  // UsageError if the view reads elements that are not where it thinks; depends on more than the
  // key says, so such views are not remembered.
  void (*check_view)(const Call& call) = nullptr;

  // A decomposition: other ops on DTensors, that exchange what has to be exchanged (totals). It
  // runs below autograd; that of an operator which libtorch composes itself, above.
  MakeRecipe decomposition = nullptr;
  // ... here a rule is asked, if there is one ...
  // Work on tiles that needs no other rank.
  MakeRecipe tile_op = nullptr;
  // ... and then the universal path.

  // A tensor made from nothing, under BuildDistributed.
  void (*build)(const Call& call, const BuiltTensor& built) = nullptr;

  MakeUnboxed unboxed = nullptr;

  // What the schema leaves out --------------------------------------------------------------------

  std::vector<std::string> also_written;   // names of arguments
  std::optional<std::size_t> also_viewed;  // an argument that the result is a view of
  bool draws_nothing = false;              // although it is tagged as random
  // The op whose rule holds for the tensors at the same place of all lists: "add.Tensor".
  std::string rule_per_member;
  // A list op that may write tensors which share memory, one member after the other.
  bool writes_in_order = false;
  // It writes values that it has read before: libtorch does not mind if what it writes overlaps
  // itself or what it reads.
  bool may_overlap = false;
  // The result has the operand's values, as far as its element type can say them.
  bool is_copy = false;

  // Of an operator that libtorch composes of others ----------------------------------------------

  // Arguments whose elements the composition reads itself, on the host.
  std::vector<std::size_t> read_on_host;
  // The arguments, some of them placed so that the composition needs no communication. Above
  // autograd.
  Values (*arranged)(const Call& call) = nullptr;
  // It computes through pointers into the data of its tensors: takes these whole.
  bool points_into_data = false;
  // libtorch's own modules pass plain tensors that they made, alike on all ranks.
  bool takes_plain_tensors = false;
  // It makes no tensors of its own and writes nowhere: what it calls meets the kernel soon enough.
  bool stays_composed = false;
};

}  // namespace tegula::inner
