// What files of tensors hold: a safetensors file, a checkpoint, or a folder of checkpoints.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/files/chunk_reader.h"
#include "tegula/files/crc32c.h"
#include "tools/tegula/commands.h"

namespace tegula::cli {
namespace {

using namespace inner;

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

// A file of tensors. Checksums are those of a manifest, if there is one.
struct OpenFile {
  std::string name;
  std::unique_ptr<File> file;
  std::uint64_t size = 0;
  std::uint64_t data_begin = 0;
  SafetensorsHeader header;
  std::vector<std::uint32_t> checksums;
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
};

// What there is at a path.
struct Listing {
  std::string path;
  std::optional<std::int64_t> step;  // of a checkpoint
  std::vector<OpenFile> files;
  std::map<std::string, FileValue> values;
};

// A tensor in one of the files of a listing.
struct Place {
  const OpenFile* file = nullptr;
  const FileTensor* tensor = nullptr;
};

OpenFile open_file(const std::string& path) {
  OpenFile one;
  one.name = std::filesystem::path(path).filename().string();
  one.file = disk_files()->open_to_read(path);
  one.size = one.file->size();
  try {
    std::string first(std::min<std::uint64_t>(one.size, kLengthBytes), '\0');
    one.file->read_at(0, std::as_writable_bytes(std::span(first)));
    std::string json(header_length(first, one.size), '\0');
    one.file->read_at(kLengthBytes, std::as_writable_bytes(std::span(json)));
    one.data_begin = kLengthBytes + json.size();
    one.header = parse_safetensors_header(json, one.size - one.data_begin);
  } catch (UsageError& error) {
    throw std::move(error).fact("file", path);
  }
  return one;
}

Listing list_checkpoint(const std::string& path) {
  const Contents contents = parse_contents(contents_bytes(*disk_files(), path));
  Listing listing{path, contents.manifest.step, {}, contents.manifest.values};
  for (std::size_t k = 0; k < contents.headers.size(); ++k) {
    const ManifestFile& said = contents.manifest.files[k];
    listing.files.push_back({said.name, disk_files()->open_to_read(path + "/" + said.name),
                             said.size, contents.data_begins[k], contents.headers[k],
                             said.checksums, contents.manifest.chunk_bytes});
  }
  return listing;
}

bool is_checkpoint(const std::string& path) {
  return disk_files()->exists(path + "/" + std::string(kManifestName));
}

// A file, a checkpoint, or the newest of a folder of them.
Listing list(const std::string& path) {
  if (!std::filesystem::is_directory(path)) {
    Listing listing{path, std::nullopt, {}, {}};
    listing.files.push_back(open_file(path));
    return listing;
  }
  if (is_checkpoint(path)) return list_checkpoint(path);
  if (const std::optional<std::int64_t> step = latest_step(*disk_files(), path)) {
    return list_checkpoint(step_path(path, *step));
  }
  throw UsageError("there is no whole checkpoint in this folder")
      .fact("folder", path)
      .hint("name a safetensors file, a folder step-N, or the folder above it");
}

std::map<std::string, Place> places_in(const Listing& listing) {
  std::map<std::string, Place> places;
  for (const OpenFile& file : listing.files) {
    for (const FileTensor& tensor : file.header.tensors) places[tensor.name] = {&file, &tensor};
  }
  return places;
}

// Calls `take` with pieces of a tensor's bytes, in order.
template <class Take>
void read_tensor(const Place& place, Take take) {
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < place.tensor->bytes(); at += piece.size()) {
    piece.resize(std::min(kPieceBytes, place.tensor->bytes() - at));
    place.file->file->read_at(place.file->data_begin + place.tensor->begin + at, piece);
    take(at, std::span<const std::byte>(piece));
  }
}

std::string checksum_of(const Place& place) {
  std::uint32_t raw = 0;
  read_tensor(place, [&](std::uint64_t, std::span<const std::byte> piece) {
    raw = shifted(raw, piece.size()) ^ raw_crc32c(piece);
  });
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", whole_crc32c(raw, place.tensor->bytes()));
  return digits;
}

void print_tensors(const Listing& listing, const InspectCall& call, std::ostream& out) {
  std::vector<std::string> head{"tensor", "type", "bytes"};
  if (listing.files.size() > 1) head.push_back("file");
  if (call.verify) head.push_back("crc32c");
  Table table(head);
  for (const auto& [name, place] : places_in(listing)) {
    std::vector<std::string> row{name, to_string(*place.tensor),
                                 std::to_string(place.tensor->bytes())};
    if (listing.files.size() > 1) row.push_back(place.file->name);
    if (call.verify) row.push_back(checksum_of(place));
    table.add(std::move(row));
  }
  table.print(out);
}

void print_values(const Listing& listing, std::ostream& out) {
  constexpr std::size_t kMostShown = 60;
  Table table({"value", "is"});
  for (const auto& [name, value] : listing.values) {
    std::string text = to_string(value);
    if (text.size() > kMostShown) {
      text = text.substr(0, kMostShown) + "... (" + std::to_string(text.size()) + " characters)";
    }
    table.add({name, text});
  }
  table.print(out);
}

void print_verdict(const Listing& listing, std::ostream& out) {
  std::size_t chunks = 0;
  for (const OpenFile& file : listing.files) {
    check_all({file.file.get(), listing.path + "/" + file.name, file.size, file.chunk_bytes,
               file.checksums});
    chunks += file.checksums.size();
  }
  if (listing.step) {
    out << "\nverified: all " << counted(static_cast<std::int64_t>(chunks), "chunk", "chunks")
        << " have the checksums of the manifest\n";
  } else {
    out << "\nverified: header and size fit; a file by itself has no checksums to compare with\n";
  }
}

int show_listing(const InspectCall& call, std::ostream& out) {
  const Listing listing = list(call.paths.front());
  std::int64_t tensors = 0, bytes = 0;
  for (const OpenFile& file : listing.files) {
    tensors += static_cast<std::int64_t>(file.header.tensors.size());
    bytes += static_cast<std::int64_t>(file.size);
  }
  out << (listing.step ? "checkpoint  " : "file        ") << listing.path << '\n';
  if (listing.step) out << "step        " << *listing.step << '\n';
  out << "holds       " << counted(tensors, "tensor", "tensors") << " in "
      << counted(static_cast<std::int64_t>(listing.files.size()), "file", "files") << " of "
      << in_thousands(bytes) << " bytes\n";
  for (const auto& [key, text] : listing.files.front().header.metadata) {
    out << "metadata    " << key << ": " << text << '\n';
  }
  out << '\n';
  print_tensors(listing, call, out);
  if (!listing.values.empty()) {
    out << '\n';
    print_values(listing, out);
  }
  if (call.verify) print_verdict(listing, out);
  return 0;
}

// Where two tensors of one type differ first; none if they do not.
std::optional<std::uint64_t> first_difference(const Place& a, const Place& b) {
  std::optional<std::uint64_t> first;
  std::vector<std::byte> other;
  read_tensor(a, [&](std::uint64_t at, std::span<const std::byte> piece) {
    if (first) return;
    other.resize(piece.size());
    b.file->file->read_at(b.file->data_begin + b.tensor->begin + at, other);
    const auto [mine, theirs] = std::ranges::mismatch(piece, other);
    if (mine != piece.end()) first = at + static_cast<std::uint64_t>(mine - piece.begin());
  });
  return first;
}

std::string difference_of(const Place& a, const Place& b) {
  if (a.tensor->dtype != b.tensor->dtype || a.tensor->shape != b.tensor->shape) {
    return to_string(*a.tensor) + " and " + to_string(*b.tensor);
  }
  const std::optional<std::uint64_t> byte = first_difference(a, b);
  if (!byte) return "";
  const std::uint64_t element = *byte * 8 / static_cast<std::uint64_t>(a.tensor->dtype->bits);
  return to_string(*a.tensor) + ", from element " + std::to_string(element) + " on";
}

int show_difference(const InspectCall& call, std::ostream& out) {
  const Listing a = list(call.paths[0]), b = list(call.paths[1]);
  Table table({"name", "difference"});
  std::int64_t differences = 0;
  const auto add = [&](const std::string& name, const std::string& text) {
    if (text.empty()) return;
    table.add({name, text});
    ++differences;
  };
  const auto compare = [&](const auto& of_a, const auto& of_b, auto difference) {
    for (const auto& [name, one] : of_a) {
      const auto found = of_b.find(name);
      add(name, found == of_b.end() ? "only in the first" : difference(one, found->second));
    }
    for (const auto& [name, one] : of_b) {
      if (!of_a.contains(name)) add(name, "only in the second");
    }
  };
  const std::map<std::string, Place> in_a = places_in(a), in_b = places_in(b);
  compare(in_a, in_b, difference_of);
  compare(a.values, b.values, [](const FileValue& one, const FileValue& other) {
    return are_same(one, other) ? std::string() : to_string(one) + " and " + to_string(other);
  });
  if (differences == 0) {
    out << "the same: " << counted(static_cast<std::int64_t>(in_a.size()), "tensor", "tensors")
        << ", " << counted(static_cast<std::int64_t>(a.values.size()), "value", "values") << '\n';
    return 0;
  }
  table.print(out);
  return 1;
}

}  // namespace

int inspect(const InspectCall& call, std::ostream& out) {
  const std::size_t wanted = call.diff ? 2 : 1;
  if (call.paths.size() != wanted) {
    throw UsageError(call.diff ? "--diff compares two files or folders"
                               : "inspect shows one file or folder")
        .fact("given", std::to_string(call.paths.size()))
        .hint("tegula inspect run/step-100, tegula inspect --diff run/step-100 run/step-200");
  }
  return call.diff ? show_difference(call, out) : show_listing(call, out);
}

}  // namespace tegula::cli
