// The idea: all but one part of a debt are drawn by chance, the last is what makes it right. Of an
// owed extremum each element is exact on one rank, which is drawn too.
#include "tegula/testing/parts.h"

#include <ATen/ATen.h>

#include <sstream>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"

namespace tegula {
namespace {

// Large enough to leave the range in which a function happens to be simple.
at::Tensor by_chance(const at::Tensor& like, at::Generator& random) {
  if (at::isIntegralType(like.scalar_type(), /*includeBool=*/false)) {
    return at::randint(-3, 4, like.sizes(), random, like.options());
  }
  return at::randn(like.sizes(), random, like.options()) * 3;
}

using Parts = std::vector<at::Tensor>;

Parts summands(const at::Tensor& whole, std::int64_t ranks, at::Generator& random) {
  Parts parts;
  at::Tensor rest = whole;
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    parts.push_back(by_chance(whole, random));
    rest = rest - parts.back();
  }
  parts.push_back(rest);
  return parts;
}

Parts factors(const at::Tensor& whole, std::int64_t ranks, at::Generator& random) {
  Parts parts;
  at::Tensor rest = whole;
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    parts.push_back(at::rand(whole.sizes(), random, whole.options()) + 0.5);
    rest = rest / parts.back();
  }
  parts.push_back(rest);
  return parts;
}

// `away`: the direction in which the inexact ones lie.
Parts bounded(const at::Tensor& whole, std::int64_t ranks, int away, at::Generator& random) {
  const at::Tensor exact = at::randint(ranks, whole.sizes(), random, at::kLong);
  Parts parts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor off = whole + by_chance(whole, random).abs() * away;
    parts.push_back(at::where(exact.eq(rank), whole, off));
  }
  return parts;
}

Parts owing(const at::Tensor& whole, ReduceOp op, std::int64_t ranks, at::Generator& random) {
  if (whole.scalar_type() != at::kBool) {
    switch (op) {
      case ReduceOp::Sum:
        return summands(whole, ranks, random);
      case ReduceOp::Avg:
        return summands(whole * ranks, ranks, random);
      case ReduceOp::Max:
        return bounded(whole, ranks, -1, random);
      case ReduceOp::Min:
        return bounded(whole, ranks, 1, random);
      case ReduceOp::Product:
        return factors(whole, ranks, random);
      case ReduceOp::Band:
      case ReduceOp::Bor:
      case ReduceOp::Bxor:
        break;
    }
  }
  throw InternalError("no parts can be made for such a debt")
      .fact("reduction", std::string(name_of(op)))
      .fact("elements", c10::toString(whole.scalar_type()));
}

}  // namespace

double rounding_of(at::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case at::kDouble:
      return 1e-9;
    case at::kFloat:
      return 1e-4;
    case at::kHalf:
    case at::kBFloat16:
      return 2e-2;
    default:
      return 0;
  }
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, const Placement& placement,
                                 const DeviceMesh& axis, at::Generator& random) {
  if (const auto op = owed_reduction(placement)) return owing(whole, *op, axis.size(), random);
  const DTensorSpec spec(axis, {placement}, dense(meta_of(whole)));
  Parts parts;
  for (std::int64_t rank = 0; rank < axis.size(); ++rank) {
    parts.push_back(cut_tile(whole, spec, {rank}));
  }
  return parts;
}

std::string fault_of(const std::vector<at::Tensor>& parts, const Placement& placement,
                     const at::Tensor& whole, const DeviceMesh& axis, double tolerance) {
  if (is_replicate(placement)) {
    for (const at::Tensor& part : parts) {
      std::string fault = difference_of(part, whole, tolerance);
      if (!fault.empty()) return fault;
    }
    return "";
  }
  try {
    const DTensorSpec spec(axis, {placement},
                           TensorMeta(whole.sizes().vec(), dtype_of(whole.scalar_type())));
    return difference_of(join_tiles(parts, spec), whole, tolerance);
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string difference_of(const at::Tensor& got, const at::Tensor& want, double tolerance) {
  std::ostringstream out;
  if (got.sizes() != want.sizes()) {
    out << "has sizes " << got.sizes() << ", not " << want.sizes();
  } else if (got.scalar_type() != want.scalar_type()) {
    out << "is of " << got.scalar_type() << ", not of " << want.scalar_type();
  } else if (!at::allclose(got, want, tolerance, tolerance, /*equal_nan=*/true)) {
    out << "is\n" << got << "\nnot\n" << want;
  }
  return out.str();
}

}  // namespace tegula
