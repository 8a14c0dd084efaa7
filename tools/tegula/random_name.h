// A name that nobody can guess.
#pragma once

#include <string>

namespace tegula::cli {

// 128 random bits as hexadecimal digits. UsageError if the system has no random numbers.
std::string random_name();

}  // namespace tegula::cli
