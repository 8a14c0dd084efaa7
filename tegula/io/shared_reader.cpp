// The idea: who reads a byte is a fact of where it stands. A file is cut in stripes of whole
// chunks, which the members take in turn; so each chunk is read and checked once, in large reads,
// and every member knows what the others will send.
#include "tegula/io/shared_reader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/together.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

constexpr std::uint64_t kStripeBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kMostAtOnce = std::uint64_t{64} << 20;

// A part of a tensor that one member reads.
struct Portion {
  std::size_t tensor = 0;
  FilePiece piece;
  int reader = 0;
};

std::uint64_t stripe_of(const SourceFile& source) {
  return std::max<std::uint64_t>(1, kStripeBytes / source.chunk_bytes) * source.chunk_bytes;
}

std::vector<Portion> portions_of(const Group& group, const FileReader& reader,
                                 const std::vector<SourcedTensor>& tensors) {
  std::vector<Portion> portions;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    for (FilePiece piece : tensors[k].pieces) {
      const std::uint64_t stripe = stripe_of(reader.source(piece.file));
      while (piece.bytes > 0) {
        const std::uint64_t number = piece.file_begin / stripe;
        const std::uint64_t bytes = std::min(piece.bytes, (number + 1) * stripe - piece.file_begin);
        FilePiece part = piece;
        part.bytes = bytes;
        portions.push_back(
            {k, part, static_cast<int>(number % static_cast<std::uint64_t>(group.size()))});
        piece.file_begin += bytes;
        piece.tensor_begin += bytes;
        piece.bytes -= bytes;
      }
    }
  }
  return portions;
}

// Row-major memory for a tensor's elements as the file has them: its own, if that is so.
at::Tensor memory_for(const SourcedTensor& one) {
  const at::Tensor tensor = one.tensor.detach();
  const bool is_fit = !is_dtensor(tensor) && tensor.scalar_type() == one.type &&
                      tensor.is_contiguous() && tensor.device() == host_device() &&
                      !tensor.is_conj() && !tensor.is_neg();
  return is_fit ? tensor
                : at::empty(tensor.sizes(), at::TensorOptions(one.type).device(host_device()));
}

void take_whole(const at::Tensor& tensor, const at::Tensor& whole) {
  if (is_dtensor(tensor)) {
    const DTensorSpec spec = spec_of(tensor);
    const DeviceMesh mesh = mesh_of(tensor);
    tensor.detach().copy_(distribute_tensor(whole.to(device_of(mesh)), mesh, spec.placements(),
                                            {std::nullopt, spec.shard_order()}));
  } else if (whole.is_alias_of(tensor)) {
    tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    tensor.detach().copy_(whole);
  }
}

// Reads this member's portions, sends them, and puts those of all where they belong.
void read_portions(const Group& group, FileReader& reader, const std::vector<Portion>& portions,
                   const std::vector<at::Tensor>& memory, ReusedMemory& held) {
  Group::Sizes sizes(static_cast<std::size_t>(group.size()), 0);
  for (const Portion& one : portions) {
    sizes[static_cast<std::size_t>(one.reader)] += static_cast<std::int64_t>(one.piece.bytes);
  }
  held.reuse();
  const at::Tensor mine = held.tensor({sizes[static_cast<std::size_t>(group.index())]}, at::kByte);
  auto* to = static_cast<std::byte*>(mine.data_ptr());
  for (const Portion& one : portions) {
    if (one.reader != group.index()) continue;
    reader.want(one.piece, to);
    to += one.piece.bytes;
  }
  reader.read();
  const at::Tensor all = group.all_gather(mine, 0, sizes);
  std::vector<const std::byte*> from;
  const auto* begin = static_cast<const std::byte*>(all.const_data_ptr());
  for (const std::int64_t size : sizes) {
    from.push_back(begin);
    begin += size;
  }
  for (const Portion& one : portions) {
    const std::byte*& at = from[static_cast<std::size_t>(one.reader)];
    std::memcpy(static_cast<std::byte*>(memory[one.tensor].data_ptr()) + one.piece.tensor_begin, at,
                one.piece.bytes);
    at += one.piece.bytes;
  }
}

