// safetensors files of plain tensors, as Python's library reads and writes them.
//
//   SafetensorsFile file("model.safetensors");
//   at::Tensor weight = file.tensor("layers.0.weight");
//   save_safetensors("copy.safetensors", {{"weight", weight}}, {{"format", "pt"}});
//
// For states of many ranks, see io/checkpoint.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tegula {

// A file that is open for reading. Its header is read, and checked against every rule of the
// format, when it is opened; tensors are read when they are asked for, each by its own read.
class SafetensorsFile {
 public:
  // UsageError: a file that cannot be read, or is none; with the reason.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  // In the order of their data.
  std::vector<std::string> names() const;
  const std::map<std::string, std::string>& metadata() const;
  // The rest: UsageError if there is no tensor of this name.
  std::vector<std::int64_t> shape(const std::string& name) const;
  // As the file has it: "F32", "F8_E4M3", ...
  std::string dtype(const std::string& name) const;
  // A fresh tensor. UsageError that names its type if this libtorch has none such (F4, F6_E2M3,
  // F6_E3M2, and in old ones others).
  at::Tensor tensor(const std::string& name) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Writes a file, by a temporary one beside it that takes its name when all of it is on the disk.
// UsageError: a distributed tensor (io/checkpoint.h saves those), types that the format lacks, what
// the disk refuses.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tegula
