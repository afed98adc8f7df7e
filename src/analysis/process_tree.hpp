// Processes below those that started them, added up by name: three hundred compilers of a build are one line below its make.
//
//   ProcessTree tree(tasks);
//   tree.add(thread, times);          // of each thread, once: States::each
//   for (const ProcessTree::Node* node : tree.in_order()) ...
//
// A process that has the name of its parent (a fork without an exec, or a thread of which nothing more is known) counts on its
// parent's line. What started a process is in task:task_newtask or sched:sched_process_fork; without them it is alone.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/states.hpp"
#include "decode/tasks.hpp"

namespace ringside {

class ProcessTree {
 public:
  struct Node {
    std::string name;
    u32 parent = 0, depth = 0;  // depth of the uppermost: 1
    u64 processes = 0, threads = 0;
    States::All own{};
    u64 running = 0, all_running = 0;  // ns: its own, and with all below it
  };

  explicit ProcessTree(const Tasks& tasks) : tasks_(tasks) { nodes_.emplace_back(); }
  void add(Tasks::Key thread, const States::All& times);
  // Each before those below it, the most time first. Those that never ran and have nothing below them are left out.
  std::vector<const Node*> in_order();
  std::vector<std::string> path(const Node& node) const;
  u64 processes() const { return counted_.size(); }
  u64 all_running() const { return nodes_[0].all_running; }  // after in_order()

 private:
  u32 node_of(Tasks::Key process, u32 deep);

  const Tasks& tasks_;
  std::vector<Node> nodes_;  // 0: the root of all
  std::map<std::pair<u32, std::string>, u32> children_;
  std::unordered_map<Tasks::Key, u32> known_;
  std::set<Tasks::Key> counted_;
};

}  // namespace ringside
