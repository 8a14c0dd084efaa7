// Elements picked and written by index: what the indices point into stays whole, or is looked up
// where it is; all other dims may be cut.
#include <algorithm>

#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Self is linear in what is added to it, or what is written takes its place.
enum class Writes { Adding, Replacing };

void keep_whole(Signature& signature, Factor factor) {
  signature.is_whole[static_cast<std::size_t>(factor)] = true;
}

bool is_mask(const DTensorSpec& spec) {
  const DType dtype = spec.meta().dtype();
  return dtype == DType::Bool || dtype == DType::U8;
}

// By an index per element -------------------------------------------------------------------------

// (self, dim, index, ...) -> like index. Index k along the dim of one row is that of the same row
// of self; the dim itself is looked up.
std::optional<Signature> gather(const OpSchema& schema) {
  const Shape& table = schema.spec(0).shape();
  const Shape& shape = schema.spec(1).shape();
  if (table.empty() || shape.size() != table.size()) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(1), table.size());
  Signature signature;
  const Term index = own_factors(signature, shape);
  Term self{index.factors, table};
  for (std::size_t dim = 0; dim < table.size(); ++dim) {
    if (dim == along) {
      self.factors[dim] = signature.looked_up = signature.add_factor(table[dim]);
    } else if (table[dim] != shape[dim]) {  // the first rows of self only
      keep_whole(signature, index.factors[dim]);
      self.factors[dim] = kNoFactor;
    }
  }
  signature.trait = Trait::Increasing;
  signature.operands = {{.term = self, .is_linear = true}, {index}};
  signature.results = {{index}};
  return signature;
}

// (self, dim, index, src or a number, ...) -> like self
SignatureOf scatter(Writes writes) {
  return [writes](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    const Shape& index_shape = schema.spec(1).shape();
    const bool has_source = schema.tensors.size() == 3;
    const Shape& source_shape = has_source ? schema.spec(2).shape() : index_shape;
    if (shape.empty() || index_shape.size() != shape.size()) return std::nullopt;
    if (source_shape.size() != shape.size()) return std::nullopt;
    const std::size_t along = wrapped_dim(schema.integer(1), shape.size());
    Signature signature;
    const Term index = own_factors(signature, index_shape);
    Term self{index.factors, shape};
    Term source{index.factors, source_shape};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const bool has_all = source_shape[dim] == index_shape[dim];
      const bool is_row = dim != along && has_all && shape[dim] == index_shape[dim];
      const bool is_added = dim == along && has_all && writes == Writes::Adding;
      if (!is_row) self.factors[dim] = kNoFactor;
      if (!has_all) source.factors[dim] = kNoFactor;
      if (!is_row && !is_added) keep_whole(signature, index.factors[dim]);
    }
    const bool is_linear = writes == Writes::Adding;
    signature.operands = {{.term = self, .is_linear = is_linear}, {.term = index, .product = 1}};
    if (has_source) {
      signature.operands.push_back({.term = source, .is_linear = is_linear, .product = 1});
    }
    signature.results = {{self}};
    return signature;
  };
}

// (self, index) -> like index; self is seen as a row of elements.
std::optional<Signature> take(const OpSchema& schema) {
  Signature signature;
  const Shape& shape = schema.spec(0).shape();
  const Term index = own_factors(signature, schema.spec(1).shape());
  signature.trait = Trait::Increasing;
  signature.operands = {
      {.term = {std::vector<Factor>(shape.size(), kNoFactor), shape}, .is_linear = true}, {index}};
  signature.results = {{index}};
  return signature;
}

// (self, index, source, accumulate) -> like self
std::optional<Signature> put(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (!schema.flag(3) || schema.spec(1).shape() != schema.spec(2).shape()) return std::nullopt;
  Signature signature;
  const Term index = own_factors(signature, schema.spec(1).shape());
  const Term self{std::vector<Factor>(shape.size(), kNoFactor), shape};
  signature.operands = {{.term = self, .is_linear = true},
                        {.term = index, .product = 1},
                        {.term = index, .is_linear = true, .product = 1}};
  signature.results = {{self}};
  return signature;
}

// By an index per row -----------------------------------------------------------------------------

// (self, dim, index [n]) -> self with n rows
std::optional<Signature> index_select(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (shape.empty() || schema.spec(1).ndim() > 1) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(1), shape.size());
  Signature signature;
  const Term self = own_factors(signature, shape);
  const Term index = own_factors(signature, schema.spec(1).shape());
  Term result = self;
  result.factors[along] = index.factors.empty() ? kNoFactor : index.factors[0];
  result.sizes[along] = index.sizes.empty() ? 1 : index.sizes[0];
  signature.looked_up = self.factors[along];
  signature.trait = Trait::Increasing;
  signature.operands = {{.term = self, .is_linear = true}, {index}};
  signature.results = {{result}};
  return signature;
}

