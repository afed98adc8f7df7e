#include "stacks/fold.hpp"

#include <algorithm>

namespace ringside {

void Fold::grow() {
  std::vector<Cell> old(cells_.size() * 2);
  old.swap(cells_);
  for (const Cell& cell : old) {
    if (cell.how != 0) cells_[slot(cell.root, cell.stack, cell.above)] = cell;
  }
}

FlameTree::FlameTree() {
  name_of("all", "", CodeFunction::Kind::remark, false);
  nodes_.emplace_back();
}

u32 FlameTree::name_of(std::string_view text, std::string_view module, CodeFunction::Kind kind, bool inlined) {
  std::string key(text);
  key += '\n';
  key += module;
  key += static_cast<char>('0' + static_cast<int>(kind) * 2 + static_cast<int>(inlined));
  const auto [at, fresh] = name_numbers_.try_emplace(std::move(key), static_cast<u32>(names_.size()));
  if (fresh) names_.push_back({std::string(text), std::string(module), kind, inlined});
  return at->second;
}

u32 FlameTree::child(u32 parent, u32 name) {
  const auto [at, fresh] = children_.try_emplace(u64{parent} << 32 | name, static_cast<u32>(nodes_.size()));
  if (fresh) nodes_.push_back({name, parent, nodes_[parent].depth + 1, {0, 0}});
  return at->second;
}

void FlameTree::add(const Fold& fold, Stacks& stacks, const std::vector<std::string>& roots, u32 which) {
  std::unordered_map<u64, u32> known;  // functions of these stacks
  const auto name = [&](const Stacks::Frame& frame) {
    const auto [at, fresh] = known.try_emplace(u64{frame.place.function} << 1 | static_cast<u64>(frame.place.inlined));
    if (fresh) {
      const CodeFunction& f = stacks.names().function(frame.place.function);
      // Addresses of which nothing at all is known would be as many functions.
      const bool nowhere = f.kind == CodeFunction::Kind::unnamed && f.path.empty();
      at->second = nowhere ? name_of("[no map]", "", f.kind, false) : name_of(f.name, f.module, f.kind, frame.place.inlined);
    }
    return at->second;
  };
  std::vector<u32> path;
  fold.each([&](const Fold::Cell& cell) {
    u32 node = 0;
    if (cell.root < roots.size() && !roots[cell.root].empty())
      node = child(node, name_of(roots[cell.root], "", CodeFunction::Kind::remark, false));
    path.clear();
    for (const Stacks::Frame& frame : stacks.frames(cell.stack)) {
      const u32 one = name(frame);
      if (!path.empty() && path.back() == one && names_[one].text == "[no map]") continue;
      path.push_back(one);
    }
    if (path.empty()) path.push_back(name_of("[no stack]", "", CodeFunction::Kind::remark, false));
    for (size_t i = path.size(); i-- != 0;) node = child(node, path[i]);
    if (cell.above != 0) {
      node = child(node, name_of(Fold::text_of(cell.how), "", CodeFunction::Kind::remark, false));
      path.clear();
      for (const Stacks::Frame& frame : stacks.frames(cell.above)) path.push_back(name(frame));
      for (const u32 n : path) node = child(node, n);
    }
    nodes_[node].own[which] += cell.weight;
  });
}

std::string FlameTree::path(u32 node) const {
  std::vector<u32> up;
  for (; node != 0; node = nodes_[node].parent) up.push_back(nodes_[node].name);
  std::string out;
  for (size_t i = up.size(); i-- != 0;) {
    if (!out.empty()) out += ';';
    for (const char c : names_[up[i]].text) out += c == ';' ? ',' : static_cast<u8>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string FlameTree::folded() const {
  std::vector<std::string> lines;
  for (u32 n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].own[0] != 0) lines.push_back(path(n) + " " + std::to_string(nodes_[n].own[0]) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

std::vector<u32> FlameTree::in_order() const {
  std::vector<std::vector<u32>> below(nodes_.size());
  for (u32 n = 1; n < nodes_.size(); ++n) below[nodes_[n].parent].push_back(n);
  std::vector<u32> out, todo{0};
  out.reserve(nodes_.size());
  while (!todo.empty()) {
    const u32 n = todo.back();
    todo.pop_back();
    out.push_back(n);
    // Names in the order of the alphabet, as flame graphs have them.
    std::sort(below[n].begin(), below[n].end(),
              [&](u32 a, u32 b) { return names_[nodes_[a].name].text > names_[nodes_[b].name].text; });
    todo.insert(todo.end(), below[n].begin(), below[n].end());
  }
  return out;
}

}  // namespace ringside
