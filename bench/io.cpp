// Checkpoints of a state of 1 GiB on this disk, by two processes, beside the same bytes written and
// read with plain system calls, and staged copies beside a memcpy. Files leave the page cache
// before they are read. Then small tensors from a disk that takes 2 ms more for each read, beside
// one read for each slice.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "bench/groups.h"
#include "bench/processes.h"
#include "bench/slow_files.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::bench {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kTensors = 64;
constexpr std::int64_t kSide = 2048;  // rows and columns; 16 MiB each
constexpr int kRounds = 3;            // of which the median counts; one more warms up

// Half of them are cut by rows, half by columns.
std::vector<at::Tensor> make_tensors(const DeviceMesh& mesh) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t k = 0; k < kTensors; ++k) {
    const Placement placement = k % 2 == 0 ? Shard(0) : Shard(1);
    const at::Tensor whole = at::full({kSide, kSide}, static_cast<double>(k), at::kFloat);
    tensors.push_back(distribute_tensor(whole, mesh, {placement}, kSameOnAllRanks));
  }
  return tensors;
}

void drop_from_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check(file >= 0, "open " + path);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void drop_folder(const std::string& folder) {
  for (const auto& one : std::filesystem::recursive_directory_iterator(folder)) {
    if (one.is_regular_file()) drop_from_cache(one.path());
  }
}

constexpr std::int64_t kSmallTensors = 512;
constexpr std::int64_t kSmallSide = 64;  // 16 KiB each
constexpr std::chrono::microseconds kDelay{2000};

// This rank's half of the rows of each tensor, by a read of its own.
void read_slices(inner::FileLayer& files, const std::string& path, const World& world,
                 std::vector<std::byte>& memory) {
  const inner::Contents contents = inner::parse_contents(inner::contents_bytes(files, path));
  for (std::size_t k = 0; k < contents.headers.size(); ++k) {
    const auto file = files.open_to_read(path + "/" + contents.manifest.files[k].name);
    for (const inner::FileTensor& tensor : contents.headers[k].tensors) {
      const std::uint64_t half = tensor.bytes() / kRanks;
      memory.resize(half);
      file->read_at(
          contents.data_begins[k] + tensor.begin + half * static_cast<std::uint64_t>(world.rank()),
          memory);
    }
  }
}

// This rank's half of a file, in pieces of 8 MiB.
template <class Move>
void move_half(int file, const World& world, std::vector<char>& half, Move move) {
  const auto size = static_cast<std::int64_t>(half.size());
  constexpr std::int64_t kPiece = std::int64_t{8} << 20;
  for (std::int64_t at = 0; at < size; at += kPiece) {
    const std::int64_t bytes = std::min(kPiece, size - at);
    const auto done =
        move(file, half.data() + at, static_cast<std::size_t>(bytes), world.rank() * size + at);
    check(done == bytes, "a piece of a file");
  }
}

void write_plain(const std::string& path, const World& world, std::vector<char>& half) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  move_half(file, world, half, [](int to, const char* from, std::size_t bytes, std::int64_t at) {
    return ::pwrite(to, from, bytes, at);
  });
  ::fsync(file);
  ::close(file);
}

void read_plain(const std::string& path, const World& world, std::vector<char>& half) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  move_half(file, world, half, [](int from, char* to, std::size_t bytes, std::int64_t at) {
    return ::pread(from, to, bytes, at);
  });
  ::close(file);
}

class Files {
 public:
  Files(const World& world, std::string folder)
      : world_(world),
        group_(world.group()),
        folder_(std::move(folder)),
        tensors_(make_tensors(world.mesh({{"dp", kRanks}}))),
        state_(world),
        half_(static_cast<std::size_t>(kTensors * kSide * kSide * 4 / kRanks), 'x') {
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      state_.add("x" + std::to_string(k), tensors_[k]);
    }
  }

  std::vector<Measurement> measure() {
    std::vector<Measurement> found;
    const auto add = [&](const char* name, const char* who, const std::function<void()>& before,
                         const std::function<void()>& call) {
      std::vector<double> times;
      for (int round = 0; round <= kRounds; ++round) {
        before();
        const double time = milliseconds(call);
        if (round > 0) times.push_back(time);
      }
      found.push_back({"io", name, who, median(times), "ms"});
    };
    const char* const kSave = "save 1GiB 2 ranks";
    const char* const kLoad = "load 1GiB 2 ranks";
    const char* const kStage = "stage 1GiB 2 ranks";
    const std::string plain = folder_ + "/plain", run = folder_ + "/run";
    add(kSave, "plain", [&] { remove(plain); }, [&] { write_plain(plain, world_, half_); });
    add(kSave, "tegula", [&] { remove(run); }, [&] { save(run, state_); });
    add(kLoad, "plain", [&] { drop(plain); }, [&] { read_plain(plain, world_, half_); });
    add(kLoad, "tegula", [&] { drop(run); }, [&] { load(run, state_); });
    std::vector<char> copy(half_.size());
    AsyncSaver saver;
    add(kStage, "memcpy", [] {}, [&] { std::memcpy(copy.data(), half_.data(), half_.size()); });
    add(
        kStage, "tegula",
        [&] {
          saver.wait();
          remove(run);
        },
        [&] { saver.save(run, state_); });
    saver.wait();
    remove(run);
    const State small = small_state();
    save(run, small);
    const auto slow = std::make_shared<SlowFiles>(kDelay);
    const char* const kSlow = "load 512 tensors 2ms per read 2 ranks";
    std::vector<std::byte> slice;
    add(
        kSlow, "slices", [&] { drop(run); },
        [&] { read_slices(*slow, inner::step_path(run, 0), world_, slice); });
    add(kSlow, "tegula", [&] { drop(run); }, [&] { load(run, small, {.files = slow}); });
    return found;
  }

 private:
  State small_state() const {
    State state(world_);
    const DeviceMesh mesh = world_.mesh({{"dp", kRanks}});
    for (std::int64_t k = 0; k < kSmallTensors; ++k) {
      const at::Tensor whole =
          at::full({kSmallSide, kSmallSide}, static_cast<double>(k), at::kFloat);
      state.add("x" + std::to_string(k),
                distribute_tensor(whole, mesh, {Shard(1)}, kSameOnAllRanks));
    }
    return state;
  }
  // On the slowest rank.
  double milliseconds(const std::function<void()>& call) {
    group_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> mine = std::chrono::steady_clock::now() - begin;
    return group_.all_reduce(at::full({1}, mine.count(), at::kDouble), ReduceOp::Max)
        .item<double>();
  }
  void remove(const std::string& path) {
    group_.barrier();
    if (world_.rank() == 0) std::filesystem::remove_all(path);
    group_.barrier();
  }
  void drop(const std::string& path) {
    group_.barrier();
    if (world_.rank() == 0) {
      if (std::filesystem::is_directory(path)) {
        drop_folder(path);
      } else {
        drop_from_cache(path);
      }
    }
    group_.barrier();
  }

  World world_;
  Group group_;
  std::string folder_;
  std::vector<at::Tensor> tensors_;
  State state_;
  std::vector<char> half_;
};

}  // namespace

std::vector<Measurement> run_io() {
  std::string folder = (std::filesystem::current_path() / "tegula-bench-io-XXXXXX").string();
  check(mkdtemp(folder.data()) != nullptr, "a folder for files in the current one");
  const std::vector<Measurement> found =
      run_processes({kRanks}, [&](const World& world) { return Files(world, folder).measure(); });
  std::filesystem::remove_all(folder);
  return found;
}

}  // namespace tegula::bench
