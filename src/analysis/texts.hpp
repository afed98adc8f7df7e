// Texts by number: with its number a text is as cheap a key as an integer.
#pragma once
#include <deque>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ringside {

class Texts {
 public:
  // The number of a text; a new one for a new text.
  u32 number(std::string_view text) {
    if (const auto it = numbers_.find(text); it != numbers_.end()) return it->second;
    texts_.emplace_back(text);
    const auto n = static_cast<u32>(texts_.size() - 1);
    numbers_.emplace(texts_.back(), n);
    return n;
  }
  std::string_view text(u64 number) const {
    return number < texts_.size() ? std::string_view(texts_[number]) : std::string_view();
  }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // a deque: their addresses are stable
  std::unordered_map<std::string_view, u32> numbers_;
};

}  // namespace ringside
