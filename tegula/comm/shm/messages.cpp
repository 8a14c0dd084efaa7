// A message goes in parts, each in an envelope with the sender's call. The head of a message that
// carries its shape stands at the beginning of the first part: the receiver makes room when it has
// read it.
#include "tegula/comm/shm/messages.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tegula/comm/shm/envelope.h"

namespace tegula::inner::shm {

using comm::Message;
using comm::TensorHead;

namespace {

std::int64_t head_bytes(const Message& message) {
  return message.carries_shape() ? static_cast<std::int64_t>(sizeof(TensorHead)) : 0;
}

std::int64_t bytes_of(const Message& message) {
  return head_bytes(message) + message.region.bytes();
}

bool is_complete(const PendingMessage& pending) {
  return pending.has_begun && pending.moved == bytes_of(pending.message);
}

}  // namespace

Messages::Messages(Channel& channel)
    : channel_(channel),
      sent_parts_(static_cast<std::size_t>(channel.size())),
      received_parts_(sent_parts_),
      sent_messages_(sent_parts_),
      received_messages_(sent_parts_) {}

void Messages::post(PendingMessage pending) {
  channel_.throw_if_broken();
  Message& message = pending.message;
  const auto peer = static_cast<std::size_t>(message.peer);
  const bool is_send = message.call.kind() == Kind::Send;
  std::uint64_t& count = (is_send ? sent_messages_ : received_messages_)[peer];
  if (count == 0) reserve_envelopes(message.peer, message.call.kind());
  message.call.number(count++);
  pending.posted = std::chrono::steady_clock::now();
  pending_.push_back(std::move(pending));
}

void Messages::reserve_envelopes(int peer, Kind kind) {
  const int me = channel_.index();
  try {
    kind == Kind::Send ? channel_.reserve_envelopes(me, peer)
                       : channel_.reserve_envelopes(peer, me);
  } catch (const CommError& error) {
    channel_.fail(error);
  }
}

bool Messages::send_part(PendingMessage& pending) {
  const Message& message = pending.message;
  std::uint64_t& part = sent_parts_[static_cast<std::size_t>(message.peer)];
  Envelope& envelope = channel_.envelope(channel_.index(), message.peer, part);
  if (envelope.state.load(std::memory_order_acquire) != Envelope::kFree) return false;
  const auto room = static_cast<std::int64_t>(Envelope::room(channel_.size()));
  const std::int64_t bytes = std::min(room, bytes_of(message) - pending.moved);
  envelope.call = message.call;
  envelope.bytes = static_cast<std::uint32_t>(bytes);
  std::byte* data = envelope.data();
  std::int64_t begin = pending.moved - head_bytes(message);
  if (begin < 0) {
    std::memcpy(data, &*message.head, sizeof(TensorHead));
    data += sizeof(TensorHead);
    begin = 0;
  }
  const std::int64_t end = pending.moved + bytes - head_bytes(message);
  pack(message.region, begin, end, data);
  envelope.state.store(Envelope::kFull, std::memory_order_release);
  channel_.ring(message.peer);
  pending.moved += bytes;
  ++part;
  return true;
}

// Reads the head in the first part of a message.
void Messages::make_room(PendingMessage& pending, const Envelope& envelope) {
  Message& message = pending.message;
  const std::size_t bytes = std::min(std::size_t{envelope.bytes}, sizeof(TensorHead));
  try {
    message.memory = message.place_for({envelope.data(), bytes});
    message.region = comm::Region::whole(message.memory.data_ptr(),
                                         static_cast<std::int64_t>(message.memory.nbytes()));
  } catch (const CommError& error) {
    channel_.fail(error);
  }
}

bool Messages::receive_part(PendingMessage& pending) {
  Message& message = pending.message;
  std::uint64_t& part = received_parts_[static_cast<std::size_t>(message.peer)];
  Envelope& envelope = channel_.envelope(message.peer, channel_.index(), part);
  if (envelope.state.load(std::memory_order_acquire) != Envelope::kFull) return false;
  if (envelope.call.fingerprint() != message.call.fingerprint()) {
    channel_.fail(
        channel_.error_about("a message is not what its receiver awaits")
            .fact("rank " + channel_.world_rank(message.peer), envelope.call.to_string())
            .fact("rank " + channel_.world_rank(channel_.index()), message.call.to_string())
            .hint("a send and its recv must agree in shape, dtype and tag, and be in order"));
  }
  std::int64_t skipped = 0;  // the head
  if (message.place_for && !pending.has_begun) {
    make_room(pending, envelope);
    skipped = head_bytes(message);
  }
  if (pending.moved + envelope.bytes > bytes_of(message)) {
    channel_.fail(channel_.error_about("a message is longer than its head says")
                      .fact("rank " + channel_.world_rank(message.peer), envelope.call.to_string())
                      .hint("this is a bug of Tegula; please report it"));
  }
  const std::int64_t begin = pending.moved + skipped - head_bytes(message);
  unpack(envelope.data() + skipped, message.region, begin, begin + envelope.bytes - skipped);
  pending.moved += envelope.bytes;
  envelope.state.store(Envelope::kFree, std::memory_order_release);
  channel_.ring(message.peer);
  ++part;
  return true;
}

bool Messages::advance(PendingMessage& pending) {
  bool moved = false;
  const bool is_send = pending.message.call.kind() == Kind::Send;
  while (!is_complete(pending)) {
    if (!(is_send ? send_part(pending) : receive_part(pending))) break;
    pending.has_begun = true;
    moved = true;
  }
  return moved;
}

bool Messages::progress() {
  bell_seen_ = channel_.bell(channel_.index()).load();
  bool moved = false;
  std::set<std::pair<int, Kind>> waiting;  // an earlier message of the pair goes first
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const std::pair<int, Kind> lane(pending->message.peer, pending->message.call.kind());
    if (!waiting.contains(lane)) moved |= advance(*pending);
    if (!is_complete(*pending)) {
      waiting.insert(lane);
      ++pending;
      continue;
    }
    ended_.push_back({std::move(pending->on_end), nullptr});
    pending = pending_.erase(pending);
  }
  return moved;
}

bool Messages::nap(Backoff& backoff) {
  const int me = channel_.index();
  const std::uint32_t seen = bell_seen_.load();
  if (channel_.bell(me).load() != seen) return false;
  return backoff.wait(channel_.bell(me), seen, channel_.bell_sleepers(me));
}

void Messages::check_peers() {
  channel_.throw_if_broken();
  const std::atomic<std::uint32_t>& bell = channel_.bell(channel_.index());
  for (const PendingMessage& pending : pending_) {
    channel_.look_around(pending.posted, pending.message.call, [&](int member) {
      return member == pending.message.peer && bell.load() == bell_seen_.load();
    });
  }
}

void Messages::fail_all(const std::exception_ptr& error) {
  for (PendingMessage& pending : pending_) ended_.push_back({std::move(pending.on_end), error});
  pending_.clear();
}

}  // namespace tegula::inner::shm
