// Stacks added up: the weight of each, and then the tree that a flame graph shows.
//
//   Fold fold;
//   fold.add(root, stack, 1);                     // for each event: root is any text's number, the bottom of its stack
//   FlameTree tree;
//   tree.add(fold, stacks, roots, 0);             // names are looked up now, once for each stack
//   tree.nodes()                                  // parents before children
//
// The sum over all nodes of what is their own is what was added: nothing is left out.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stacks/stacks.hpp"

namespace ringside {

class Fold {
 public:
  struct Cell {
    u32 root = 0, stack = 0;
    u32 above = 0;  // a second stack on top, upside down: that of the waker
    u32 how = 0;    // Above; 0: the cell is free
    u64 weight = 0, count = 0;
  };

  // What a second stack has to do with the first.
  enum Above : u32 { woken_by = 1, held_by };
  static constexpr const char* text_of(u32 how) { return how == held_by ? "-- held by" : "-- woken by"; }

  Fold() : cells_(1024) {}
  void add(u32 root, u32 stack, u64 weight, u32 above = 0, Above how = woken_by) {
    Cell* cell = &cells_[last_];
    if (cell->stack != stack || cell->root != root || cell->above != above || cell->how == 0) [[unlikely]]
      cell = &place(root, stack, above, how);
    cell->weight += weight;
    ++cell->count;
    weight_ += weight;
    ++count_;
  }
  // Takes back what was added.
  void take(u32 root, u32 stack, u64 weight) {
    Cell& cell = place(root, stack, 0);
    cell.weight -= weight;
    --cell.count;
    weight_ -= weight;
    --count_;
  }
  // Adds numbers modulo 2^64.
  void change(u32 root, u32 stack, u64 weight, u64 count) {
    Cell& cell = place(root, stack, 0);
    cell.weight += weight;
    cell.count += count;
    weight_ += weight;
    count_ += count;
  }
  u64 weight() const { return weight_; }
  u64 count() const { return count_; }
  size_t size() const { return used_; }
  template <class Use>
  void each(const Use& use) const {
    for (const Cell& cell : cells_) {
      if (cell.how != 0 && cell.count != 0) use(cell);
    }
  }

 private:
  Cell& place(u32 root, u32 stack, u32 above, Above how = woken_by) {
    if (2 * used_ >= cells_.size()) grow();
    last_ = slot(root, stack, above);
    Cell& cell = cells_[last_];
    if (cell.how == 0) {
      cell = {root, stack, above, how, 0, 0};
      ++used_;
    }
    return cell;
  }
  size_t slot(u32 root, u32 stack, u32 above) const {
    // Stacks are numbered one after the other, so cells lie side by side, and in the cache.
    size_t at = (stack + (u64{root} << 32 | above) * 0x9E3779B97F4A7C15 / 64) & (cells_.size() - 1);
    while (cells_[at].how != 0 && (cells_[at].stack != stack || cells_[at].root != root || cells_[at].above != above))
      at = (at + 1) & (cells_.size() - 1);
    return at;
  }
  void grow();

  std::vector<Cell> cells_;
  size_t used_ = 0, last_ = 0;
  u64 weight_ = 0, count_ = 0;
};

class FlameTree {
 public:
  struct Name {
    std::string text, module;
    CodeFunction::Kind kind = CodeFunction::Kind::program;
    bool inlined = false;
  };
  struct Node {
    u32 name = 0, parent = 0, depth = 0;
    u64 own[2] = {0, 0};  // of the trace, and of the one that it is compared with
  };

  FlameTree();
  void add(const Fold& fold, Stacks& stacks, const std::vector<std::string>& roots, u32 which);

  // The node of this name below `parent`; 0: below the root of all.
  u32 below(u32 parent, std::string_view text, CodeFunction::Kind kind) {
    return child(parent, name_of(text, "", kind, false));
  }
  void add(u32 node, u64 weight, u32 which) { nodes_[node].own[which] += weight; }

  const std::vector<Node>& nodes() const { return nodes_; }  // 0: the root of all
  const std::vector<Name>& names() const { return names_; }
  // "root;outer;inner" for a node; ; and line ends in a name become , and spaces.
  std::string path(u32 node) const;
  // Folded text: "path weight" a line, those with a weight only, in the order of the paths.
  std::string folded() const;
  // The nodes in the order of the tree, each before its children: name, depth and what is its own.
  std::vector<u32> in_order() const;

 private:
  u32 name_of(std::string_view text, std::string_view module, CodeFunction::Kind kind, bool inlined);
  u32 child(u32 parent, u32 name);

  std::vector<Name> names_;
  std::unordered_map<std::string, u32> name_numbers_;
  std::vector<Node> nodes_;
  std::unordered_map<u64, u32> children_;  // by parent and name
};

}  // namespace ringside
