// Elements by index where an indexed dim is cut: every rank looks at all indices and reads or
// writes the elements that it has. What is read owes a sum to which one rank contributes each
// element; what is written stays where it is. Indices and what is written travel if they have to,
// the tensor itself does not.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/masks.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"
#include "tegula/spec/views.h"

namespace tegula::inner::families {
namespace {

const DimCut& cut_of(const Payload& payload, std::int64_t dim) {
  return payload.spec().dim_cuts()[static_cast<std::size_t>(dim)];
}

// Whether this rank has one run of elements of every dim, and values that nothing is owed to; the
// same on all ranks of the mesh.
bool has_runs(const Payload* self) {
  if (!self || !holds_values(*self) || !self->coordinate()) return false;
  for (const DimCut& cut : self->spec().dim_cuts()) {
    if (cut.most_intervals() > 1) return false;
  }
  return true;
}

// Indices -----------------------------------------------------------------------------------------

enum class Negative { Refused, CountFromTheEnd };

// Counted from the front. UsageError if one is out of range.
at::Tensor checked(const at::Tensor& indices, std::int64_t extent, Negative negative) {
  const std::int64_t least = negative == Negative::Refused ? 0 : -extent;
  const at::Tensor is_bad = at::logical_or(indices.lt(least), indices.ge(extent));
  if (is_bad.any().item<bool>()) {
    throw UsageError("an index is out of range")
        .fact("index", std::to_string(indices.masked_select(is_bad)[0].item<std::int64_t>()))
        .fact("elements along the dim", std::to_string(extent))
        .hint("indices are " + std::to_string(least) + " ... " + std::to_string(extent - 1));
  }
  return negative == Negative::Refused ? indices
                                       : at::where(indices.lt(0), indices + extent, indices);
}

at::Tensor is_within(const at::Tensor& indices, const Interval& run) {
  return at::logical_and(indices.ge(run.begin), indices.lt(run.end()));
}

// A tensor of indices for some of the dims of a tensor; undefined for the others.
using IndexPerDim = std::vector<at::Tensor>;

IndexPerDim per_dim(const c10::IValue& list, std::int64_t dims) {
  IndexPerDim indices(static_cast<std::size_t>(dims));
  for (std::size_t dim = 0; dim < list.toListRef().size() && dim < indices.size(); ++dim) {
    const c10::IValue& one = list.toListRef()[dim];
    if (one.isTensor()) indices[dim] = one.toTensor();
  }
  return indices;
}

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// Whether there are indices, none of them a mask, and a dim that they look at is cut.
bool look_at_a_cut_dim(const Payload& self, const c10::IValue& list) {
  if (static_cast<std::int64_t>(list.toListRef().size()) > self.spec().ndim()) return false;
  bool found = false;
  const IndexPerDim indices = per_dim(list, self.spec().ndim());
  for (std::size_t dim = 0; dim < indices.size(); ++dim) {
    if (!indices[dim].defined()) continue;
    if (is_mask(indices[dim])) return false;
    found = found || self.spec().dim_cuts()[dim].is_cut();
  }
  return found;
}

// self[indices] as libtorch shapes it: the dims of the indices stand where those that they look at
// do, or in front if these are not neighbours.
class Places {
 public:
  // All indices, whole and plain.
  Places(const Payload& self, IndexPerDim indices) : self_(self), indices_(std::move(indices)) {
    std::vector<at::Tensor> given;
    for (std::size_t dim = 0; dim < indices_.size(); ++dim) {
      if (!indices_[dim].defined()) continue;
      dims_.push_back(dim);
      given.push_back(checked(indices_[dim], self.spec().shape()[dim], Negative::CountFromTheEnd));
    }
    given = at::expand_outplace(given);
    for (std::size_t k = 0; k < dims_.size(); ++k) indices_[dims_[k]] = given[k].to(at::kLong);
    shape_of_indices_ = given.front().sizes().vec();
    const bool are_neighbours = dims_.back() - dims_.front() + 1 == dims_.size();
    first_ = are_neighbours ? static_cast<std::int64_t>(dims_.front()) : 0;
    is_here_ = at::ones(shape_of_indices_, given.front().options().dtype(at::kBool));
    for (const std::size_t dim : dims_) {
      is_here_ = at::logical_and(is_here_, is_within(indices_[dim], run(dim)));
    }
  }

