#include "tegula/comm/together.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/sha256.h"

namespace tegula::inner {
namespace {

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

// An error as a text, and back. Sentence, hint, then names and values of facts in turn.
constexpr char kBetween = '\x1f';

std::string text_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    std::string text = known.sentence() + kBetween + known.hint();
    for (const auto& [name, value] : known.facts()) text += kBetween + name + kBetween + value;
    return text;
  } catch (...) {
    return sentence_of(error) + kBetween;
  }
}

[[noreturn]] void throw_text(const std::string& text, const std::string& rank) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == kBetween) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  UsageError error(parts[0]);
  for (std::size_t k = 2; k + 1 < parts.size(); k += 2) {
    std::move(error).fact(parts[k], parts[k + 1]);
  }
  if (!rank.empty()) std::move(error).fact("rank", rank);
  if (parts.size() > 1 && !parts[1].empty()) std::move(error).hint(parts[1]);
  throw error;
}

}  // namespace

std::vector<std::string> gather_texts(const Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const at::Tensor mine = bytes_of(text);
  const at::Tensor lengths = group.all_gather(at::full({1}, mine.numel(), at::kLong), 0);
  const Group::Sizes sizes(lengths.const_data_ptr<std::int64_t>(),
                           lengths.const_data_ptr<std::int64_t>() + lengths.numel());
  const at::Tensor all = group.all_gather(mine, 0, sizes);
  std::vector<std::string> texts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    texts.push_back(text_of(all.slice(0, begin, begin + size)));
    begin += size;
  }
  return texts;
}

std::vector<std::string> gather_unless_same(const Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const std::string mine = sha256(text);
  const std::string all = text_of(group.all_gather(bytes_of(mine), 0));
  bool is_same = true;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    is_same = is_same && all.compare(at, mine.size(), mine) == 0;
  }
  // every rank has to find the same, and one that has the odd text sees others
  return is_same ? std::vector{text} : gather_texts(group, text);
}

std::string broadcast_text(const Group& group, const std::string& text, int root) {
  if (group.size() == 1) return text;
  const at::Tensor length =
      group.broadcast(at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong), root);
  const std::int64_t size = length.item<std::int64_t>();
  return text_of(
      group.broadcast(group.index() == root ? bytes_of(text) : at::empty({size}, at::kByte), root));
}

std::optional<FirstText> first_text(const Group& group, const std::string& text) {
  const at::Tensor said =
      group.all_reduce(at::full({1}, text.empty() ? 0 : 1, at::kLong), ReduceOp::Sum);
  if (said.item<std::int64_t>() == 0) return std::nullopt;
  const std::vector<std::string> texts = gather_texts(group, text);
  const auto first = std::ranges::find_if(texts, [](const auto& one) { return !one.empty(); });
  const bool is_same = std::ranges::all_of(texts, [&](const auto& one) { return one == *first; });
  return FirstText{group.ranks()[first - texts.begin()], *first, is_same};
}

void throw_together(const Group& group, const std::exception_ptr& error) {
  if (group.size() == 1) {
    if (error) std::rethrow_exception(error);
    return;
  }
  const std::optional<FirstText> first = first_text(group, text_of(error));
  if (first) throw_text(first->text, first->is_said_by_all ? "" : std::to_string(first->rank));
}

}  // namespace tegula::inner
