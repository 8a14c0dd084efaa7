// The idea: the JSON is read as a stream of events, so that nothing is kept of what does not belong
// there; then the tensors are put in order and each has to begin where the one before it ends.
#include "tegula/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

constexpr std::array<FileDType, 22> kFileDTypes = {{
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"BOOL", 8, DType::Bool},
    {"U8", 8, DType::U8},
    {"I8", 8, DType::I8},
    {"F8_E5M2", 8, DType::F8E5M2},
    {"F8_E4M3", 8, DType::F8E4M3FN},
    {"F8_E8M0", 8, DType::F8E8M0FNU},
    {"F8_E4M3FNUZ", 8, DType::F8E4M3FNUZ},
    {"F8_E5M2FNUZ", 8, DType::F8E5M2FNUZ},
    {"I16", 16, DType::I16},
    {"U16", 16, DType::U16},
    {"F16", 16, DType::F16},
    {"BF16", 16, DType::BF16},
    {"I32", 32, DType::I32},
    {"U32", 32, DType::U32},
    {"F32", 32, DType::F32},
    {"C64", 64, DType::C64},
    {"F64", 64, DType::F64},
    {"I64", 64, DType::I64},
    {"U64", 64, DType::U64},
}};

// What the format lacks, and what the halves of such elements are in files.
struct PairDType {
  FileDType whole;
  std::string_view half;
};
constexpr std::array<PairDType, 2> kPairDTypes = {{
    {{"C32", 32, DType::C32}, "F16"},
    {{"C128", 128, DType::C128}, "F64"},
}};

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kComplex = "tegula.complex";
constexpr std::size_t kDeepestIgnored = 32;  // of what is passed over

// None if the product does not fit in 64 bits.
std::optional<std::uint64_t> times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

[[noreturn]] void refuse(const std::string& why, const std::string& tensor = {}) {
  UsageError error("this is no safetensors header: " + why);
  if (!tensor.empty()) throw std::move(error).fact("tensor", in_quotes(tensor));
  throw error;
}

// Takes nlohmann's events. Depth 1 is the list of tensors, 2 a tensor or the metadata, 3 its lists.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(std::int64_t) override { return scalar("a negative number"); }
  bool number_float(double, const std::string&) override {
    return scalar("a fraction, or a number of more than 64 bits");
  }
  bool binary(nlohmann::json::binary_t&) override { return scalar("binary data"); }
  bool number_unsigned(std::uint64_t number) override {
    if (numbers_ != nullptr && depth_ == 3) {
      numbers_->push_back(number);
      return true;
    }
    return scalar("a number");
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[key_] = text;
      return true;
    }
    if (depth_ == 2 && key_ == "dtype") {
      dtype_ = text;
      return true;
    }
    return scalar("a text");
  }
  bool start_object(std::size_t) override {
    enter("an object");
    if (depth_ == 2) {
      in_metadata_ = name_ == kMetadata;
      keys_.clear();
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
    }
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) finish_tensor();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    enter("a list");
    if (depth_ == 3 && key_ == "shape") numbers_ = &shape_.emplace();
    if (depth_ == 3 && key_ == "data_offsets") numbers_ = &offsets_.emplace();
    return true;
  }
  bool end_array() override {
    if (depth_ == 3) numbers_ = nullptr;
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (!names_.insert(text).second) refuse("a name stands there twice", text);
      name_ = text;
    } else if (depth_ == 2) {
      if (!keys_.insert(text).second) refuse(in_quotes(text) + " stands there twice", name_);
      key_ = text;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    refuse("it is no JSON at byte " + std::to_string(position));
  }

 private:
  bool is_ours() const { return key_ == "dtype" || key_ == "shape" || key_ == "data_offsets"; }

  // Unknown keys of a tensor are passed over, as the reference reader does.
  bool is_passed_over() const { return depth_ >= 2 && !in_metadata_ && !is_ours(); }

  bool scalar(const char* what) {
    if (is_passed_over()) return true;
    refuse(std::string(what) + " stands where none belongs", name_);
  }
  void enter(const char* what) {
    const bool is_list = std::string_view(what) == "a list";
    const bool is_place_of_list = depth_ == 2 && (key_ == "shape" || key_ == "data_offsets");
    const bool belongs = is_list ? is_place_of_list && !in_metadata_ : depth_ < 2;
    if (!belongs && !is_passed_over()) {
      refuse(std::string(what) + " stands where none belongs", name_);
    }
    if (++depth_ > kDeepestIgnored) refuse("it is nested too deeply", name_);
  }

  void finish_tensor() {
    if (!dtype_ || !shape_ || !offsets_) {
      refuse("a tensor lacks one of dtype, shape, data_offsets", name_);
    }
    FileTensor tensor{name_, find_file_dtype(*dtype_), {}, 0, 0};
    if (tensor.dtype == nullptr) refuse("there is no dtype " + in_quotes(*dtype_), name_);
    if (offsets_->size() != 2) refuse("data_offsets are not two numbers", name_);
    tensor.begin = (*offsets_)[0];
    tensor.end = (*offsets_)[1];
    if (tensor.begin > tensor.end) refuse("a tensor ends before it begins", name_);
    set_shape(tensor);
    header.tensors.push_back(std::move(tensor));
  }

  void set_shape(FileTensor& tensor) const {
    std::optional<std::uint64_t> bits = static_cast<std::uint64_t>(tensor.dtype->bits);
    for (const std::uint64_t size : *shape_) {
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        refuse("a size does not fit in 63 bits", name_);
      }
      tensor.shape.push_back(static_cast<std::int64_t>(size));
      if (bits) bits = times(*bits, size);
    }
    if (!bits) refuse("a tensor has more bits than 64 bits count", name_);
    if (*bits % 8 != 0) refuse("a tensor does not fill whole bytes", name_);
    if (*bits / 8 != tensor.bytes()) {
      refuse("shape and dtype need " + std::to_string(*bits / 8) + " bytes, data_offsets give " +
                 std::to_string(tensor.bytes()),
             name_);
    }
  }

  std::size_t depth_ = 0;
  std::set<std::string> names_;
  std::set<std::string> keys_;  // of the object at depth 2
  std::string name_;
  std::string key_;
  bool in_metadata_ = false;
  std::optional<std::string> dtype_;
  std::optional<std::vector<std::uint64_t>> shape_;
  std::optional<std::vector<std::uint64_t>> offsets_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
};

