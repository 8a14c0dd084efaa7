// An all-reduce is an exchange of chunks, a local reduction in the order of the ranks, and a gather
// of the chunks: 2(n-1)/n of the tensor per rank, as good as any. Small tensors are gathered whole
// and reduced by everybody. The tensors of a coalesced call are packed one after the other
// (flat_layout.h) and moved as one.
#include "tegula/comm/c10d_engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tegula/comm/c10d_link.h"
#include "tegula/comm/c10d_messages.h"
#include "tegula/comm/flat_layout.h"
#include "tegula/comm/packed_regions.h"
#include "tegula/comm/reduce.h"

namespace tegula::inner::comm {
namespace {

using Bytes = std::int64_t;
using Regions = std::span<const Region>;

constexpr Bytes kReducedTogether = 32 << 10;
constexpr Bytes kBytesOfLine = 64;
constexpr int kAgreementTag = 1 << 21;  // beyond those of messages, which carry their shape or not

class C10dEngine final : public Engine {
 public:
  C10dEngine(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options)
      : link_(std::move(backend), std::move(options)), messages_(link_) {}

  std::string_view name() const override { return link_.engine(); }
  c10::intrusive_ptr<c10d::Backend> backend() override { return link_.backend(); }
  Worker& worker() override { return worker_; }
  void set_timeout(std::chrono::milliseconds timeout) override { link_.set_timeout(timeout); }
  void abort(const CommError& error) override { link_.abort(error); }
  void keep_after_failure(const std::vector<at::Tensor>& memory) override {
    if (link_.take_is_touched_still()) park(memory);
  }

  // Whether nothing is under way that outlives it: messages end with an error, collectives do not.
  bool end();

  void compare_agreed(const Call& call) override;
  void all_reduce(const Call& call, const std::byte* from, std::byte* to,
                  std::int64_t count) override;
  void all_gather(const Call& call, const Region& from, Regions to) override;
  void reduce_scatter(const Call& call, Regions from, const Region& to) override;
  void all_reduce_coalesced(const Call& call, TensorList tensors) override;
  void all_gather_coalesced(const Call& call, TensorList tensors) override;
  void reduce_scatter_coalesced(const Call& call, TensorList tensors) override;
  void exchange(const Call& call, Regions from, Regions to) override {
    if (size() == 1) return copy(from[0], to[0]);
    move_pieces(call, from, to);
  }
  void broadcast(const Call& call, const Region& region) override;
  void barrier(const Call& call) override {
    run(call, [&] { return link_.backend()->barrier(link_.with_timeout(c10d::BarrierOptions())); });
  }
  void message_now(const Message& message) override { messages_.run(message); }
  void message_async(const Message& message, OnEnd on_end) override {
    messages_.start(message, std::move(on_end));
  }

 private:
  // What a member says of what all should agree on.
  struct Noted {
    std::uint64_t hash = 0;
    std::uint64_t errors = 0;
  };

  int size() const { return link_.size(); }
  std::size_t index() const { return static_cast<std::size_t>(link_.index()); }

  CommError difference(const Call& call, const std::vector<Noted>& all);
  void move_pieces(const Call& call, Regions from, Regions to);
  // `combine_range(begin, sources, to, bytes)` makes bytes [begin, begin + bytes) of the result.
  template <class Combine>
  void reduce_range(const Call& call, Regions from, const Region& to, Bytes begin,
                    Combine combine_range);
  template <class Combine>
  void all_reduce_by(const Call& call, const std::byte* from, std::byte* to, Bytes bytes,
                     Combine combine_range);

  // What each member has in so many bytes.
  const std::byte* gathered(const Call& call, const void* mine, Bytes bytes);

