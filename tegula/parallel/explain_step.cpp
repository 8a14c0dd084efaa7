// The idea: a mesh of "meta" over a fake world runs shapes, so the step itself says what it would
// send. Parameters lend their places to imagined ones for as long as it takes.
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>

#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/parallel/alike.h"
#include "tegula/parallel/lent_tensors.h"
#include "tegula/parallel/members.h"
#include "tegula/tensor/factories.h"

namespace tegula {

using namespace inner;

namespace {

// The same axes over an imagined world, seen by the first rank of the mesh.
DeviceMesh imagined_mesh(const DeviceMesh& root) {
  const std::vector<std::int64_t> ranks = root.ranks();
  const std::int64_t last = *std::max_element(ranks.begin(), ranks.end());
  const World world = World::fake(static_cast<int>(last) + 1, static_cast<int>(ranks.front()));
  std::vector<MeshAxis> axes;
  for (const MeshAxis& axis : root.axes()) axes.push_back({axis.name, axis.size});
  return world.mesh(DeviceMesh(axes, ranks, "meta"));
}

// Members as DTensors on the imagined mesh: those that are DTensors placed as they are, with their
// policies, others replicated.
LentTensors lent_to(const DeviceMesh& mesh, const std::vector<StandingMember>& members) {
  LentTensors lent;
  for (const StandingMember& member : each_once(members)) {
    const at::Tensor& tensor = member.tensor;
    const Placements placements =
        is_dtensor(tensor) ? placements_of(tensor) : Placements(mesh.ndim(), Replicate());
    lent.lend(tensor, empty(tensor.sizes().vec(), mesh, placements,
                            at::TensorOptions(tensor.scalar_type())));
  }
  return lent;
}

std::string kind_of_call(const CommEntry& entry) {
  std::string kind(name_of(entry.kind));
  std::ranges::replace(kind, '_', '-');
  if (entry.reduction) kind += ' ' + std::string(name_of(*entry.reduction));
  return kind;
}

std::string table_of(const std::vector<CommEntry>& entries) {
  std::vector<CommTotal> totals;
  CommTotal all;
  for (CommEntry entry : entries) {
    entry.op.clear();  // by kind and axis alone
    add_to(totals, entry);
    all.entry.bytes += entry.bytes;
    ++all.calls;
  }
  Table table({"a step sends", "over", "ranks", "calls", "bytes"});
  for (const auto& [entry, calls] : by_bytes(totals)) {
    table.add({kind_of_call(entry), entry.axis, std::to_string(entry.ranks), in_thousands(calls),
               in_thousands(entry.bytes)});
  }
  table.add({"all", "", "", in_thousands(all.calls), in_thousands(all.entry.bytes)});
  std::ostringstream out;
  table.print(out);
  return out.str();
}

}  // namespace

std::string inner::explain_members(const ParallelPlan& plan,
                                   const std::vector<StandingMember>& members,
                                   const DeviceMesh& mesh, const ExplainedStep& step) {
  const std::string placed = explain_members(plan, members, mesh);
  const DeviceMesh imagined = imagined_mesh(mesh.root());
  const LentTensors lent = lent_to(imagined, members);
  parallelize_members(members, imagined[mesh.axes()[0].name], plan, kSameOnAllRanks);
  const CommLog log(World::of(imagined));
  step(imagined);
  return placed + "\n" + table_of(log.entries());
}

std::string explain(const ParallelPlan& plan, const torch::nn::Module& module,
                    const DeviceMesh& mesh, const ExplainedStep& step) {
  return explain_members(plan, members_in(module), mesh, step);
}

}  // namespace tegula
