// The tensors of a list are one run of bytes (comm/flat_layout.h) that exists only in windows: a
// window is packed into a slot from the tensors it touches, and unpacked or combined from there
// into the results it touches.
#include "tegula/comm/shm/coalesced.h"

#include <vector>

#include "tegula/comm/flat_layout.h"
#include "tegula/comm/reduce.h"
#include "tegula/comm/shm/collectives.h"
#include "tegula/comm/shm/rounds.h"

namespace tegula::inner::shm {

using comm::combine;
using comm::first_from;
using comm::first_to;
using comm::FlatLayout;
using comm::from_of;
using comm::TensorRegions;
using comm::to_of;

namespace {

std::span<const void* const> span_of(const Sources& sources) {
  return {sources.data(), sources.size()};
}

// Which tensors go together and which by themselves. Sizes are part of the call, so that all
// members come to the same answer, or throw at the first meeting.
struct Division {
  std::vector<TensorRegions> together;
  std::vector<TensorRegions> alone;
};

Division divide(const Channel& channel, TensorList tensors, auto size_of_result) {
  Division division;
  for (const TensorRegions& tensor : tensors) {
    const bool goes_alone =
        !channel.members_share_memory() && size_of_result(tensor) >= kWorthOffering;
    (goes_alone ? division.alone : division.together).push_back(tensor);
  }
  return division;
}

// An empty list is a call too: lists are compared.
bool has_round(const Division& division) {
  return !division.together.empty() || division.alone.empty();
}

// --- all-reduce -------------------------------------------------------------------------------

// Everybody stages everything and reduces everything.
void reduce_together(Channel& channel, const Call& call, TensorList tensors,
                     const FlatLayout& layout) {
  channel.open(call, 0);
  Bytes begin = 0;
  do {
    const Bytes end = std::min(begin + kSlot, layout.bytes());
    pack_run(tensors, layout, first_from, begin, end, channel.my_slot(end - begin));
    meet(channel, begin);
    layout.for_each_in(begin, end, [&](std::size_t i, Bytes first, Bytes last, Bytes offset) {
      const TensorRegions& tensor = tensors[i];
      Sources sources;
      for (int member = 0; member < channel.size(); ++member) {
        sources.push_back(member == channel.index() ? tensor.from[0].base + first
                                                    : channel.slot_of(member) + offset);
      }
      combine(tensor.dtype, call.op(), span_of(sources), tensor.to[0].base + first,
              (last - first) / size_of(tensor.dtype));
    });
    channel.advance();
    begin = end;
  } while (begin < layout.bytes());
}

// Each rank reduces its chunk of every block, then all gather the chunks.
void reduce_in_chunks(Channel& channel, const Call& call, TensorList tensors,
                      const FlatLayout& layout) {
  const int n = channel.size();
  const int me = channel.index();
  const Bytes bytes = layout.bytes();
  const Bytes chunk = std::min(window_for(n - 1), round_up((bytes + n - 1) / n));
  channel.open(call, 0);
  for (Bytes block = 0; block < bytes; block += n * chunk) {
    const auto start = [&](int rank) { return std::min(block + rank * chunk, bytes); };
    for_each_peer(channel, [&](int peer) {
      pack_run(tensors, layout, first_from, start(peer), start(peer + 1),
               part_for(channel, peer, chunk));
    });
    meet(channel, block);
    c10::SmallVector<const std::byte*, 8> staged;  // for me, by the others
    for (int rank = 0; rank < n; ++rank) {
      staged.push_back(rank == me ? nullptr : channel.slot_of(rank) + part_of(rank, me, chunk));
    }
    channel.advance();  // what is staged stays as it is until the next meeting

    layout.for_each_in(
        start(me), start(me + 1), [&](std::size_t i, Bytes first, Bytes last, Bytes offset) {
          const TensorRegions& tensor = tensors[i];
          Sources sources;
          for (const std::byte* part : staged) {
            sources.push_back(part == nullptr ? tensor.from[0].base + first : part + offset);
          }
          std::byte* const reduced = channel.my_slot(offset + last - first) + offset;
          combine(tensor.dtype, call.op(), span_of(sources), reduced,
                  (last - first) / size_of(tensor.dtype));
          unpack(reduced, tensor.to[0], first, last);
        });
    channel.meet();
    for_each_peer(channel, [&](int peer) {
      const std::byte* const reduced = channel.slot_of(peer);
      unpack_run(reduced, tensors, layout, first_to, start(peer), start(peer + 1));
    });
    channel.advance();
  }
}

// As reduce_in_chunks, in one block and without slots. A rank writes only its own chunk while
// others read its contribution to theirs.
void reduce_shown(Channel& channel, const Call& call, TensorList tensors,
                  const FlatLayout& layout) {
  const int n = channel.size();
  const Bytes chunk = round_up((layout.bytes() + n - 1) / n);
  const auto start = [&](int rank) { return std::min(rank * chunk, layout.bytes()); };
  const auto list_of = [&](int rank) {
    return static_cast<const TensorRegions*>(channel.shown_by(rank));
  };
  channel.open(call, 0);
  channel.show(tensors.data());
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  c10::SmallVector<const TensorRegions*, 8> lists;
  exposed.read([&] {
    for (int rank = 0; rank < n; ++rank) lists.push_back(list_of(rank));
    layout.for_each_in(start(channel.index()), start(channel.index() + 1),
                       [&](std::size_t i, Bytes first, Bytes last, Bytes) {
                         Sources sources;
                         for (const TensorRegions* list : lists) {
                           sources.push_back(list[i].from[0].base + first);
                         }
                         combine(tensors[i].dtype, call.op(), span_of(sources),
                                 tensors[i].to[0].base + first,
                                 (last - first) / size_of(tensors[i].dtype));
                       });
  });
  channel.meet();
  exposed.read([&] {
    for_each_peer(channel, [&](int peer) {
      const TensorRegions* const list = lists[static_cast<std::size_t>(peer)];
      layout.for_each_in(start(peer), start(peer + 1),
                         [&](std::size_t i, Bytes first, Bytes last, Bytes) {
                           copy(list[i].to[0], tensors[i].to[0], first, last);
                         });
    });
  });
  exposed.close();
}

void reduce_list(Channel& channel, const Call& call, TensorList tensors) {
  const FlatLayout layout = layout_of(tensors, first_to);
  if (channel.members_share_memory() && layout.bytes() > kWorthShowing) {
    reduce_shown(channel, call, tensors, layout);
  } else if (layout.bytes() <= (channel.size() == 2 ? kSlot : kReducedTogether)) {
    reduce_together(channel, call, tensors, layout);
  } else {
    reduce_in_chunks(channel, call, tensors, layout);
  }
}

// --- all-gather -------------------------------------------------------------------------------

Bytes longest_of(const std::vector<FlatLayout>& layouts) {
  Bytes longest = 0;
  for (const FlatLayout& layout : layouts) longest = std::max(longest, layout.bytes());
  return longest;
}

void gather_shown(Channel& channel, const Call& call, TensorList tensors) {
  channel.open(call, 0);
  channel.show(tensors.data());
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  exposed.read([&] {
    for (int rank = 0; rank < channel.size(); ++rank) {
      const auto* list = static_cast<const TensorRegions*>(channel.shown_by(rank));
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        copy(list[i].from[0], tensors[i].to[static_cast<std::size_t>(rank)]);
      }
    }
  });
  exposed.close();
}

void gather_staged(Channel& channel, const Call& call, TensorList tensors,
                   const std::vector<FlatLayout>& layouts) {
  const auto me = static_cast<std::size_t>(channel.index());
  const Bytes longest = longest_of(layouts);
  channel.open(call, 0);
  Bytes begin = 0;
  do {
    pack_run(tensors, layouts[me], first_from, begin, begin + kSlot,
             channel.my_slot(std::min(kSlot, layouts[me].bytes() - begin)));
    meet(channel, begin);
    for (std::size_t rank = 0; rank < layouts.size(); ++rank) {
      unpack_run(channel.slot_of(static_cast<int>(rank)), tensors, layouts[rank], to_of(rank),
                 begin, begin + kSlot);
    }
    channel.advance();
    begin += kSlot;
  } while (begin < longest);
}

// --- reduce-scatter ---------------------------------------------------------------------------

// Flat memory with bytes [begin, end) of a region: its own if it is contiguous, else a packed copy,
// which stays until the next one is asked for.
class Flat {
 public:
  const void* of(const Region& region, Bytes begin, Bytes end) {
    if (region.is_contiguous()) return region.base + begin;
    if (room_.size() < static_cast<std::size_t>(end - begin)) {
      room_.resize(static_cast<std::size_t>(end - begin));
    }
    pack(region, begin, end, room_.data());
    return room_.data();
  }

