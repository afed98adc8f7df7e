#include "stacks/stacks.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include "decode/call_files.hpp"
#include "kernel/perf_ring.hpp"

namespace ringside {
namespace {

u64 word_at(const u8* words, size_t i) {
  u64 word = 0;
  std::memcpy(&word, words + 8 * i, 8);
  return word;
}

u64 mixed(u64 a, u64 b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<u64>(product) ^ static_cast<u64>(product >> 64);
}

// wyhash's mixing step over the words, in four lanes: one alone would wait for each product.
u64 hash_of(const u8* words, size_t count, u64 seed) {
  constexpr u64 keys[4] = {0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3};
  u64 lanes[4] = {seed ^ keys[1], seed ^ keys[2], seed ^ keys[3], seed ^ count};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t l = 0; l < 4; ++l) lanes[l] = mixed(lanes[l] ^ word_at(words, i + l), keys[l]);
  }
  for (size_t l = 0; i < count; ++i, ++l) lanes[l] = mixed(lanes[l] ^ word_at(words, i), keys[l]);
  return mixed(mixed(lanes[0], lanes[1] | 1) ^ lanes[2], keys[0] ^ lanes[3]);
}

// The addresses of a payload of kernel_stack or user_stack: the words from offset 16 on, as many as `size` says.
std::pair<const u8*, size_t> words_of(Bytes payload, bool of_kernel) {
  constexpr size_t at = 16;
  if (payload.size < at) return {nullptr, 0};
  size_t count = (payload.size - at) / 8;
  if (of_kernel) {
    i32 size = 0;
    std::memcpy(&size, payload.data + 8, sizeof size);
    count = std::min<size_t>(count, size < 0 ? 0 : static_cast<size_t>(size));
  }
  size_t n = 0;
  while (n < count && word_at(payload.data + at, n) != 0 && word_at(payload.data + at, n) != ~u64{0}) ++n;
  return {payload.data + at, n};
}

}  // namespace

void Stacks::find(u32 id, Kind& kind) const {
  kind.part = Part::none;
  kind.type = formats_.find(id);
  if (kind.type == nullptr) return;
  const EventType& type = *kind.type;
  if (type.system == "ftrace" && (type.name == "kernel_stack" || type.name == "user_stack")) {
    kind.part = type.name == "kernel_stack" ? Part::kernel_stack : Part::user_stack;
  } else if (type.full == "ringside:stack") {
    const Field* const number = type.field("id");
    const Field* const frames = type.field("frames");
    if (number != nullptr && number->kind == FieldKind::integer && frames != nullptr && frames->kind == FieldKind::loc_array &&
        frames->element == 8)
      kind.part = Part::stack;
  } else if (type.full == "ringside:code_map") {
    kind.part = Part::code_map;
  } else if (type.full == file_call_event) {
    kind.part = Part::files;
  } else if (type.stack() != nullptr) {
    kind.part = type.full == "ringside:sample" ? Part::sample : Part::refers;
    kind.field = type.stack();
  }
}

// The common flags, preempt count and thread are equal, but for the wish to reschedule: an interrupt between the two may set
// it.
bool Stacks::together(Bytes event, Bytes stack) {
  constexpr u8 reschedule = 0x02 | 0x04 | 0x20;  // lazily, at once, by the preempt count
  return event.size >= 8 && stack.size >= 8 && ((event.data[2] ^ stack.data[2]) & ~reschedule) == 0 &&
         std::memcmp(event.data + 3, stack.data + 3, 5) == 0;
}

Stacks::Addresses Stacks::add(const u8* words, size_t count) {
  if (count == 0 || words_.size() + count > most_addresses) return {};
  const Addresses out{static_cast<u32>(words_.size()), static_cast<u32>(count), false};
  words_.resize(words_.size() + count);
  std::memcpy(words_.data() + out.begin, words, 8 * count);
  return out;
}

