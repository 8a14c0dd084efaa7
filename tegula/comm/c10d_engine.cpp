// An all-reduce is an exchange of chunks, a local reduction in the order of the ranks, and a gather
// of the chunks: 2(n-1)/n of the tensor per rank, as good as any. Small tensors are gathered whole
// and reduced by everybody. The tensors of a coalesced call are packed one after the other
// (flat_layout.h) and moved as one.
#include "tegula/comm/c10d_engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tegula/base/sentence.h"
#include "tegula/comm/flat_layout.h"
#include "tegula/comm/reduce.h"

namespace tegula::inner::comm {
namespace {

using Bytes = std::int64_t;
using Regions = std::span<const Region>;

constexpr Bytes kReducedTogether = 32 << 10;
constexpr Bytes kLine = 64;
// Messages that carry their shape have tags of their own, from here on.
constexpr int kShapedTags = 1 << 20;

at::Tensor bytes_at(const std::byte* memory, Bytes bytes) {
  return at::from_blob(const_cast<std::byte*>(memory), {bytes}, at::kByte);
}

std::byte* memory_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

Region whole(const at::Tensor& tensor) {
  return Region::whole(tensor.data_ptr(), static_cast<Bytes>(tensor.nbytes()));
}

Bytes total_of(Regions regions) {
  Bytes total = 0;
  for (const Region& region : regions) total += region.bytes();
  return total;
}

// Contiguous regions that follow each other are one block already.
bool is_one_block(Regions regions) {
  const std::byte* end = regions[0].base;
  for (const Region& region : regions) {
    if (region.bytes() == 0) continue;
    if (!region.is_contiguous() || (region.base != end && end != nullptr)) return false;
    end = region.base + region.bytes();
  }
  return regions[0].base != nullptr;
}

void unpack_all(const at::Tensor& block, Regions regions) {
  if (is_one_block(regions) && memory_of(block) == regions[0].base) return;
  const std::byte* next = memory_of(block);
  for (const Region& region : regions) {
    unpack(next, region, 0, region.bytes());
    next += region.bytes();
  }
}

std::vector<std::int64_t> sizes_of(Regions regions) {
  std::vector<std::int64_t> sizes;
  for (const Region& region : regions) sizes.push_back(region.bytes());
  return sizes;
}

using Work = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// A message ends with an error; a collective cannot be made to.
void give_up(const Work& work) {
  try {
    work->abort();
  } catch (const std::exception&) {
  }
}

class C10dEngine final : public Engine {
 public:
  C10dEngine(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options)
      : backend_(std::move(backend)), options_(std::move(options)) {}