void put_in_order(std::vector<FileTensor>& tensors, std::uint64_t data_size) {
  std::ranges::stable_sort(tensors, [](const FileTensor& a, const FileTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const FileTensor& tensor : tensors) {
    if (tensor.begin < end) refuse("tensors overlap", tensor.name);
    if (tensor.begin > end) refuse("there is a hole before a tensor", tensor.name);
    end = tensor.end;
  }
  if (end == data_size) return;
  refuse("the tensors have " + std::to_string(end) + " bytes, the file has " +
         std::to_string(data_size) + " behind its header");
}

const PairDType* pair_of(const FileDType& whole) {
  const auto found = std::ranges::find_if(
      kPairDTypes, [&](const PairDType& pair) { return &pair.whole == &whole; });
  return found == kPairDTypes.end() ? nullptr : &*found;
}

// Pairs that the metadata names become elements.
void join_pairs(SafetensorsHeader& header) {
  const auto named = header.metadata.find(std::string(kComplex));
  if (named == header.metadata.end()) return;
  std::map<std::string_view, FileTensor*> tensors;
  for (FileTensor& tensor : header.tensors) tensors[tensor.name] = &tensor;
  std::string_view rest = named->second;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto found = tensors.find(name);
    if (found == tensors.end()) refuse("a tensor that is called complex is not there", name);
    FileTensor& tensor = *found->second;
    const auto pair = std::ranges::find(kPairDTypes, tensor.dtype->name, &PairDType::half);
    if (pair == kPairDTypes.end() || tensor.shape.empty() || tensor.shape.back() != 2) {
      refuse("a tensor that is called complex does not consist of pairs", name);
    }
    tensor.dtype = &pair->whole;
    tensor.shape.pop_back();
  }
  header.metadata.erase(named);
}

// The reverse: as it stands in the file.
SafetensorsHeader with_pairs(SafetensorsHeader header) {
  std::vector<std::string> names;
  for (FileTensor& tensor : header.tensors) {
    const PairDType* pair = pair_of(*tensor.dtype);
    if (pair == nullptr) continue;
    tensor.dtype = find_file_dtype(pair->half);
    tensor.shape.push_back(2);
    names.push_back(tensor.name);
  }
  if (!names.empty()) header.metadata[std::string(kComplex)] = join(names, "\n");
  return header;
}