// (self, dim, index [n], source with n rows, ...) -> like self
SignatureOf into_rows(Writes writes) {
  return [writes](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    const Shape& source_shape = schema.spec(2).shape();
    if (shape.empty() || source_shape.size() != shape.size()) return std::nullopt;
    const std::size_t along = wrapped_dim(schema.integer(1), shape.size());
    if (schema.spec(1).shape() != Shape{source_shape[along]}) return std::nullopt;
    Signature signature;
    Term self = own_factors(signature, shape);
    Term source{self.factors, source_shape};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (dim != along && shape[dim] != source_shape[dim]) return std::nullopt;
    }
    keep_whole(signature, self.factors[along]);
    source.factors[along] = signature.add_factor(source_shape[along]);
    if (writes == Writes::Replacing) keep_whole(signature, source.factors[along]);
    const Term index{{source.factors[along]}, {source_shape[along]}};
    const bool is_linear = writes == Writes::Adding;
    signature.operands = {{.term = self, .is_linear = is_linear},
                          {.term = index, .product = 1},
                          {.term = source, .is_linear = is_linear, .product = 1}};
    signature.results = {{self}};
    return signature;
  };
}

// (self, dim, index [n], value) -> like self
std::optional<Signature> index_fill(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (shape.empty() || schema.spec(1).ndim() > 1) return std::nullopt;
  Signature signature;
  const Term self = own_factors(signature, shape);
  keep_whole(signature, self.factors[wrapped_dim(schema.integer(1), shape.size())]);
  const Shape& rows = schema.spec(1).shape();
  signature.operands = {{self}, {{std::vector<Factor>(rows.size(), kNoFactor), rows}}};
  if (schema.tensors.size() == 3) {
    if (schema.spec(2).ndim() != 0) return std::nullopt;
    signature.operands.push_back({Term{}});
  }
  signature.results = {{self}};
  return signature;
}

// By a tensor of indices for some dims ------------------------------------------------------------

// The dims of self[indices]: those of the indices, broadcast, stand where the indexed dims do, or
// in front if these are not neighbours.
struct Indexed {
  Term self;
  std::vector<Term> indices;
  Term result;
  std::vector<Factor> looked_at;  // the dims of the indices
};

// None for masks, whose number of elements decides the shape, and for indices that do not fit.
std::optional<Indexed> indexed(Signature& signature, const OpSchema& schema) {
  const argument::TensorList list = schema.list(1);
  const Shape& shape = schema.spec(0).shape();
  if (list.count == 0) return std::nullopt;
  Shape broadcast;
  for (std::size_t k = 0; k < list.count; ++k) {
    if (!schema.has(list.first + k) || is_mask(schema.spec(list.first + k))) return std::nullopt;
    const Shape& one = schema.spec(list.first + k).shape();
    if (one.size() > broadcast.size()) {
      broadcast.insert(broadcast.begin(), one.size() - broadcast.size(), 1);
    }
    const std::size_t missing = broadcast.size() - one.size();
    for (std::size_t dim = 0; dim < one.size(); ++dim) {
      std::int64_t& size = broadcast[missing + dim];
      if (size == 1) size = one[dim];
      if (one[dim] != 1 && one[dim] != size) return std::nullopt;
    }
  }
  Indexed made;
  made.self = own_factors(signature, shape);
  const Term places = own_factors(signature, broadcast);
  made.looked_at = places.factors;
  for (std::size_t k = 0; k < list.count; ++k) {
    Term term{{}, schema.spec(list.first + k).shape()};
    const std::size_t missing = broadcast.size() - term.sizes.size();
    for (std::size_t dim = 0; dim < term.sizes.size(); ++dim) {
      const bool is_whole_dim = term.sizes[dim] == broadcast[missing + dim];
      term.factors.push_back(is_whole_dim ? places.factors[missing + dim] : kNoFactor);
    }
    made.indices.push_back(std::move(term));
    const std::size_t dim = list.place(k);
    if (dim >= shape.size()) return std::nullopt;
    keep_whole(signature, made.self.factors[dim]);
  }
  const std::size_t first = list.place(0);
  const bool are_neighbours = list.place(list.count - 1) - first + 1 == list.count;
  const auto add = [&](const Term& term, std::size_t begin, std::size_t end) {
    for (std::size_t dim = begin; dim < end; ++dim) {
      made.result.factors.push_back(term.factors[dim]);
      made.result.sizes.push_back(term.sizes[dim]);
    }
  };
  if (are_neighbours) add(made.self, 0, first);
  add(places, 0, broadcast.size());
  for (std::size_t dim = are_neighbours ? first : 0; dim < shape.size(); ++dim) {
    if (!signature.is_whole[static_cast<std::size_t>(made.self.factors[dim])]) {
      add(made.self, dim, dim + 1);
    }
  }
  return made;
}