void Stacks::learn(Bytes payload, const EventType& type) {
  const auto id = static_cast<u64>(read_integer(payload, *type.field("id")));
  const Bytes frames = read_array(payload, *type.field("frames"));
  if (id == 0 || frames.size < 8) return;
  const auto [at, fresh] = by_id_.try_emplace(id);
  if (fresh) {
    at->second = add(frames.data, frames.size / 8);
    const Field* const ended = type.field("ended");
    at->second.cut = ended != nullptr && ended->kind == FieldKind::integer && read_integer(payload, *ended) != 0;
    cut_ += at->second.cut;
  } else if (at->second.size != frames.size / 8 ||
             std::memcmp(words_.data() + at->second.begin, frames.data, frames.size) != 0) {
    ++conflicts_;
  }
}

void Stacks::learn_map(const TraceRecord& record, const RingName& ring) {
  const EventType& type = *formats_.find(record.number());
  const auto number = [&](std::string_view name) {
    const Field* const field = type.field(name);
    return field != nullptr && field->kind == FieldKind::integer ? static_cast<u64>(read_integer(record.payload, *field)) : 0;
  };
  const auto text = [&](std::string_view name) {
    const Field* const field = type.field(name);
    const bool is = field != nullptr && (field->kind == FieldKind::text || field->kind == FieldKind::loc_text);
    return std::string(is ? read_text(record.payload, *field) : std::string_view());
  };
  const auto pid = static_cast<i32>(number("pid"));
  const auto process = tasks_.key(pid, ring);
  const u64 start = number("start"), size = number("size"), offset = number("file_offset");
  const std::string path = text("path").substr(0, PATH_MAX);  // many addresses show it; no file has a longer one
  // The number by which this machine knows it, for /tmp/perf-PID.map. One of another PID namespace alone is no number here.
  const Task* const task = tasks_.find(pid, ring);
  const bool away = task != nullptr && task->elsewhere.tid != 0 && task->elsewhere.here_tid == 0;
  const i32 seen = away ? 0 : tasks_.seen(pid, ring);
  if (size == 0) {
    if (path == "fork")
      maps_.copy(process, seen, tasks_.key(static_cast<i32>(offset), ring));
    else if (path.empty())
      maps_.clear(process, seen);
    return;
  }
  if (start + size <= start) return;
  maps_.add(process, seen, {start, start + size, offset, maps_.file(path, text("build_id"), tasks_.machine(ring.numbering))});
}

CodeMaps::Process Stacks::process_of(const TraceRecord& record, const RingName& ring, const EventType* type) const {
  const i32 tid = thread_of(type, read_common(record.payload));
  const Tasks::Key process = tasks_.process(tid, ring);
  return process != 0 ? process : tasks_.key(tid, ring);
}

u32 Stacks::keep(const Key& key, const Stack& stack) {
  if (stacks_.size() > most_stacks) {
    ++refused_;
    return 0;
  }
  const auto n = static_cast<u32>(stacks_.size());
  stacks_.push_back(stack);
  if (2 * stacks_.size() > numbers_.size()) {
    std::vector<Entry> old(numbers_.size() * 2);
    old.swap(numbers_);
    for (const Entry& entry : old) {
      if (entry.number != 0) numbers_[entry_of(entry.key)] = entry;
    }
  }
  numbers_[entry_of(key)] = {key, n};
  return n;
}

// Where the key is, or would be.
size_t Stacks::entry_of(const Key& key) const {
  size_t at = mixed(key.id ^ 0xA0761D6478BD642F, key.other ^ 0xE7037ED1A0B428DB) & (numbers_.size() - 1);
  while (numbers_[at].number != 0 && !(numbers_[at].key == key)) at = (at + 1) & (numbers_.size() - 1);
  return at;
}

