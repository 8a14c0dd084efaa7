#include "tegula/payload/guards.h"

#include <torch/csrc/autograd/graph_task.h>

#include <cstdlib>
#include <string_view>

#include "tegula/payload/innermost_build.h"

namespace tegula {
namespace {

thread_local int implicit_replications = 0;
thread_local int strict_modes = 0;
thread_local int purposes = 0;
thread_local int keeps_gathered = 0;

bool is_strict_everywhere() {
  static const bool is_set = [] {
    const char* text = std::getenv("TEGULA_STRICT");
    return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
  }();
  return is_set;
}

}  // namespace

StrictMode::StrictMode() { ++strict_modes; }
StrictMode::~StrictMode() { --strict_modes; }
bool StrictMode::is_on() { return purposes == 0 && (strict_modes > 0 || is_strict_everywhere()); }

inner::OnPurpose::OnPurpose() { ++purposes; }
inner::OnPurpose::~OnPurpose() { --purposes; }

KeepGathered::KeepGathered() { ++keeps_gathered; }
KeepGathered::~KeepGathered() { --keeps_gathered; }
bool KeepGathered::is_on() { return keeps_gathered > 0; }

ImplicitReplication::ImplicitReplication() { ++implicit_replications; }
ImplicitReplication::~ImplicitReplication() { --implicit_replications; }

bool ImplicitReplication::is_on() {
  return implicit_replications > 0 || torch::autograd::get_current_graph_task_id() != -1;
}

bool inner::is_small_plain(const at::Tensor& tensor) {
  constexpr std::int64_t kMostBytes = 4096;
  return tensor.layout() == at::kStrided &&
         (tensor.numel() == 1 ||
          tensor.numel() * static_cast<std::int64_t>(tensor.itemsize()) <= kMostBytes);
}

const BuildDistributed*& inner::innermost_build() {
  thread_local const BuildDistributed* build = nullptr;
  return build;
}

BuildDistributed::~BuildDistributed() { inner::innermost_build() = outer_; }

const BuildDistributed* BuildDistributed::current() { return inner::innermost_build(); }

}  // namespace tegula
