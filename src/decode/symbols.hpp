// Names of kernel addresses, from a text like /proc/kallsyms: "address type name [module]" a line. The text is read at the first
// question, because a kernel has 200,000 names and most commands ask for none. Questions are thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "decode/known_texts.hpp"

namespace ringside {

class Symbols {
 public:
  void load(std::string text);
  void load_later(std::function<std::string()> source);  // which gives the text
  // The text has no usable address (without privileges the kernel shows zeros).
  bool empty() const { return all().empty(); }

  struct Symbol {
    u64 address = 0;
    std::string_view name, module;  // module: empty for the kernel proper
  };
  // The symbol at or nearest below `address`; null: the address is below all symbols.
  const Symbol* find(u64 address) const;
  // The same, but of several names of one address the first, which the kernel shows.
  const Symbol* find_first(u64 address) const;
  // Where the next symbol begins: the kernel's sizes.
  u64 end_of(const Symbol& symbol) const;
  // Of addresses that were asked for: name+0x1f. They go with the names.
  using Texts = KnownTexts<10>;
  Texts& texts() const { return table_->texts; }

 private:
  struct Table {
    void read();
    std::function<std::string()> source;
    std::string text;
    std::once_flag is_read;
    std::vector<Symbol> all;  // by address; names lie in the text
    Texts texts;
    std::array<std::atomic<u32>, 1024> answers{};  // by address: an index in `all`; any value is right or is noticed
  };
  const std::vector<Symbol>& all() const {
    std::call_once(table_->is_read, [this] { table_->read(); });
    return table_->all;
  }
  std::unique_ptr<Table> table_ = std::make_unique<Table>();
};

}  // namespace ringside