u32 Stacks::number(const TraceRecord& record, const RingName& ring, const Behind& behind) {
  const u32 id = record.number();
  const Part what = part(id);
  const Kind& kind = kinds_.at(id, formats_.version());
  Stack stack;
  if (what == Part::refers || what == Part::sample) {
    stack.id = static_cast<u64>(read_integer(record.payload, *kind.field));
    stack.exact = what == Part::sample;
  }
  const auto [kernel, kernel_count] = words_of(what == Part::kernel_stack ? record.payload : behind.kernel, true);
  const Bytes user_payload = what == Part::user_stack ? record.payload : behind.user;
  const auto [user, user_count] = words_of(user_payload, false);
  if (stack.id == 0 && kernel_count + user_count == 0) return 0;
  if (stack.id != 0) {
    stack.space = maps_.space(process_of(record, ring, kind.type));
  } else if (user_count != 0) {
    i32 tgid = 0;
    std::memcpy(&tgid, user_payload.data + 8, sizeof tgid);
    stack.space = maps_.space(tasks_.key(tgid, ring));
  }
  stack.machine = tasks_.machine(ring.numbering);
  u64 other = u64{stack.machine} << 33 ^ (u64{stack.space} << 1 | static_cast<u64>(stack.exact));
  u64 first = stack.id;
  if (kernel_count + user_count != 0) {
    other = hash_of(user, user_count, hash_of(kernel, kernel_count, other));
    if (first == 0) first = kernel_count << 32 | user_count;
  }
  const Key key{first, other};
  if (key == last_key_ && last_number_ != 0) return last_number_;
  const u32 known = numbers_[entry_of(key)].number;
  if (known == 0) {
    stack.kernel = add(kernel, kernel_count);
    stack.user = add(user, user_count);
  }
  last_key_ = key;
  return last_number_ = known != 0 ? known : keep(key, stack);
}

u64 Stacks::sample_count(const TraceRecord& record) {
  const Kind& kind = kinds_.at(record.number(), formats_.version());
  const Field* const field = kind.type != nullptr ? kind.type->field("count") : nullptr;
  return field != nullptr && field->kind == FieldKind::integer
             ? std::max<u64>(static_cast<u64>(read_integer(record.payload, *field)), 1)
             : 1;
}

const Stacks::Addresses* Stacks::program_stack(u64 id) {
  auto at = by_id_.find(id);
  if (at == by_id_.end() && !looked_ && find_missing_) {
    looked_ = true;
    find_missing_(*this);
    at = by_id_.find(id);
  }
  if (at != by_id_.end()) return &at->second;
  if (missed_.try_emplace(id, true).second) ++missing_;
  return nullptr;
}

const std::vector<Stacks::Frame>& Stacks::frames(u32 number) {
  frames_.clear();
  if (number == 0 || number >= stacks_.size()) return frames_;
  const Stack stack = stacks_[number];
  const auto append = [&](const Addresses& addresses, bool exact, bool of_kernel = false) {
    bool first = true;  // of the program's, below the kernel's if there are any: it was interrupted there
    for (u32 i = 0; i < addresses.size; ++i) {
      const u64 address = words_[addresses.begin + i];
      if (address == 0 || address >= perf_contexts) continue;
      const bool kernel = of_kernel || Names::in_upper_half(address);
      const bool is_exact = exact && (i == 0 || (first && !kernel));
      first = first && kernel;
      const u64 looked_up = is_exact || (of_kernel && address == Names::trampoline) ? address : address - 1;
      for (const CodePlace& place : names_.at(stack.space, looked_up, stack.machine, kernel))
        frames_.push_back({address, place, stack.space, is_exact, kernel});
    }
  };
  append(stack.kernel, false, true);
  append(stack.user, true);  // the innermost one is no return address
  if (stack.id != 0) {
    const Addresses* const found = program_stack(stack.id);
    const Addresses addresses = found != nullptr ? *found : Addresses();
    append(addresses, stack.exact);
    if (addresses.cut) frames_.push_back({0, {names_.remark("[cut off]"), 0, 0, 0, 0, false}, stack.space, true, false});
    if (found == nullptr) frames_.push_back({0, {names_.remark("[stack lost]"), 0, 0, 0, 0, false}, stack.space, true, false});
  }
  return frames_;
}

Stacks::InFile Stacks::in_file(const Frame& frame) const {
  const bool of_program = frame.address != 0 && !frame.kernel;
  const CodeMap* const map = of_program ? maps_.find(frame.space, frame.address - (frame.exact ? 0 : 1)) : nullptr;
  if (map == nullptr) return {names_.function(frame.place.function).path, {}, frame.address};
  const CodeFile& file = maps_.file(map->file);
  return {file.path, file.build_id, frame.address - map->start + map->offset};
}

}  // namespace ringside
