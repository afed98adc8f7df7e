#include "mount/tree.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "mount/files.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"
#include "writer/place.hpp"

namespace ringside::mount {
namespace {

// .mount-PID, beside the instances: `ringside list` does not show it.
constexpr std::string_view own_prefix = ".mount-";

void remove_left_behind() {
  std::vector<std::string> dead;
  const auto root = sys::open_trusted(instances_root(), sys::Role::root);
  if (root) sweep_unfinished(root->get(), "");
  const auto names = root ? sys::names_in(root->get()) : result<std::vector<std::string>>();
  for (const std::string& name : names ? *names : std::vector<std::string>{}) {
    if (name.compare(0, own_prefix.size(), own_prefix) != 0 ||
        name.find_first_not_of("0123456789", own_prefix.size()) != std::string::npos)
      continue;
    // Its PID is no proof of life: the mount may run in another PID namespace.
    if (auto instance = Instance::open(instances_root() + "/" + name); !instance || !(*instance)->maker_lives())
      dead.push_back(name);
  }
  for (const std::string& name : dead) (void)Instance::remove(instances_root() + "/" + name, true);
}

InstanceOptions as_the_kernel_makes_them(const std::string& name) {
  InstanceOptions o;
  o.name = name;
  o.buffer_size = 1410 * 1024;
  o.subbuf_size = 4096;
  // With rings of threads, a clock that tools show in seconds.
  if (why_not_cpu_rings() != RingsBecause::can) o.clock = ClockKind::mono;
  o.events = {};
  return o;
}

// The directories of an instance, and of an external writer.
constexpr std::pair<Dir, const char*> directories[] = {
    {Dir::per_cpu, "per_cpu"}, {Dir::options, "options"}, {Dir::events, "events"}};

result<Node> no_such(const std::string& name) { return fail(ENOENT, name); }

// The N in "cpuN".
std::optional<u32> cpu_of(const std::string& name) {
  if (name.size() < 4 || name.size() > 9 || name.compare(0, 3, "cpu") != 0 || (name[3] == '0' && name.size() > 4))
    return std::nullopt;
  u32 n = 0;
  for (const char c : name.substr(3)) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + static_cast<u32>(c - '0');
  }
  return n;
}

}  // namespace

result<std::unique_ptr<Tree>> Tree::create(const std::vector<std::string>& instances, const std::vector<std::string>& remotes,
                                           u32 cpus, std::chrono::nanoseconds patience, int event_fd) {
  std::unique_ptr<Tree> tree(new Tree);
  tree->event_fd_ = event_fd;
  tree->cpus_ = cpus;
  remove_left_behind();
  std::string top;
  if (instances.empty()) {
    top = instances_root() + "/" + std::string(own_prefix) + std::to_string(getpid());
    // The root of all instances is made together with the first one that has a name.
    if (access(instances_root().c_str(), F_OK) != 0 && mkdir(instances_root().c_str(), 0700) != 0)
      return fail(errno, "cannot make the directory " + instances_root());
    tree->own_instance_ = RS_TRY(Instance::create(as_the_kernel_makes_them(top)));
    tree->own_ = top;
  } else {
    top = instances[0];
    tree->only_.assign(instances.begin() + 1, instances.end());
  }
  tree->top_ = RS_TRY(Mounted::open(top, event_fd, cpus));
  for (const std::string& name : tree->only_)
    RS_TRY(tree->mounted(name));
  tree->top_->others = [tree = tree.get()] { return tree->others(); };
  tree->remotes_ = RS_TRY(Remotes::create(remotes, cpus, patience, event_fd));
  return tree;
}

Tree::~Tree() {
  if (top_ != nullptr) top_->others = nullptr;
  mounted_.clear();
  if (own_.empty()) return;
  if (top_ != nullptr) top_->marker().stop();  // null: it could not be opened
  top_.reset();
  own_instance_.reset();
  (void)Instance::remove(own_, true);
}

std::vector<std::string> Tree::names() const {
  std::vector<std::string> all = only_.empty() ? Instance::list() : only_;
  const std::string_view top = top_->path();
  const std::string root = instances_root() + "/";
  std::erase_if(all, [&](std::string_view n) {
    return n == top || (top.substr(0, root.size()) == root && n == top.substr(root.size()));
  });
  return all;
}

std::vector<std::shared_ptr<Mounted>> Tree::others() {
  std::vector<std::shared_ptr<Mounted>> all;
  for (const std::string& name : names())
    if (auto one = mounted(name)) all.push_back(std::move(*one));
  return all;
}

result<std::shared_ptr<Mounted>> Tree::mounted(const std::string& name) {
  auto known = mounted_.find(name);
  if (known != mounted_.end() && !known->second->removed()) return known->second;
  if (known != mounted_.end()) mounted_.erase(known);
  auto opened = Mounted::open(name, event_fd_, cpus_);
  if (opened) mounted_[name] = *opened;
  return opened;
}

