// How parts that several ranks hold are combined into one value.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tegula {

enum class ReduceOp : std::uint8_t { Sum, Avg, Min, Max, Product, Band, Bor, Bxor };

inline constexpr std::array<ReduceOp, 8> kReduceOps = {
    ReduceOp::Sum,     ReduceOp::Avg,  ReduceOp::Min, ReduceOp::Max,
    ReduceOp::Product, ReduceOp::Band, ReduceOp::Bor, ReduceOp::Bxor};

// "sum", "avg", "min", "max", "product", "band", "bor", "bxor"
std::string_view name_of(ReduceOp op);

// The reverse; an unknown name is a UsageError that lists the known ones.
ReduceOp parse_reduce_op(std::string_view name);

// True if reducing by `a` over one axis and by `b` over another gives the same value in either
// order: equal ops, and sum with avg.
bool commute(ReduceOp a, ReduceOp b);

}  // namespace tegula
