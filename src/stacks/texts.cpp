// Stacks as texts.

#include "stacks/stacks.hpp"

namespace ringside {
namespace {

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

const std::vector<std::string>& Stacks::functions(u32 stack) {
  functions_.clear();
  for (const Frame& frame : frames(stack)) functions_.push_back(names_.function(frame.place.function).name);
  return functions_;
}

u32 Stacks::same_names(u32 stack) {
  if (const auto known = text_of_.find(stack); known != text_of_.end()) return texts_[known->second].second;
  std::string all;
  for (const std::string& name : functions(stack)) all += (all.empty() ? "" : ";") + name;
  const auto [at, fresh] = text_numbers_.try_emplace(all, static_cast<u32>(texts_.size()));
  if (fresh) texts_.emplace_back(std::move(all), stack);
  text_of_[stack] = at->second;
  return texts_[at->second].second;
}

std::string_view Stacks::text(u32 stack) {
  if (stack == 0) return {};
  (void)same_names(stack);
  return texts_[text_of_[stack]].first;
}

void Stacks::append_lines(u32 stack, fmt::memory_buffer& out) {
  const std::vector<Frame>& all = frames(stack);
  u64 bytes = 0;
  for (const Frame& frame : all) {
    const CodeFunction& f = names_.function(frame.place.function);
    bytes += 64 + f.name.size() + f.module.size() + (frame.place.line != 0 ? names_.source(frame.place.file).size() : 0);
  }
  if (!may_write(bytes)) {
    append(out, " => ");
    append(out, no_room);
    return out.push_back('\n');
  }
  for (const Frame& frame : all) {
    const CodePlace& p = frame.place;
    const CodeFunction& f = names_.function(p.function);
    append(out, " => ");
    append(out, f.name);
    const bool named = f.kind != CodeFunction::Kind::unnamed && f.kind != CodeFunction::Kind::remark;
    if (named && p.inlined) append(out, " (inlined)");
    if (named && !p.inlined) fmt::format_to(std::back_inserter(out), "+{:#x}", p.offset + (frame.exact ? 0 : 1));
    if (named && !p.inlined && p.size != 0) fmt::format_to(std::back_inserter(out), "/{:#x}", p.size);
    if (named && !f.module.empty()) fmt::format_to(std::back_inserter(out), " [{}]", f.module);
    if (p.line != 0) fmt::format_to(std::back_inserter(out), " {}:{}", file_name(names_.source(p.file)), p.line);
    out.push_back('\n');
  }
}

std::vector<std::string> Stacks::remarks() const {
  std::vector<std::string> out = names_.problems();
  const auto say = [&](u64 n, const std::string& one, const std::string& many) {
    if (n != 0) out.push_back(std::to_string(n) + " " + (n == 1 ? one : many));
  };
  say(missing_, "different stack is lost: no ring has its addresses any longer; it shows as [stack lost]",
      "different stacks are lost: no ring has their addresses any longer; they show as [stack lost]");
  say(cut_, "different stack is cut off: its outermost calls could not be followed (record --depth); it shows [cut off]",
      "different stacks are cut off: their outermost calls could not be followed (record --depth); they show [cut off]");
  say(names_.unnamed(), "address has no name; it shows as FILE+OFFSET", "addresses have no names; they show as FILE+OFFSET");
  say(beyond(),
      "event's stack is not written: the stacks of all would be far longer than the trace; it shows as " + std::string(no_room),
      "events' stacks are not written: the stacks of all would be far longer than the trace; they show as " +
          std::string(no_room));
  say(refused_, "event's stack had no room and counts as none", "events' stacks had no room and count as none");
  say(maps_.refused(), "map of code had no room", "maps of code had no room");
  say(conflicts_, "stack event has the id of another stack; the first one counts",
      "stack events have ids of other stacks; the first ones count");
  return out;
}

}  // namespace ringside
