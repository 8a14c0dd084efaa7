#include "tegula/parallel/alike.h"

#include <ATen/ATen.h>

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

}  // namespace

Group group_of(const DeviceMesh& mesh) {
  const std::vector<std::int64_t> ranks = mesh.ranks();
  return World::of(mesh).group(std::vector<int>(ranks.begin(), ranks.end()));
}

std::vector<StandingMember> each_once(const std::vector<StandingMember>& members) {
  std::vector<StandingMember> once;
  std::set<c10::TensorImpl*> seen;
  for (const StandingMember& member : members) {
    if (seen.insert(member.tensor.unsafeGetTensorImpl()).second) once.push_back(member);
  }
  return once;
}

void check_alike(const std::vector<StandingMember>& members, const DeviceMesh& mesh) {
  std::vector<StandingMember> plain;
  std::vector<std::int64_t> hashes;
  for (const StandingMember& member : each_once(members)) {
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
        .fact("tensor", in_quotes(plain[k].full_name()))
        .fact("ranks",
              std::to_string(group.ranks()[0]) + " and " + std::to_string(group.ranks()[other]))
        .hint(
            "seed all ranks alike before the module is built; distribute_module takes the values "
            "of the first rank");
  }
}

}  // namespace tegula::inner
