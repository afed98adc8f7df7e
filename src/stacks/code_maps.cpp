#include "stacks/code_maps.hpp"

namespace ringside {

u32 CodeMaps::file(const std::string& path, const std::string& build_id, u32 machine) {
  std::string key = build_id + "\n" + path + "\n" + std::to_string(machine);
  const auto [at, fresh] = file_numbers_.try_emplace(std::move(key), static_cast<u32>(files_.size()));
  if (fresh) files_.push_back({path, build_id, machine});
  return at->second;
}

bool CodeMaps::grow(size_t by) {
  if (maps_ + by > least_maps + maps_for_each * told_) {
    ++refused_;
    return false;
  }
  maps_ += by;
  return true;
}

// A space without maps, in the place of the one that stacks may refer to.
CodeMaps::Space& CodeMaps::fresh(Process owner, i32 pid) {
  const auto [at, is_new] = current_.try_emplace(owner, 0);
  if (is_new || spaces_[at->second].used) {
    at->second = static_cast<u32>(spaces_.size());
    spaces_.emplace_back();
  }
  Space& space = spaces_[at->second];
  space.pid = pid;
  space.maps = std::make_shared<Maps>();
  return space;
}

CodeMaps::Space& CodeMaps::own(Process owner, i32 pid) {
  const auto at = current_.find(owner);
  return at != current_.end() ? spaces_[at->second] : fresh(owner, pid);
}

void CodeMaps::clear(Process owner, i32 pid) { fresh(owner, pid); }

void CodeMaps::copy(Process child, i32 pid, Process parent) {
  const auto at = current_.find(parent);
  const std::shared_ptr<Maps> maps = at != current_.end() ? spaces_[at->second].maps : std::make_shared<Maps>();
  fresh(child, pid).maps = maps;
}

void CodeMaps::add(Process owner, i32 pid, const CodeMap& map) {
  if (map.end <= map.start) return;
  ++told_;
  Space* space = &own(owner, pid);
  auto at = space->maps->upper_bound(map.start);
  if (at != space->maps->begin() && std::prev(at)->second.end > map.start) --at;
  if (at != space->maps->end() && at->second == map) return;
  const bool replaces = at != space->maps->end() && at->first < map.end;
  if (space->maps.use_count() > 1 || (replaces && space->used)) {
    std::shared_ptr<Maps> before = space->maps;
    if (!grow(before->size())) return;
    if (replaces) space = &fresh(owner, pid);
    space->maps = std::make_shared<Maps>(*before);
    at = space->maps->lower_bound(at == before->end() ? ~u64{0} : at->first);
  }
  if (!grow(3)) return;
  // What the new one covers is no longer there; the rest of an older one stays on both sides.
  while (at != space->maps->end() && at->first < map.end) {
    const CodeMap old = at->second;
    at = space->maps->erase(at);
    if (old.start < map.start) space->maps->emplace(old.start, CodeMap{old.start, map.start, old.offset, old.file});
    if (old.end > map.end)
      at = space->maps->emplace(map.end, CodeMap{map.end, old.end, old.offset + (map.end - old.start), old.file}).first;
    if (old.end > map.end) break;
  }
  (*space->maps)[map.start] = map;
}

const CodeMap* CodeMaps::find(u32 space, u64 address) const {
  const Maps& maps = *spaces_[space].maps;
  auto at = maps.upper_bound(address);
  if (at == maps.begin()) return nullptr;
  --at;
  return address < at->second.end ? &at->second : nullptr;
}

}  // namespace ringside