  // Memory of the engine's own, until the scope around it ends.
  class Scope {
   public:
    explicit Scope(C10dEngine& engine) : scratch_(engine.scratch_), size_(scratch_.size()) {}
    ~Scope() { scratch_.resize(size_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<at::Tensor>& scratch_;
    std::size_t size_;
  };
  at::Tensor new_bytes(Bytes bytes) {
    scratch_.push_back(at::empty({bytes}, at::kByte));
    return scratch_.back();
  }
  at::Tensor place_for(Regions regions) {
    return is_one_block(regions) ? bytes_at(regions[0].base, total_of(regions))
                                 : new_bytes(total_of(regions));
  }
  at::Tensor packed(Regions regions) {
    at::Tensor block = place_for(regions);
    if (!is_one_block(regions)) pack_all(regions, block);
    return block;
  }

  // Starts what is a part of a collective, and waits for it.
  template <class Start>
  void run(const Call& call, Start start) {
    link_.finish(call, link_.started(call, scratch_, start), scratch_);
  }

  C10dLink link_;
  std::uint64_t agreed_ = 0;         // what the members have found to be the same
  std::vector<at::Tensor> scratch_;  // of the collective under way
  C10dMessages messages_;
  Worker worker_;
};

bool C10dEngine::end() {
  if (worker_.is_idle() && messages_.is_idle()) return true;
  abort(CommError("the group ended while calls were pending")
            .fact("group", link_.group())
            .hint("wait for asynchronous calls before the world goes"));
  return worker_.is_idle();
}

// By messages of a tag of their own: a member that has noted nothing, and makes its call, cannot
// take them for a part of that.
const std::byte* C10dEngine::gathered(const Call& call, const void* mine, Bytes bytes) {
  const at::Tensor all = new_bytes(bytes * size());
  std::vector<at::Tensor> places = all.chunk(size());
  std::memcpy(memory_of(places[index()]), mine, static_cast<std::size_t>(bytes));
  std::vector<C10dLink::Work> under_way;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == link_.index()) continue;
      C10dLink::Tensors from_peer{places[static_cast<std::size_t>(peer)]};
      C10dLink::Tensors to_peer{places[index()]};
      under_way.push_back(link_.started(
          call, scratch_, [&] { return link_.backend()->recv(from_peer, peer, kAgreementTag); }));
      under_way.push_back(link_.started(
          call, scratch_, [&] { return link_.backend()->send(to_peer, peer, kAgreementTag); }));
    }
    for (const C10dLink::Work& work : under_way) link_.finish(call, work, scratch_);
  } catch (...) {
    park(scratch_);  // of those that were not waited for
    throw;
  }
  return memory_of(all);
}

// A few words to each other member, whenever something was noted since the last call.
void C10dEngine::compare_agreed(const Call& call) {
  if (size() == 1 || call.agreed() == agreed_) return;
  const Scope scope(*this);
  const Noted mine{call.agreed(), call.errors_before()};
  const std::byte* all = gathered(call, &mine, sizeof(mine));
  std::vector<Noted> noted(static_cast<std::size_t>(size()));
  std::memcpy(noted.data(), all, noted.size() * sizeof(Noted));
  const auto differs = [&](const Noted& other) { return other.hash != noted[0].hash; };
  if (std::any_of(noted.begin(), noted.end(), differs)) {
    const CommError error = difference(call, noted);
    abort(error);
    throw error;
  }
  agreed_ = mine.hash;
}

// All members know that they differ, so that all take part.
CommError C10dEngine::difference(const Call& call, const std::vector<Noted>& all) {
  const auto [fewest, most] = std::minmax_element(
      all.begin(), all.end(), [](const Noted& a, const Noted& b) { return a.errors < b.errors; });
  if (fewest->errors != most->errors) {
    std::array<char, 256> text{};
    call.agreed_on().copy(text.data(), text.size() - 1);
    const std::byte* texts = gathered(call, text.data(), text.size());
    const auto thrower = static_cast<std::size_t>(most - all.begin());
    return error_of_rank(link_.group(), link_.world_rank(thrower),
                         reinterpret_cast<const char*>(texts + thrower * text.size()))
        .fact("seen in", call.to_string());
  }
  std::size_t other = 1;
  while (all[other].hash == all[0].hash) ++other;
  return disagreement(link_.group(), call,
                      "rank " + std::to_string(link_.world_rank(other)) + " differs from rank " +
                          std::to_string(link_.world_rank(0)));
}

void C10dEngine::move_pieces(const Call& call, Regions from, Regions to) {
  const Scope scope(*this);
  at::Tensor sent = packed(from);
  at::Tensor received = place_for(to);
  std::vector<std::int64_t> sent_sizes = sizes_of(from);
  std::vector<std::int64_t> received_sizes = sizes_of(to);
  run(call, [&] {
    return link_.backend()->alltoall_base(received, sent, received_sizes, sent_sizes,
                                          link_.with_timeout(c10d::AllToAllOptions()));
  });
  unpack_all(received, to);
}

// Uneven contributions travel padded to the longest.
void C10dEngine::all_gather(const Call& call, const Region& from, Regions to) {
  if (size() == 1) return copy(from, to[0]);
  Bytes longest = 0;
  bool is_even = true;
  for (const Region& region : to) {
    longest = std::max(longest, region.bytes());
    is_even = is_even && region.bytes() == to[0].bytes();
  }
  if (longest == 0) return barrier(call);
  const Scope scope(*this);
  at::Tensor sent;
  if (is_even) {
    sent = packed({&from, 1});
  } else {
    sent = new_bytes(longest);
    pack(from, 0, from.bytes(), memory_of(sent));
  }
  at::Tensor received = is_even ? place_for(to) : new_bytes(longest * size());
  run(call, [&] {
    return link_.backend()->_allgather_base(received, sent,
                                            link_.with_timeout(c10d::AllgatherOptions()));
  });
  if (is_even) return unpack_all(received, to);
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    unpack(memory_of(received) + static_cast<Bytes>(rank) * longest, to[rank], 0, to[rank].bytes());
  }
}

