// What parallelize_module, explain, replicate and fully_shard do, for modules of any kind: a list
// of their parameters and buffers. Python's modules are other objects than libtorch's.
#pragma once

#include <string>
#include <vector>

#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"

namespace tegula::inner {

enum class MemberKind { Parameter, Table, Buffer };  // a table: of an embedding

// A parameter or buffer where it stands. A tied one stands in several places.
struct StandingMember {
  std::string module;  // "blocks.0.up"; empty: the outermost
  std::string name;    // within it: "weight"
  at::Tensor tensor;
  MemberKind kind = MemberKind::Parameter;

  std::string full_name() const { return module.empty() ? name : module + "." + name; }
};

void parallelize_members(const std::vector<StandingMember>& members, const DeviceMesh& mesh,
                         const ParallelPlan& plan, const DistributeOptions& options);
std::string explain_members(const ParallelPlan& plan, const std::vector<StandingMember>& members,
                            const DeviceMesh& mesh);
std::string explain_members(const ParallelPlan& plan, const std::vector<StandingMember>& members,
                            const DeviceMesh& mesh, const ExplainedStep& step);
void replicate_members(const std::vector<StandingMember>& members, const DeviceMesh& mesh,
                       const ReplicateOptions& options);

void fully_shard_members(const std::vector<StandingMember>& members, const DeviceMesh& mesh,
                         const ShardedRoles& roles, const FullyShardOptions& options);

// Of a module of libtorch; undefined tensors are left out.
std::vector<StandingMember> members_in(const torch::nn::Module& module);

}  // namespace tegula::inner
