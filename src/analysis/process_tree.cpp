#include "analysis/process_tree.hpp"

#include <algorithm>

namespace ringside {
namespace {

constexpr u32 deepest = 200;  // chains of parents that are longer end at it

}  // namespace

u32 ProcessTree::node_of(Tasks::Key process, u32 deep) {
  if (const auto known = known_.find(process); known != known_.end()) return known->second;
  known_[process] = 0;  // a number that is used again may be its own ancestor
  const Tasks::Key maker = tasks_.parent(process);
  const u32 up = maker == 0 || deep == deepest ? 0 : node_of(maker, deep + 1);
  const Task* const task = tasks_.find(process);
  const std::string name = task == nullptr || task->process.empty() ? "<...>" : task->process;
  if (up != 0 && nodes_[up].name == name) return known_[process] = up;
  const auto [at, fresh] = children_.try_emplace({up, name}, static_cast<u32>(nodes_.size()));
  if (fresh) {
    Node node;
    node.name = name;
    node.parent = up;
    node.depth = nodes_[up].depth + 1;
    nodes_.push_back(std::move(node));
  }
  return known_[process] = at->second;
}

void ProcessTree::add(Tasks::Key thread, const States::All& times) {
  const Tasks::Key process = tasks_.process(thread);
  Node& node = nodes_[node_of(process, 0)];
  node.processes += counted_.insert(process).second;
  ++node.threads;
  for (u32 n = 0; n < States::kinds; ++n) node.own[n].merge(times[n]);
}

std::vector<const ProcessTree::Node*> ProcessTree::in_order() {
  for (Node& node : nodes_) node.running = node.all_running = node.own[RunStates::running].known();
  for (size_t n = nodes_.size(); n-- > 1;) nodes_[nodes_[n].parent].all_running += nodes_[n].all_running;
  std::vector<std::vector<u32>> below(nodes_.size());
  for (u32 n = 1; n < nodes_.size(); ++n) below[nodes_[n].parent].push_back(n);
  std::vector<const Node*> out;
  std::vector<u32> todo{0};
  while (!todo.empty()) {
    const u32 n = todo.back();
    todo.pop_back();
    if (n != 0 && nodes_[n].all_running != 0) out.push_back(&nodes_[n]);
    std::stable_sort(below[n].begin(), below[n].end(),
                     [&](u32 a, u32 b) { return nodes_[a].all_running < nodes_[b].all_running; });
    todo.insert(todo.end(), below[n].begin(), below[n].end());
  }
  return out;
}

std::vector<std::string> ProcessTree::path(const Node& node) const {
  std::vector<std::string> out{node.name};
  for (u32 up = node.parent; up != 0; up = nodes_[up].parent) out.insert(out.begin(), nodes_[up].name);
  return out;
}

}  // namespace ringside
