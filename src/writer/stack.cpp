#include "writer/stack.hpp"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "writer/process.hpp"

namespace ringside {
namespace {

constinit ringside_event stack_event{
    "ringside",
    "stack",
    "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n"
    "\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n"
    "\tfield:u32 ended;\toffset:20;\tsize:4;\tsigned:0;\n",
    "\"id=0x%llx frames=%s ended=%s\", REC->id, __print_array(__get_dynamic_array(frames), __get_dynamic_array_len(frames) / "
    "8, 8), "
    "__print_symbolic(REC->ended, { 0, \"complete\" }, { 1, \"depth\" }, { 2, \"no_table\" }, { 3, \"bad_frame\" })",
    nullptr,
    0,
    nullptr,
    nullptr};
constexpr u32 frames_at = 24;
static_assert(frames_at + most_frames * 8 <= RINGSIDE_PAYLOAD_MAX);

constinit ringside_event code_map_event{"ringside",
                                        "code_map",
                                        "\tfield:u32 pid;\toffset:8;\tsize:4;\tsigned:0;\n"
                                        "\tfield:u64 start;\toffset:16;\tsize:8;\tsigned:0;\n"
                                        "\tfield:u64 size;\toffset:24;\tsize:8;\tsigned:0;\n"
                                        "\tfield:u64 file_offset;\toffset:32;\tsize:8;\tsigned:0;\n"
                                        "\tfield:__data_loc char[] build_id;\toffset:40;\tsize:4;\tsigned:0;\n"
                                        "\tfield:__data_loc char[] path;\toffset:44;\tsize:4;\tsigned:0;\n",
                                        "\"pid=%u start=0x%llx size=0x%llx file_offset=0x%llx build_id=%s path=%s\", REC->pid, "
                                        "REC->start, REC->size, REC->file_offset, __get_str(build_id), __get_str(path)",
                                        nullptr,
                                        0,
                                        nullptr,
                                        nullptr};
constexpr u32 texts_at = 48, longest_path = 3000, longest_build_id = 64;  // of the build id: bytes

constinit u32 wanted_depth = usual_depth;

// ---- Which stack is where: for each ring, the position at which it was written last.

constexpr u32 bucket_bits = 13, ways = 4;
constinit u64* written_stacks = nullptr;

u64 key_of(u64 id, const RingNow& ring, u64 again) noexcept {
  return (id ^ ring.key * 0x9E3779B97F4A7C15u ^ again * 0xD6E8FEB86659FD93u) * 0xC2B2AE3D27D4EB4Fu;
}
u64* bucket_of(u64 key) noexcept {
  return __atomic_load_n(&written_stacks, __ATOMIC_ACQUIRE) + (key >> (64 - bucket_bits)) * ways;
}

// Is there a copy in the ring's newer half?
RINGSIDE_INLINE bool is_written(u64 key, const RingNow& ring) noexcept {
  const u64* const bucket = bucket_of(key);
  const u32 tag = static_cast<u32>(key) | 1;
  for (u32 i = 0; i < ways; ++i) {
    const u64 word = __atomic_load_n(&bucket[i], __ATOMIC_RELAXED);
    if (word >> 32 == tag) return static_cast<u32>(ring.position) - static_cast<u32>(word) <= ring.slots / 2;
  }
  return false;
}

void remember(u64 key, const RingNow& ring) noexcept {
  u64* const bucket = bucket_of(key);
  const u64 tag = static_cast<u32>(key) | 1;
  u64* victim = bucket;
  u32 oldest = 0;
  for (u32 i = 0; i < ways; ++i) {
    const u64 word = __atomic_load_n(&bucket[i], __ATOMIC_RELAXED);
    const u32 age = word >> 32 == tag || word == 0 ? ~u32{0} : static_cast<u32>(ring.position) - static_cast<u32>(word);
    if (age >= oldest) oldest = age, victim = &bucket[i];
    if (word >> 32 == tag) break;
  }
  __atomic_store_n(victim, tag << 32 | static_cast<u32>(ring.position), __ATOMIC_RELAXED);
}

RINGSIDE_INLINE RingNow ring_now() noexcept {
#if RINGSIDE_RSEQ
  if (detail::this_thread.on_cpus()) {
    const detail::CpuSide* const side = __atomic_load_n(&detail::cpu_side, __ATOMIC_ACQUIRE);
    const u32 cpu = side != nullptr ? Rseq::cpu(side->area) : ~u32{0};
    if (side == nullptr || cpu >= side->rings->nr) return {};
    const CpuPlace& place = place_in(*side->rings, cpu);
    if (place.ring.control == nullptr) return {};
    return {reinterpret_cast<u64>(&place), place_of(__atomic_load_n(&place.control->commit, __ATOMIC_RELAXED)).position,
            place.ring.geometry.nr_slots()};
  }
#endif
  return own_ring_now();
}

// ---- Code maps.

// A process's maps begin with one without an address: older maps, of another program with this number, no longer hold.
constinit u64 maps_begun = 0;  // process number << 2 | 0: no, 1: a thread writes it now, 2: yes

// A child of vfork has a number of its own, which is its thread's, too.
u32 number_of_process(const Opened& in) noexcept {
  if (detail::this_thread.borrowed != 0) return static_cast<u32>(detail::this_thread.tid);
  return in.foreign ? __atomic_load_n(&in.number, __ATOMIC_ACQUIRE) : static_cast<u32>(process.pid);
}

// The texts are in the walk's payload already, one after the other, each with its NUL.
void write_map(StackWalk& walk, u32 pid, u64 start, u64 size, u64 file_offset, u32 build_id, u32 path) noexcept {
  u8* const p = walk.payload;
  std::memset(p + 8, 0, 8);
  std::memcpy(p + 8, &pid, 4);
  const u64 words[] = {start, size, file_offset};
  std::memcpy(p + 16, words, sizeof words);
  const u32 places[] = {texts_at | (build_id + 1) << 16, (texts_at + build_id + 1) | (path + 1) << 16};
  std::memcpy(p + 40, places, sizeof places);
  (void)detail::write_event(detail::this_thread, code_map_event, p, texts_at + build_id + path + 2);
}

bool begin_maps(StackWalk& walk, u32 pid) noexcept {
  const u64 done = u64{pid} << 2 | 2;
  if (__atomic_load_n(&maps_begun, __ATOMIC_ACQUIRE) == done) return true;
  const SignalsOff off;  // a handler that left this by longjmp would leave it begun for ever
  u64 now = __atomic_load_n(&maps_begun, __ATOMIC_ACQUIRE);
  if (now == done) return true;
  if (now == (u64{pid} << 2 | 1) ||
      !__atomic_compare_exchange_n(&maps_begun, &now, u64{pid} << 2 | 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return false;
  walk.payload[texts_at] = walk.payload[texts_at + 1] = 0;
  write_map(walk, pid, 0, 0, 0, 0, 0);
  __atomic_store_n(&maps_begun, done, __ATOMIC_RELEASE);
  return true;
}

// Empty: the object has none.
Bytes build_id_of(const MappedObject& object, const Segments& segments) noexcept {
  for (const ElfW(Phdr)& note : segments) {
    u64 at = object.bias + note.p_vaddr;
    if (note.p_type != PT_NOTE || note.p_memsz > page_size) continue;
    const u64 end = at + note.p_memsz;
    const bool loaded = std::any_of(segments.begin(), segments.end(), [&](const ElfW(Phdr) & s) {
      return s.p_type == PT_LOAD && (s.p_flags & PF_R) != 0 && note.p_vaddr >= s.p_vaddr &&
             note.p_vaddr - s.p_vaddr <= s.p_filesz && note.p_memsz <= s.p_filesz - (note.p_vaddr - s.p_vaddr);
    });
    while (loaded && end - at >= sizeof(ElfW(Nhdr)) && at < end) {
      ElfW(Nhdr) n;
      std::memcpy(&n, reinterpret_cast<const void*>(at), sizeof n);
      const u64 name = at + sizeof n, value = name + align_up(u64{n.n_namesz}, u64{4}),
                next = value + align_up(u64{n.n_descsz}, u64{4});
      if (next > end) break;
      if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && std::memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0 &&
          n.n_descsz <= longest_build_id)
        return {reinterpret_cast<const u8*>(value), n.n_descsz};
      at = next;
    }
  }
  return {};
}

// In hexadecimal. Returns the text's length.
u32 put_build_id(Bytes id, u8* text) noexcept {
  for (u32 k = 0; k < id.size; ++k) {
    text[2 * k] = static_cast<u8>("0123456789abcdef"[id.data[k] >> 4]);
    text[2 * k + 1] = static_cast<u8>("0123456789abcdef"[id.data[k] & 15]);
  }
  return static_cast<u32>(2 * id.size);
}

// Another one may be at the same place, later, with all its words at the same addresses.
u64 identity_of(const MappedObject& object) noexcept {
  const auto text = [](const void* at, size_t size) { return std::string_view(static_cast<const char*>(at), size); };
  const u64 words[] = {object.start, object.end, reinterpret_cast<u64>(object.tables), object.bias};
  u64 hash = sys::hash(text(words, sizeof words));
  if (object.path != nullptr) hash = sys::hash(object.path, hash);
  const Bytes id = build_id_of(object, segments_of(object));
  return sys::hash(text(id.data, id.size), hash);
}

// ---- Objects that take each other's place.

// How often code was replaced. It is part of each key, so that all stacks and maps that were written before are written anew:
// readers hold the later map for the one that is still there. Relaxed: a thread that calls new code has learned of it, by
// whatever means, after the change.
constinit u64 code_changes = 0;

// For a hash of the beginning and of the end of an object's addresses: the object that was seen there last, as tag << 32 |
// identity. Each word is on its own, so a race leaves one of the objects that were there. Two places that share a word
// forget each other.
constinit u64 seen_at[1024];

// Whether another object was seen at an edge of this one. A smaller one that is mapped into a free place shares one edge with
// the larger one that was there.
bool takes_the_place_of_another(const MappedObject& object, u64 identity) noexcept {
  bool replaces = false;
  for (const u64 edge : {object.start, ~object.end}) {
    const u64 hash = edge * 0x9E3779B97F4A7C15u, word = hash >> 32 << 32 | (identity & 0xFFFFFFFF);
    u64& seen = seen_at[(hash ^ hash >> 22) % std::size(seen_at)];
    const u64 was = __atomic_load_n(&seen, __ATOMIC_RELAXED);
    if (was == word) continue;
    replaces |= was >> 32 == word >> 32;
    __atomic_store_n(&seen, word, __ATOMIC_RELAXED);
  }
  return replaces;
}

// What a stack and a map must have been written after, to be good now.
u64 good_since(const Opened& in) noexcept {
  return __atomic_load_n(&in.words.control->stacks_again, __ATOMIC_RELAXED) +
         __atomic_load_n(&code_changes, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15u;  // a tag takes the low half of a key
}

u32 put_path(const MappedObject& object, u8* to) noexcept {
  char* const room = reinterpret_cast<char*>(to);
  const char* name = object.start == getauxval(AT_SYSINFO_EHDR) ? "[vdso]" : object.path != nullptr ? object.path : "";
  u32 length = 0;
  if (*name == 0) {
    const ssize_t n = readlink("/proc/self/exe", room, longest_path);
    return n > 0 ? static_cast<u32>(n) : 0;
  }
  if (*name != '/' && *name != '[') {
    // It was loaded by a name relative to the working directory of that time, which is most likely still this one.
    const long n = syscall(SYS_getcwd, room, longest_path / 2);
    if (n > 1) length = static_cast<u32>(n), room[length - 1] = '/';
  }
  const auto rest = static_cast<u32>(strnlen(name, longest_path - length));
  std::memcpy(room + length, name, rest);
  return length + rest;
}

[[gnu::noinline]] void write_code_map(StackWalk& walk, const Opened& in, const MappedObject& object, u32 pid) noexcept {
  const int saved = errno;
  const Segments segments = segments_of(object);
  u8* const text = walk.payload + texts_at;
  const u32 build_id = put_build_id(build_id_of(object, segments), text), path = put_path(object, text + build_id + 1);
  text[build_id] = text[build_id + 1 + path] = 0;
  u64 start = 0, end = 0;
  for (const ElfW(Phdr)& s : segments) {
    if (s.p_type != PT_LOAD || (s.p_flags & PF_X) == 0) continue;
    start = (object.bias + s.p_vaddr) & ~u64{page_size - 1};
    end = align_up(object.bias + s.p_vaddr + s.p_memsz, u64{page_size});
    write_map(walk, pid, start, end - start, s.p_offset & ~u64{page_size - 1}, build_id, path);
  }
  const char* const name = reinterpret_cast<const char*>(text + build_id + 1);
  const bool is_program = object.path == nullptr || *object.path == 0;
  if (path != 0 && *name == '/') hand_over(in, name, is_program ? "/proc/self/exe" : name, start, end);
  errno = saved;
}

enum class Maps { there, added, replaced, not_yet };

// The maps of all frames' code are in the ring. added: some were not. replaced: some code is where other code was.
Maps write_code_maps(StackWalk& walk, const Opened& in, const RingNow& ring, u64 again) noexcept {
  const u32 pid = number_of_process(in);
  // A child of vfork is new, and its parent's other threads go on with the parent's maps.
  if (detail::this_thread.borrowed == 0 && !begin_maps(walk, pid)) return Maps::not_yet;
  Maps done = Maps::there;
  MappedObject object{};
  for (u32 i = 0; i < walk.frames; ++i) {
    const u64 address = walk.frame(i) - 1;
    if (address - object.start < object.end - object.start || !find_object(address, object)) continue;
    const u64 identity = identity_of(object);
    if (takes_the_place_of_another(object, identity)) {
      code_changed();
      return Maps::replaced;
    }
    const u64 key = key_of(identity + pid * 0x9E3779B97F4A7C15u, ring, again);
    if (ring.key != 0 && is_written(key, ring)) continue;
    write_code_map(walk, in, object, pid);
    if (ring.key != 0) remember(key, ring);
    done = Maps::added;
  }
  return done;
}

bool write_stack(StackWalk& walk) noexcept {
  u8* const p = walk.payload;
  const u32 n = walk.frames, size = frames_at + n * 8, place = frames_at | (n * 8) << 16, ended = static_cast<u32>(walk.end);
  std::memcpy(p + 8, &walk.id, 8);
  std::memcpy(p + 16, &place, 4);
  std::memcpy(p + 20, &ended, 4);
  for (u32 i = 0; i < n; ++i) {
    const u64 frame = walk.frame(i);
    std::memcpy(p + frames_at + i * 8, &frame, 8);
  }
  return detail::write_event(detail::this_thread, stack_event, p, size);
}

// The stack is new to the ring.
[[gnu::noinline]] void show_stack(StackWalk& walk, const From& from, const RingNow& before) noexcept {
  const Opened* const in = opened_now();
  const SystemCalls calls;
  if (in == nullptr || !calls) return;
  for (u32 tries = 0; tries < 4; ++tries) {
    const u64 again = good_since(*in);
    if (!write_stack(walk)) return;
    const RingNow after = ring_now();
    const Maps maps = write_code_maps(walk, *in, after, again);
    if (maps == Maps::not_yet) return;  // next time once more
    if (maps != Maps::replaced && after.key != 0 && (before.key == 0 || before.key == after.key)) {
      RingNow at = after;
      at.position = before.key != 0 ? before.position : after.position - (after.position != 0);
      remember(key_of(walk.id, after, again), at);
    }
    // Maps of many objects take a while. A reader that began meanwhile may have neither the stack nor the maps before it.
    const bool good = good_since(*in) == again;
    if (maps == Maps::there && good) return;
    // Code is at addresses where other code may have been.
    const u64 id = walk.id;
    forget_rules();
    walk_stack(walk, from, wanted_depth);
    if (maps == Maps::added && walk.id == id && good) return;
  }
}

}  // namespace

ringside_event* const stack_events[3] = {&stack_event, &code_map_event, nullptr};

void ready_stacks(u32 depth) noexcept {
  wanted_depth = std::clamp(depth, 1u, most_frames);
  ready_unwind();
  if (__atomic_load_n(&written_stacks, __ATOMIC_ACQUIRE) != nullptr) return;
  void* const table =
      mmap(nullptr, sizeof(u64) * ways << bucket_bits, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table != MAP_FAILED) __atomic_store_n(&written_stacks, static_cast<u64*>(table), __ATOMIC_RELEASE);
}

void code_changed() noexcept {
  if (__atomic_load_n(&written_stacks, __ATOMIC_RELAXED) == nullptr) return;  // nothing is known
  __atomic_fetch_add(&code_changes, u64{1}, __ATOMIC_RELAXED);
  forget_rules();
}

void forget_code_maps() noexcept { __atomic_store_n(&maps_begun, u64{0}, __ATOMIC_RELEASE); }

u64 stack_of(const From& from) noexcept {
  const Opened* const in = opened_now();
  if (in == nullptr || detail::this_thread.inside) return 0;
  const WalkMemory memory;
  StackWalk* const walk = no_system_calls() ? nullptr : memory.get();
  if (walk == nullptr || __atomic_load_n(&written_stacks, __ATOMIC_RELAXED) == nullptr) {
    __atomic_fetch_add(&in->words.control->without_stack, u64{1}, __ATOMIC_RELAXED);
    return 0;
  }
  walk_stack(*walk, from, wanted_depth);
  const RingNow ring = ring_now();
  const u64 again = good_since(*in);
  if (ring.key == 0 || !is_written(key_of(walk->id, ring, again), ring)) [[unlikely]]
    show_stack(*walk, from, ring);
  return walk->id;
}

}  // namespace ringside

using namespace ringside;

extern "C" [[gnu::noinline]] uint64_t ringside_stack_of(const void* caller) {
  From from;
  RS_HERE(from.at);
  from.until = reinterpret_cast<u64>(caller);
  return stack_of(from);
}
