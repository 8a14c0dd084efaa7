// Each example asks spec/views.h about its tensor in every placement that one axis of two ranks can
// give it.
#include "tools/tegula/view_rules.h"

#include <algorithm>
#include <ostream>

#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/spec/views.h"

namespace tegula::cli {

using namespace inner;

namespace {

using Dims = std::vector<std::optional<std::int64_t>>;

TensorMeta f32(Shape shape) { return {std::move(shape), DType::F32}; }

ViewExample regrouping(std::string call, Shape before, Shape after) {
  return {std::move(call), f32(std::move(before)),
          [after](const DTensorSpec& spec) { return regrouped(spec, f32(after)); }};
}

// Old dim d becomes dim to[d].
ViewExample moving(std::string call, Shape before, Dims to, Shape after) {
  return {std::move(call), f32(std::move(before)),
          [to, after](const DTensorSpec& spec) { return with_dims_moved(spec, to, f32(after)); }};
}

ViewExample slicing(std::string call, Shape before, DimSlice slice, Shape after) {
  return {std::move(call), f32(std::move(before)),
          [slice, after](const DTensorSpec& spec) { return sliced(spec, slice, f32(after)); }};
}

// A dim of one element that becomes longer: it is cut no more.
ViewExample expanding(std::string call, Shape before, Shape after) {
  return {std::move(call), f32(std::move(before)),
          [after](const DTensorSpec& spec) -> std::optional<DTensorSpec> {
            Dims to;
            const auto added = static_cast<std::int64_t>(after.size()) - spec.ndim();
            for (std::int64_t dim = 0; dim < spec.ndim(); ++dim) {
              const auto place = static_cast<std::size_t>(dim + added);
              const bool grows = spec.shape()[static_cast<std::size_t>(dim)] != after[place];
              to.push_back(grows ? std::nullopt : std::optional(dim + added));
            }
            return with_dims_moved(spec, to, f32(after));
          }};
}

std::vector<ViewRule> make_view_rules() {
  return {
      {{"view", "reshape", "_unsafe_view", "flatten", "unflatten", "ravel", "view_as"},
       "the same elements in other dims, where shards do not mix",
       {regrouping("view(f32[4, 6], size=[24])", {4, 6}, {24}),
        regrouping("view(f32[24], size=[4, 6])", {24}, {4, 6}),
        regrouping("view(f32[4, 6], size=[3, 8])", {4, 6}, {3, 8})}},
      {{"transpose", "t", "swapaxes", "mT"},
       "cuts move along with their dims",
       {moving("transpose(f32[8, 6], dim0=0, dim1=1)", {8, 6}, {1, 0}, {6, 8})}},
      {{"permute", "movedim"},
       "cuts move along with their dims",
       {moving("permute(f32[8, 6, 4], dims=[2, 0, 1])", {8, 6, 4}, {1, 2, 0}, {4, 8, 6})}},
      {{"slice", "narrow", "split", "split_with_sizes", "chunk", "tensor_split"},
       "every shard keeps what it has of the slice",
       {slicing("slice(f32[8, 6], dim=0, start=0, end=5)", {8, 6}, {0, 0, 5, 1}, {5, 6})}},
      {{"select", "unbind"},
       "other cuts stay; the dim that goes away must not be cut",
       {moving("select(f32[8, 6], dim=0, index=3)", {8, 6}, {std::nullopt, 0}, {6})}},
      {{"expand", "expand_as", "broadcast_to"},
       "cuts stay; a dim that grows must not be cut",
       {expanding("expand(f32[1, 6], size=[8, 6])", {1, 6}, {8, 6})}},
      {{"unsqueeze"},
       "cuts move along with their dims",
       {moving("unsqueeze(f32[8, 6], dim=1)", {8, 6}, {0, 2}, {8, 1, 6})}},
      {{"squeeze"},
       "cuts move along with their dims; a dim that goes away must not be cut",
       {moving("squeeze(f32[8, 1, 6], dim=1)", {8, 1, 6}, {0, std::nullopt, 1}, {8, 6})}},
      {{"detach", "alias", "view_as_real"},
       "placed as it is",
       {moving("detach(f32[8, 6])", {8, 6}, {0, 1}, {8, 6})}},
  };
}

// R, every shard, a sum.
Placements placements_of(const TensorMeta& meta) {
  Placements placements{Replicate()};
  for (std::int64_t dim = 0; dim < meta.ndim(); ++dim) placements.emplace_back(Shard(dim));
  placements.emplace_back(Partial());
  return placements;
}

}  // namespace

const std::vector<ViewRule>& view_rules() {
  static const std::vector<ViewRule> rules = make_view_rules();
  return rules;
}

const ViewRule* find_view_rule(const std::string& op) {
  const std::string name = op.substr(0, op.find('.'));
  for (const ViewRule& rule : view_rules()) {
    if (std::find(rule.ops.begin(), rule.ops.end(), name) != rule.ops.end()) return &rule;
  }
  return nullptr;
}

void show_view_rule(const std::string& op, const ViewRule& rule, std::ostream& out) {
  const DeviceMesh mesh({{"axis", 2}});
  out << "op      " << op << "\nview    " << rule.text << '\n';
  for (const ViewExample& example : rule.examples) {
    out << "for     " << example.call << "\n\n";
    Table table({"self", "result"});
    for (const Placement& placement : placements_of(example.self)) {
      const DTensorSpec self(mesh, {placement}, example.self);
      const std::optional<DTensorSpec> view = example.view_of(self);
      table.add({to_string(placement), view ? to_string(view->placements().front())
                                            : "no view of tiles: gathered when it is used"});
    }
    table.print(out);
    if (&example != &rule.examples.back()) out << '\n';
  }
}

}  // namespace tegula::cli
