// The idea: what the rank needs of many tensors is read at once, so that neighbours in a file come
// in one read; then the rows of each tensor travel to where its placements want them, while the
// disk reads what comes next.
#include "tegula/io/tensor_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <set>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/together.h"
#include "tegula/io/rows.h"
#include "tegula/io/shared_reader.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

// What is held at once beside the tensors.
constexpr std::uint64_t kBatchBytes = std::uint64_t{64} << 20;

// A tensor of which this rank reads these rows.
struct Reading {
  const SourcedTensor* from = nullptr;
  RowsPlace place;
  std::vector<FilePiece> pieces;

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const FilePiece& piece : pieces) sum += piece.bytes;
    return sum;
  }
};

std::optional<Reading> reading_of(const SourcedTensor& one) {
  const std::optional<RowsPlace> place = is_dtensor(one.tensor)
                                             ? rows_place(one.tensor, one.type)
                                             : RowsPlace{0, one.tensor.sizes().vec()};
  if (!place) return std::nullopt;
  const std::int64_t bytes = c10::multiply_integers(place->shape) * c10::elementSize(one.type);
  return Reading{&one, *place,
                 part_of(one.pieces, static_cast<std::uint64_t>(place->offset),
                         static_cast<std::uint64_t>(bytes))};
}

// In their order, so that a batch reads about this much, and a tensor at least.
std::vector<std::vector<Reading>> batches_of(const std::vector<SourcedTensor>& tensors,
                                             const std::set<std::size_t>& left_out) {
  std::vector<std::vector<Reading>> batches(1);
  std::uint64_t bytes = 0;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (left_out.contains(k)) continue;
    std::optional<Reading> one = reading_of(tensors[k]);
    if (!one) continue;
    if (bytes >= kBatchBytes) {
      batches.emplace_back();
      bytes = 0;
    }
    bytes += one->bytes();
    batches.back().push_back(std::move(*one));
  }
  return batches;
}

Rows memory_for(const Reading& one, ReusedMemory& memory) {
  const at::Tensor& tensor = one.from->tensor;
  const at::ScalarType type = one.from->type;
  if (is_dtensor(tensor)) return rows_for(tensor, type, one.place, memory);
  const bool is_fit = tensor.scalar_type() == type && tensor.is_contiguous() &&
                      tensor.device() == host_device() && !tensor.is_conj() && !tensor.is_neg();
  if (is_fit) return {tensor.detach(), 0, true};
  return {memory.tensor(tensor.sizes(), type), 0, false};
}

void take(const at::Tensor& tensor, const Rows& rows) {
  const at::NoGradGuard no_grad;
  if (is_dtensor(tensor)) {
    take_rows(tensor, rows);
  } else if (rows.is_own) {
    tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    tensor.detach().copy_(rows.local);
  }
}

void read_batch(FileReader& reader, const std::vector<Reading>& batch, ReusedMemory& memory) {
  memory.reuse();
  std::vector<Rows> rows;
  for (const Reading& one : batch) {
    rows.push_back(memory_for(one, memory));
    for (const FilePiece& piece : one.pieces) {
      const std::uint64_t begin =
          piece.tensor_begin - static_cast<std::uint64_t>(rows.back().offset);
      reader.want(piece, static_cast<std::byte*>(rows.back().local.data_ptr()) + begin);
    }
  }
  reader.read();
  for (std::size_t k = 0; k < batch.size(); ++k) take(batch[k].from->tensor, rows[k]);
}

void hint(FileReader& reader, const std::vector<Reading>& batch) {
  for (const Reading& one : batch) {
    for (const FilePiece& piece : one.pieces) reader.hint(piece);
  }
}

}  // namespace

void read_tensors(const Group& group, FileLayer& files, const std::vector<SourceFile>& sources,
                  const std::vector<SourcedTensor>& tensors) {
  FileReader reader(files, sources);
  const std::vector<std::size_t> by_all = read_by_all(group, reader, tensors);
  const std::vector<std::vector<Reading>> batches =
      batches_of(tensors, {by_all.begin(), by_all.end()});
  ReusedMemory memory;
  hint(reader, batches.front());
  for (std::size_t k = 0; k < batches.size(); ++k) {
    if (k + 1 < batches.size()) hint(reader, batches[k + 1]);
    read_batch(reader, batches[k], memory);
  }
  std::vector<SourcedTensor> shared;
  for (const std::size_t k : by_all) shared.push_back(tensors[k]);
  if (!shared.empty()) read_shared(group, reader, shared);
  throw_together(group, reader.error());
}

}  // namespace tegula::inner