  // How self[indices] is cut where dims that are not indexed are cut as they are; other axes have
  // this placement.
  DTensorSpec spec(const Placement& over_indexed, at::ScalarType type) const {
    DTensorSpec uncut = self_.spec();
    for (const std::size_t dim : dims_) uncut = with_dim_whole(uncut, static_cast<int64_t>(dim));
    std::vector<std::optional<std::int64_t>> to(indices_.size());
    Shape shape(indices_.size() - dims_.size() + shape_of_indices_.size());
    std::copy(shape_of_indices_.begin(), shape_of_indices_.end(), shape.begin() + first_);
    std::int64_t next = 0;
    for (std::size_t dim = 0; dim < to.size(); ++dim) {
      if (indices_[dim].defined()) continue;
      if (next == first_) next += static_cast<std::int64_t>(shape_of_indices_.size());
      shape[static_cast<std::size_t>(next)] = self_.spec().shape()[dim];
      to[dim] = next++;
    }
    const DTensorSpec made = *with_dims_moved(uncut, to, TensorMeta(shape, dtype_of(type)));
    Placements placements = made.placements();
    for (const std::size_t dim : dims_) {
      for (const CutAxis& axis : self_.spec().dim_cuts()[dim].axes()) {
        placements[axis.axis] = over_indexed;
      }
    }
    return {made.mesh(), placements, made.shard_order(), made.meta()};
  }

  // Of what this rank has; zeros for the rest.
  at::Tensor read(const at::Tensor& tile, const DTensorSpec& spec) const {
    const Shape shape = local_shape(spec, *self_.coordinate());
    for (const std::size_t dim : dims_) {
      if (run(dim).size == 0) return at::zeros(shape, tile.options());
    }
    c10::List<std::optional<at::Tensor>> list;
    for (std::size_t dim = 0; dim < indices_.size(); ++dim) {
      list.push_back(
          indices_[dim].defined()
              ? std::optional(
                    (indices_[dim] - run(dim).begin).masked_fill(is_here_.logical_not(), 0))
              : std::nullopt);
    }
    Shape found(shape.size(), 1);
    std::copy(shape_of_indices_.begin(), shape_of_indices_.end(), found.begin() + first_);
    return tile.index(list).masked_fill_(is_here_.logical_not().view(found), 0);
  }

  // `values` are this rank's tile of what is written to self[indices].
  void write(const at::Tensor& tile, const at::Tensor& values, bool accumulate) const {
    const at::Tensor kept = is_here_.reshape({-1}).nonzero().squeeze(1);
    if (kept.numel() == 0) return;
    c10::List<std::optional<at::Tensor>> list;
    for (std::size_t dim = 0; dim < indices_.size(); ++dim) {
      list.push_back(
          indices_[dim].defined()
              ? std::optional(indices_[dim].reshape({-1}).index_select(0, kept) - run(dim).begin)
              : std::nullopt);
    }
    Shape shape = values.sizes().vec();
    const auto begin = shape.begin() + first_;
    shape.erase(begin, begin + static_cast<std::ptrdiff_t>(shape_of_indices_.size()));
    shape.insert(shape.begin() + first_, is_here_.numel());
    tile.index_put_(list, values.reshape(shape).index_select(first_, kept), accumulate);
  }

 private:
  Interval run(std::size_t dim) const {
    return self_.spec().dim_cuts()[dim].intervals(*self_.coordinate()).front();
  }

