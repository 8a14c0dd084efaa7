// What a program on DTensors sends.
#pragma once

#include <functional>
#include <string>

#include "tests/tensor/as_plain.h"

namespace tegula {

// Runs the program on tensors of which one after the other is cut along each of its dims, the
// others replicated, forward and with the gradient of the one that is cut, on 2 ranks: no rank may
// send a quarter of the bytes of the largest tensor. Dims are cut from `first_dim` on.
void expect_little_communication(const std::string& name, const Tensors& inputs,
                                 const Program& program, std::int64_t first_dim = 0);

}  // namespace tegula
