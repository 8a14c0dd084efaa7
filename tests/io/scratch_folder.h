// A folder on the disk, gone with the object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace tegula {

struct ScratchFolder {
  ScratchFolder() {
    std::string form = testing::TempDir() + "/tegula-io-XXXXXX";
    path = mkdtemp(form.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path;
};

}  // namespace tegula
