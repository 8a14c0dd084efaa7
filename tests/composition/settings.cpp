#include "tests/composition/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::composition {
namespace {

constexpr std::array kNets = {"transformer", "convolutions"};
constexpr std::array kCuts = {"even", "uneven", "empty"};
constexpr std::array kNumberNames = {"f64", "f32", "bf16"};
constexpr std::array kRanks = {"threads", "processes"};

constexpr std::array<std::pair<const char*, int Settings::*>, 7> kCounts = {
    {{"dp", &Settings::dp},
     {"fsdp", &Settings::fsdp},
     {"zero", &Settings::zero},
     {"tp", &Settings::tp},
     {"sp", &Settings::sp},
     {"loss", &Settings::loss},
     {"accumulate", &Settings::accumulate}}};
constexpr std::array<std::pair<const char*, bool Settings::*>, 2> kFlags = {
    {{"tied", &Settings::tied}, {"clip", &Settings::clip}}};

template <class Value, std::size_t Count>
bool read_name(const std::string& word, const std::array<const char*, Count>& names, Value& value) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) return false;
  value = static_cast<Value>(found - names.begin());
  return true;
}

bool read_count(const std::string& word, Settings& settings) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return false;
  for (const auto& [name, member] : kCounts) {
    if (word.substr(0, equals) != name) continue;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, settings.*member);
    return error == std::errc() && stop == end && settings.*member >= 0;
  }
  return false;
}

bool read_flag(const std::string& word, Settings& settings) {
  for (const auto& [name, member] : kFlags) {
    if (word == name) return settings.*member = true;
  }
  return false;
}

void check(const Settings& settings, std::string_view text) {
  const bool one_axis = (settings.tp == 0 || settings.tp == settings.model_ranks()) &&
                        (settings.sp == 0 || settings.sp == settings.model_ranks()) &&
                        (settings.loss == 0 || settings.loss == settings.model_ranks());
  const bool has_level = (settings.fsdp > 0) == (settings.zero > 0) && settings.zero <= 3;
  if (one_axis && has_level && settings.accumulate > 0) return;
  throw UsageError("these settings do not fit together")
      .fact("settings", in_quotes(text))
      .hint("tp, sp and loss have one size; fsdp goes with zero=1, 2 or 3");
}

}  // namespace

int Settings::data_ranks() const { return std::max(dp, 1) * std::max(fsdp, 1); }
int Settings::model_ranks() const { return std::max({tp, sp, loss, 1}); }

std::string modes_of(const Settings& settings) {
  std::string text;
  for (const auto& [name, member] : kCounts) {
    if (member == &Settings::accumulate || settings.*member == 0) continue;
    text += (text.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(settings.*member);
  }
  return text;
}

std::string to_string(const Settings& settings) {
  std::string text = kNets[static_cast<std::size_t>(settings.net)];
  if (const std::string modes = modes_of(settings); !modes.empty()) text += " " + modes;
  text += std::string(" ") + kCuts[static_cast<std::size_t>(settings.cuts)];
  if (settings.tied) text += " tied";
  text += " accumulate=" + std::to_string(settings.accumulate);
  text += std::string(" ") + kNumberNames[static_cast<std::size_t>(settings.numbers)];
  if (settings.clip) text += " clip";
  return text + " " + kRanks[static_cast<std::size_t>(settings.ranks)];
}

Settings parse_settings(std::string_view text) {
  Settings settings;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (!read_name(word, kNets, settings.net) && !read_name(word, kCuts, settings.cuts) &&
        !read_name(word, kNumberNames, settings.numbers) &&
        !read_name(word, kRanks, settings.ranks) && !read_count(word, settings) &&
        !read_flag(word, settings)) {
      throw UsageError("a word of the settings means nothing")
          .fact("word", in_quotes(word))
          .hint("write them as transformer dp=2 tp=2 uneven tied accumulate=3 f64 clip threads");
    }
  }
  check(settings, text);
  return settings;
}

}  // namespace tegula::composition