  std::string_view name() const override { return options_.engine; }
  c10::intrusive_ptr<c10d::Backend> backend() override { return backend_; }
  Worker& worker() override { return worker_; }
  void set_timeout(std::chrono::milliseconds timeout) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    options_.timeout = timeout;
  }
  void abort(const CommError& error) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!fault_) fault_ = error;
    for (const Work& work : under_way_) give_up(work);
  }
  void keep_after_failure(const Tensors& memory) override {
    if (std::exchange(is_touched_still_, false)) park(memory);
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
    run(call, [&] { return backend_->barrier(with_timeout(c10d::BarrierOptions())); });
  }

  void message_now(const Message& message) override {
    if (!message.carries_shape()) return finish_message(message, start_message(message));
    const std::unique_lock<std::mutex> lock = queue_of(message).lock_when_idle();
    move_with_shape(message);
  }

  // One waits for what was posted before it between the same two ranks, and for nothing else.
  void message_async(const Message& message, OnEnd on_end) override {
    Worker& queue = queue_of(message);
    if (message.carries_shape()) {
      return queue.queue(
          announced(std::move(on_end), [this, message] { move_with_shape(message); }));
    }
    queue.start();
    queue.queue(announced(std::move(on_end), [this, message, work = start_message(message)] {
      finish_message(message, work);
    }));
  }

 private:
  int size() const { return backend_->getSize(); }
  std::size_t index() const { return static_cast<std::size_t>(backend_->getRank()); }

  template <class Options>
  Options with_timeout(Options options) {
    const std::lock_guard<std::mutex> lock(mutex_);
    options.timeout = options_.timeout;
    return options;
  }

  Work start_message(const Message& message, int first_tag = 0) {
    return started(message.call, {message.memory}, [&] {
      Tensors tensors{bytes_at(message.region.base, message.region.bytes())};
      const int tag = first_tag + message.call.tag();
      return message.call.kind() == Kind::Send ? backend_->send(tensors, message.peer, tag)
                                               : backend_->recv(tensors, message.peer, tag);
    });
  }
  void finish_message(const Message& message, const Work& work) {
    finish(message.call, work, {message.memory});
  }

  template <class Body>
  static Worker::Task announced(OnEnd on_end, Body body) {
    return [on_end = std::move(on_end), body]() -> Worker::Announcement {
      std::exception_ptr error;
      try {
        body();
      } catch (...) {
        error = std::current_exception();
      }
      return [on_end, error] { on_end(error); };
    };
  }

  // Two messages, the second of the size that the first one tells: one after the other for each
  // peer and direction.
  void move_with_shape(Message message) {
    const at::Tensor head = at::zeros({sizeof(TensorHead)}, at::kByte);
    if (message.head) std::memcpy(head.data_ptr(), &*message.head, sizeof(TensorHead));
    const auto move = [&](const Region& region, const at::Tensor& memory) {
      const Message part{message.call, message.peer, region, memory};
      finish_message(part, start_message(part, kShapedTags));
    };
    move(whole(head), head);
    if (message.place_for) {
      try {
        message.memory = message.place_for({memory_of(head), sizeof(TensorHead)});
        message.region = whole(message.memory);
      } catch (const CommError& error) {
        abort(error);
        throw;
      }
    }
    if (message.region.bytes() > 0) move(message.region, message.memory);
  }

  Worker& queue_of(const Message& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Worker>& queue = queues_[{message.peer, message.call.kind()}];
    if (!queue) queue = std::make_unique<Worker>();
    return *queue;
  }

  void move_pieces(const Call& call, Regions from, Regions to);
  // `combine_range(begin, sources, to, bytes)` makes bytes [begin, begin + bytes) of the result.
  template <class Combine>
  void reduce_range(const Call& call, Regions from, const Region& to, Bytes begin,
                    Combine combine_range);
  template <class Combine>
  void all_reduce_by(const Call& call, const std::byte* from, std::byte* to, Bytes bytes,
                     Combine combine_range);

  // Memory of the engine's own, until the scope around it ends.
  class Scope {
   public:
    explicit Scope(C10dEngine& engine) : scratch_(engine.scratch_), size_(scratch_.size()) {}
    ~Scope() { scratch_.resize(size_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tensors& scratch_;
    std::size_t size_;
  };
  at::Tensor new_bytes(Bytes bytes) {
    scratch_.push_back(at::empty({bytes}, at::kByte));
    return scratch_.back();
  }
  at::Tensor packed(Regions regions);
  at::Tensor place_for(Regions regions) {
    return is_one_block(regions) ? bytes_at(regions[0].base, total_of(regions))
                                 : new_bytes(total_of(regions));
  }

  // Starts what is a part of a collective, and waits for it.
  template <class Start>
  void run(const Call& call, Start start) {
    finish(call, started(call, scratch_, start), scratch_);
  }

  // Errors of start(), and of finish(), become this group's fault. `memory` is what the work reads
  // and writes, as far as it is known here.
  template <class Start>
  Work started(const Call& call, const Tensors& memory, Start start) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (fault_) throw *fault_;
    }
    Work work;
    try {
      work = start();
    } catch (...) {
      fail(call, nullptr, memory);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    under_way_.insert(work);
    if (fault_) give_up(work);
    return work;
  }
  void finish(const Call& call, const Work& work, const Tensors& memory) {
    try {
      if (!work->wait()) throw std::runtime_error("the call was given up");
    } catch (...) {
      forget(work);
      fail(call, work, memory);
    }
    forget(work);
  }
  void forget(const Work& work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    under_way_.erase(work);
  }
  [[noreturn]] void fail(const Call& call, const Work& work, const Tensors& memory);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex mutex_;
  C10dOptions options_;
  std::optional<CommError> fault_;
  std::uint64_t agreed_ = 0;  // what the members have found to be the same
  std::set<Work> under_way_;
  Tensors scratch_;                // of the collective under way
  bool is_touched_still_ = false;  // what the last collective was given: it failed half done
  std::map<std::pair<int, Kind>, std::unique_ptr<Worker>> queues_;
  Worker worker_;
};

