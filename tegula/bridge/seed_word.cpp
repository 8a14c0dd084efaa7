#include "tegula/bridge/seed_word.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <type_traits>

namespace tegula::inner {
namespace {

// Held by who lends the default generator, or works with its seed.
std::mutex& lending() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

SeedWord::SeedWord()
    : not_lent_(lending()),
      generator_(at::detail::getDefaultCPUGenerator()),
      lock_(generator_.mutex()) {}

std::uint64_t SeedWord::value() const { return generator_.current_seed(); }

void SeedWord::set(std::uint64_t word) {
  auto* generator = generator_.get<at::CPUGeneratorImpl>();
  at::mt19937 engine = generator->engine();
  // the data is the engine's only member; by way of data() and set_data() it takes twice as long
  static_assert(std::is_standard_layout_v<at::mt19937> &&
                sizeof(at::mt19937) == sizeof(at::mt19937_data_pod));
  reinterpret_cast<at::mt19937_data_pod&>(engine).seed_ = word;
  generator->set_engine(engine);
}

bool is_default(const at::Generator& generator) {
  return generator == at::detail::getDefaultCPUGenerator();
}

void run_with_default(const at::Generator& other, at::Device device,
                      const std::function<void()>& op) {
  const std::lock_guard lock(lending());
  at::Generator global = at::globalContext().defaultGenerator(device);
  const at::Tensor state = global.get_state();
  global.set_state(other.get_state());
  try {
    op();
  } catch (...) {
    global.set_state(state);
    throw;
  }
  global.set_state(state);
}

}  // namespace tegula::inner
