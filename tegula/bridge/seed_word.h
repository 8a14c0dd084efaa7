// torch's default CPU generator, as far as distributed draws are concerned.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <functional>
#include <mutex>

namespace tegula::inner {

// The generator's seed, torch.initial_seed(), held by one thread at a time. manual_seed sets it, a
// saved state of the generator contains it, and plain draws leave it as it is: so it can say where
// distributed draws stand. Plain draws of other threads wait meanwhile.
class SeedWord {
 public:
  SeedWord();
  std::uint64_t value() const;
  // Changes nothing else: plain draws go on as they would have. Costs two copies of the state.
  void set(std::uint64_t word);

 private:
  std::unique_lock<std::mutex> not_lent_;
  at::Generator generator_;
  std::unique_lock<std::mutex> lock_;
};

// Whether it is torch's default CPU generator.
bool is_default(const at::Generator& generator);

// Runs `op` while the default generator of the device is in the state of `other`; then it has its
// own back, seed included. One thread at a time; meanwhile nobody gets the seed word.
void run_with_default(const at::Generator& other, at::Device device,
                      const std::function<void()>& op);

}  // namespace tegula::inner
