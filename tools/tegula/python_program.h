// Programs in Python that commands hand over to.
#pragma once

#include <string>
#include <vector>

namespace tegula::cli {

struct PythonProgram {
  std::string folder;  // relative to that of this program
  std::string name;    // of the file
  std::string what;    // "the program that counts the coverage"
  std::string hint;    // what to do if it is not there
};

// Becomes this program under the Python of TEGULA_PYTHON (python3 if unset), with these arguments
// and
// `--tegula <this program>`; returns only by UsageError: if it is not there, or Python does not
// start.
[[noreturn]] void become(const PythonProgram& program, const std::vector<std::string>& arguments);

}  // namespace tegula::cli
