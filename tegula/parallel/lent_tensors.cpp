#include "tegula/parallel/lent_tensors.h"

#include <ATen/ATen.h>

#include "tegula/payload/payload.h"

namespace tegula::inner {

LentTensors::~LentTensors() {
  for (Lent& one : lent_) {
    one.tensor.mutable_grad() = at::Tensor();
    one.tensor.set_data(one.as_it_was);
    one.tensor.mutable_grad() = one.grad;
  }
}

void LentTensors::lend(at::Tensor tensor, const at::Tensor& data) {
  lent_.push_back({tensor, tensor.detach(), tensor.grad()});
  tensor.mutable_grad() = at::Tensor();
  if (payload_in(tensor)) {
    set_data_keeping_policies(tensor, data);
  } else {
    tensor.set_data(data);
  }
}

}  // namespace tegula::inner
