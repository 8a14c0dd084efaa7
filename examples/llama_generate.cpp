#include "llama_generate.h"

#include <algorithm>
#include <random>

namespace llama {

using namespace tegula;

namespace {

// An id by chance. `scores` are plain.
std::int64_t drawn(const at::Tensor& scores, const Generation& how, std::mt19937_64& random) {
  const std::int64_t all = scores.size(0);
  const auto [likeliest, ids] = at::topk(scores.to(at::kDouble) / how.temperature,
                                         how.top_k > 0 ? std::min(how.top_k, all) : all);
  const at::Tensor reached = at::softmax(likeliest, 0).cumsum(0);
  const std::span<const double> sums(reached.const_data_ptr<double>(),
                                     static_cast<std::size_t>(reached.size(0)));
  const auto last = std::min<std::ptrdiff_t>(
      std::ranges::lower_bound(sums, how.top_p) - sums.begin(), std::ssize(sums) - 1);
  const double place =
      static_cast<double>(random() >> 11) * 0x1p-53 * sums[static_cast<std::size_t>(last)];
  const auto chosen = std::min(std::ranges::upper_bound(sums, place) - sums.begin(), last);
  return ids[chosen].item<std::int64_t>();
}

}  // namespace

void check(const Config& config, const std::vector<Ids>& texts, const Generation& how) {
  if (texts.empty()) throw UsageError("there is no text to continue");
  for (std::size_t k = 0; k < texts.size(); ++k) {
    if (texts[k].empty()) throw UsageError("a text has no ids").fact("text", std::to_string(k));
    for (const std::int64_t id : texts[k]) {
      if (id >= 0 && id < config.vocabulary) continue;
      throw UsageError("the vocabulary has no such id")
          .fact("text", std::to_string(k))
          .fact("id", std::to_string(id))
          .fact("vocabulary", "0 to " + std::to_string(config.vocabulary - 1));
    }
    const std::int64_t length = static_cast<std::int64_t>(texts[k].size()) + how.most;
    if (length <= config.positions) continue;
    throw UsageError("a text becomes longer than the model can look back")
        .fact("text", std::to_string(k))
        .fact("ids",
              std::to_string(texts[k].size()) + " and " + std::to_string(how.most) + " new ones")
        .fact("positions", std::to_string(config.positions));
  }
  if (how.most < 1 || !(how.temperature >= 0) || how.top_k < 0 ||
      !(how.top_p > 0 && how.top_p <= 1)) {
    throw UsageError("ids cannot be drawn so")
        .fact("new ids", std::to_string(how.most))
        .fact("temperature", std::to_string(how.temperature))
        .fact("top k", std::to_string(how.top_k))
        .fact("top p", std::to_string(how.top_p))
        .hint("at least one new id, a temperature and a top k of 0 or more, a top p in (0, 1]");
  }
}

void generate(const Model& model, const std::vector<Ids>& texts, const Generation& how,
              const OnId& on_id) {
  check(model.config, texts, how);
  const c10::InferenceMode no_gradients;
  std::size_t longest = 0;
  std::vector<std::mt19937_64> random;
  for (const Ids& text : texts) {
    longest = std::max(longest, text.size());
    random.emplace_back(how.seed + random.size());
  }
  Cache cache = model.cache(std::ssize(texts), static_cast<std::int64_t>(longest) + how.most);
  std::vector<Ids> next = texts;
  std::vector<std::int64_t> left(texts.size(), how.most);  // new ids per text
  while (std::ranges::any_of(left, [](std::int64_t count) { return count > 0; })) {
    const at::Tensor scores = model.forward(next, cache);
    const at::Tensor plain = full_tensor(how.temperature > 0 ? scores : at::argmax(scores, -1));
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const auto row = static_cast<std::int64_t>(k);
      const std::int64_t id =
          how.temperature > 0 ? drawn(plain[row], how, random[k]) : plain[row].item<std::int64_t>();
      next[k] = {id};
      if (left[k] == 0) continue;  // ended, and only its neighbours go on
      on_id(k, id, scores[row]);
      left[k] = std::ranges::count(how.stops, id) > 0 ? 0 : left[k] - 1;
    }
  }
}

}  // namespace llama