// (self, indices) -> self[indices]
std::optional<Signature> index(const OpSchema& schema) {
  Signature signature;
  const std::optional<Indexed> made = indexed(signature, schema);
  if (!made) return std::nullopt;
  signature.trait = Trait::Increasing;
  signature.operands = {{.term = made->self, .is_linear = true}};
  for (const Term& term : made->indices) signature.operands.push_back({term});
  signature.results = {{made->result}};
  return signature;
}

// (self, indices, values, accumulate, ...) -> like self. Values are broadcast to self[indices].
std::optional<Signature> index_put(const OpSchema& schema) {
  Signature signature;
  const std::optional<Indexed> made = indexed(signature, schema);
  if (!made) return std::nullopt;
  const bool adds = schema.flag(3);
  if (!adds) {
    for (Factor factor : made->looked_at) keep_whole(signature, factor);
  }
  const Term& into = made->result;
  Term values{{}, schema.spec(schema.tensor(2)).shape()};
  if (values.sizes.size() > into.sizes.size()) return std::nullopt;
  const std::size_t missing = into.sizes.size() - values.sizes.size();
  for (std::size_t dim = 0; dim < values.sizes.size(); ++dim) {
    const bool is_whole_dim = values.sizes[dim] == into.sizes[missing + dim];
    if (!is_whole_dim && values.sizes[dim] != 1) return std::nullopt;
    values.factors.push_back(is_whole_dim ? into.factors[missing + dim] : kNoFactor);
  }
  signature.operands = {{.term = made->self, .is_linear = adds}};
  for (const Term& term : made->indices) signature.operands.push_back({.term = term, .product = 1});
  signature.operands.push_back({.term = values, .is_linear = adds, .product = 1});
  signature.results = {{made->self}};
  return signature;
}

// Parts of matrices -------------------------------------------------------------------------------

// Dims of a tensor of which two make matrices: those two, in the order in which the call names
// them.
struct MatrixDims {
  MatrixDims(std::int64_t one, std::int64_t other, std::size_t dims)
      : first(wrapped_dim(one, dims)), second(wrapped_dim(other, dims)) {}
  bool has(std::size_t dim) const { return dim == first || dim == second; }
  std::size_t first;
  std::size_t second;
};

// A tensor's dims, two of them whole; and those of a diagonal of these: the others, then its own.
struct WithDiagonal {
  Term matrices;
  Term diagonal;
};

WithDiagonal with_diagonal(Signature& signature, const Shape& shape, const MatrixDims& dims,
                           std::int64_t length) {
  WithDiagonal made;
  made.matrices.sizes = shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    made.matrices.factors.push_back(dims.has(dim) ? kNoFactor : signature.add_factor(shape[dim]));
    if (dims.has(dim)) continue;
    made.diagonal.factors.push_back(made.matrices.factors.back());
    made.diagonal.sizes.push_back(shape[dim]);
  }
  made.diagonal.factors.push_back(kNoFactor);
  made.diagonal.sizes.push_back(length);
  return made;
}

// (self [..., n], offset, dim1, dim2) -> [... n ... n]
std::optional<Signature> diag_embed(const OpSchema& schema) {
  const Shape& diagonals = schema.spec(0).shape();
  if (diagonals.empty()) return std::nullopt;
  const MatrixDims dims(schema.integer(2), schema.integer(3), diagonals.size() + 1);
  if (dims.first == dims.second) return std::nullopt;
  Shape shape(diagonals.size() + 1);
  const std::int64_t size = diagonals.back() + std::abs(schema.integer(1));
  std::size_t next = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    shape[dim] = dims.has(dim) ? size : diagonals[next++];
  }
  Signature signature;
  const WithDiagonal made = with_diagonal(signature, shape, dims, diagonals.back());
  signature.operands = {{.term = made.diagonal, .is_linear = true}};
  signature.results = {{made.matrices}};
  return signature;
}