std::string quoted_json(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw UsageError("a name or text for a file is not UTF-8").fact("text", in_quotes(text));
  }
}

}  // namespace

std::span<const FileDType> file_dtypes() { return kFileDTypes; }

const FileDType* find_file_dtype(std::string_view name) {
  const auto found = std::ranges::find(kFileDTypes, name, &FileDType::name);
  return found == kFileDTypes.end() ? nullptr : &*found;
}

const FileDType& file_dtype_of(DType dtype) {
  const auto found = std::ranges::find(kFileDTypes, dtype, &FileDType::dtype);
  if (found != kFileDTypes.end()) return *found;
  for (const PairDType& pair : kPairDTypes) {
    if (pair.whole.dtype == dtype) return pair.whole;
  }
  throw UsageError("safetensors files have no element type " + std::string(name_of(dtype)));
}

const FileTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &FileTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_size) {
  if (first_bytes.size() < kLengthBytes || file_size < kLengthBytes) {
    refuse("the file has fewer than 8 bytes");
  }
  std::uint64_t length = 0;
  for (std::size_t k = 0; k < kLengthBytes; ++k) {
    length |= std::uint64_t{static_cast<unsigned char>(first_bytes[k])} << (8 * k);
  }
  if (length > kMostHeaderBytes) {
    refuse("its length is given as " + std::to_string(length) + ", more than " +
           std::to_string(kMostHeaderBytes));
  }
  if (length > file_size - kLengthBytes) {
    refuse("its length is given as " + std::to_string(length) + ", the file has " +
           std::to_string(file_size) + " bytes");
  }
  return length;
}

void append_block(std::string& bytes, std::string_view block) {
  for (int k = 0; k < 8; ++k) bytes.push_back(static_cast<char>((block.size() >> (8 * k)) & 0xff));
  bytes += block;
}

std::string_view take_block(std::string_view& bytes) {
  const std::uint64_t length = header_length(bytes, bytes.size());
  const std::string_view block = bytes.substr(kLengthBytes, length);
  bytes.remove_prefix(kLengthBytes + length);
  return block;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size) {
  if (json.empty() || json.front() != '{') refuse("it does not begin with {");
  HeaderEvents events;
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  put_in_order(events.header.tensors, data_size);
  join_pairs(events.header);
  return std::move(events.header);
}

std::string to_bytes(const SafetensorsHeader& whole, std::uint64_t alignment) {
  const SafetensorsHeader header = with_pairs(whole);
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    std::vector<std::string> texts;
    for (const auto& [key, text] : header.metadata) {
      texts.push_back(quoted_json(key) + ":" + quoted_json(text));
    }
    entries.push_back("\"__metadata__\":{" + join(texts, ",") + "}");
  }
  for (const FileTensor& tensor : header.tensors) {
    if (tensor.name == kMetadata) {
      throw UsageError("a tensor in a safetensors file cannot be named " + in_quotes(kMetadata));
    }
    std::vector<std::string> sizes;
    for (const std::int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
    entries.push_back(quoted_json(tensor.name) + ":{\"dtype\":\"" +
                      std::string(tensor.dtype->name) + "\",\"shape\":[" + join(sizes, ",") +
                      "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," +
                      std::to_string(tensor.end) + "]}");
  }
  std::string json = "{" + join(entries, ",") + "}";
  const std::uint64_t rest = (kLengthBytes + json.size()) % alignment;
  if (rest != 0) json.append(alignment - rest, ' ');
  if (json.size() > kMostHeaderBytes) {
    throw UsageError("a safetensors header would have more bytes than the format allows")
        .fact("bytes", std::to_string(json.size()))
        .fact("tensors", std::to_string(header.tensors.size()))
        .hint("spread the tensors over more files");
  }
  std::string bytes;
  for (std::size_t k = 0; k < kLengthBytes; ++k) {
    bytes.push_back(static_cast<char>((json.size() >> (8 * k)) & 0xff));
  }
  return bytes + json;
}

std::string to_string(const FileTensor& tensor) {
  const std::string type(tensor.dtype->dtype ? name_of(*tensor.dtype->dtype) : tensor.dtype->name);
  return type + bracketed(tensor.shape);
}

}  // namespace tegula::inner
