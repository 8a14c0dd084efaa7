#include "bench/small_ops.h"

#include <ATen/ATen.h>

namespace tegula::bench {
namespace {

constexpr std::int64_t kImages = 2, kChannels = 3, kChosen = 4;

const OpCase kUsualOps[] = {
    {"add", [](const Operands& in) { at::add(in.x, in.y); }},
    {"mul", [](const Operands& in) { at::mul(in.x, in.y); }},
    {"mul scalar", [](const Operands& in) { at::mul(in.x, 0.5); }},
    {"mm", [](const Operands& in) { at::mm(in.x, in.weight); }},
    {"addmm", [](const Operands& in) { at::addmm(in.bias, in.x, in.weight); }},
    {"relu", [](const Operands& in) { at::relu(in.x); }},
    {"sum", [](const Operands& in) { at::sum(in.x, 1); }},
    {"softmax", [](const Operands& in) { at::softmax(in.x, 1); }},
    {"view", [](const Operands& in) { in.x.view({in.x.size(0), 2, kSmall / 2}); }},
    {"transpose", [](const Operands& in) { at::transpose(in.x, 0, 1); }},
    {"detach", [](const Operands& in) { at::detach(in.x); }},
    {"add_", [](const Operands& in) { in.y.add_(in.zero); }},
    {"layer_norm", [](const Operands& in) { at::layer_norm(in.x, {kSmall}, in.bias, in.bias); }},
    {"cat", [](const Operands& in) { at::cat({in.x, in.y}, 1); }},
    {"copy_", [](const Operands& in) { in.y.copy_(in.x); }},
    {"fill_", [](const Operands& in) { in.y.fill_(0.5); }},
    {"zeros_like", [](const Operands& in) { at::zeros_like(in.x); }},
    {"dropout", [](const Operands& in) { at::native_dropout(in.x, 0.5, true); }},
    {"mean", [](const Operands& in) { at::mean(in.x); }},
    {"mse_loss", [](const Operands& in) { at::mse_loss(in.x, in.y); }},
};

const OpCase kOpsByFamily[] = {
    {"conv2d", [](const Operands& in) { at::conv2d(in.image, in.kernel, in.channels, 1, 1); }},
    {"batch_norm eval",
     [](const Operands& in) {
       at::batch_norm(in.image, in.channels, in.channels, in.channels, in.channels, false, 0.1,
                      1e-5, false);
     }},
    {"max_pool2d", [](const Operands& in) { at::max_pool2d(in.image, 2); }},
    {"gather", [](const Operands& in) { at::gather(in.x, 1, in.columns); }},
    {"index_select", [](const Operands& in) { at::index_select(in.x, 1, in.some); }},
    {"cumsum", [](const Operands& in) { at::cumsum(in.x, 1); }},
    {"sort", [](const Operands& in) { at::sort(in.x, 1); }},
    {"topk", [](const Operands& in) { at::topk(in.x, kChosen, 1); }},
    {"index_add_", [](const Operands& in) { in.y.index_add_(1, in.some, in.few_zeros); }},
    {"scatter_add", [](const Operands& in) { at::scatter_add(in.x, 1, in.columns, in.y); }},
    {"var", [](const Operands& in) { at::var(in.x, 1); }},
    {"argmax", [](const Operands& in) { at::argmax(in.x, 1); }},
    {"flip", [](const Operands& in) { at::flip(in.x, {1}); }},
    {"cross_entropy", [](const Operands& in) { at::cross_entropy_loss(in.x, in.classes); }},
};

at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placement& placement) {
  return distribute_tensor(tensor, mesh, {placement}, kSameOnAllRanks);
}

}  // namespace

Operands plain_operands(std::int64_t ranks) {
  const std::int64_t rows = kSmall / ranks;
  Operands all;
  all.x = at::rand({rows, kSmall});
  all.y = at::rand({rows, kSmall});
  all.zero = at::zeros({rows, kSmall});
  all.few_zeros = at::zeros({rows, kChosen});
  all.image = at::rand({kImages / ranks, kChannels, kSmall, kSmall});
  all.columns = at::randint(kSmall, {rows, kSmall}, at::kLong);
  all.classes = at::randint(kSmall, {rows}, at::kLong);
  all.weight = at::rand({kSmall, kSmall});
  all.bias = at::rand({kSmall});
  all.kernel = at::rand({kChannels, kChannels, 3, 3});
  all.channels = at::rand({kChannels});
  all.some = at::randint(kSmall, {kChosen}, at::kLong);
  return all;
}

Operands distributed_operands(const DeviceMesh& mesh) {
  Operands all = plain_operands(1);
  for (at::Tensor* cut :
       {&all.x, &all.y, &all.zero, &all.few_zeros, &all.image, &all.columns, &all.classes})
    *cut = placed(*cut, mesh, Shard(0));
  for (at::Tensor* whole : {&all.weight, &all.bias, &all.kernel, &all.channels, &all.some})
    *whole = placed(*whole, mesh, Replicate());
  return all;
}

std::span<const OpCase> usual_ops() { return kUsualOps; }
std::span<const OpCase> ops_by_family() { return kOpsByFamily; }

}  // namespace tegula::bench
