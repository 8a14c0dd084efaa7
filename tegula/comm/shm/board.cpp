// The block starts with a header (lock, version, counters, fault), a line per rank, and a log of
// key-value entries that only grows; the newest entry of a key counts. Areas follow, each from the
// end of the last one; the block is sparse, so that only what is touched takes memory.
//
// Presence is a record lock of one byte per rank, far behind the data: the kernel drops it when the
// process ends, however it ends, and anyone can ask for it.
#include "tegula/comm/shm/board.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>

#include "tegula/base/text.h"
#include "tegula/comm/shm/futex.h"

namespace tegula::inner::shm {

struct RankLine {
  std::atomic<std::uint32_t> presence;
  std::atomic<std::uint32_t> epoch;  // that the rank is ready for
  cpu_set_t processors;
  ThrownErrors errors;
  FlightRing flights;
};

struct BoardHeader {
  std::uint64_t magic;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> version;
  pthread_mutex_t mutex;
  std::uint64_t log_used;
  std::uint64_t next_area;
  std::array<Fault, 2> faults;  // of even and odd epochs
};

namespace {

constexpr std::uint64_t kMagic = 0x7465'6775'6c61'0003ULL;
constexpr std::size_t kLogBytes = std::size_t{64} << 20;
constexpr std::size_t kPage = 4096;
constexpr off_t kPresenceLocks = off_t{1} << 50;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t lines_offset() { return rounded_up(sizeof(BoardHeader), 64); }
std::size_t log_offset(int ranks) {
  return rounded_up(lines_offset() + static_cast<std::size_t>(ranks) * sizeof(RankLine), kPage);
}

RankLine& line_of(BoardHeader* header, int rank) {
  return reinterpret_cast<RankLine*>(reinterpret_cast<std::byte*>(header) + lines_offset())[rank];
}
std::byte* log_of(BoardHeader* header) {
  return reinterpret_cast<std::byte*>(header) + log_offset(static_cast<int>(header->ranks));
}

CommError system_error(const std::string& sentence) {
  return CommError(sentence + ": " + std::strerror(errno));
}

std::byte* map_file(int descriptor, std::uint64_t place, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                      static_cast<off_t>(place));
  if (memory == MAP_FAILED) {
    throw system_error("cannot map shared memory").fact("bytes", std::to_string(bytes));
  }
  return static_cast<std::byte*>(memory);
}

std::byte* map_private(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw system_error("cannot map memory").fact("bytes", std::to_string(bytes));
  }
  return static_cast<std::byte*>(memory);
}

// A lock on one byte far behind the data, owned by this process. 0 if it worked.
int record_lock(int descriptor, int command, short type, off_t place,
                struct flock* answer = nullptr) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  const int result = fcntl(descriptor, command, &lock);
  if (answer != nullptr) *answer = lock;
  return result;
}

// Signals wait: one that comes while memory is reserved undoes what is done so far, and a timer's
// may come again and again. What is beyond the limit on the size of files shall be an error, not
// the signal that it also is.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~WithoutSignals() {
    const int error = errno;
    const timespec no_time{};
    sigset_t file_size;
    sigemptyset(&file_size);
    sigaddset(&file_size, SIGXFSZ);
    if (!sigismember(&before_, SIGXFSZ)) sigtimedwait(&file_size, nullptr, &no_time);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