// (grad, input sizes, offset, dim1, dim2) -> of these sizes
std::optional<Signature> diagonal_backward(const OpSchema& schema) {
  const Ints& shape = schema.ints(1);
  const MatrixDims dims(schema.integer(3), schema.integer(4), shape.size());
  const Shape& grad = schema.spec(0).shape();
  if (dims.first == dims.second || grad.size() + 1 != shape.size()) return std::nullopt;
  Signature signature;
  const WithDiagonal made = with_diagonal(signature, shape, dims, grad.back());
  if (made.diagonal.sizes != grad) return std::nullopt;
  signature.operands = {{.term = made.diagonal, .is_linear = true}};
  signature.results = {{made.matrices}};
  signature.size_arguments = {{1, made.matrices}};
  return signature;
}

// (self, src, offset, dim1, dim2) -> like self
std::optional<Signature> diagonal_scatter(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  const Shape& source = schema.spec(1).shape();
  if (shape.size() < 2 || source.size() + 1 != shape.size()) return std::nullopt;
  const MatrixDims dims(schema.integer(3), schema.integer(4), shape.size());
  if (dims.first == dims.second) return std::nullopt;
  Signature signature;
  const WithDiagonal made = with_diagonal(signature, shape, dims, source.back());
  if (made.diagonal.sizes != source) return std::nullopt;
  signature.operands = {{.term = made.matrices, .is_linear = true},
                        {.term = made.diagonal, .is_linear = true, .product = 1}};
  signature.results = {{made.matrices}};
  return signature;
}

// Parts of a dim ----------------------------------------------------------------------------------

// (self, src, dim, ...) -> like self; src takes the place of a slice, which has the dim, or of a
// single element, which has not.
enum class Part { Slice, Element };

SignatureOf into_part(Part part) {
  return [part](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    if (shape.empty()) return std::nullopt;
    const std::size_t along = wrapped_dim(schema.integer(2), shape.size());
    Signature signature;
    const Term self = own_factors(signature, shape);
    keep_whole(signature, self.factors[along]);
    Term source = self;
    const auto place = static_cast<std::ptrdiff_t>(along);
    if (part == Part::Element) {
      source.factors.erase(source.factors.begin() + place);
      source.sizes.erase(source.sizes.begin() + place);
    } else if (schema.spec(1).ndim() == schema.spec(0).ndim()) {
      source.factors[along] = kNoFactor;
      source.sizes[along] = schema.spec(1).shape()[along];
    }
    if (source.sizes != schema.spec(1).shape()) return std::nullopt;
    signature.operands = {{.term = self, .is_linear = true},
                          {.term = source, .is_linear = true, .product = 1}};
    signature.results = {{self}};
    return signature;
  };
}

// (grad, input sizes, dim, size, step) -> of these sizes
std::optional<Signature> unfold_backward(const OpSchema& schema) {
  const Ints& shape = schema.ints(1);
  const Shape& grad = schema.spec(0).shape();
  if (shape.empty() || grad.size() != shape.size() + 1) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(2), shape.size());
  Signature signature;
  Term result = own_factors(signature, shape);
  keep_whole(signature, result.factors[along]);
  Term windows{result.factors, grad};
  windows.factors[along] = kNoFactor;
  windows.factors.push_back(kNoFactor);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dim != along && grad[dim] != shape[dim]) return std::nullopt;
  }
  signature.operands = {{.term = windows, .is_linear = true}};
  signature.results = {{result}};
  signature.size_arguments = {{1, result}};
  return signature;
}

// (self, repeats) -> each dim so many times; new dims in front
std::optional<Signature> repeat(const OpSchema& schema) {
  const Ints& repeats = schema.ints(1);
  const Shape& shape = schema.spec(0).shape();
  if (repeats.size() < shape.size()) return std::nullopt;
  const std::size_t added = repeats.size() - shape.size();
  Signature signature;
  const Term self = own_factors(signature, shape);
  Term result;
  for (std::size_t dim = 0; dim < repeats.size(); ++dim) {
    const std::int64_t size = dim < added ? 1 : shape[dim - added];
    const bool is_once = dim >= added && repeats[dim] == 1;
    result.factors.push_back(is_once ? self.factors[dim - added] : kNoFactor);
    result.sizes.push_back(size * repeats[dim]);
    if (!is_once && dim >= added) keep_whole(signature, self.factors[dim - added]);
  }
  signature.trait = Trait::Increasing;
  signature.operands = {{.term = self, .is_linear = true}};
  signature.results = {{result}};
  return signature;
}

