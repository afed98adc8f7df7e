#include "analysis/unfreed.hpp"

#include <algorithm>

namespace ringside {
namespace {

u64 value_of(Bytes payload, const Field* field) {
  return field != nullptr ? static_cast<u64>(read_integer(payload, *field)) : 0;
}

}  // namespace

void Unfreed::find(u32 id, Event& event) const {
  event.what = What::other;
  event.type = formats_.find(id);
  if (event.type == nullptr || event.type->system != "libc") return;
  const std::string& name = event.type->name;
  event.pointer = event.type->field("ptr");
  event.size = event.type->field("size");
  event.count = event.type->field("nmemb");
  event.old = event.type->field("old");
  event.duration = event.type->field("duration_ns");
  if (event.pointer == nullptr) return;
  if (name == "free") event.what = What::frees;
  if (event.size == nullptr) return;
  if (name == "malloc" || name == "calloc") event.what = What::allocates;
  if (name == "realloc" && event.old != nullptr) event.what = What::reallocates;
}

void Unfreed::gone(const Key& key, const Block& block, u64 time) {
  if (block.wanted && changes_ != nullptr) changes_->free(key.process, time, block.root, block.stack, block.bytes);
}

void Unfreed::add(const Key& key, const Block& block) {
  counts_.allocations += block.wanted;
  const auto [at, fresh] = blocks_.try_emplace(key, block);
  counts_.replaced += !fresh && at->second.wanted;
  if (!fresh) gone(key, at->second, block.time);
  if (changes_ != nullptr && block.wanted) changes_->add(key.process, block.time, block.root, block.stack, block.bytes);
  at->second = block;
}

void Unfreed::free(const Key& key, u64 before, u64 time) {
  const auto at = blocks_.find(key);
  if (at == blocks_.end() || at->second.time > before) {
    ++counts_.unmatched;
    return;
  }
  counts_.frees += at->second.wanted;
  gone(key, at->second, time);
  blocks_.erase(at);
}

void Unfreed::take(const TraceRecord& record, const RingName& ring, u32 root, bool wanted) {
  const Event& event = of(record.number());
  if (event.what == What::other) return;
  const auto process = tasks_.process(thread_of(event.type, read_common(record.payload)), ring);
  const u64 pointer = value_of(record.payload, event.pointer), size = value_of(record.payload, event.size);
  Block block{size, record.time, record.stack, root, wanted};
  if (event.count != nullptr)
    block.bytes = static_cast<u64>(
        std::min<unsigned __int128>(static_cast<unsigned __int128>(size) * value_of(record.payload, event.count), ~u64{0}));
  if (event.what == What::frees) {
    if (pointer != 0) free({process, pointer}, ~u64{0}, record.time);
    return;
  }
  if (event.what == What::reallocates) {
    const u64 old = value_of(record.payload, event.old), took = value_of(record.payload, event.duration);
    if (old != 0 && (pointer != 0 || size == 0))
      free({process, old}, record.time - std::min(record.time, old == pointer ? 0 : took), record.time);
  }
  if (pointer != 0) add({process, pointer}, block);
}

}  // namespace ringside