template <class Combine>
void C10dEngine::reduce_range(const Call& call, Regions from, const Region& to, Bytes begin,
                              Combine combine_range) {
  const Scope scope(*this);
  const at::Tensor parts = new_bytes(to.bytes() * size());
  std::vector<Region> received;
  std::vector<const void*> sources;
  for (int rank = 0; rank < size(); ++rank) {
    received.push_back(Region::whole(memory_of(parts) + rank * to.bytes(), to.bytes()));
    sources.push_back(received.back().base);
  }
  move_pieces(call, from, received);
  combine_range(begin, sources, to.base, to.bytes());
}

template <class Combine>
void C10dEngine::all_reduce_by(const Call& call, const std::byte* from, std::byte* to, Bytes bytes,
                               Combine combine_range) {
  const Scope scope(*this);
  if (bytes <= kReducedTogether) {
    const at::Tensor all = new_bytes(bytes * size());
    std::vector<Region> received;
    std::vector<const void*> sources;
    for (int rank = 0; rank < size(); ++rank) {
      received.push_back(Region::whole(memory_of(all) + rank * bytes, bytes));
      sources.push_back(received.back().base);
    }
    all_gather(call, Region::whole(from, bytes), received);
    return combine_range(Bytes{0}, sources, to, bytes);
  }
  const Bytes chunk =
      ((bytes + size() - 1) / size() + kBytesOfLine - 1) / kBytesOfLine * kBytesOfLine;
  std::vector<Region> sent, gathered;
  for (int rank = 0; rank < size(); ++rank) {
    const Bytes begin = std::min(rank * chunk, bytes);
    const Bytes length = std::min(chunk, bytes - begin);
    sent.push_back(Region::whole(from + begin, length));
    gathered.push_back(Region::whole(to + begin, length));
  }
  const at::Tensor mine = new_bytes(sent[index()].bytes());
  const Region reduced = Region::whole(mine.data_ptr(), sent[index()].bytes());
  reduce_range(call, sent, reduced, sent[index()].base - from, combine_range);
  all_gather(call, reduced, gathered);
}

auto combining(const Call& call) {
  return [&call](Bytes, const std::vector<const void*>& sources, std::byte* to, Bytes bytes) {
    combine(call.dtype(), call.op(), sources, to, bytes / size_of(call.dtype()));
  };
}

// Each tensor in its own dtype.
auto combining(const Call& call, Engine::TensorList tensors, const FlatLayout& layout) {
  return [&call, tensors, &layout](Bytes begin, const std::vector<const void*>& sources,
                                   std::byte* to, Bytes bytes) {
    layout.for_each_in(begin, begin + bytes,
                       [&](std::size_t i, Bytes first, Bytes last, Bytes offset) {
                         std::vector<const void*> here;
                         for (const void* source : sources) {
                           here.push_back(static_cast<const std::byte*>(source) + offset);
                         }
                         combine(tensors[i].dtype, call.op(), here, to + offset,
                                 (last - first) / size_of(tensors[i].dtype));
                       });
  };
}

Bytes bytes_of(const std::vector<FlatLayout>& layouts) {
  Bytes total = 0;
  for (const FlatLayout& layout : layouts) total += layout.bytes();
  return total;
}

