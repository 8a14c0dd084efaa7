#include "tegula/dispatch/guards.h"

#include <torch/csrc/autograd/graph_task.h>

namespace tegula {
namespace {

thread_local int implicit_replications = 0;
thread_local const BuildDistributed* innermost_build = nullptr;

}  // namespace

ImplicitReplication::ImplicitReplication() { ++implicit_replications; }
ImplicitReplication::~ImplicitReplication() { --implicit_replications; }

bool ImplicitReplication::is_on() {
  return implicit_replications > 0 || torch::autograd::get_current_graph_task_id() != -1;
}

BuildDistributed::BuildDistributed(const DeviceMesh& mesh, PlacementsFor placements)
    : mesh_(mesh),
      placements_(std::move(placements)),
      outer_(innermost_build),
      include_(c10::DispatchKey::PrivateUse3),
      no_selection_(c10::DispatchKey::BackendSelect) {
  innermost_build = this;
}

BuildDistributed::~BuildDistributed() { innermost_build = outer_; }

const BuildDistributed* BuildDistributed::current() { return innermost_build; }

}  // namespace tegula
