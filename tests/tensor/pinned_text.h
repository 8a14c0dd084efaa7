// Texts that are kept in files next to the tests: tests/tensor/communication/<name>.txt.
#pragma once

#include <functional>
#include <string>

#include "tegula/comm/comm_log.h"

namespace tegula {

// What one rank communicates, under headings.
class CommReport {
 public:
  explicit CommReport(const World& world) : log_(world) {}

  // What the work communicates goes under the heading.
  void under(const std::string& heading, const std::function<void()>& work);
  const std::string& text() const { return text_; }

 private:
  CommLog log_;
  std::string text_;
};

// Runs the body on ranks that are threads; all of them must report what the file says.
// TEGULA_UPDATE=1 in the environment writes the file instead.
void expect_pinned(const std::string& name, int ranks,
                   const std::function<void(World&, CommReport&)>& body);

}  // namespace tegula
