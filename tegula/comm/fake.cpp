// Ranks that are only imagined: every call succeeds at once and leaves results as they are. For
// planning and simulation, with meta tensors or real ones.
#include "tegula/comm/engines.h"

namespace tegula::inner::comm {
namespace {

class FakeEngine final : public Engine {
 public:
  std::string_view name() const override { return "fake"; }
  c10::intrusive_ptr<c10d::Backend> backend() override { return nullptr; }
  bool can_move(c10::DeviceType) const override { return true; }
  Worker& worker() override { return worker_; }
  void set_timeout(std::chrono::milliseconds) override {}
  void abort(const CommError&) override {}

  void all_reduce(const Call&, const std::byte*, std::byte*, std::int64_t) override {}
  void all_gather(const Call&, const Region&, std::span<const Region>) override {}
  void reduce_scatter(const Call&, std::span<const Region>, const Region&) override {}
  void all_reduce_coalesced(const Call&, TensorList) override {}
  void all_gather_coalesced(const Call&, TensorList) override {}
  void reduce_scatter_coalesced(const Call&, TensorList) override {}
  void exchange(const Call&, std::span<const Region>, std::span<const Region>) override {}
  void broadcast(const Call&, const Region&) override {}
  void barrier(const Call&) override {}
  void message_now(const Message& message) override {
    if (message.place_for) {
      throw UsageError("an imagined rank sends nothing whose shape could be received")
          .hint("say the shape: recv into a tensor");
    }
  }
  void message_async(const Message& message, OnEnd on_end) override {
    message_now(message);
    on_end(nullptr);
  }

 private:
  Worker worker_;
};

}  // namespace

std::shared_ptr<Engine> make_fake_engine() { return std::make_shared<FakeEngine>(); }

}  // namespace tegula::inner::comm
