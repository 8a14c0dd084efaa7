// The area of a group of n: a header with the fault; a line per rank, alone in its cache lines; a
// refusal per rank; then per rank and parity of the round a record of the call, 2n counts, n
// destinations and a slot; then the envelopes. What grows with n * n, and the slots, take memory
// only as far as they are used.
#include "tegula/comm/shm/channel.h"

#include <algorithm>
#include <array>
#include <new>

#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/comm/flight_report.h"
#include "tegula/comm/shm/envelope.h"

namespace tegula::inner::shm {

struct ChannelHeader {
  Fault fault;
  std::atomic<int> left;  // members whose channel is gone
};

// A rank's words that others read. The line that they poll changes hands once per round: what
// stands in it is written together.
struct alignas(128) Line {
  std::atomic<std::uint32_t> posted;    // rounds
  std::atomic<std::uint32_t> sleepers;  // who sleep on `posted`
  std::uint64_t fingerprint[2];
  std::uint64_t extent[2];
  alignas(64) std::atomic<std::uint32_t> reading;  // others' memory
  alignas(64) std::atomic<std::uint32_t> bell;     // rung for messages
  std::atomic<std::uint32_t> bell_sleepers;
  std::atomic<std::uint32_t> queued;  // calls made that another thread of the rank will carry out
};

// The last call that a rank refused, as a count of its calls up to and with it.
struct Refusal {
  std::atomic<std::uint64_t> calls;
  std::array<std::atomic<char>, 248> text;
};

namespace {

using Clock = std::chrono::steady_clock;

struct Record {
  Call call;
  const void* shown;
};

constexpr std::size_t aligned(std::size_t bytes, std::size_t unit = 4096) {
  return (bytes + unit - 1) / unit * unit;
}

struct Layout {
  explicit Layout(std::size_t n)
      : lines(aligned(sizeof(ChannelHeader))),
        refusals(lines + aligned(n * sizeof(Line))),
        records(refusals + aligned(n * sizeof(Refusal))),
        counts(records + aligned(2 * n * sizeof(Record))),
        destinations(counts + aligned(2 * n * 2 * n * sizeof(std::int64_t))),
        slots(destinations + aligned(2 * n * n * sizeof(Destination))),
        envelopes(slots + 2 * n * Channel::kSlotBytes),
        bytes(envelopes + 2 * n * n * Envelope::stride(static_cast<int>(n))) {}
  std::size_t lines, refusals, records, counts, destinations, slots, envelopes, bytes;
};

bool has_reached(std::uint32_t posted, std::uint32_t target) {
  return static_cast<std::int32_t>(posted - target) >= 0;  // right across the wrap-around
}

std::string seconds(std::chrono::nanoseconds span) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(span).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Channel::Channel(std::shared_ptr<Board> board, ChannelOptions options)
    : board_(std::move(board)),
      options_(std::move(options)),
      world_fault_(board_->fault(options_.epoch)),
      size_(static_cast<int>(options_.members.size())),
      timeout_(options_.timeout.count()) {
  attach();
}

Channel::~Channel() {
  const bool is_last = header_->left.fetch_add(1) + 1 == size_;
  is_last ? board_->free(area_) : board_->unmap(area_);
}

void Channel::attach() {
  const Layout layout(static_cast<std::size_t>(size_));
  area_ = find_area(layout.bytes, layout.counts);
  header_ = reinterpret_cast<ChannelHeader*>(area_.memory);
  lines_ = reinterpret_cast<Line*>(area_.memory + layout.lines);
  refusals_ = reinterpret_cast<Refusal*>(area_.memory + layout.refusals);
  records_ = area_.memory + layout.records;
  counts_ = area_.memory + layout.counts;
  destinations_ = area_.memory + layout.destinations;
  slots_ = area_.memory + layout.slots;
  envelopes_ = area_.memory + layout.envelopes;
}

// The first member allocates and writes the place on the board. If it cannot, it writes why.
Area Channel::find_area(std::size_t bytes, std::size_t reserved) {
  const std::string key = "channel/" + std::to_string(options_.epoch) + "/" + options_.name;
  if (index() == 0) {
    try {
      const Area area = board_->allocate(bytes, reserved);
      board_->set(key, std::to_string(area.place));
      return area;
    } catch (const CommError& error) {
      board_->set(key, std::string("!") + error.sentence());
      throw;
    }
  }
  const Clock::time_point start = Clock::now();
  const Call call(Kind::Barrier);
  while (true) {
    const std::uint32_t seen = board_->version();
    if (const std::optional<std::string> place = board_->get(key)) {
      if (place->starts_with("!")) throw error_about(place->substr(1));
      return board_->map(std::stoull(*place), bytes);
    }
    if (world_fault_.raised()) throw world_fault_.error();
    if (const auto text = error_ahead(0)) {
      if (!board_->get(key)) throw error_of(0, *text);
    }
    const Presence presence = board_->presence(options_.members[0]);
    if ((presence == Presence::Dead || presence == Presence::Left) && !board_->get(key)) {
      throw error_about("rank " + world_rank(0) + " is gone and never made the group")
          .hint("look at that rank's output");
    }
    if (Clock::now() - start > timeout()) {
      throw error_about("rank " + world_rank(0) + " did not make the group within " +
                        seconds(timeout()))
          .hint("every rank of a group must make it and call its collectives");
    }
    board_->wait_for_change(seen, std::chrono::milliseconds(20));
  }
}

int Channel::on_board(int member) const {
  return options_.members[static_cast<std::size_t>(member)];
}
int Channel::me_on_board() const { return on_board(index()); }

std::string Channel::world_rank(int member) const {
  return std::to_string(options_.world_ranks[static_cast<std::size_t>(member)]);
}

// --- rounds -----------------------------------------------------------------------------------

void Channel::open(const Call& call, std::uint64_t extent) {
  throw_if_broken();
  call_ = call;
  call_.number(calls_++);
  extent_ = extent;
  const std::size_t parity = round_ & 1U;
  reinterpret_cast<Record*>(records_)[static_cast<std::size_t>(index()) * 2 + parity].call = call_;
}

void Channel::reserve_mine(const void* memory, std::int64_t bytes, Reserved& reserved) {
  std::int64_t& has = reserved[round_ & 1U];
  if (bytes <= has) return;
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - area_.memory);
  board_->reserve(area_, begin, static_cast<std::size_t>(bytes));
  has = bytes;
}

std::byte* Channel::my_slot(std::int64_t bytes) {
  const std::byte* slot = slot_of(index());
  reserve_mine(slot, bytes, slot_bytes_);
  return const_cast<std::byte*>(slot);
}

const std::byte* Channel::slot_of(int member) const {
  return slots_ + (static_cast<std::size_t>(member) * 2 + (round_ & 1U)) * kSlotBytes;
}

std::int64_t* Channel::my_counts() {
  const std::int64_t* counts = counts_of(index());
  reserve_mine(counts, 2 * size_ * static_cast<std::int64_t>(sizeof(*counts)), counts_bytes_);
  return const_cast<std::int64_t*>(counts);
}

const std::int64_t* Channel::counts_of(int member) const {
  const auto n = static_cast<std::size_t>(size_);
  return reinterpret_cast<const std::int64_t*>(counts_) +
         (static_cast<std::size_t>(member) * 2 + (round_ & 1U)) * 2 * n;
}

Destination* Channel::my_destinations() {
  const Destination* mine = destinations_of(index());
  reserve_mine(mine, size_ * static_cast<std::int64_t>(sizeof(*mine)), destinations_bytes_);
  return const_cast<Destination*>(mine);
}

const Destination* Channel::destinations_of(int member) const {
  return reinterpret_cast<const Destination*>(destinations_) +
         (static_cast<std::size_t>(member) * 2 + (round_ & 1U)) * static_cast<std::size_t>(size_);
}

std::uint64_t Channel::extent_of(int member) const { return lines_[member].extent[round_ & 1U]; }

void Channel::show(const void* address) {
  reinterpret_cast<Record*>(records_)[static_cast<std::size_t>(index()) * 2 + (round_ & 1U)].shown =
      address;
}

const void* Channel::shown_by(int member) const {
  return reinterpret_cast<const Record*>(
             records_)[static_cast<std::size_t>(member) * 2 + (round_ & 1U)]
      .shown;
}

void Channel::meet() {
  Line& mine = lines_[index()];
  mine.posted.exchange(round_ + 1);  // a full barrier: sleepers is read after it
  if (mine.sleepers.load() != 0) futex_wake_all(mine.posted);
  for (int member = 0; member < size_; ++member) {
    if (member == index()) continue;
    if (!has_reached(lines_[member].posted.load(std::memory_order_acquire), round_ + 1)) {
      wait_for(member);
    }
  }
}

void Channel::wait_for(int member) {
  const std::atomic<std::uint32_t>& posted = lines_[member].posted;
  const std::uint32_t target = round_ + 1;
  const auto is_absent = [&](int other) {
    return other != index() &&
           !has_reached(lines_[other].posted.load(std::memory_order_acquire), target);
  };
  Backoff backoff(this->backoff());
  Clock::time_point start{};
  while (true) {
    const std::uint32_t seen = posted.load(std::memory_order_acquire);
    if (has_reached(seen, target)) return;
    if (!backoff.wait(posted, seen, lines_[member].sleepers)) continue;
    if (!is_absent(member)) return;  // it came, whatever has happened since
    if (start == Clock::time_point{}) start = Clock::now();
    look_around(start, call_, is_absent);
  }
}

void Channel::meet_and_check() {
  Line& line = lines_[index()];
  line.fingerprint[round_ & 1U] = call_.fingerprint();
  line.extent[round_ & 1U] = extent_;
  meet();
  check_fingerprints();
}

void Channel::check_fingerprints() {
  const std::size_t parity = round_ & 1U;
  const std::uint64_t first = lines_[0].fingerprint[parity];
  for (int member = 1; member < size_; ++member) {
    if (lines_[member].fingerprint[parity] == first) continue;
    const auto* records = reinterpret_cast<const Record*>(records_);
    const auto call_of = [&](int m) {
      return records[static_cast<std::size_t>(m) * 2 + parity].call;
    };
    if (call_of(0).errors_before() != call_of(member).errors_before()) {
      const bool is_first = call_of(0).errors_before() > call_of(member).errors_before();
      const int thrower = is_first ? 0 : member;
      fail_by_error_of(thrower, board_->last_error(on_board(thrower)), call_of(thrower));
    }
    if (call_of(0).differs_in_agreement_only(call_of(member))) {
      fail(
          comm::disagreement(options_.name, call_of(0),
                             "rank " + world_rank(member) + " differs from rank " + world_rank(0)));
    }
    fail_with_report(CommError("ranks made different calls on one group")
                         .fact("group", options_.name)
                         .fact("rank " + world_rank(0), call_of(0).to_string())
                         .fact("rank " + world_rank(member), call_of(member).to_string())
                         .hint("all ranks of a group must make the same calls in the same order"));
  }
}

void Channel::refuse(const std::string& what) {
  Refusal& refusal = refusals_[index()];
  for (std::size_t i = 0; i < refusal.text.size(); ++i) {
    const bool is_inside = i < what.size() && i + 1 < refusal.text.size();
    refusal.text[i].store(is_inside ? what[i] : '\0', std::memory_order_relaxed);
  }
  refusal.calls.store(++calls_, std::memory_order_release);
}

void Channel::refuse_message(int peer, const std::string& what) {
  if (is_broken()) return;  // that is known, and why
  const bool is_known = peer >= 0 && peer < size_ && peer != index();
  const std::vector<int> both = {me_on_board(), on_board(is_known ? peer : 0)};
  board_->note_error(me_on_board(), is_known ? both : options_.members, options_.lane, what);
}

// A member that has not come to this call and has counted it has refused it.
void Channel::check_refusal(int member, const Call& call) {
  const Refusal& refusal = refusals_[member];
  if (refusal.calls.load(std::memory_order_acquire) <= call.sequence()) return;
  std::string text;
  for (const std::atomic<char>& c : refusal.text) {
    if (c.load(std::memory_order_relaxed) == '\0') break;
    text += c.load(std::memory_order_relaxed);
  }
  fail(error_about("rank " + world_rank(member) + " refused a call that others made")
           .fact("rank " + world_rank(index()), call.to_string())
           .fact("rank " + world_rank(member), text)
           .hint("look at that rank's output; all ranks of a group must make the same calls"));
}

void Channel::note_queued() { lines_[index()].queued.fetch_add(1); }
void Channel::note_carried_out() { lines_[index()].queued.fetch_sub(1); }

// A member that has not made this call, and has thrown more often than this rank, has thrown where
// this rank has not. One that has made the call may have thrown since, as this rank may yet.
void Channel::check_errors(int member, const Call& call,
                           const std::function<bool(int)>& is_absent) {
  const std::optional<std::string> text = error_ahead(member);
  if (!text || lines_[member].queued.load() != 0 || !is_absent(member)) return;
  fail_by_error_of(member, *text, call);
}

std::optional<std::string> Channel::error_ahead(int member) const {
  return board_->error_ahead(on_board(member), me_on_board(), options_.lane);
}

CommError Channel::error_of(int member, const std::string& text) const {
  return comm::error_of_rank(name_and_ranks(),
                             options_.world_ranks[static_cast<std::size_t>(member)], text);
}

// All ranks of the world throw this, those too that do not wait for the member themselves.
void Channel::fail_by_error_of(int member, const std::string& text, const Call& call) {
  world_fault_.raise(error_of(member, text).fact("seen in", call.to_string()));
  wake_all();
  throw_fault(world_fault_);
}

Backoff::Start Channel::backoff() {
  if (!knows_processors_) {
    bool all_joined = true;
    for (int rank = 0; rank < board_->ranks(); ++rank) {
      if (board_->presence(rank) == Presence::NotYet) all_joined = false;
    }
    has_own_processor_ = board_->ranks() <= board_->processors();
    knows_processors_ = all_joined;
  }
  return has_own_processor_ ? Backoff::Start::Spinning : Backoff::Start::Yielding;
}

// --- faults -----------------------------------------------------------------------------------

bool Channel::is_broken() const { return header_->fault.raised() || world_fault_.raised(); }

void Channel::throw_if_broken() const {
  if (header_->fault.raised()) throw_fault(header_->fault);
  if (world_fault_.raised()) throw_fault(world_fault_);
}

// What this rank throws is known to those who are not of this group and wait for it elsewhere.
void Channel::throw_fault(const Fault& fault) const {
  const CommError error = fault.error();
  board_->note_error(me_on_board(), {}, options_.lane, error.sentence());
  throw error;
}

void Channel::abort(const CommError& error) {
  header_->fault.raise(error);
  wake_all();
}

void Channel::fail(const CommError& error) {
  abort(error);
  throw_fault(header_->fault);
}

void Channel::fail_with_report(const CommError& error) {
  if (header_->fault.raise(error)) comm::write_flight_report(*board_);
  wake_all();
  throw_fault(header_->fault);
}

void Channel::break_by_current_error() {
  if (is_broken()) return;
  abort(error_about("rank " + world_rank(index()) + " failed in the middle of a call")
            .fact("call", call_.to_string())
            .fact("because", sentence_of(std::current_exception()))
            .hint("look at that rank's output"));
}

void Channel::wake_all() {
  for (int member = 0; member < size_; ++member) {
    futex_wake_all(lines_[member].posted);
    ring(member);
  }
}

std::string Channel::name_and_ranks() const {
  const std::vector<std::int64_t> ranks(options_.world_ranks.begin(), options_.world_ranks.end());
  return options_.name + ", ranks " + bracketed(ranks);
}

CommError Channel::error_about(const std::string& sentence) const {
  return CommError(sentence).fact("group", name_and_ranks());
}

void Channel::look_around(Clock::time_point start, const Call& call,
                          const std::function<bool(int)>& is_absent) {
  throw_if_broken();
  std::vector<int> absent;
  for (int member = 0; member < size_; ++member) {
    if (!is_absent(member)) continue;
    const Presence presence = board_->presence(options_.members[static_cast<std::size_t>(member)]);
    const bool is_gone = presence == Presence::Dead || presence == Presence::Left;
    if (is_gone && is_absent(member)) {  // asked again: it may have done its part and left since
      throw_about_absent(call, {member}, presence == Presence::Dead ? "died" : "left",
                         "look at that rank's output; the others cannot go on without it");
    }
    const bool is_collective = call.kind() != Kind::Send && call.kind() != Kind::Recv;
    if (is_collective && is_absent(member)) check_refusal(member, call);
    check_errors(member, call, is_absent);
    absent.push_back(member);
  }
  if (!absent.empty() && Clock::now() - start > timeout()) {
    throw_about_absent(call, absent, "did not come within " + seconds(timeout()),
                       "they may be stuck, stopped or busy; a longer timeout can be set");
  }
}

void Channel::throw_about_absent(const Call& call, const std::vector<int>& absent,
                                 const std::string& what, const std::string& hint) {
  std::vector<std::int64_t> ranks;
  for (int member : absent) ranks.push_back(options_.world_ranks[static_cast<std::size_t>(member)]);
  fail_with_report(error_about((ranks.size() == 1 ? "rank " : "ranks ") + join(ranks) + " " + what)
                       .fact("call", call.to_string() + ", of rank " + world_rank(index()))
                       .fact("absent", bracketed(ranks))
                       .hint(hint));
}

// --- memory that members show each other ------------------------------------------------------

void Channel::begin_reading() {
  lines_[index()].reading.exchange(1);
  if (!is_broken()) return;
  end_reading();
  throw_if_broken();
}

void Channel::end_reading() { lines_[index()].reading.store(0, std::memory_order_release); }

void Channel::wait_for_readers() {
  for (int member = 0; member < size_; ++member) {
    const int rank = options_.members[static_cast<std::size_t>(member)];
    while (member != index() && lines_[member].reading.load() != 0 &&
           board_->presence(rank) == Presence::Here) {
      sched_yield();
    }
  }
}

// --- messages ----------------------------------------------------------------------------------

void Channel::reserve_envelopes(int from, int to) {
  const auto* first = reinterpret_cast<const std::byte*>(&envelope(from, to, 0));
  board_->reserve(area_, static_cast<std::size_t>(first - area_.memory),
                  2 * Envelope::stride(size_));
}

Envelope& Channel::envelope(int from, int to, std::uint64_t part) const {
  const std::size_t pair = static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
                           static_cast<std::size_t>(to);
  return *reinterpret_cast<Envelope*>(envelopes_ +
                                      (pair * 2 + (part & 1U)) * Envelope::stride(size_));
}

std::atomic<std::uint32_t>& Channel::bell(int member) { return lines_[member].bell; }
std::atomic<std::uint32_t>& Channel::bell_sleepers(int member) {
  return lines_[member].bell_sleepers;
}

void Channel::ring(int member) {
  lines_[member].bell.fetch_add(1);
  if (lines_[member].bell_sleepers.load() != 0) futex_wake_all(lines_[member].bell);
}

}  // namespace tegula::inner::shm
