// Mixed precision: forward passes in bf16 or f16, parameters, gradients and state in f32.
//
//   {
//     const Autocast half(at::kBFloat16);
//     loss = model->loss(batch);               // products in bf16, sums and losses in f32
//   }
//   loss.backward();                           // gradients arrive in the parameters' dtype
//
// Of single modules, say it in their forward: `const Autocast full(std::nullopt);` around what is
// to be computed in the dtype that its tensors have.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tegula/bridge/torch_types.h"

namespace tegula {

// While it stands, libtorch's autocast is on for this thread, on plain tensors and DTensors alike,
// in this dtype; std::nullopt: off. Guards may be nested; the innermost counts. Casts are made
// before tensors are moved, so halves travel. A leaf is cast at each use: libtorch's cache of casts
// is off, since it casts under a lock of the process, on which ranks that are threads would wait
// for each other. UsageError: a dtype that is not a half (f16, bf16).
class Autocast {
 public:
  explicit Autocast(std::optional<at::ScalarType> dtype,
                    at::DeviceType device = host_device().type());
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_on_, was_cached_;
  at::ScalarType outer_dtype_;
};

}  // namespace tegula
