#include "analysis/function_calls.hpp"

#include <algorithm>

namespace ringside {

void FunctionCalls::find(u32 id, Event& event) const {
  event.what = Event::What::other;
  const EventType* const type = event.type = formats_.find(id);
  if (type == nullptr) return;
  if (type->full == "ftrace:function") {
    event.at.value = type->field("ip");
    event.caller.value = type->field("parent_ip");
    const auto is = [](const Field* f) { return f != nullptr && f->kind == FieldKind::integer; };
    if (is(event.at.value) && is(event.caller.value)) event.what = Event::What::plain;
    return;
  }
  event.at = role_of(*type);
  if (event.at.role == Role::call) event.what = event.at.begins ? Event::What::entry : Event::What::exit;
}

u32 FunctionCalls::function_at(const EventRole& at, const TraceRecord& record) {
  if (record.number() != by_address_of_) {  // events of two machines have addresses of their own
    if (by_address_of_ != none && &formats_.symbols(record.number()) != &formats_.symbols(by_address_of_)) by_address_.clear();
    by_address_of_ = record.number();
  }
  const auto address = static_cast<u64>(read_integer(record.payload, *at.value));
  const auto [known, fresh] = by_address_.try_emplace(address, 0);
  if (!fresh) return known->second;
  std::string name = function_of(at, record.number(), record.payload, formats_);
  const auto [number, is_new] = by_name_.try_emplace(name, static_cast<u32>(functions_.size()));
  if (is_new) functions_.push_back(std::move(name));
  return known->second = number->second;
}

u32 FunctionCalls::path(u32 above, u32 root, u32 function) {
  auto& among = above == none ? first_ : below_;
  const u64 key = u64{above == none ? root : above} << 32 | function;
  const auto [at, fresh] = among.try_emplace(key, static_cast<u32>(paths_.size()));
  if (fresh) paths_.push_back({above, root, function});
  return at->second;
}

void FunctionCalls::take(const TraceRecord& record, const RingName& ring, u32 root, bool wanted) {
  if (!ring.kernel) return;
  if (record.lost != 0) {  // a thread's events may be in any ring
    for (auto& [thread, open] : open_) counts_.cut += open.size();
    return open_.clear();
  }
  Event& event = events_.at(record.number(), formats_.version());
  if (event.what == Event::What::unknown) [[unlikely]]
    find(record.number(), event);
  if (event.what == Event::What::other) return;
  const u32 function = function_at(event.at, record);
  if (event.what == Event::What::plain) {
    if (!wanted) return;
    ++paths_[path(path(none, root, function_at(event.caller, record)), root, function)].calls;
    ++counts_.calls;
    return;
  }
  const i32 tid = thread_of(event.type, read_common(record.payload));
  std::vector<Open>& open = open_[tid != 0 ? tasks_.key(tid, ring) : -1 - static_cast<i64>(record.source)];
  const auto address = static_cast<u64>(read_integer(record.payload, *event.at.value));
  if (event.what == Event::What::entry) {
    if (open.size() == deepest) {
      ++counts_.cut;
      return;
    }
    open.push_back({address, record.time, 0, path(open.empty() ? none : open.back().path, root, function)});
    return;
  }
  const auto its = std::find_if(open.rbegin(), open.rend(), [&](const Open& o) { return o.function == address; });
  if (its == open.rend()) {
    ++counts_.unmatched;
    return;
  }
  counts_.cut += static_cast<u64>(its - open.rbegin());
  const Open call = *its;
  open.erase(std::next(its).base(), open.end());
  const u64 took = record.time - std::min(record.time, call.begin);
  if (!open.empty()) open.back().inner += took;
  if (!wanted) return;
  Path& p = paths_[call.path];
  p.own_ns += took - std::min(took, call.inner);
  ++p.calls;
  own_ns_ += took - std::min(took, call.inner);
  ++counts_.calls;
}

FunctionCalls::Counts FunctionCalls::counts() const {
  Counts all = counts_;
  for (const auto& [thread, open] : open_) all.cut += open.size();
  return all;
}

}  // namespace ringside
