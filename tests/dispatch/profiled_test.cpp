#include "tegula/bridge/profiled.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace profiled_test {

// The functions of this thread that begin with our name, in their order, while it stands.
class Names {
 public:
  Names() {
    seen_.clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(note));
  }
  ~Names() { at::removeCallback(handle_); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  const std::vector<std::string>& seen() const { return seen_; }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    if (name.starts_with("tegula::")) seen_.push_back(name);
    return nullptr;
  }

  static inline thread_local std::vector<std::string> seen_;
  at::CallbackHandle handle_ = 0;
};

TEST(Profiled, CallsOnGroupsAreSeenByTheirNames) {
  run_ranks(2, [](World& world) {
    const Group group = world.group(world.mesh({{"tp", 2}}), "tp");
    const Names names;
    group.all_reduce(at::ones({4, 2}), ReduceOp::Sum);
    group.all_gather_async(at::ones({3}), 0).wait();
    EXPECT_EQ(names.seen(), (std::vector<std::string>{
                                "tegula::all_reduce(f32[4, 2], sum) over tp",
                                "tegula::all_gather(f32[6], dim 0) over tp",
                                "tegula::all_gather(f32[6], dim 0) over tp, waiting",
                            }));
  });
}

TEST(Profiled, RedistributionsAreSeenAroundTheirCalls) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor x = distribute_tensor(at::ones({4, 2}), mesh, {Shard(0)});
    const Names names;
    redistribute(x, {Replicate()});
    EXPECT_EQ(names.seen(), (std::vector<std::string>{
                                "tegula::redistribute f32[4, 2] on (tp=2) as [S(0)] to [R]",
                                "tegula::all_gather(f32[4, 2], dim 0, sizes [2, 2]) over tp",
                            }));
  });
}

TEST(Profiled, WithoutAnObserverNoNameIsMade) {
  bool is_made = false;
  const auto name = [&] {
    is_made = true;
    return std::string("tegula::test");
  };
  {
    const Profiled event(name);
  }
  EXPECT_FALSE(is_made);
  const Names names;
  {
    const Profiled event(name);
  }
  EXPECT_EQ(names.seen(), std::vector<std::string>{"tegula::test"});
}

}  // namespace profiled_test
}  // namespace tegula::inner