 private:
  std::vector<std::byte> room_;
};

void scatter_shown(Channel& channel, const Call& call, TensorList tensors) {
  const auto n = static_cast<std::size_t>(channel.size());
  const auto me = static_cast<std::size_t>(channel.index());
  channel.open(call, 0);
  channel.show(tensors.data());
  ExposedMemory exposed(channel);
  channel.meet_and_check();
  exposed.read([&] {
    std::vector<Flat> flat(n);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Region& to = tensors[i].to[0];
      for (Bytes begin = 0; begin < to.bytes(); begin += kSlot) {
        const Bytes end = std::min(begin + kSlot, to.bytes());
        Sources sources;
        for (std::size_t rank = 0; rank < n; ++rank) {
          const auto* list =
              static_cast<const TensorRegions*>(channel.shown_by(static_cast<int>(rank)));
          sources.push_back(flat[rank].of(list[i].from[me], begin, end));
        }
        combine(tensors[i].dtype, call.op(), span_of(sources), to.base + begin,
                (end - begin) / size_of(tensors[i].dtype));
      }
    }
  });
  exposed.close();
}

void scatter_staged(Channel& channel, const Call& call, TensorList tensors,
                    const std::vector<FlatLayout>& layouts) {
  const int me = channel.index();
  const Bytes longest = longest_of(layouts);
  const Bytes window = std::min(window_for(channel.size() - 1), round_up(longest));
  Flat own;
  channel.open(call, 0);
  Bytes begin = 0;
  do {
    for_each_peer(channel, [&](int peer) {
      const auto rank = static_cast<std::size_t>(peer);
      pack_run(tensors, layouts[rank], from_of(rank), begin, begin + window,
               part_for(channel, peer, window));
    });
    meet(channel, begin);
    layouts[static_cast<std::size_t>(me)].for_each_in(
        begin, begin + window, [&](std::size_t i, Bytes first, Bytes last, Bytes offset) {
          const TensorRegions& tensor = tensors[i];
          Sources sources;
          for (int rank = 0; rank < channel.size(); ++rank) {
            sources.push_back(rank == me
                                  ? own.of(tensor.from[static_cast<std::size_t>(me)], first, last)
                                  : channel.slot_of(rank) + part_of(rank, me, window) + offset);
          }
          combine(tensor.dtype, call.op(), span_of(sources), tensor.to[0].base + first,
                  (last - first) / size_of(tensor.dtype));
        });
    channel.advance();
    begin += window;
  } while (begin < longest);
}

}  // namespace

