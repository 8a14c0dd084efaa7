// The text of the UsageError that a call throws.
#pragma once

#include <string>

#include "tegula/base/error.h"

namespace tegula {

template <class Call>
std::string usage_error_of(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace tegula