  const Payload& self_;
  IndexPerDim indices_;            // broadcast together
  std::vector<std::size_t> dims_;  // that have indices
  Shape shape_of_indices_;
  std::int64_t first_ = 0;  // of the dims of the indices
  at::Tensor is_here_;      // per index
};

// Reads -------------------------------------------------------------------------------------------

IndexPerDim whole_indices(const c10::IValue& list, std::int64_t dims) {
  IndexPerDim indices = per_dim(list, dims);
  for (at::Tensor& one : indices) {
    if (one.defined()) one = whole_of(one);
  }
  return indices;
}

at::Tensor read_by_owners(const Payload& self, IndexPerDim indices) {
  const Places places(self, std::move(indices));
  const at::Tensor tile = self.resolved_tile();
  const DTensorSpec spec = places.spec(Partial(ReduceOp::Sum), tile.scalar_type());
  return outer_tensor(places.read(tile, spec), spec, self.world());
}

// One tensor of indices picks rows: these may be cut themselves.
Values index_of_one_dim(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const IndexPerDim indices = per_dim(a[1], self.dim());
  std::int64_t dim = 0;
  while (!indices[static_cast<std::size_t>(dim)].defined()) ++dim;
  const at::Tensor& given = indices[static_cast<std::size_t>(dim)];
  const at::Tensor from_front = at::where(given.lt(0), given + self.size(dim), given);
  std::vector<std::int64_t> shape = self.sizes().vec();
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, given.sizes().begin(), given.sizes().end());
  return {at::index_select(self, dim, from_front.reshape({-1})).reshape(shape)};
}

Values index(Arguments a) {
  const Payload& self = *payload_in(tensor_at(a, 0));
  return {read_by_owners(self, whole_indices(a[1], self.spec().ndim()))};
}

Recipe make_index(const Call& call) {
  const Arguments a = call.arguments();
  const Payload* self = payload_in(tensor_at(a, 0));
  if (Recipe by_mask = index_by_mask(call)) return by_mask;
  if (!is_on_mesh_of(call, self) || !has_runs(self) || !look_at_a_cut_dim(*self, a[1])) {
    return nullptr;
  }
  std::size_t count = 0;
  const at::Tensor* any = nullptr;
  for (const c10::IValue& one : a[1].toListRef()) {
    if (!one.isTensor()) continue;
    ++count;
    any = &one.toTensor();
  }
  return count == 1 && payload_in(*any) ? index_of_one_dim : index;
}

// Places of all elements, counted through, as an index per dim.
IndexPerDim unraveled(const at::Tensor& places, at::IntArrayRef shape) {
  IndexPerDim indices(shape.size());
  at::Tensor rest = places;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    indices[dim] = rest.remainder(shape[dim]);
    rest = rest.div(shape[dim], "floor");
  }
  return indices;
}

Values take(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor places =
      checked(whole_of(tensor_at(a, 1)), self.numel(), Negative::CountFromTheEnd);
  return {read_by_owners(*payload_in(self), unraveled(places, self.sizes()))};
}

bool is_sharded(const Payload* self) { return has_runs(self) && self->spec().is_sharded(); }

Recipe make_take(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (!is_on_mesh_of(call, payload_in(self)) || self.numel() == 0) return nullptr;
  return is_sharded(payload_in(self)) ? take : nullptr;
}

// Writes ------------------------------------------------------------------------------------------

// What is written to: self, or a copy of it.
enum class WriteForm { InPlace, New };

WriteForm form_of(const Call& call) {
  return call.facts().writes ? WriteForm::InPlace : WriteForm::New;
}

// Whether ranks can write to their tiles, or to copies of them. What libtorch says to a write to a
// tensor that overlaps itself, it says of the whole.
bool can_be_written(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (!is_on_mesh_of(call, payload_in(self)) || call.facts().has_out) return false;
  if (!has_runs(payload_in(self))) return false;
  return form_of(call) == WriteForm::New || !overlaps_itself(self);
}

struct Target {
  Target(const at::Tensor& self, WriteForm form)
      : payload(payload_of(self)), outer(form == WriteForm::New ? self.clone() : self) {}
  at::Tensor tile() const { return payload_in(outer)->tile(); }

  PayloadPtr payload;
  at::Tensor outer;
};

// This rank's part of the values, broadcast to what they are written to.
at::Tensor values_for(const at::Tensor& values, const DTensorSpec& spec, const World& world) {
  if (values.sizes() == spec.shape()) {
    const TensorMeta meta(spec.shape(), dtype_of(values.scalar_type()));
    return tile_at(values, spec.with_meta(meta), world);
  }
  const at::Tensor whole = whole_of(values).expand(spec.shape()).contiguous();
  return tile_at(whole, spec, world);
}

template <WriteForm form>
Values index_put(Arguments a) {
  const Target target(tensor_at(a, 0), form);
  const at::Tensor& values = tensor_at(a, 2);
  const Places places(*target.payload, whole_indices(a[1], target.payload->spec().ndim()));
  const DTensorSpec spec = places.spec(Replicate(), values.scalar_type());
  places.write(target.tile(), values_for(values, spec, target.payload->world()), a[3].toBool());
  return {target.outer};
}

// A number where a mask is true.
template <WriteForm form>
Values fill_where(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  at::Tensor mask = a[1].toListRef()[0].toTensor();
  while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
  const at::Tensor value = tensor_at(a, 2).reshape({});
  if (form == WriteForm::New) return {self.masked_fill(mask, value)};
  self.masked_fill_(mask, value);
  return {self};
}

bool is_fill_where(const at::Tensor& self, const c10::IValue& list, const at::Tensor& values) {
  if (list.toListRef().size() != 1 || !list.toListRef()[0].isTensor()) return false;
  const at::Tensor& mask = list.toListRef()[0].toTensor();
  if (mask.scalar_type() != at::kBool || mask.dim() == 0 || values.numel() != 1) return false;
  return mask.dim() <= self.dim() && mask.sizes() == self.sizes().slice(0, mask.dim());
}

