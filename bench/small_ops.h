// Single ops on small tensors, for what the way to the kernel costs.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "tegula/tensor/dtensor.h"

namespace tegula::bench {

inline constexpr std::int64_t kSmall = 8;  // rows and columns

// What is cut is cut by dim 0 (rows, images); the others are whole on every rank.
struct Operands {
  at::Tensor x, y, zero, few_zeros, image, columns, classes;  // cut
  at::Tensor weight, bias, kernel, channels, some;
};

// Tensors as one of that many ranks has them.
Operands plain_operands(std::int64_t ranks);
Operands distributed_operands(const DeviceMesh& mesh);

using Op = void (*)(const Operands&);

struct OpCase {
  const char* name;
  Op op;
};

// What models call most; no op needs another rank.
std::span<const OpCase> usual_ops();
// One of each family beside them. On one rank nothing is sent.
std::span<const OpCase> ops_by_family();

}  // namespace tegula::bench
