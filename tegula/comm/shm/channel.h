// A group's shared memory and the one protocol that its collectives are made of: rounds.
//
// In a round every rank writes what the others shall see into its slot, posts, waits until all have
// posted, and reads the others' slots. A rank has two slots, used in turn across all calls: when
// all have posted round k, nobody reads a slot of round k - 1 any more, so round k + 1 may
// overwrite it. One post and one wait per round is all the synchronisation there is.
//
// The first round of a call carries its fingerprint. A mismatch, a rank that died or left, one that
// threw an error in an op that others did not (thrown_errors.h), and a wait that exceeds the
// timeout become the group's fault, which every rank throws, at once and in all later calls.
//
// One thread of a rank at a time, but for the parts on faults and messages.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/comm/call.h"
#include "tegula/comm/shm/backoff.h"
#include "tegula/comm/shm/blocks.h"
#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

using comm::Call;
using comm::Kind;

struct ChannelHeader;
struct Line;
struct Refusal;
struct Envelope;

struct ChannelOptions {
  std::string name;
  std::vector<int> members;      // ranks on the board, in the group's order
  std::vector<int> world_ranks;  // the same as users know them
  int index = 0;                 // my place in the lists
  std::uint32_t epoch = 0;       // of the board
  std::uint64_t lane = 0;        // its number (lane.h)
  std::chrono::milliseconds timeout{300'000};
  std::shared_ptr<Blocks> blocks;  // where large results of this rank live; null: nowhere
};

// Where a member wants what another one has for it; spot.block == 0: not in a block.
struct Destination {
  Spot spot;
  std::int64_t run, stride, runs;  // as in Region
};

class Channel {
 public:
  // Every member makes the channel with the same options (but index); the first member's call
  // allocates, the others wait for it. CommError after the timeout, or if a member died.
  Channel(std::shared_ptr<Board> board, ChannelOptions options);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int size() const { return size_; }
  int index() const { return options_.index; }
  const std::string& name() const { return options_.name; }
  std::string world_rank(int member) const;
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_.load()); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout.count()); }
  // Members are threads: they can read each other's memory.
  bool members_share_memory() const { return board_->is_for_threads(); }

  // --- rounds ---
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
  // Starts a call: numbers it, puts its fingerprint and `extent` (a number of the caller's own,
  // which need not agree) beside the slot of the coming round.
  void open(const Call& call, std::uint64_t extent);
  // Of at least so many bytes; CommError if there is no memory for them.
  std::byte* my_slot(std::int64_t bytes);
  const std::byte* slot_of(int member) const;
  // 2 * size() numbers of mine that the others can read in this round.
  std::int64_t* my_counts();
  const std::int64_t* counts_of(int member) const;
  // One per member that sends me something.
  Destination* my_destinations();
  const Destination* destinations_of(int member) const;
  Blocks* blocks() const { return options_.blocks.get(); }
  std::uint64_t extent_of(int member) const;
  // A pointer into my memory for members that share it.
  void show(const void* address);
  const void* shown_by(int member) const;

  // Posts this round and waits for all.
  void meet();
  // As meet(), then compares fingerprints.
  void meet_and_check();
  // Ends the round: slots of the next one may be written.
  void advance() { ++round_; }

  // Counts a call that this rank does not make because it was wrong in itself. Members that wait
  // for it throw, naming `what`; if all refuse it, nothing happens.
  void refuse(const std::string& what);
  // A message to or from `peer` that this rank does not begin counts as an error that it threw
  // among the two of them, or among all members if there is no such peer: who waits for it throws,
  // unless it has refused one, too.
  void refuse_message(int peer, const std::string& what);

  // A call was made that another thread will carry out, or it has been: whoever waits for it need
  // not ask why it does not come. Any thread.
  void note_queued();
  void note_carried_out();

  // --- faults ---
  bool is_broken() const;
  void throw_if_broken() const;
  // Makes `error` the group's fault unless it has one; throws the fault.
  [[noreturn]] void fail(const CommError& error);
  // The same, and the last calls of all ranks are printed, by one of them: for what nobody can
  // explain who does not know them.
  [[noreturn]] void fail_with_report(const CommError& error);
  // Ends all calls of all members with this fault.
  void abort(const CommError& error);
  // In a handler: if the group is not broken, the error that is handled breaks it, and the other
  // members learn of it.
  void break_by_current_error();
  CommError error_about(const std::string& sentence) const;
  // Throws if a fault is raised, if one of the members is gone, if one has thrown an error where I
  // have not, or if the wait since `start` is too long. `is_absent(member)` says whom we wait for.
  void look_around(std::chrono::steady_clock::time_point start, const Call& call,
                   const std::function<bool(int)>& is_absent);

  // Reading peers' memory between these two is safe even if a peer fails meanwhile: it does not
  // return from its call before. begin_reading() throws if the group broke.
  void begin_reading();
  void end_reading();
  // Waits until no peer that is here reads my memory; after a failure in a call that showed it.
  void wait_for_readers();

  // --- messages ---
  // Before the first message of a pair, by both of them. CommError if there is no memory.
  void reserve_envelopes(int from, int to);
  // The envelope of part `part` of what `from` sends to `to`.
  Envelope& envelope(int from, int to, std::uint64_t part) const;
  std::atomic<std::uint32_t>& bell(int member);
  std::atomic<std::uint32_t>& bell_sleepers(int member);
  void ring(int member);
  Backoff::Start backoff();

 private:
  void attach();
  Area find_area(std::size_t bytes, std::size_t reserved);
  // How much of what I write in rounds of each parity is reserved.
  using Reserved = std::array<std::int64_t, 2>;
  void reserve_mine(const void* memory, std::int64_t bytes, Reserved& reserved);
  void wait_for(int member);
  void check_fingerprints();
  void check_refusal(int member, const Call& call);
  void check_errors(int member, const Call& call, const std::function<bool(int)>& is_absent);
  std::optional<std::string> error_ahead(int member) const;
  CommError error_of(int member, const std::string& text) const;
  [[noreturn]] void fail_by_error_of(int member, const std::string& text, const Call& call);
  [[noreturn]] void throw_fault(const Fault& fault) const;
  int on_board(int member) const;
  int me_on_board() const;
  std::string name_and_ranks() const;
  void wake_all();
  [[noreturn]] void throw_about_absent(const Call& call, const std::vector<int>& absent,
                                       const std::string& what, const std::string& hint);

  std::shared_ptr<Board> board_;
  ChannelOptions options_;
  Fault& world_fault_;
  int size_;
  Area area_;
  ChannelHeader* header_ = nullptr;
  Line* lines_ = nullptr;
  Refusal* refusals_ = nullptr;
  std::byte* records_ = nullptr;
  std::byte* counts_ = nullptr;
  std::byte* destinations_ = nullptr;
  std::byte* slots_ = nullptr;
  std::byte* envelopes_ = nullptr;
  Reserved slot_bytes_{}, counts_bytes_{}, destinations_bytes_{};
  std::uint32_t round_ = 0;
  std::uint64_t calls_ = 0;
  Call call_;
  std::uint64_t extent_ = 0;
  std::atomic<std::int64_t> timeout_;  // milliseconds
  std::atomic<bool> knows_processors_ = false;
  std::atomic<bool> has_own_processor_ = false;
};

}  // namespace tegula::inner::shm
