#include "tests/tensor/pinned_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/tensor/environment_variable.h"
#include "tests/tensor/rank_processes.h"

namespace tegula {
namespace {

std::filesystem::path file_of(const std::string& name) {
  return std::filesystem::path(__FILE__).parent_path() / "communication" / (name + ".txt");
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

bool is_update() {
  const char* text = std::getenv("TEGULA_UPDATE");
  return text != nullptr && std::string(text) == "1";
}

}  // namespace

void CommReport::under(const std::string& heading, const std::function<void()>& work) {
  log_.clear();
  work();
  text_ += heading + "\n";
  std::istringstream lines(log_.to_string());
  for (std::string line; std::getline(lines, line);) text_ += "  " + line + "\n";
}

void expect_pinned(const std::string& name, int ranks,
                   const std::function<void(World&, CommReport&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  const auto report = [&](World& world) {
    CommReport mine(world);
    body(world, mine);
    texts[static_cast<std::size_t>(world.rank())] = mine.text();
  };
  ASSERT_NO_THROW(run_ranks(ranks, report, patient_world()));
  if (is_update()) std::ofstream(file_of(name)) << texts[0];
  const std::string wanted = text_of(file_of(name));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    EXPECT_EQ(texts[rank], wanted) << "on rank " << rank << "; " << file_of(name);
  }
}

}  // namespace tegula
