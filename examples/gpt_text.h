// A text as numbers: one per character that occurs in it.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

class Text {
 public:
  explicit Text(const std::vector<std::string>& files) {
    std::string all;
    for (const std::string& file : files) all += content_of(file);
    const std::set<char> characters(all.begin(), all.end());
    vocabulary_.assign(characters.begin(), characters.end());
    numbers_ = encoded(all);
  }

  std::int64_t size() const { return numbers_.size(0); }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(vocabulary_.size()); }

  std::string beginning(std::int64_t count) const {
    return decoded(numbers_.narrow(0, 0, std::min(count, size())));
  }

  // Characters and, for each, the one that follows it.
  struct Batch {
    at::Tensor characters, next;
  };
  Batch sample(std::int64_t pieces, std::int64_t length, std::mt19937& random) const {
    std::vector<at::Tensor> rows;
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::int64_t begin = random() % static_cast<std::uint32_t>(size() - length);
      rows.push_back(numbers_.narrow(0, begin, length + 1));
    }
    const at::Tensor all = at::stack(rows);
    return {all.narrow(1, 0, length).contiguous(), all.narrow(1, 1, length).contiguous()};
  }

  at::Tensor encoded(const std::string& text) const {
    at::Tensor numbers = at::empty({static_cast<std::int64_t>(text.size())}, at::kLong);
    auto* to = numbers.mutable_data_ptr<std::int64_t>();
    for (const char c : text) *to++ = static_cast<std::int64_t>(vocabulary_.find(c));
    return numbers;
  }
  std::string decoded(const at::Tensor& numbers) const {
    std::string text;
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      text += vocabulary_[static_cast<std::size_t>(numbers[i].item<std::int64_t>())];
    }
    return text;
  }

 private:
  // Plain ASCII: a character of several bytes would be learned byte by byte.
  static std::string content_of(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    std::ostringstream content;
    content << in.rdbuf();
    std::string text = content.str();
    std::erase_if(text, [](char c) { return c != '\n' && (c < ' ' || c > '~'); });
    return text;
  }

  std::string vocabulary_;
  at::Tensor numbers_;
};

}  // namespace gpt
