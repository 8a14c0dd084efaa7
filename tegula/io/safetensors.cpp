#include "tegula/io/safetensors.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/files/file_layer.h"
#include "tegula/files/file_plan.h"
#include "tegula/files/safetensors_header.h"
#include "tegula/io/inventory.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

struct SafetensorsFile::Parts {
  std::unique_ptr<File> file;
  std::string path;
  SafetensorsHeader header;
  std::uint64_t data_begin = 0;

  const FileTensor& find(const std::string& name) const {
    if (const FileTensor* tensor = header.find(name)) return *tensor;
    throw UsageError("a file has no tensor of this name")
        .fact("file", path)
        .fact("name", in_quotes(name));
  }
};

SafetensorsFile::SafetensorsFile(const std::string& path) : parts_(std::make_unique<Parts>()) {
  parts_->path = path;
  parts_->file = disk_files()->open_to_read(path);
  const std::uint64_t size = parts_->file->size();
  try {
    std::string first(std::min<std::uint64_t>(size, kLengthBytes), '\0');
    parts_->file->read_at(0, std::as_writable_bytes(std::span(first)));
    std::string json(header_length(first, size), '\0');
    parts_->file->read_at(kLengthBytes, std::as_writable_bytes(std::span(json)));
    parts_->data_begin = kLengthBytes + json.size();
    parts_->header = parse_safetensors_header(json, size - parts_->data_begin);
  } catch (UsageError& error) {
    throw std::move(error).fact("file", path);
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const FileTensor& tensor : parts_->header.tensors) names.push_back(tensor.name);
  return names;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return parts_->header.metadata;
}

std::vector<std::int64_t> SafetensorsFile::shape(const std::string& name) const {
  return parts_->find(name).shape;
}

std::string SafetensorsFile::dtype(const std::string& name) const {
  return std::string(parts_->find(name).dtype->name);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const FileTensor& found = parts_->find(name);
  if (!found.dtype->dtype || !libtorch_has(*found.dtype->dtype)) {
    throw UsageError("libtorch has no element type " + std::string(found.dtype->name))
        .fact("file", parts_->path)
        .fact("tensor", in_quotes(name));
  }
  const at::Tensor tensor = at::empty(
      found.shape, at::TensorOptions(scalar_type_of(*found.dtype->dtype)).device(host_device()));
  if (tensor.nbytes() > 0) {
    parts_->file->read_at(parts_->data_begin + found.begin,
                          {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  }
  return tensor;
}

void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    if (is_dtensor(tensor)) {
      throw UsageError("a distributed tensor is no part of one file")
          .fact("tensor", in_quotes(name))
          .hint(
              "save(folder, state) writes states of many ranks, full_tensor(x) gives a plain one");
    }
    named.push_back(described({name, tensor}));
  }
  FilePlanOptions options;
  options.most_bytes = std::numeric_limits<std::uint64_t>::max() / 2;
  options.alignment = 8;
  options.metadata = metadata;
  const FilePlan plan = plan_files(std::move(named), options);
  const std::shared_ptr<FileLayer> files = disk_files();
  const std::string unfinished = path + ".tmp";
  const std::unique_ptr<File> file = files->create(unfinished);
  try {
    file->write_at(0, std::as_bytes(std::span(plan.files.front().header)));
    for (const PlannedTensor& planned : plan.tensors) {
      const at::Tensor dense = tensors.at(planned.tensor.name)
                                   .detach()
                                   .resolve_conj()
                                   .resolve_neg()
                                   .to(host_device())
                                   .contiguous();
      file->write_at(planned.begin,
                     {static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()});
    }
    file->sync();
    files->rename(unfinished, path);
  } catch (...) {
    try {
      files->remove_all(unfinished);
    } catch (const std::exception&) {
      // what stopped the save says more
    }
    throw;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  files->sync_folder(parent.empty() ? "." : parent.string());
}

}  // namespace tegula