// A process that is stopped and continued is interrupted all the same.
template <class Call>
bool succeeds(Call call) {
  const WithoutSignals guard;
  int result = 0;
  do {
    result = call();
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

bool resize(int descriptor, std::size_t bytes) {
  return succeeds([&] { return ftruncate(descriptor, static_cast<off_t>(bytes)); });
}

CommError not_enough(std::size_t bytes) {
  return system_error("not enough shared memory")
      .fact("bytes", std::to_string(bytes))
      .hint("free memory, raise the limit of this container or user, or run fewer ranks");
}

// More than the host has in all would be taken page by page, until nothing is left for anybody.
void check_host_has(std::size_t bytes) {
  struct sysinfo host{};
  if (sysinfo(&host) != 0 || bytes / host.mem_unit <= host.totalram + host.totalswap) return;
  errno = ENOMEM;
  throw not_enough(bytes);
}

void reserve_file(int descriptor, std::uint64_t place, std::size_t bytes) {
  const auto is_reserved = [&] {
    return fallocate(descriptor, 0, static_cast<off_t>(place), static_cast<off_t>(bytes));
  };
  if (!succeeds(is_reserved)) throw not_enough(bytes);
}

struct LogEntry {
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t change;  // a Board::Change
};

}  // namespace

// Holds the board against other processes and threads. A holder that died leaves a log that is
// whole, since log_used moves last.
class Board::Lock {
 public:
  explicit Lock(Board& board) : index_(board.index_mutex_), mutex_(&board.header_->mutex) {
    const std::chrono::milliseconds timeout = board.timeout_;
    timespec deadline{};
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout.count() / 1000 + 1;  // whole seconds do
    const int result = pthread_mutex_clocklock(mutex_, CLOCK_MONOTONIC, &deadline);
    if (result == EOWNERDEAD) pthread_mutex_consistent(mutex_);
    if (result != ETIMEDOUT) return;
    throw CommError(
        "a rank of this host holds the lock of the shared memory and does not let go of it")
        .hint("it may be stopped; look for a process that is, and end or continue it");
  }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::lock_guard<std::mutex> index_;
  pthread_mutex_t* mutex_;
};

Board::Board(int ranks, int descriptor)
    : ranks_(ranks), descriptor_(descriptor), header_bytes_(log_offset(ranks) + kLogBytes) {}

std::shared_ptr<Board> Board::for_threads(int ranks) {
  std::shared_ptr<Board> board(new Board(ranks, -1));
  board->header_ = reinterpret_cast<BoardHeader*>(map_private(board->header_bytes_));
  board->format();
  return board;
}

std::shared_ptr<Board> Board::create(int ranks) {
  const int descriptor = memfd_create("tegula", MFD_CLOEXEC);
  if (descriptor < 0) throw system_error("cannot create shared memory");
  std::shared_ptr<Board> board(new Board(ranks, descriptor));
  fchmod(descriptor, 0600);
  if (!resize(descriptor, board->header_bytes_)) {
    throw system_error("cannot size shared memory")
        .fact("bytes", std::to_string(board->header_bytes_))
        .hint("raise the limit on the size of files (ulimit -f), or free memory");
  }
  board->map_header();
  board->format();
  return board;
}

std::shared_ptr<Board> Board::adopt(int descriptor, int ranks) {
  std::shared_ptr<Board> board(new Board(ranks, descriptor));
  board->map_header();
  if (board->header_->magic != kMagic ||
      board->header_->ranks != static_cast<std::uint32_t>(ranks)) {
    throw CommError("the ranks on this host disagree about their job")
        .fact("ranks",
              std::to_string(board->header_->ranks) + " there, " + std::to_string(ranks) + " here")
        .hint("all ranks must run the same version of Tegula and be told the same number of ranks");
  }
  return board;
}

void Board::map_header() {
  header_ = reinterpret_cast<BoardHeader*>(map_file(descriptor_, 0, header_bytes_));
}

void Board::format() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  if (!is_for_threads()) {
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  }
  pthread_mutex_init(&header_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  header_->ranks = static_cast<std::uint32_t>(ranks_);
  header_->next_area = rounded_up(header_bytes_, kPage);
  header_->magic = kMagic;
}

Board::~Board() {
  for (const Area& area : private_areas_) munmap(area.memory, area.bytes);
  if (header_ != nullptr) munmap(header_, header_bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

Fault& Board::fault(std::uint32_t epoch) { return header_->faults[epoch % 2]; }

// --- presence ---------------------------------------------------------------------------------

void Board::join(int rank) {
  RankLine& line = line_of(header_, rank);
  const bool taken = is_for_threads()
                         ? line.presence.load() == static_cast<std::uint32_t>(Presence::Here)
                         : record_lock(descriptor_, F_SETLK, F_WRLCK, kPresenceLocks + rank) != 0;
  if (taken) {
    throw UsageError("there is a rank " + std::to_string(rank) + " already")
        .hint("give every process its own rank");
  }
  if (!is_for_threads()) joined_as_ = rank;
  sched_getaffinity(0, sizeof(line.processors), &line.processors);
  line.presence.store(static_cast<std::uint32_t>(Presence::Here), std::memory_order_release);
}

void Board::leave(int rank) {
  if (!home_.is_here()) return;
  line_of(header_, rank)
      .presence.store(static_cast<std::uint32_t>(Presence::Left), std::memory_order_release);
  header_->version.fetch_add(1);
  futex_wake_all(header_->version);
}

Presence Board::presence(int rank) const {
  const auto said =
      static_cast<Presence>(line_of(header_, rank).presence.load(std::memory_order_acquire));
  if (said != Presence::Here || is_for_threads()) return said;
  // A process sees its own locks as free: ask for peers only.
  struct flock lock{};
  const int failed = record_lock(descriptor_, F_GETLK, F_WRLCK, kPresenceLocks + rank, &lock);
  return failed != 0 || lock.l_type != F_UNLCK ? Presence::Here : Presence::Dead;
}

int Board::processors() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < ranks_; ++rank) {
    RankLine& line = line_of(header_, rank);
    if (line.presence.load(std::memory_order_acquire) == 0) continue;
    CPU_OR(&all, &all, &line.processors);
  }
  return CPU_COUNT(&all);
}

// --- errors and epochs ------------------------------------------------------------------------

void Board::note_error(int rank, const std::vector<int>& among, std::uint64_t lane,
                       const std::string& text) {
  const std::lock_guard<std::mutex> lock(errors_mutex_);
  line_of(header_, rank).errors.add(among, lane, text);
}

std::string Board::last_error(int rank) const { return line_of(header_, rank).errors.last(); }

std::optional<std::string> Board::error_ahead(int other, int me, std::uint64_t lane) const {
  const ThrownErrors& errors = line_of(header_, other).errors;
  if (!errors.is_ahead_of(line_of(header_, me).errors, me, lane)) return std::nullopt;
  return errors.last();
}

FlightRing& Board::flights(int rank) { return line_of(header_, rank).flights; }

std::string Board::flight_report() const {
  constexpr int kMostRanks = 32;
  constexpr std::size_t kCalls = 5;
  std::string text = "tegula: the last calls of the ranks of this host\n";
  for (int rank = 0; rank < std::min(ranks_, kMostRanks); ++rank) {
    const std::string calls = line_of(header_, rank).flights.to_string(kCalls);
    text += "  rank " + std::to_string(rank) + "\n" + (calls.empty() ? "    none\n" : calls);
  }
  return text;
}

// All have met for the epoch before this one, so nobody looks at the fault of the one before that,
// which stood in the same place. Whoever comes clears it; nobody raises one here before all came.
void Board::begin_epoch(int rank, std::uint32_t epoch, std::chrono::milliseconds timeout) {
  RankLine& mine = line_of(header_, rank);
  mine.errors.clear();
  if (mine.epoch.load() < epoch) fault(epoch).clear();
  mine.epoch.store(epoch);
  header_->version.fetch_add(1);
  futex_wake_all(header_->version);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const std::uint32_t seen = version();
    std::vector<std::int64_t> absent;
    for (int other = 0; other < ranks_; ++other) {
      if (line_of(header_, other).epoch.load() >= epoch) continue;
      const Presence there = presence(other);
      if (there == Presence::Dead || there == Presence::Left) {
        throw CommError("cannot recover: rank " + std::to_string(other) + " of this host " +
                        (there == Presence::Dead ? "died" : "left"))
            .hint("a world recovers if all of its ranks are there; start the job again");
      }
      absent.push_back(other);
    }
    if (absent.empty()) return;
    if (std::chrono::steady_clock::now() > deadline) {
      throw CommError("cannot recover: not all ranks of this host called World::recover in time")
          .fact("absent", bracketed(absent))
          .hint("all ranks call it after an error");
    }
    wait_for_change(seen, std::chrono::milliseconds(20));
  }
}

