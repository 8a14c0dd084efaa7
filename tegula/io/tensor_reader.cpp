// The idea: what the rank needs of many tensors is read at once, so that neighbours in a file come
// in one read; then the rows of each tensor travel to where its placements want them.
#include "tegula/io/tensor_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include "tegula/bridge/torch_types.h"
#include "tegula/files/chunk_reader.h"
#include "tegula/io/agreement.h"
#include "tegula/io/rows.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

// What is held at once beside the tensors.
constexpr std::uint64_t kBatchBytes = std::uint64_t{64} << 20;

// After an error it reads nothing more and keeps it: the rank goes on to communicate.
class Reader {
 public:
  Reader(FileLayer& files, const std::vector<SourceFile>& sources)
      : files_(files), sources_(sources), wanted_(sources.size()) {}

  // The rows that begin at this byte of the tensor.
  void want(const std::vector<FilePiece>& pieces, const Rows& rows) {
    const auto begin = static_cast<std::uint64_t>(rows.offset);
    const std::uint64_t end = begin + rows.local.nbytes();
    for (const FilePiece& piece : pieces) {
      const std::uint64_t first = std::max(begin, piece.tensor_begin);
      const std::uint64_t last = std::min(end, piece.tensor_begin + piece.bytes);
      if (first >= last) continue;
      auto* memory = static_cast<std::byte*>(rows.local.data_ptr()) + (first - begin);
      wanted_[piece.file].push_back(
          {piece.file_begin + (first - piece.tensor_begin), {memory, last - first}});
      bytes_ += last - first;
    }
  }
  std::uint64_t wanted_bytes() const { return bytes_; }

  void read() {
    bytes_ = 0;
    for (std::size_t file = 0; file < wanted_.size(); ++file) {
      const std::vector<Wanted> wanted = std::exchange(wanted_[file], {});
      if (wanted.empty() || error_) continue;
      try {
        const SourceFile& source = sources_[file];
        const std::unique_ptr<File> open = files_.open_to_read(source.path);
        read_wanted({open.get(), source.path, source.size, source.chunk_bytes, source.checksums},
                    wanted);
      } catch (...) {
        error_ = std::current_exception();
      }
    }
  }
  const std::exception_ptr& error() const { return error_; }

 private:
  FileLayer& files_;
  const std::vector<SourceFile>& sources_;
  std::vector<std::vector<Wanted>> wanted_;
  std::uint64_t bytes_ = 0;
  std::exception_ptr error_;
};

// A tensor whose rows are on their way.
struct Arriving {
  at::Tensor tensor;
  Rows rows;
};

std::optional<Rows> memory_for(const at::Tensor& tensor, at::ScalarType type) {
  if (is_dtensor(tensor)) return rows_for(tensor, type);
  const bool is_fit = tensor.scalar_type() == type && tensor.is_contiguous() &&
                      tensor.device() == host_device() && !tensor.is_conj() && !tensor.is_neg();
  if (is_fit) return Rows{tensor.detach(), 0, true};
  return Rows{at::empty(tensor.sizes(), at::TensorOptions(type).device(host_device())), 0, false};
}

void take(const Arriving& one) {
  const at::NoGradGuard no_grad;
  if (is_dtensor(one.tensor)) {
    take_rows(one.tensor, one.rows);
  } else if (one.rows.is_own) {
    one.tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    one.tensor.detach().copy_(one.rows.local);
  }
}

}  // namespace

void read_tensors(const Group& group, FileLayer& files, const std::vector<SourceFile>& sources,
                  const std::vector<SourcedTensor>& tensors) {
  Reader reader(files, sources);
  std::vector<Arriving> arriving;
  const auto take_all = [&] {
    reader.read();
    for (const Arriving& one : arriving) take(one);
    arriving.clear();
  };
  for (const SourcedTensor& one : tensors) {
    std::optional<Rows> rows = memory_for(one.tensor, one.type);
    if (!rows) continue;
    reader.want(one.pieces, *rows);
    arriving.push_back({one.tensor, std::move(*rows)});
    if (reader.wanted_bytes() >= kBatchBytes) take_all();
  }
  take_all();
  throw_together(group, reader.error());
}

}  // namespace tegula::inner
