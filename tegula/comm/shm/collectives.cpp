// Every collective is a loop over rounds: stage a window of what others need, meet, take a window
// of what they staged. Members that share memory show their regions instead, copy from each other,
// and meet once more before anybody may touch its memory again.
#include "tegula/comm/shm/collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/comm/reduce.h"
#include "tegula/comm/shm/offer.h"
#include "tegula/comm/shm/rounds.h"

namespace tegula::inner::shm {

using comm::combine;
using comm::combine_into;
using comm::settle;
using comm::Writing;
using comm::writing_for;

namespace {

// What is read once and written to several places in between.
constexpr Bytes kBite = 256 << 10;

Bytes longest_of(std::span<const Region> regions) {
  Bytes longest = 0;
  for (const Region& region : regions) longest = std::max(longest, region.bytes());
  return longest;
}

Writing writing_of(std::span<const Region> results) {
  Bytes total = 0;
  for (const Region& region : results) total += region.bytes();
  return writing_for(total);
}

// --- all-reduce -------------------------------------------------------------------------------

// Everybody stages everything and reduces everything: one round per slot.
void reduce_together(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                     Bytes bytes) {
  channel.open(call, 0);
  Bytes begin = 0;
  do {
    const Bytes length = std::min(kSlot, bytes - begin);
    if (length > 0)
      std::memcpy(channel.my_slot(length), from + begin, static_cast<std::size_t>(length));
    meet(channel, begin);
    Sources sources;
    for (int member = 0; member < channel.size(); ++member) {
      sources.push_back(member == channel.index() ? from + begin : channel.slot_of(member));
    }
    combine(call.dtype(), call.op(), {sources.data(), sources.size()}, to + begin,
            length / size_of(call.dtype()), writing_for(bytes));
    channel.advance();
    begin += length;
  } while (begin < bytes);
}

// Each rank reduces its chunk of every block, then all gather the chunks: two rounds per block.
void reduce_in_chunks(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                      Bytes bytes) {
  const int n = channel.size();
  const int me = channel.index();
  const Bytes chunk = std::min(window_for(n - 1), round_up((bytes + n - 1) / n));
  channel.open(call, 0);
  for (Bytes block = 0; block < bytes; block += n * chunk) {
    const auto start = [&](int rank) { return std::min(block + rank * chunk, bytes); };
    const auto length = [&](int rank) { return start(rank + 1) - start(rank); };
    for_each_peer(channel, [&](int peer) {
      std::memcpy(part_for(channel, peer, chunk), from + start(peer),
                  static_cast<std::size_t>(length(peer)));
    });
    meet(channel, block);
    Sources sources;
    for (int rank = 0; rank < n; ++rank) {
      sources.push_back(rank == me ? from + start(me)
                                   : channel.slot_of(rank) + part_of(rank, me, chunk));
    }
    channel.advance();  // the sources stay as they are until the next meeting

    std::byte* const reduced = channel.my_slot(length(me));
    combine(call.dtype(), call.op(), {sources.data(), sources.size()}, reduced,
            length(me) / size_of(call.dtype()));
    comm::write_bytes(to + start(me), reduced, length(me), writing_for(bytes));
    channel.meet();
    for_each_peer(channel, [&](int peer) {
      comm::write_bytes(to + start(peer), channel.slot_of(peer), length(peer), writing_for(bytes));
    });
    settle(writing_for(bytes));
    channel.advance();
  }
}

// As reduce_in_chunks, but each rank writes its chunks into everybody's result: one round per
// block.
void reduce_into_all(Channel& channel, const Call& call, const std::byte* from,
                     std::span<const Region> results, Bytes bytes) {
  const int n = channel.size();
  const int me = channel.index();
  const Bytes chunk = std::min(window_for(n - 1), round_up((bytes + n - 1) / n));
  for (Bytes block = 0; block < bytes; block += n * chunk) {
    const auto start = [&](int rank) { return std::min(block + rank * chunk, bytes); };
    const auto length = [&](int rank) { return start(rank + 1) - start(rank); };
    for_each_peer(channel, [&](int peer) {
      std::memcpy(part_for(channel, peer, chunk), from + start(peer),
                  static_cast<std::size_t>(length(peer)));
    });
    channel.meet();
    Sources sources;
    for (int rank = 0; rank < n; ++rank) {
      sources.push_back(rank == me ? from + start(me)
                                   : channel.slot_of(rank) + part_of(rank, me, chunk));
    }
    c10::SmallVector<void*, 8> places;
    for (const Region& result : results) places.push_back(result.base + start(me));
    combine_into(call.dtype(), call.op(), {sources.data(), sources.size()},
                 {places.data(), places.size()}, length(me) / size_of(call.dtype()),
                 Writing::Streaming);
    channel.advance();
  }
}

// False if not all results can be written by peers; nothing has happened then.
bool reduce_offered(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                    Bytes bytes) {
  const std::vector<Region> results(static_cast<std::size_t>(channel.size()),
                                    Region::whole(to, bytes));
  channel.open(call, 0);
  Offer offer(channel, results);
  channel.meet_and_check();
  const bool is_mutual = offer.is_mutual();
  channel.advance();
  if (!is_mutual) return false;
  reduce_into_all(channel, call, from, offer.places(), bytes);
  offer.close();
  return true;
}

struct ShownTensor {
  const std::byte* from;
  const std::byte* to;
};

// As reduce_in_chunks, in one block and without slots. A rank writes only its own chunk while
// others read its contribution to theirs, so `from` may be `to`.
void reduce_shown(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                  Bytes bytes) {
  const int n = channel.size();
  const Bytes chunk = round_up((bytes + n - 1) / n);
  const auto start = [&](int rank) { return std::min(rank * chunk, bytes); };
  const auto length = [&](int rank) { return start(rank + 1) - start(rank); };
  const ShownTensor mine{from, to};
  channel.open(call, 0);
  channel.show(&mine);
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  c10::SmallVector<ShownTensor, 8> shown;
  exposed.read([&] {
    Sources sources;
    for (int rank = 0; rank < n; ++rank) {
      shown.push_back(*static_cast<const ShownTensor*>(channel.shown_by(rank)));
      sources.push_back(shown.back().from + start(channel.index()));
    }
    combine(call.dtype(), call.op(), {sources.data(), sources.size()}, to + start(channel.index()),
            length(channel.index()) / size_of(call.dtype()), writing_for(bytes));
  });
  channel.meet();
  exposed.read([&] {
    for_each_peer(channel, [&](int peer) {
      comm::write_bytes(to + start(peer), shown[static_cast<std::size_t>(peer)].to + start(peer),
                        length(peer), writing_for(bytes));
    });
    settle(writing_for(bytes));
  });
  exposed.close();
}

// --- reduce-scatter ---------------------------------------------------------------------------

// FlatOnce memory with bytes [begin, end) of a region: its own if it is contiguous, else a packed
// copy.
class FlatOnce {
 public:
  const void* of(const Region& region, Bytes begin, Bytes end) {
    if (region.is_contiguous()) return region.base + begin;
    if (!room_) room_.reset(new std::byte[static_cast<std::size_t>(end - begin)]);
    pack(region, begin, end, room_.get());
    return room_.get();
  }

