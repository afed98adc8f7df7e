// Names of kernel addresses, from a text like /proc/kallsyms: "address type name [module]" a line.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

class Symbols {
 public:
  // False: the text has no usable address (without privileges the kernel shows zeros).
  bool load(std::string text);
  bool empty() const { return all_.empty(); }

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

 private:
  std::string text_;
  std::vector<Symbol> all_;  // by address; names lie in text_
};

}  // namespace ringside
