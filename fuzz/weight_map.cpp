// Indices of Hugging Face folders: which file has a tensor.
#include "fuzz/target.h"
#include "tegula/files/model_folder.h"

using namespace tegula;
using namespace tegula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> files;
  try {
    files = inner::parse_weight_map(text_of(data, size));
  } catch (const UsageError&) {
    return 0;
  }
  // Law: what is printed reads back.
  const std::string printed = inner::weight_map_text(files, 0);
  require(inner::parse_weight_map(printed) == files, "what is printed reads back", printed);
  for (const auto& [tensor, file] : files) {
    require(file.find('/') == std::string::npos, "a file is in the folder", file);
  }
  return 0;
}