void read_some(const Group& group, FileReader& reader, const std::vector<SourcedTensor>& tensors,
               ReusedMemory& held) {
  std::vector<at::Tensor> memory;
  for (const SourcedTensor& one : tensors) memory.push_back(memory_for(one));
  const std::vector<Portion> portions = portions_of(group, reader, tensors);
  for (const Portion& one : portions) {
    if (one.reader == group.index()) reader.hint(one.piece);
  }
  std::vector<Portion> now;
  std::uint64_t bytes = 0;
  for (const Portion& one : portions) {
    now.push_back(one);
    bytes += one.piece.bytes;
    if (bytes < kMostAtOnce && &one != &portions.back()) continue;
    read_portions(group, reader, now, memory, held);
    now.clear();
    bytes = 0;
  }
  for (std::size_t k = 0; k < tensors.size(); ++k) take_whole(tensors[k].tensor, memory[k]);
}

bool is_shared(const SourcedTensor& one, const FileReader& reader) {
  if (one.pieces.empty()) return false;
  if (!is_dtensor(one.tensor)) return true;
  std::uint64_t bytes = 0;
  for (const FilePiece& piece : one.pieces) bytes += piece.bytes;
  return bytes <= reader.source(one.pieces.front().file).chunk_bytes / 4;
}

// What tells one from another: where it stands. One that is asked for twice is numbered. Empty for
// those that are not shared.
std::vector<std::string> lines_of(const FileReader& reader,
                                  const std::vector<SourcedTensor>& tensors) {
  std::vector<std::string> lines;
  std::map<std::string, int> seen;
  for (const SourcedTensor& one : tensors) {
    std::string line;
    if (is_shared(one, reader)) {
      for (const FilePiece& piece : one.pieces) {
        line += std::to_string(piece.file) + ":" + std::to_string(piece.file_begin) + "+" +
                std::to_string(piece.bytes) + " ";
      }
      line += std::to_string(++seen[line]);
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

std::vector<std::size_t> read_by_all(const Group& group, const FileReader& reader,
                                     const std::vector<SourcedTensor>& tensors) {
  if (group.size() == 1) return {};
  const std::vector<std::string> lines = lines_of(reader, tensors);
  std::vector<std::string> mine = lines;
  std::erase(mine, "");
  std::ranges::sort(mine);
  std::string text;
  for (const std::string& line : mine) text += line + "\n";
  std::map<std::string, std::size_t> count;  // of members
  const std::vector<std::string> texts = gather_unless_same(group, text);
  for (const std::string& one : texts) {
    for (std::size_t begin = 0; begin < one.size();) {
      const std::size_t end = one.find('\n', begin);
      ++count[one.substr(begin, end - begin)];
      begin = end + 1;
    }
  }
  std::map<std::string, std::size_t> by_line;  // in one order for all
  for (std::size_t k = 0; k < lines.size(); ++k) {
    if (!lines[k].empty() && count[lines[k]] == texts.size()) by_line[lines[k]] = k;
  }
  std::vector<std::size_t> shared;
  for (const auto& [line, k] : by_line) shared.push_back(k);
  const auto place = [&](std::size_t k) {
    const FilePiece& first = tensors[k].pieces.front();
    return std::pair(first.file, first.file_begin);
  };
  std::ranges::stable_sort(shared, {}, place);
  return shared;
}

void read_shared(const Group& group, FileReader& reader,
                 const std::vector<SourcedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  ReusedMemory held;
  std::vector<SourcedTensor> some;
  std::uint64_t bytes = 0;
  for (const SourcedTensor& one : tensors) {
    some.push_back(one);
    for (const FilePiece& piece : one.pieces) bytes += piece.bytes;
    if (bytes < kMostAtOnce) continue;
    read_some(group, reader, some, held);
    some.clear();
    bytes = 0;
  }
  read_some(group, reader, some, held);
}

}  // namespace tegula::inner