// The runs of the ranks, one after the other.
std::vector<Region> runs_in(const at::Tensor& block, const std::vector<FlatLayout>& layouts) {
  std::vector<Region> runs;
  std::byte* next = memory_of(block);
  for (const FlatLayout& layout : layouts) {
    runs.push_back(Region::whole(next, layout.bytes()));
    next += layout.bytes();
  }
  return runs;
}

void copy_all(Engine::TensorList tensors) {
  for (const TensorRegions& tensor : tensors) copy(tensor.from[0], tensor.to[0]);
}

void C10dEngine::reduce_scatter(const Call& call, Regions from, const Region& to) {
  if (size() == 1) return copy(from[0], to);
  reduce_range(call, from, to, 0, combining(call));
}

void C10dEngine::all_reduce(const Call& call, const std::byte* from, std::byte* to,
                            std::int64_t count) {
  const Bytes bytes = count * size_of(call.dtype());
  if (size() == 1) {
    if (from != to && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  all_reduce_by(call, from, to, bytes, combining(call));
}

void C10dEngine::all_reduce_coalesced(const Call& call, TensorList tensors) {
  if (size() == 1) return copy_all(tensors);
  const Scope scope(*this);
  const FlatLayout layout = layout_of(tensors, first_to);
  const at::Tensor sent = new_bytes(layout.bytes());
  const at::Tensor reduced = new_bytes(layout.bytes());
  pack_run(tensors, layout, first_from, 0, layout.bytes(), memory_of(sent));
  all_reduce_by(call, memory_of(sent), memory_of(reduced), layout.bytes(),
                combining(call, tensors, layout));
  unpack_run(memory_of(reduced), tensors, layout, first_to, 0, layout.bytes());
}

void C10dEngine::all_gather_coalesced(const Call& call, TensorList tensors) {
  if (size() == 1) return copy_all(tensors);
  const Scope scope(*this);
  const std::vector<FlatLayout> layouts = layouts_by_rank(size(), tensors, to_of);
  const FlatLayout& mine = layouts[index()];
  const at::Tensor sent = new_bytes(mine.bytes());
  const at::Tensor received = new_bytes(bytes_of(layouts));
  pack_run(tensors, mine, first_from, 0, mine.bytes(), memory_of(sent));
  const std::vector<Region> runs = runs_in(received, layouts);
  all_gather(call, Region::whole(memory_of(sent), mine.bytes()), runs);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    unpack_run(runs[rank].base, tensors, layouts[rank], to_of(rank), 0, layouts[rank].bytes());
  }
}

void C10dEngine::reduce_scatter_coalesced(const Call& call, TensorList tensors) {
  if (size() == 1) return copy_all(tensors);
  const Scope scope(*this);
  const std::vector<FlatLayout> layouts = layouts_by_rank(size(), tensors, from_of);
  if (bytes_of(layouts) == 0) return barrier(call);
  const at::Tensor sent = new_bytes(bytes_of(layouts));
  const std::vector<Region> runs = runs_in(sent, layouts);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    pack_run(tensors, layouts[rank], from_of(rank), 0, layouts[rank].bytes(), runs[rank].base);
  }
  const FlatLayout& mine = layouts[index()];
  const at::Tensor reduced = new_bytes(mine.bytes());
  reduce_range(call, runs, Region::whole(memory_of(reduced), mine.bytes()), 0,
               combining(call, tensors, mine));
  unpack_run(memory_of(reduced), tensors, mine, first_to, 0, mine.bytes());
}

void C10dEngine::broadcast(const Call& call, const Region& region) {
  if (size() == 1) return;
  if (region.bytes() == 0) return barrier(call);
  const Scope scope(*this);
  std::vector<at::Tensor> tensors{packed({&region, 1})};
  c10d::BroadcastOptions options = link_.with_timeout(c10d::BroadcastOptions());
  options.rootRank = call.root();
  run(call, [&] { return link_.backend()->broadcast(tensors, options); });
  unpack_all(tensors[0], {&region, 1});
}

}  // namespace

std::shared_ptr<Engine> make_c10d_engine(c10::intrusive_ptr<c10d::Backend> backend,
                                         C10dOptions options) {
  const auto destroy = [](C10dEngine* engine) {
    if (engine->end()) delete engine;
  };
  return {new C10dEngine(std::move(backend), std::move(options)), destroy};
}

}  // namespace tegula::inner::comm
