// What an exception says, in one line, whatever it is.
#pragma once

#include <exception>
#include <string>

namespace tegula::inner {

// An Error's sentence; the first line of another exception's text.
std::string sentence_of(const std::exception_ptr& failure);

}  // namespace tegula::inner
