// The idea: one pointer, written when a module is loaded and read when something went wrong.
#include "tegula/payload/host_errors.h"

#include <atomic>

namespace tegula::inner {
namespace {

std::atomic<HostErrorTranslator>& translator_slot() {
  static std::atomic<HostErrorTranslator> slot = nullptr;
  return slot;
}

}  // namespace

void set_host_error_translator(HostErrorTranslator translator) { translator_slot() = translator; }

void translate_for_host(const Error& error) {
  if (const HostErrorTranslator translate = translator_slot()) translate(error);
}

}  // namespace tegula::inner
