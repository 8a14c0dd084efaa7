#include "tegula/comm/shm/engine.h"

#include <utility>

#include "tegula/comm/shm/backend.h"
#include "tegula/comm/shm/collectives.h"
#include "tegula/comm/shm/postman.h"

namespace tegula::shm {
namespace {

class ShmEngine final : public comm::Engine {
 public:
  ShmEngine(std::shared_ptr<Board> board, ChannelOptions options)
      : backend_(c10::make_intrusive<Backend>(std::move(board), std::move(options))) {}

  std::string_view name() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Backend> backend() const override { return backend_; }
  comm::Worker& worker() override { return backend_->worker(); }
  void set_timeout(std::chrono::milliseconds timeout) override { channel().set_timeout(timeout); }
  void abort(const CommError& error) override { channel().abort(error); }

  void refuse(comm::Kind kind, const UsageError& error) override {
    const std::string text = std::string(name_of(kind)) + ", refused: " + error.sentence();
    worker().run_in_turn([this, text]() -> comm::Worker::Announcement {
      channel().refuse(text);
      return {};
    });
  }

  void all_reduce(const Call& call, const std::byte* from, std::byte* to,
                  std::int64_t count) override {
    shm::all_reduce(channel(), call, from, to, count);
  }
  void all_gather(const Call& call, const Piece& from, std::span<const Piece> to) override {
    shm::all_gather(channel(), call, from, to);
  }
  void reduce_scatter(const Call& call, std::span<const Piece> from, const Piece& to) override {
    shm::reduce_scatter(channel(), call, from, to);
  }
  void exchange(const Call& call, std::span<const Piece> from, std::span<const Piece> to) override {
    shm::exchange(channel(), call, from, to);
  }
  void broadcast(const Call& call, const Piece& piece) override {
    shm::broadcast(channel(), call, piece);
  }
  void barrier(const Call& call) override { shm::barrier(channel(), call); }

  void message_now(const Call& call, const Piece& piece, int peer) override {
    backend_->postman().carry_now(letter(call, piece, peer));
  }
  void message_later(const Call& call, const Piece& piece, int peer, OnEnd on_end) override {
    Letter posted = letter(call, piece, peer);
    posted.on_end = std::move(on_end);
    backend_->postman().carry_later(std::move(posted));
  }

 private:
  Channel& channel() { return backend_->channel(); }

  static Letter letter(const Call& call, const Piece& piece, int peer) {
    Letter letter;
    letter.call = call;
    letter.piece = piece;
    letter.peer = peer;
    return letter;
  }

  c10::intrusive_ptr<Backend> backend_;
};

}  // namespace

std::unique_ptr<comm::Engine> make_engine(std::shared_ptr<Board> board, ChannelOptions options) {
  return std::make_unique<ShmEngine>(std::move(board), std::move(options));
}

}  // namespace tegula::shm