// Elements that move along the dims at an argument; along all if the list is empty.
SignatureOf moved_along(std::size_t dims) {
  return [dims](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    const Ints& along = schema.ints(dims);
    Signature signature;
    const Term self = own_factors(signature, shape);
    for (std::int64_t dim : along) {
      if (!shape.empty()) keep_whole(signature, self.factors[wrapped_dim(dim, shape.size())]);
    }
    signature.trait = Trait::Increasing;
    signature.operands = {{.term = self, .is_linear = true}};
    signature.results = {{self, ResultLayout::LikeOperands}};
    return signature;
  };
}

// A roll without dims takes all elements as one row.
std::optional<Signature> roll(const OpSchema& schema) {
  if (schema.ints(2).empty()) return std::nullopt;
  return moved_along(2)(schema);
}

}  // namespace

void add_indexing(RuleTable& rules) {
  const char* const rows = "f32[8, 6], dim=0, i64[4], f32[4, 6]";
  const char* const elements = "f32[8, 6], dim=0, i64[4, 6], f32[4, 6]";
  rules.add("gather", "elements by index", gather, "f32[8, 6], dim=1, i64[8, 4]");
  rules.add("take", "elements of all by index", take, "f32[8, 6], i64[4]");
  for (const char* op : {"scatter.src", "scatter.reduce", "scatter_reduce.two"}) {
    rules.add(op, "elements into places", scatter(Writes::Replacing), elements);
  }
  for (const char* op : {"scatter.value", "scatter.value_reduce"}) {
    rules.add(op, "a number into places", scatter(Writes::Replacing),
              "f32[8, 6], dim=0, i64[4, 6], 1");
  }
  rules.add("scatter_add", "elements added in places", scatter(Writes::Adding), elements);
  rules.add("put", "elements added in places of all", put,
            "f32[8, 6], i64[4], f32[4], accumulate=true");

  rules.add("index_select", "rows by index", index_select, "f32[8, 6], dim=0, i64[4]");
  rules.add("index_add", "rows added in places", into_rows(Writes::Adding), rows);
  for (const char* op : {"index_copy", "index_reduce"}) {
    rules.add(op, "rows into places", into_rows(Writes::Replacing), rows);
  }
  rules.add("index_fill.int_Scalar", "a number into rows", index_fill,
            "f32[8, 6], dim=0, i64[4], 1");
  rules.add("index_fill.int_Tensor", "a number into rows", index_fill,
            "f32[8, 6], dim=0, i64[4], f32[]");

  for (const char* op : {"index.Tensor", "_unsafe_index.Tensor"}) {
    rules.add(op, "by indices for some dims", index, "f32[8, 6], [i64[4]]");
  }
  for (const char* op : {"index_put", "_unsafe_index_put"}) {
    rules.add(op, "into places given by indices for some dims", index_put,
              "f32[8, 6], [i64[4]], f32[4, 6], accumulate=true");
  }
  rules.add("_index_put_impl", "into places given by indices for some dims", index_put,
            "f32[8, 6], [i64[4]], f32[4, 6], accumulate=true, unsafe=false");

  rules.add_all("triu tril", "...m!n! -> ...mn");
  rules.add("diag_embed", "diagonals of new matrices", diag_embed,
            "f32[8, 6], offset=0, dim1=-2, dim2=-1");
  rules.add("diagonal_backward", "diagonals put into zeros", diagonal_backward,
            "f32[8, 4], input_sizes=[8, 4, 6], offset=0, dim1=1, dim2=2");
  rules.add("diagonal_scatter", "diagonals put into matrices", diagonal_scatter,
            "f32[8, 4, 6], f32[8, 4], offset=0, dim1=1, dim2=2");

  rules.add("slice_scatter", "a slice put into its place", into_part(Part::Slice),
            "f32[8, 6], f32[8, 2], dim=1, start=2, end=4, step=1");
  rules.add("select_scatter", "an element put into its place", into_part(Part::Element),
            "f32[8, 6], f32[8], dim=1, index=2");
  rules.add("unfold_backward", "windows added up", unfold_backward,
            "f32[8, 2, 3], input_sizes=[8, 6], dim=1, size=3, step=3");
  rules.add("repeat", "dims that are not repeated stay cut", repeat, "f32[8, 6], repeats=[1, 2]");
  rules.add("flip", "turned around within dims", moved_along(1), "f32[8, 6], dims=[1]");
  rules.add("roll", "shifted within dims", roll, "f32[8, 6], shifts=[2], dims=[1]");
}

}  // namespace tegula::inner::families