Recipe make_index_put(const Call& call) {
  const Arguments a = call.arguments();
  const WriteForm form = form_of(call);
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor& values = tensor_at(a, 2);
  if (self.scalar_type() != values.scalar_type()) return nullptr;
  if (!can_be_written(call)) return nullptr;
  if (!a[3].toBool() && is_fill_where(self, a[1], values)) {
    return form == WriteForm::New ? fill_where<WriteForm::New> : fill_where<WriteForm::InPlace>;
  }
  if (!look_at_a_cut_dim(*payload_in(self), a[1])) return nullptr;
  return form == WriteForm::New ? index_put<WriteForm::New> : index_put<WriteForm::InPlace>;
}

template <WriteForm form>
Values put(Arguments a) {
  const Target target(tensor_at(a, 0), form);
  const at::Tensor& self = target.outer;
  const at::Tensor& source = tensor_at(a, 2);
  const at::Tensor given =
      checked(whole_of(tensor_at(a, 1)), self.numel(), Negative::CountFromTheEnd);
  const Places places(*target.payload, unraveled(given, self.sizes()));
  const at::Tensor values = whole_of(source).reshape(given.sizes());
  places.write(target.tile(), values, a[3].toBool());
  return {self};
}

Recipe make_put(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (!can_be_written(call) || !is_sharded(payload_in(self)) || self.numel() == 0) return nullptr;
  if (tensor_at(a, 1).numel() != tensor_at(a, 2).numel()) return nullptr;
  if (self.scalar_type() != tensor_at(a, 2).scalar_type()) return nullptr;
  return form_of(call) == WriteForm::New ? put<WriteForm::New> : put<WriteForm::InPlace>;
}

// The op that writes, for calls that give a new tensor, too.
c10::OperatorHandle in_place_form(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  if (name.name.ends_with('_')) return op;
  return c10::Dispatcher::singleton().findSchemaOrThrow((name.name + "_").c_str(),
                                                        name.overload_name.c_str());
}

// How others are cut that are as large as self but along this dim, and have that whole.
DTensorSpec beside(const Payload& self, std::int64_t dim, const at::Tensor& other) {
  return with_dim_whole(self.spec(), dim)
      .with_meta(TensorMeta(other.sizes().vec(), dtype_of(other.scalar_type())));
}

// Whether the tensor has self's sizes in all dims that are cut, but for this one.
bool can_be_beside(const Payload& self, std::int64_t dim, const at::Tensor& other) {
  if (other.dim() != self.spec().ndim()) return false;
  for (std::int64_t d = 0; d < other.dim(); ++d) {
    const bool is_as_long = other.size(d) == self.spec().shape()[static_cast<std::size_t>(d)];
    if (d != dim && cut_of(self, d).is_cut() && !is_as_long) return false;
  }
  return true;
}

// Where the dim at argument 1 is cut; none otherwise.
std::optional<std::int64_t> cut_dim(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const Payload* payload = payload_in(self);
  if (!can_be_written(call) || self.dim() == 0) return std::nullopt;
  const std::int64_t dim = at::maybe_wrap_dim(call.arguments()[1].toInt(), self.dim());
  return cut_of(*payload, dim).is_cut() ? std::optional(dim) : std::nullopt;
}

Interval run_of(const Payload& self, std::int64_t dim) {
  return cut_of(self, dim).intervals(*self.coordinate()).front();
}

// (self, dim, index [n], source with n rows or a number, ...): the rows that are here.
Recipe write_rows(const Call& call, Negative negative) {
  const Arguments a = call.arguments();
  const std::optional<std::int64_t> dim = cut_dim(call);
  if (!dim || tensor_at(a, 2).dim() > 1) return nullptr;
  const bool has_rows = a[3].isTensor() && tensor_at(a, 3).dim() > 0;
  const at::Tensor& self = tensor_at(a, 0);
  if (has_rows) {
    const at::Tensor& source = tensor_at(a, 3);
    if (source.dim() != self.dim() || source.scalar_type() != self.scalar_type()) return nullptr;
    for (std::int64_t d = 0; d < self.dim(); ++d) {
      if (source.size(d) != (d == *dim ? tensor_at(a, 2).numel() : self.size(d))) return nullptr;
    }
  } else if (a[3].isTensor() && negative == Negative::Refused) {
    return nullptr;
  }
  return [dim = *dim, negative, has_rows, form = form_of(call),
          op = in_place_form(call.op())](Arguments arguments) -> Values {
    const Target target(tensor_at(arguments, 0), form);
    const Payload& to = *target.payload;
    const Interval run = run_of(to, dim);
    const at::Tensor index = checked(whole_of(tensor_at(arguments, 2)).reshape({-1}),
                                     to.spec().shape()[static_cast<std::size_t>(dim)], negative);
    const at::Tensor kept = is_within(index, run).nonzero().squeeze(1);
    Values stack(arguments.begin(), arguments.end());
    stack[0] = target.tile();
    stack[2] = index.index_select(0, kept) - run.begin;
    if (has_rows) {
      const at::Tensor& source = tensor_at(arguments, 3);
      stack[3] = tile_at(source, beside(to, dim, source), to.world()).index_select(dim, kept);
    } else if (stack[3].isTensor()) {
      stack[3] = whole_of(stack[3].toTensor());
    }
    if (kept.numel() > 0) op.callBoxed(&stack);
    return {target.outer};
  };
}