// --- keys and values --------------------------------------------------------------------------

void Board::catch_up() {
  const std::byte* log = log_of(header_);
  while (indexed_ < header_->log_used) {
    LogEntry entry;
    std::memcpy(&entry, log + indexed_, sizeof(entry));
    const char* text = reinterpret_cast<const char*>(log + indexed_ + sizeof(entry));
    std::string key(text, entry.key_bytes);
    if (entry.change == static_cast<std::uint32_t>(Change::Set)) {
      index_[std::move(key)].assign(text + entry.key_bytes, entry.value_bytes);
    } else {
      index_.erase(key);
    }
    indexed_ += sizeof(entry) + entry.key_bytes + entry.value_bytes;
  }
}

std::optional<std::string> Board::find(const std::string& key) {
  catch_up();
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

void Board::append(const std::string& key, const std::string& value, Change change) {
  const LogEntry entry{static_cast<std::uint32_t>(key.size()),
                       static_cast<std::uint32_t>(value.size()),
                       static_cast<std::uint32_t>(change)};
  const std::size_t bytes = sizeof(entry) + key.size() + value.size();
  if (header_->log_used + bytes > kLogBytes) {
    throw CommError("the board's table of keys is full")
        .fact("bytes", std::to_string(kLogBytes))
        .hint("make groups once and keep them");
  }
  std::byte* place = log_of(header_) + header_->log_used;
  std::memcpy(place, &entry, sizeof(entry));
  std::memcpy(place + sizeof(entry), key.data(), key.size());
  std::memcpy(place + sizeof(entry) + key.size(), value.data(), value.size());
  header_->log_used += bytes;
  header_->version.fetch_add(1);
  futex_wake_all(header_->version);
}

void Board::set(const std::string& key, const std::string& value) {
  const Lock lock(*this);
  append(key, value, Change::Set);
}

std::optional<std::string> Board::get(const std::string& key) {
  const Lock lock(*this);
  return find(key);
}

std::string Board::compare_set(const std::string& key, const std::string& expected,
                               const std::string& value) {
  const Lock lock(*this);
  const std::optional<std::string> held = find(key);
  if (held ? *held != expected : !expected.empty()) return held.value_or(expected);
  append(key, value, Change::Set);
  return value;
}

std::int64_t Board::add(const std::string& key, std::int64_t amount) {
  const Lock lock(*this);
  const std::optional<std::string> held = find(key);
  const std::int64_t sum = (held ? std::stoll(*held) : 0) + amount;
  append(key, std::to_string(sum), Change::Set);
  return sum;
}

bool Board::remove(const std::string& key) {
  const Lock lock(*this);
  if (!find(key)) return false;
  append(key, "", Change::Removed);
  return true;
}

std::int64_t Board::key_count() {
  const Lock lock(*this);
  catch_up();
  return static_cast<std::int64_t>(index_.size());
}

std::uint32_t Board::version() const { return header_->version.load(std::memory_order_acquire); }

void Board::wait_for_change(std::uint32_t seen, std::chrono::milliseconds longest) const {
  futex_wait(header_->version, seen, longest);
}

// --- areas ------------------------------------------------------------------------------------

Area Board::allocate(std::size_t bytes, std::size_t reserved) {
  bytes = rounded_up(bytes, kPage);
  if (is_for_threads()) {
    std::byte* memory = map_private(bytes);
    const Lock lock(*this);
    private_areas_.push_back({reinterpret_cast<std::uint64_t>(memory), memory, bytes});
    return private_areas_.back();
  }
  check_host_has(reserved);
  std::uint64_t place = 0;
  {
    const Lock lock(*this);
    place = header_->next_area;
    header_->next_area += bytes;
  }
  reserve_file(descriptor_, place + bytes - kPage, kPage);  // so far the file reaches from now on
  const Area area = map(place, bytes);
  try {
    reserve(area, 0, reserved);
  } catch (...) {
    free(area);
    throw;
  }
  return area;
}

// A full memory shall be an error here and no signal later.
void Board::reserve(const Area& area, std::size_t begin, std::size_t bytes) const {
  if (!is_for_threads() && bytes > 0) reserve_file(descriptor_, area.place + begin, bytes);
}

Area Board::map(std::uint64_t place, std::size_t bytes) const {
  bytes = rounded_up(bytes, kPage);
  if (is_for_threads()) return {place, reinterpret_cast<std::byte*>(place), bytes};
  return {place, map_file(descriptor_, place, bytes), bytes};
}

void Board::unmap(const Area& area) const {
  if (!is_for_threads()) munmap(area.memory, area.bytes);
}

void Board::free(const Area& area) const {
  if (!home_.is_here()) return;
  if (is_for_threads()) {
    madvise(area.memory, area.bytes, MADV_DONTNEED);
    return;
  }
  succeeds([&] {
    return fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(area.place), static_cast<off_t>(area.bytes));
  });
  unmap(area);
}

}  // namespace tegula::inner::shm