 private:
  std::unique_ptr<std::byte[]> room_;  // of the first range asked for, which is the longest
};

void reduce_scatter_staged(Channel& channel, const Call& call, std::span<const Region> from,
                           const Region& to, Bytes longest) {
  const int n = channel.size();
  const int me = channel.index();
  const Bytes window = std::min(window_for(n - 1), round_up(longest));
  FlatOnce own;
  channel.open(call, 0);
  Bytes begin = 0;
  do {
    for_each_peer(channel, [&](int peer) {
      pack(from[static_cast<std::size_t>(peer)], begin, begin + window,
           part_for(channel, peer, window));
    });
    meet(channel, begin);
    const Bytes end = std::min(begin + window, to.bytes());
    if (begin < end) {
      Sources sources;
      for (int rank = 0; rank < n; ++rank) {
        sources.push_back(rank == me ? own.of(from[static_cast<std::size_t>(me)], begin, end)
                                     : channel.slot_of(rank) + part_of(rank, me, window));
      }
      combine(call.dtype(), call.op(), {sources.data(), sources.size()}, to.base + begin,
              (end - begin) / size_of(call.dtype()), writing_for(to.bytes()));
    }
    channel.advance();
    begin += window;
  } while (begin < longest);
}

void reduce_scatter_shown(Channel& channel, const Call& call, std::span<const Region> from,
                          const Region& to) {
  const auto n = static_cast<std::size_t>(channel.size());
  channel.open(call, 0);
  channel.show(from.data());
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  exposed.read([&] {
    std::vector<FlatOnce> flat(n);
    for (Bytes begin = 0; begin < to.bytes(); begin += kSlot) {
      const Bytes end = std::min(begin + kSlot, to.bytes());
      Sources sources;
      for (std::size_t rank = 0; rank < n; ++rank) {
        const auto* regions = static_cast<const Region*>(channel.shown_by(static_cast<int>(rank)));
        sources.push_back(flat[rank].of(regions[channel.index()], begin, end));
      }
      combine(call.dtype(), call.op(), {sources.data(), sources.size()}, to.base + begin,
              (end - begin) / size_of(call.dtype()), writing_for(to.bytes()));
    }
  });
  exposed.close();
}

// --- exchange ---------------------------------------------------------------------------------

void tell_counts(Channel& channel, std::span<const Region> from, std::span<const Region> to) {
  std::int64_t* counts = channel.my_counts();
  for (const Region& region : from) *counts++ = region.bytes();
  for (const Region& region : to) *counts++ = region.bytes();
}

// All members compare all pairs, so that all come to the same verdict.
void check_counts(Channel& channel, const Call& call) {
  const int n = channel.size();
  for (int sender = 0; sender < n; ++sender) {
    const std::int64_t* sent = channel.counts_of(sender);
    for (int receiver = 0; receiver < n; ++receiver) {
      const std::int64_t awaited = channel.counts_of(receiver)[n + sender];
      if (sent[receiver] == awaited) continue;
      channel.fail(channel.error_about("ranks disagree on how much one sends to the other")
                       .fact("call", call.to_string())
                       .fact("rank " + channel.world_rank(sender),
                             "sends " + std::to_string(sent[receiver]) + " bytes to rank " +
                                 channel.world_rank(receiver))
                       .fact("rank " + channel.world_rank(receiver),
                             "awaits " + std::to_string(awaited) + " bytes from rank " +
                                 channel.world_rank(sender))
                       .hint("sizes of what is sent and what is received must match pair by pair"));
    }
  }
}

void stage_for_peers(Channel& channel, std::span<const Region> from, Bytes begin, Bytes window) {
  for_each_peer(channel, [&](int peer) {
    pack(from[static_cast<std::size_t>(peer)], begin, begin + window,
         part_for(channel, peer, window));
  });
}

void take_from_peers(Channel& channel, std::span<const Region> from, std::span<const Region> to,
                     Bytes begin, Bytes window) {
  const auto me = static_cast<std::size_t>(channel.index());
  const Writing writing = writing_of(to);
  copy(from[me], to[me], begin, begin + window, writing);
  for_each_peer(channel, [&](int peer) {
    unpack(channel.slot_of(peer) + part_of(peer, channel.index(), window),
           to[static_cast<std::size_t>(peer)], begin, begin + window, writing);
  });
  settle(writing);
  channel.advance();
}

}  // namespace

void all_reduce(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                std::int64_t count) {
  const Bytes bytes = count * size_of(call.dtype());
  if (channel.size() == 1) {
    if (from != to && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  if (channel.members_share_memory() && bytes > kWorthShowing) {
    reduce_shown(channel, call, from, to, bytes);
  } else if (bytes <= (channel.size() == 2 ? kSlot : kReducedTogether)) {
    reduce_together(channel, call, from, to, bytes);
  } else if (bytes < kWorthOffering || !reduce_offered(channel, call, from, to, bytes)) {
    reduce_in_chunks(channel, call, from, to, bytes);
  }
}

void all_gather(Channel& channel, const Call& call, const Region& from,
                std::span<const Region> to) {
  const auto me = static_cast<std::size_t>(channel.index());
  if (channel.size() == 1) return copy(from, to[0]);
  const Bytes longest = longest_of(to);
  const Writing writing = writing_of(to);
  channel.open(call, 0);
  if (!channel.members_share_memory() && longest >= kWorthOffering) {
    Offer offer(channel, to);
    channel.meet_and_check();
    const bool is_mutual = offer.is_mutual();
    channel.advance();
    if (is_mutual) {
      for (Bytes begin = 0; begin < from.bytes(); begin += kBite) {
        for (const Region& place : offer.places()) {
          copy(from, place, begin, begin + kBite, Writing::Streaming);
        }
      }
      settle(Writing::Streaming);
      return offer.close();
    }
    channel.open(call, 0);
  }
  if (channel.members_share_memory() && longest > kWorthShowing) {
    channel.show(&from);
    ExposedMemory exposed(channel);
    channel.meet_and_check();
    exposed.read([&] {
      for (std::size_t rank = 0; rank < to.size(); ++rank) {
        copy(*static_cast<const Region*>(channel.shown_by(static_cast<int>(rank))), to[rank],
             writing);
      }
      settle(writing);
    });
    return exposed.close();
  }
  Bytes begin = 0;
  do {
    pack(from, begin, begin + kSlot, channel.my_slot(std::min(kSlot, from.bytes() - begin)));
    meet(channel, begin);
    copy(from, to[me], begin, begin + kSlot, writing);
    for_each_peer(channel, [&](int peer) {
      unpack(channel.slot_of(peer), to[static_cast<std::size_t>(peer)], begin, begin + kSlot,
             writing);
    });
    settle(writing);
    channel.advance();
    begin += kSlot;
  } while (begin < longest);
}

void reduce_scatter(Channel& channel, const Call& call, std::span<const Region> from,
                    const Region& to) {
  if (channel.size() == 1) return copy(from[0], to);
  const Bytes longest = longest_of(from);
  if (channel.members_share_memory() && longest > kWorthShowing) {
    reduce_scatter_shown(channel, call, from, to);
  } else {
    reduce_scatter_staged(channel, call, from, to, longest);
  }
}

void exchange(Channel& channel, const Call& call, std::span<const Region> from,
              std::span<const Region> to) {
  if (channel.size() == 1) return copy(from[0], to[0]);
  const Bytes window = window_for(channel.size() - 1);
  const bool may_show = channel.members_share_memory();
  Bytes longest = longest_of(from);
  channel.open(call, static_cast<std::uint64_t>(longest));
  channel.show(from.data());
  tell_counts(channel, from, to);
  // Whether all go through the slots is known after the meeting; if all do, mine is staged.
  if (!may_show || longest <= kWorthShowing) stage_for_peers(channel, from, 0, window);
  std::optional<Offer> offer;
  if (!may_show) offer.emplace(channel, to);
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  check_counts(channel, call);
  for (int member = 0; member < channel.size(); ++member) {
    longest = std::max(longest, static_cast<Bytes>(channel.extent_of(member)));
  }
  if (may_show && longest > kWorthShowing) {
    exposed.read([&] {
      for (std::size_t rank = 0; rank < to.size(); ++rank) {
        const auto* shown = static_cast<const Region*>(channel.shown_by(static_cast<int>(rank)));
        copy(shown[channel.index()], to[rank], writing_of(to));
      }
      settle(writing_of(to));
    });
    return exposed.close();
  }
  if (longest >= kWorthOffering && offer->is_mutual()) {
    channel.advance();
    for (Bytes begin = 0; begin < longest; begin += kBite) {
      for (std::size_t rank = 0; rank < to.size(); ++rank) {
        copy(from[rank], offer->places()[rank], begin, begin + kBite, Writing::Streaming);
      }
    }
    settle(Writing::Streaming);
    return offer->close();
  }
  if (offer) offer->withdraw();
  take_from_peers(channel, from, to, 0, window);
  for (Bytes begin = window; begin < longest; begin += window) {
    stage_for_peers(channel, from, begin, window);
    channel.meet();
    take_from_peers(channel, from, to, begin, window);
  }
}

void broadcast(Channel& channel, const Call& call, const Region& region) {
  if (channel.size() == 1) return;
  const bool is_root = channel.index() == call.root();
  channel.open(call, 0);
  if (channel.members_share_memory() && region.bytes() > kWorthShowing) {
    channel.show(&region);
    ExposedMemory exposed(channel);
    channel.meet_and_check();
    exposed.read([&] {
      if (!is_root) copy(*static_cast<const Region*>(channel.shown_by(call.root())), region);
    });
    return exposed.close();
  }
  Bytes begin = 0;
  do {
    if (is_root) {
      pack(region, begin, begin + kSlot, channel.my_slot(std::min(kSlot, region.bytes() - begin)));
    }
    meet(channel, begin);
    if (!is_root) unpack(channel.slot_of(call.root()), region, begin, begin + kSlot);
    channel.advance();
    begin += kSlot;
  } while (begin < region.bytes());
}

void barrier(Channel& channel, const Call& call) {
  channel.open(call, 0);
  channel.meet_and_check();
  channel.advance();
}

}  // namespace tegula::inner::shm
