// Ranks that are only imagined: every call succeeds at once and leaves results as they are. For
// planning and simulation, with meta tensors or real ones.
#include "tegula/comm/engines.h"

namespace tegula::comm {
namespace {

class FakeEngine final : public Engine {
 public:
  std::string_view name() const override { return "fake"; }
  c10::intrusive_ptr<c10d::Backend> backend() const override { return nullptr; }
  Worker& worker() override { return worker_; }
  void set_timeout(std::chrono::milliseconds) override {}
  void abort(const CommError&) override {}

  void all_reduce(const Call&, const std::byte*, std::byte*, std::int64_t) override {}
  void all_gather(const Call&, const Piece&, std::span<const Piece>) override {}
  void reduce_scatter(const Call&, std::span<const Piece>, const Piece&) override {}
  void exchange(const Call&, std::span<const Piece>, std::span<const Piece>) override {}
  void broadcast(const Call&, const Piece&) override {}
  void barrier(const Call&) override {}
  void message_now(const Call&, const Piece&, int) override {}
  void message_later(const Call&, const Piece&, int, OnEnd on_end) override { on_end(nullptr); }

 private:
  Worker worker_;
};

}  // namespace

std::unique_ptr<Engine> make_fake_engine() { return std::make_unique<FakeEngine>(); }

}  // namespace tegula::comm