Recipe write_rows(const Call& call) { return write_rows(call, Negative::Refused); }
Recipe fill_rows(const Call& call) { return write_rows(call, Negative::CountFromTheEnd); }

// (self, dim, index, source or a number, ...): elements that are elsewhere go to a row that is
// taken off again.
Recipe scatter(const Call& call) {
  const Arguments a = call.arguments();
  const std::optional<std::int64_t> dim = cut_dim(call);
  if (!dim) return nullptr;
  const Payload& self = *payload_in(tensor_at(a, 0));
  const bool has_source = a[3].isTensor();
  if (!can_be_beside(self, *dim, tensor_at(a, 2))) return nullptr;
  if (has_source && !can_be_beside(self, *dim, tensor_at(a, 3))) return nullptr;
  return [dim = *dim, has_source, form = form_of(call),
          op = in_place_form(call.op())](Arguments arguments) -> Values {
    const Target target(tensor_at(arguments, 0), form);
    const Payload& to = *target.payload;
    const Interval run = run_of(to, dim);
    const at::Tensor& given = tensor_at(arguments, 2);
    const at::Tensor index =
        checked(tile_at(given, beside(to, dim, given), to.world()),
                to.spec().shape()[static_cast<std::size_t>(dim)], Negative::Refused);
    const at::Tensor tile = target.tile();
    std::vector<std::int64_t> row = tile.sizes().vec();
    row[static_cast<std::size_t>(dim)] = 1;
    const at::Tensor longer = at::cat({tile, at::zeros(row, tile.options())}, dim);
    Values stack(arguments.begin(), arguments.end());
    stack[0] = longer;
    stack[2] = (index - run.begin).masked_fill(is_within(index, run).logical_not(), run.size);
    if (has_source) {
      const at::Tensor& source = tensor_at(arguments, 3);
      stack[3] = tile_at(source, beside(to, dim, source), to.world());
    }
    op.callBoxed(&stack);
    tile.copy_(longer.narrow(dim, 0, run.size));
    return {target.outer};
  };
}

}  // namespace

void owners(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::index.Tensor", make_index},
      {"aten::_unsafe_index.Tensor", make_index},
      {"aten::take", make_take},
      {"aten::index_put", make_index_put},
      {"aten::index_put_", make_index_put},
      {"aten::_index_put_impl_", make_index_put},
      {"aten::_unsafe_index_put", make_index_put},
      {"aten::put", make_put},
      {"aten::put_", make_put},
      {"aten::index_add", write_rows},
      {"aten::index_add_", write_rows},
      {"aten::index_copy", write_rows},
      {"aten::index_copy_", write_rows},
      {"aten::index_reduce", write_rows},
      {"aten::index_reduce_", write_rows},
      {"aten::index_fill.int_Scalar", fill_rows},
      {"aten::index_fill_.int_Scalar", fill_rows},
      {"aten::index_fill.int_Tensor", fill_rows},
      {"aten::index_fill_.int_Tensor", fill_rows},
      {"aten::scatter.src", scatter},
      {"aten::scatter_.src", scatter},
      {"aten::scatter.value", scatter},
      {"aten::scatter_.value", scatter},
      {"aten::scatter.reduce", scatter},
      {"aten::scatter_.reduce", scatter},
      {"aten::scatter.value_reduce", scatter},
      {"aten::scatter_.value_reduce", scatter},
      {"aten::scatter_add", scatter},
      {"aten::scatter_add_", scatter},
      {"aten::scatter_reduce.two", scatter},
      {"aten::scatter_reduce_.two", scatter},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
