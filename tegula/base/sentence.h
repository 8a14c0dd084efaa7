// What an exception says, in one line.
#pragma once

#include <exception>
#include <string>

namespace tegula::inner {

// Of an Error its sentence, of another exception its first line.
std::string sentence_of(const std::exception_ptr& error);

}  // namespace tegula::inner
