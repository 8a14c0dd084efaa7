#include "tegula/parallel/alike.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <set>
#include <string_view>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/payload/payload.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

std::int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  const std::string_view bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  Hasher hasher;
  hasher.add_all(dense.sizes()).add(static_cast<std::uint64_t>(dense.scalar_type()));
  hasher.add(std::hash<std::string_view>()(bytes));
  return static_cast<std::int64_t>(hasher.result());
}

Group group_of(const DeviceMesh& root) {
  const std::vector<std::int64_t> ranks = root.ranks();
  return World::of(root).group(std::vector<int>(ranks.begin(), ranks.end()));
}

}  // namespace

std::vector<NamedTensor> named_tensors(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  std::set<c10::TensorImpl*> seen;
  const auto add = [&](const auto& item, bool is_buffer) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      tensors.push_back({item.key(), tensor, is_buffer});
    }
  };
  for (const auto& item : module.named_parameters()) add(item, false);
  for (const auto& item : module.named_buffers()) add(item, true);
  return tensors;
}

void check_alike(const std::vector<NamedTensor>& tensors, const DeviceMesh& mesh) {
  std::vector<NamedTensor> plain;
  std::vector<std::int64_t> hashes;
  for (const NamedTensor& member : tensors) {
    if (is_dtensor(member.tensor) || member.tensor.is_meta()) continue;
    plain.push_back(member);
    hashes.push_back(hash_of(member.tensor));
  }
  const Group group = group_of(mesh);
  const CommLabel label("are parameters alike");
  const at::Tensor counts =
      group.all_gather(at::full({1}, static_cast<std::int64_t>(plain.size()), at::kLong), 0);
  if (!counts.eq(counts[0]).all().item<bool>()) {
    const auto* first = counts.const_data_ptr<std::int64_t>();
    throw UsageError("a module has different parameters on different ranks")
        .fact("counts", bracketed({first, first + counts.numel()}))
        .hint("build the same module on all ranks");
  }
  if (plain.empty()) return;
  const at::Tensor all = group.all_gather(at::tensor(hashes, at::kLong).unsqueeze(0), 0);
  for (std::size_t k = 0; k < plain.size(); ++k) {
    const at::Tensor column = all.select(1, static_cast<std::int64_t>(k));
    const at::Tensor others = column.ne(column[0]).nonzero();
    if (others.numel() == 0) continue;
    const auto other = static_cast<std::size_t>(others[0].item<std::int64_t>());
    throw UsageError("a parameter or buffer differs between ranks")
        .fact("tensor", in_quotes(plain[k].name))
        .fact("ranks",
              std::to_string(group.ranks()[0]) + " and " + std::to_string(group.ranks()[other]))
        .hint(
            "seed all ranks alike before the module is built; distribute_module takes the values "
            "of the first rank");
  }
}

}  // namespace tegula::inner
