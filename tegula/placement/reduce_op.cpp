// A switch over all reductions; the names are read back by trying each.
#include "tegula/placement/reduce_op.h"

#include <string>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Avg:
      return "avg";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
    case ReduceOp::Product:
      return "product";
    case ReduceOp::Band:
      return "band";
    case ReduceOp::Bor:
      return "bor";
    case ReduceOp::Bxor:
      return "bxor";
  }
  throw InternalError("a ReduceOp has a value outside of its enum");
}

ReduceOp parse_reduce_op(std::string_view name) {
  std::vector<std::string> known;
  for (ReduceOp op : kReduceOps) {
    if (name_of(op) == name) return op;
    known.emplace_back(name_of(op));
  }
  throw UsageError("unknown reduction " + in_quotes(name)).hint("use one of " + join(known));
}

bool commute(ReduceOp a, ReduceOp b) {
  const auto is_linear = [](ReduceOp op) { return op == ReduceOp::Sum || op == ReduceOp::Avg; };
  return a == b || (is_linear(a) && is_linear(b));
}

}  // namespace tegula
