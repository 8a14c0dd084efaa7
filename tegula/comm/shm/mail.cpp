#include "tegula/comm/shm/mail.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tegula/comm/shm/outbox.h"

namespace tegula::shm {

Mail::Mail(Channel& channel)
    : channel_(channel),
      sent_parts_(static_cast<std::size_t>(channel.size())),
      received_parts_(sent_parts_),
      sent_messages_(sent_parts_),
      received_messages_(sent_parts_) {}

void Mail::post(Letter letter) {
  channel_.throw_if_broken();
  const auto peer = static_cast<std::size_t>(letter.peer);
  const bool is_send = letter.call.kind() == Kind::Send;
  letter.call.number(is_send ? sent_messages_[peer]++ : received_messages_[peer]++);
  letter.posted = std::chrono::steady_clock::now();
  letters_.push_back(std::move(letter));
}

bool Mail::is_complete(const Letter& letter) const {
  return letter.has_begun && letter.moved == letter.piece.bytes();
}

bool Mail::send_part(Letter& letter) {
  std::uint64_t& part = sent_parts_[static_cast<std::size_t>(letter.peer)];
  Envelope& envelope = channel_.envelope(channel_.index(), letter.peer, part);
  if (envelope.state.load(std::memory_order_acquire) != Envelope::kFree) return false;
  const auto room = static_cast<std::int64_t>(Envelope::room(channel_.size()));
  const std::int64_t bytes = std::min(room, letter.piece.bytes() - letter.moved);
  envelope.call = letter.call;
  envelope.bytes = static_cast<std::uint32_t>(bytes);
  pack(letter.piece, letter.moved, letter.moved + bytes, envelope.data());
  envelope.state.store(Envelope::kFull, std::memory_order_release);
  channel_.ring(letter.peer);
  letter.moved += bytes;
  ++part;
  return true;
}

bool Mail::receive_part(Letter& letter) {
  std::uint64_t& part = received_parts_[static_cast<std::size_t>(letter.peer)];
  Envelope& envelope = channel_.envelope(letter.peer, channel_.index(), part);
  if (envelope.state.load(std::memory_order_acquire) != Envelope::kFull) return false;
  if (envelope.call.fingerprint() != letter.call.fingerprint()) {
    channel_.fail(
        channel_.error_about("a message is not what its receiver awaits")
            .fact("rank " + channel_.world_rank(letter.peer), envelope.call.to_string())
            .fact("rank " + channel_.world_rank(channel_.index()), letter.call.to_string())
            .hint("a send and its recv must agree in shape, dtype and tag, and be in order"));
  }
  unpack(envelope.data(), letter.piece, letter.moved, letter.moved + envelope.bytes);
  letter.moved += envelope.bytes;
  envelope.state.store(Envelope::kFree, std::memory_order_release);
  channel_.ring(letter.peer);
  ++part;
  return true;
}

bool Mail::advance(Letter& letter) {
  bool moved = false;
  while (!is_complete(letter)) {
    const bool step = letter.call.kind() == Kind::Send ? send_part(letter) : receive_part(letter);
    if (!step) break;
    letter.has_begun = true;
    moved = true;
  }
  return moved;
}

bool Mail::progress() {
  bell_seen_ = channel_.bell(channel_.index()).load();
  bool moved = false;
  std::set<std::pair<int, Kind>> waiting;  // an earlier letter of the pair goes first
  for (auto letter = letters_.begin(); letter != letters_.end();) {
    const std::pair<int, Kind> lane(letter->peer, letter->call.kind());
    if (!waiting.contains(lane)) moved |= advance(*letter);
    if (!is_complete(*letter)) {
      waiting.insert(lane);
      ++letter;
      continue;
    }
    const auto on_end = std::move(letter->on_end);
    letter = letters_.erase(letter);
    on_end(nullptr);
  }
  return moved;
}

bool Mail::nap(Patience& patience) {
  const int me = channel_.index();
  const std::uint32_t seen = bell_seen_.load();
  if (channel_.bell(me).load() != seen) return false;
  return patience.wait(channel_.bell(me), seen, channel_.bell_sleepers(me));
}

void Mail::look() {
  channel_.throw_if_broken();
  const std::atomic<std::uint32_t>& bell = channel_.bell(channel_.index());
  for (const Letter& letter : letters_) {
    channel_.look_around(letter.posted, letter.call, [&](int member) {
      return member == letter.peer && bell.load() == bell_seen_.load();
    });
  }
}

void Mail::fail_all(const std::exception_ptr& error) {
  std::list<Letter> failed = std::move(letters_);
  letters_.clear();
  for (Letter& letter : failed) letter.on_end(error);
}

}  // namespace tegula::shm