void all_reduce_coalesced(Channel& channel, const Call& call, TensorList tensors) {
  if (channel.size() == 1) {
    for (const TensorRegions& tensor : tensors) copy(tensor.from[0], tensor.to[0]);
    return;
  }
  const Division division =
      divide(channel, tensors, [](const TensorRegions& tensor) { return tensor.to[0].bytes(); });
  if (has_round(division)) reduce_list(channel, call, division.together);
  for (const TensorRegions& tensor : division.alone) {
    all_reduce(channel, Call(call).typed(tensor.dtype), tensor.from[0].base, tensor.to[0].base,
               tensor.to[0].bytes() / size_of(tensor.dtype));
  }
}

void all_gather_coalesced(Channel& channel, const Call& call, TensorList tensors) {
  if (channel.size() == 1) {
    for (const TensorRegions& tensor : tensors) copy(tensor.from[0], tensor.to[0]);
    return;
  }
  const Division division = divide(channel, tensors, [](const TensorRegions& tensor) {
    Bytes longest = 0;
    for (const Region& region : tensor.to) longest = std::max(longest, region.bytes());
    return longest;
  });
  if (has_round(division)) {
    const TensorList together = division.together;
    const std::vector<FlatLayout> layouts = layouts_by_rank(channel.size(), together, to_of);
    if (channel.members_share_memory() && longest_of(layouts) > kWorthShowing) {
      gather_shown(channel, call, together);
    } else {
      gather_staged(channel, call, together, layouts);
    }
  }
  for (const TensorRegions& tensor : division.alone) {
    all_gather(channel, call, tensor.from[0], tensor.to);
  }
}

void reduce_scatter_coalesced(Channel& channel, const Call& call, TensorList tensors) {
  if (channel.size() == 1) {
    for (const TensorRegions& tensor : tensors) copy(tensor.from[0], tensor.to[0]);
    return;
  }
  const std::vector<FlatLayout> layouts = layouts_by_rank(channel.size(), tensors, from_of);
  if (channel.members_share_memory() && longest_of(layouts) > kWorthShowing) {
    scatter_shown(channel, call, tensors);
  } else {
    scatter_staged(channel, call, tensors, layouts);
  }
}

}  // namespace tegula::inner::shm
