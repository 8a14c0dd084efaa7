// Random state as a text: the seed, the draws of each stream, and torch's generator in hexadecimal.
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/random_bytes.h"
#include "tegula/base/text.h"
#include "tegula/io/state_part.h"
#include "tegula/random/random.h"

namespace tegula::inner {
namespace {

std::string generator_text() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  const at::Tensor state = generator.get_state().contiguous();
  return in_hex({static_cast<const char*>(state.const_data_ptr()), state.nbytes()});
}

void set_generator(const std::string& hex) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  at::Tensor state = generator.get_state().contiguous();
  if (hex.size() != 2 * state.nbytes()) {
    throw UsageError("the state of torch's generator is of another libtorch")
        .fact("has", counted(static_cast<std::int64_t>(hex.size() / 2), "byte", "bytes"))
        .fact("here", counted(static_cast<std::int64_t>(state.nbytes()), "byte", "bytes"))
        .hint("load without it, and set a seed");
  }
  auto* bytes = static_cast<unsigned char*>(state.data_ptr());
  for (std::size_t k = 0; k < state.nbytes(); ++k) {
    bytes[k] = static_cast<unsigned char>(std::stoi(hex.substr(2 * k, 2), nullptr, 16));
  }
  generator.set_state(state);
}

std::string text_of(const World& world) {
  const RNGState state = rng_state(world);
  std::string text = std::to_string(state.seed);
  for (const auto& [stream, draws] : state.draws) {
    text += " " + std::to_string(stream) + ":" + std::to_string(draws);
  }
  return text + " torch:" + generator_text();
}

void set_from(const World& world, const std::string& text) {
  std::istringstream words(text);
  RNGState state;
  std::string word;
  words >> state.seed;
  while (words >> word) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) throw UsageError("a random state has a word without a colon");
    if (word.starts_with("torch:")) {
      set_generator(word.substr(colon + 1));
    } else {
      state.draws[std::stoull(word)] = std::stoull(word.substr(colon + 1));
    }
  }
  set_rng_state(world, state);
}

class RandomPart final : public StatePart {
 public:
  RandomPart(std::string name, World world) : name_(std::move(name)), world_(std::move(world)) {}

  void list_saved(Saved& saved) const override {
    saved.perhaps_same.push_back({name_, text_of(world_)});
  }

  void list_wants(const Present& present, Wants& wants) const override {
    const std::string of_ranks = name_ + "@rank=";
    int ranks = 0;
    for (const auto& [name, value] : present.values) {
      if (!name.starts_with(of_ranks)) continue;
      wants.known.push_back(name);
      ++ranks;
    }
    const World world = world_;
    const auto set = [world](const StateValue& value) {
      set_from(world, std::get<std::string>(value));
    };
    if (ranks == 0) {
      wants.values.push_back({name_, std::string(), set});
    } else if (ranks == world_.size()) {
      wants.values.push_back({of_ranks + std::to_string(world_.rank()), std::string(), set});
    } else {
      wants.problems.push_back(in_quotes(name_) + " of " + std::to_string(ranks) +
                               " ranks that differed in it cannot be given to " +
                               std::to_string(world_.size()));
    }
  }

 private:
  std::string name_;
  World world_;
};

}  // namespace

std::shared_ptr<StatePart> random_part(std::string name, World world) {
  return std::make_shared<RandomPart>(std::move(name), std::move(world));
}

}  // namespace tegula::inner
