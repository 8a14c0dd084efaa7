// Our errors as another language's own. What an operator, or backward, throws leaves through
// libtorch's bindings for that language, and these know libtorch's errors only.
#pragma once

#include "tegula/base/error.h"

namespace tegula::inner {

// Throws what the bindings understand, or returns and leaves the error as it is. Any thread.
using HostErrorTranslator = void (*)(const Error& error);

// Of this process; the language's module sets it once, when it is loaded.
void set_host_error_translator(HostErrorTranslator translator);
// Does nothing if there is none.
void translate_for_host(const Error& error);

// Runs the body; an Error that leaves it goes through the translator.
template <class Body>
decltype(auto) with_host_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    translate_for_host(error);
    throw;
  }
}

}  // namespace tegula::inner