result<Node> Tree::find(const Node& in, const std::string& name) {
  if (in.file != nullptr) return fail(ENOTDIR, name);
  if (in.on && in.on->removed()) return no_such(name);
  Node at = in;
  at.file = file_of(in, name);
  if (at.file != nullptr) return at;
  const auto has = [&](const auto& test) {
    const std::vector<EventName> all = in.rings()->events();
    return std::any_of(all.begin(), all.end(), test);
  };
  switch (in.dir) {
    case Dir::top:
      if (name == "instances") return Node{.dir = Dir::instances};
      if (name == "remotes") return Node{.dir = Dir::remotes};
      [[fallthrough]];
    case Dir::instance:
    case Dir::remote:
      for (const auto& [dir, called] : directories)
        if (name == called) {
          at.dir = dir;
          return at;
        }
      return no_such(name);
    case Dir::instances: {
      const std::vector<std::string> all = names();
      if (std::find(all.begin(), all.end(), name) == all.end()) return no_such(name);
      auto on = mounted(name);
      if (!on) return no_such(name);
      return Node{.dir = Dir::instance, .on = std::move(*on)};
    }
    case Dir::remotes:
      at.dir = Dir::remote;
      at.remote = remotes_->find(name);
      if (at.remote == nullptr) return no_such(name);
      return at;
    case Dir::per_cpu: {
      const std::optional<u32> n = cpu_of(name);
      if (!n || *n >= in.rings()->cpus()) return no_such(name);
      at.dir = Dir::cpu;
      at.ring = *n;
      return at;
    }
    case Dir::events:
      if (in.on && name == "ftrace") (void)in.on->start_marker();  // its events are there before the first marker
      if (!(in.on && name == "ftrace") && !has([&](const EventName& e) { return e.system == name; })) return no_such(name);
      at.dir = Dir::system;
      at.system = name;
      return at;
    case Dir::system:
      if (!has([&](const EventName& e) { return e.system == in.system && e.folder == name; })) return no_such(name);
      at.dir = Dir::event;
      at.event = name;
      return at;
    default:
      return no_such(name);
  }
}

result<std::vector<Listed>> Tree::list(const Node& of) {
  if (of.on && of.on->removed()) return fail(ENOENT, "the instance is gone");
  std::vector<Listed> all;
  for_each_file(of, [&](const FileType& f) { all.push_back({f.name, false}); });
  std::set<std::string> names;
  switch (of.dir) {
    case Dir::top:
      all.push_back({"instances", true});
      all.push_back({"remotes", true});
      [[fallthrough]];
    case Dir::instance:
    case Dir::remote:
      for (const auto& [dir, called] : directories) all.push_back({called, true});
      break;
    case Dir::instances:
      for (std::string& name : this->names()) all.push_back({std::move(name), true});
      break;
    case Dir::remotes:
      for (std::string& name : remotes_->names()) all.push_back({std::move(name), true});
      break;
    case Dir::per_cpu:
      for (u32 n = 0; n < of.rings()->cpus(); ++n) all.push_back({"cpu" + std::to_string(n), true});
      break;
    case Dir::events:
      if (of.on) names.insert("ftrace");
      for (const EventName& e : of.rings()->events()) names.insert(e.system);
      break;
    case Dir::system:
      for (const EventName& e : of.rings()->events())
        if (e.system == of.system) names.insert(e.folder);
      break;
    default:
      break;
  }
  for (const std::string& name : names) all.push_back({name, true});
  return all;
}

result<void> Tree::make_directory(const Node& in, const std::string& name) {
  if (in.dir != Dir::instances || in.file != nullptr) return fail(EPERM, name);
  if (!only_.empty()) return fail(EPERM, name);
  if (name.find('/') != std::string::npos) return fail(EINVAL, name);
  InstanceOptions o = as_the_kernel_makes_them(name);
  o.overwrite = top_->instance().control().mode == 0;
  RS_TRY(Instance::create(o));
  RS_TRY(mounted(name))->options = options_at_first(top_->options);
  return {};
}

result<void> Tree::remove_directory(const Node& in, const std::string& name,
                                    const std::function<bool(const Mounted&)>& in_use) {
  if (in.dir != Dir::instances) return fail(EPERM, name);
  const std::vector<std::string> all = names();
  if (std::find(all.begin(), all.end(), name) == all.end()) return fail(ENOENT, name);
  auto on = RS_TRY(mounted(name));
  if (in_use(*on)) return fail(EBUSY, name);
  on->marker().stop();
  RS_TRY(Instance::remove(name));
  mounted_.erase(name);
  return {};
}

}  // namespace ringside::mount