at::Tensor C10dEngine::packed(Regions regions) {
  if (is_one_block(regions)) return bytes_at(regions[0].base, total_of(regions));
  at::Tensor block = new_bytes(total_of(regions));
  std::byte* next = memory_of(block);
  for (const Region& region : regions) {
    pack(region, 0, region.bytes(), next);
    next += region.bytes();
  }
  return block;
}

void C10dEngine::fail(const Call& call, const Work& work, const Tensors& memory) {
  if (!work || !work->isCompleted()) {
    park(memory, work);
    if (call.kind() != Kind::Send && call.kind() != Kind::Recv) is_touched_still_ = true;
  }
  const std::string why = sentence_of(std::current_exception());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!fault_) {
    fault_ =
        CommError("the " + options_.engine + " engine failed: " + why)
            .fact("group", options_.group)
            .fact("call", call.to_string())
            .hint("a rank may have died, be late, or have made another call; look at the others");
  }
  throw *fault_;
}

bool C10dEngine::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool queues_are_idle = std::all_of(queues_.begin(), queues_.end(),
                                             [](auto& queue) { return queue.second->is_idle(); });
    if (worker_.is_idle() && queues_are_idle) return true;
  }
  abort(CommError("the group ended while calls were pending")
            .fact("group", options_.group)
            .hint("wait for asynchronous calls before the world goes"));
  return worker_.is_idle();
}

// One small all-gather, whenever something was noted since the last call.
void C10dEngine::compare_agreed(const Call& call) {
  if (size() == 1 || call.agreed() == agreed_) return;
  const Scope scope(*this);
  constexpr auto kBytes = static_cast<Bytes>(sizeof(std::uint64_t));
  const at::Tensor mine = new_bytes(kBytes);
  const at::Tensor all = new_bytes(kBytes * size());
  const std::uint64_t agreed = call.agreed();
  std::memcpy(memory_of(mine), &agreed, sizeof(agreed));
  std::vector<Region> places;
  for (int rank = 0; rank < size(); ++rank) {
    places.push_back(Region::whole(memory_of(all) + rank * kBytes, kBytes));
  }
  all_gather(call, Region::whole(memory_of(mine), kBytes), places);
  for (std::size_t rank = 1; rank < places.size(); ++rank) {
    if (std::memcmp(places[rank].base, places[0].base, sizeof(agreed)) == 0) continue;
    const CommError error =
        disagreement(options_.group, call, "rank " + std::to_string(rank) + " differs from rank 0");
    abort(error);
    throw error;
  }
  agreed_ = agreed;
}

void C10dEngine::move_pieces(const Call& call, Regions from, Regions to) {
  const Scope scope(*this);
  at::Tensor sent = packed(from);
  at::Tensor received = place_for(to);
  std::vector<std::int64_t> sent_sizes = sizes_of(from);
  std::vector<std::int64_t> received_sizes = sizes_of(to);
  run(call, [&] {
    return backend_->alltoall_base(received, sent, received_sizes, sent_sizes,
                                   with_timeout(c10d::AllToAllOptions()));
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
    return backend_->_allgather_base(received, sent, with_timeout(c10d::AllgatherOptions()));
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
  const Bytes chunk = ((bytes + size() - 1) / size() + kLine - 1) / kLine * kLine;
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

Bytes total_of(const std::vector<FlatLayout>& layouts) {
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
  const at::Tensor received = new_bytes(total_of(layouts));
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
  if (total_of(layouts) == 0) return barrier(call);
  const at::Tensor sent = new_bytes(total_of(layouts));
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
  c10d::BroadcastOptions options = with_timeout(c10d::BroadcastOptions());
  options.rootRank = call.root();
  run(call, [&] { return backend_->broadcast(tensors, options); });
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

void park(const std::vector<at::Tensor>& memory, c10::intrusive_ptr<c10d::Work> work) {
  static std::mutex mutex;
  static auto* const parked = new std::vector<std::pair<Tensors, Work>>();
  const std::lock_guard<std::mutex> lock(mutex);
  parked->emplace_back(memory, std::move(work));
}

}  // namespace tegula::inner::comm
