// Parameters that hold something else for a while.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tegula::inner {

// Tensors that hold other data, without gradients, while this stands. Then they are what they were.
class LentTensors {
 public:
  LentTensors() = default;
  LentTensors(LentTensors&&) = default;
  LentTensors& operator=(LentTensors&&) = delete;
  ~LentTensors();

  // A tensor is lent once. The policies of a DTensor go along with DTensors on its mesh.
  void lend(at::Tensor tensor, const at::Tensor& data);

 private:
  struct Lent {
    at::Tensor tensor, as_it_was, grad;
  };
  std::vector<Lent> lent_;
};

}  // namespace tegula::inner
