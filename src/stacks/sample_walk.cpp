#include "stacks/sample_walk.hpp"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "stacks/elf_judge.hpp"
#include "stacks/judged.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr u64 largest_table = u64{256} << 20, most_mapped = u64{512} << 20;    // address space; memory is the page cache's
constexpr size_t most_files = 8192, most_rows = 1 << 17, most_maps = 1 << 20;  // of all processes together
constexpr u64 most_of_a_frame = u64{8} << 20;
// Of a second: some 200 ms, and what libelf keeps of the files that it looks at.
constexpr u64 second = 1'000'000'000, bytes_of_a_second = u64{64} << 20, steps_of_a_second = 20'000'000;
constexpr u64 least_patience = 10'000'000;  // ns
constexpr u64 steps_of_a_file = 20'000, steps_of_a_row = 50, steps_of_a_map = 20;

// The copy of a stack, as memory.
struct Copied {
  Bytes bytes;
  u64 begin;
  bool ended = false;  // something outside was asked for
};
bool load_word(void* context, u64 address, u64& value) noexcept {
  auto& copy = *static_cast<Copied*>(context);
  if (address - copy.begin >= copy.bytes.size || copy.bytes.size - (address - copy.begin) < sizeof value) {
    copy.ended = true;
    return false;
  }
  std::memcpy(&value, copy.bytes.data + (address - copy.begin), sizeof value);
  return true;
}

// Not the device: that of overlayfs and of btrfs is another one here than in the kernel's records.
bool has_inode(int fd, u64 wanted) {
  struct stat st {};
  return wanted == 0 || (fstat(fd, &st) == 0 && st.st_ino == wanted);
}

}  // namespace

// What a walk needs of a file: the segment with its tables, and where its code is.
struct SampleWalk::File {
  struct Segment {
    u64 offset, size, address;
  };
  i32 pid;  // of the first process that mapped it
  std::string path, build_id;
  u64 inode = 0;           // as the kernel saw it; 0: unknown
  bool looked_at = false;  // at the first sample in it
  sys::Region bytes{};
  FrameTables tables{};  // header null: it has none
  u64 bias = 0;          // of the mapping
  std::vector<Segment> code{};

  void read(int fd, Budget& budget, u64 most);
  void read_vdso();
  std::optional<FrameRow> row(u64 offset, Budget& budget) const;
};

// The tables are mapped: only what a walk looks at is read. most: bytes.
void SampleWalk::File::read(int fd, Budget& budget, u64 most) {
  const u64 before = budget.bytes();
  struct stat st {};
  if (fstat(fd, &st) != 0 || !judge_elf_shape(fd, path, budget)) return;
  budget.give_back(before - budget.bytes());
  const u64 size = static_cast<u64>(st.st_size);
  const ElfHandle elf(elf_begin(fd, ELF_C_READ, nullptr));
  size_t count = 0;
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF || gelf_getclass(elf.get()) != ELFCLASS64 ||
      elf_getphdrnum(elf.get(), &count) != 0)
    return;
  const void* id = nullptr;
  const ssize_t id_size = dwelf_elf_gnu_build_id(elf.get(), &id);
  if (!build_id.empty() && (id_size <= 0 || sys::hex({static_cast<const u8*>(id), static_cast<size_t>(id_size)}) != build_id))
    return;
  std::vector<GElf_Phdr> loaded;
  u64 header = 0;
  for (size_t i = 0; i < count && i < 1024; ++i) {
    GElf_Phdr part;
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &part) == nullptr) return;
    if (part.p_type == PT_GNU_EH_FRAME) header = part.p_vaddr;
    if (part.p_type != PT_LOAD) continue;
    loaded.push_back(part);
    if ((part.p_flags & PF_X) != 0) code.push_back({part.p_offset, part.p_filesz, part.p_vaddr});
  }
  for (const GElf_Phdr& part : loaded) {
    if (header == 0 || header - part.p_vaddr >= part.p_filesz || part.p_filesz > largest_table || part.p_offset >= size)
      continue;
    const u64 begin = part.p_offset / page_size * page_size;
    const u64 wanted = std::min(part.p_filesz, size - part.p_offset) + (part.p_offset - begin);
    if (wanted > most) return;
    auto mapped = sys::Region::map(fd, wanted, false, path, begin);
    if (!mapped) return;
    bytes = std::move(*mapped);
    const u8 *const first = bytes.data() + (part.p_offset - begin), *const end = bytes.data() + wanted;
    if (header - part.p_vaddr < static_cast<u64>(end - first)) tables = {first + (header - part.p_vaddr), first, end};
    bias = reinterpret_cast<u64>(first) - part.p_vaddr;
    return;
  }
}

// All processes have the same one.
void SampleWalk::File::read_vdso() {
  MappedObject object;
  if (!find_object(getauxval(AT_SYSINFO_EHDR), object) || !find_tables(object, tables)) return;
  bias = object.start;
  code.push_back({0, object.end - object.start, 0});
}

std::optional<FrameRow> SampleWalk::File::row(u64 offset, Budget& budget) const {
  for (const Segment& s : code) {
    if (offset - s.offset >= s.size) continue;
    FrameRow found;
    u64 walked = 0;
    const bool has = find_frame_row(tables, offset - s.offset + s.address + bias, found, &walked) == FrameFound::yes;
    return budget.step(steps_of_a_row + walked) && has ? std::optional(found)
                                                       : std::nullopt;  // segments that overlap are a forger's
  }
  return std::nullopt;
}

SampleWalk::SampleWalk(std::function<u64()> now, u64 patience_ns)
    : aside_([mounts = mounts_] { mounts->forget(); }),
      now_(std::move(now)),
      patience_(patience_ns),
      none_(std::make_shared<File>(File{0, "", "", 0, true})) {
  sys::guard_mappings();
}
SampleWalk::~SampleWalk() = default;

// What this second has left.
Budget& SampleWalk::budget() {
  if (const u64 now = now_(); now - begin_ >= second) {
    begin_ = now;
    budget_ = Budget(bytes_of_a_second, steps_of_a_second);
  }
  return budget_;
}

// Of a file: by its build id, or else its inode.
static std::string key_of(const std::string& build_id, u64 inode, const std::string& path) {
  return (build_id.empty() ? std::to_string(inode) : build_id) + "\n" + path;
}

// Lets those files go that no process maps.
void SampleWalk::forget_files() {
  std::erase_if(files_, [&](const auto& file) {
    const bool unused = file.second.use_count() == 1;
    if (unused) mapped_ -= file.second->bytes.size();
    return unused;
  });
  rows_.clear();
}

std::shared_ptr<SampleWalk::File> SampleWalk::file_of(i32 pid, const std::string& path, const std::string& build_id,
                                                      u64 inode) {
  const std::string key = key_of(build_id, inode, path);
  if (const auto known = files_.find(key); known != files_.end()) return known->second;
  if (path != "[vdso]" && (path.empty() || path[0] != '/' || path.starts_with("//"))) return none_;
  if (files_.size() >= most_files) forget_files();
  if (files_.size() >= most_files) {
    ++skipped_.files;
    return none_;
  }
  return files_[key] = std::make_shared<File>(File{pid, path, build_id, inode});
}

// What the thread that looks at a file has, whether anybody still waits for it or not.
struct SampleWalk::Look {
  File file;
  Budget budget;
  u64 most;  // bytes
  std::shared_ptr<Mounts> mounts;
  bool later = false;  // the budget was spent before the file was known

  // The process may have another root than this one; when it is gone, its file is most likely still here.
  void run() {
    for (const i32 root : {file.pid, 0}) {
      const auto fd = open_judged(file.path, {.pid = root, .mounts = mounts.get(), .budget = &budget});
      if (!fd && fd.error().code == std::errc::resource_unavailable_try_again) later = true;
      if (fd && (!file.build_id.empty() || has_inode(fd->get(), file.inode))) file.read(fd->get(), budget, most);
      if (file.tables.header != nullptr || later) break;
      file.code.clear();
    }
  }
};

// False: later.
bool SampleWalk::look_at(File& file) {
  if (file.looked_at) return true;
  if (aside_.busy() || !budget().step(steps_of_a_file)) return false;
  if (mapped_ + largest_table > most_mapped) forget_files();
  if (file.path == "[vdso]") {
    file.read_vdso();
  } else {
    const auto look = std::make_shared<Look>(Look{
        {file.pid, file.path, file.build_id, file.inode}, budget(), std::min(largest_table, most_mapped - mapped_), mounts_});
    const bool done = aside_.run([look] { look->run(); }, patience_);
    if (!done) {
      patience_ = std::max(patience_ / 2, least_patience);
      ++skipped_.files;
      return false;
    }
    budget_ = look->budget;
    if (look->later) return false;
    file = std::move(look->file);
  }
  file.looked_at = true;
  mapped_ += file.bytes.size();
  // The next process may have a file of this name that can be read.
  if (file.tables.header == nullptr) unreadable_.push_back(key_of(file.build_id, file.inode, file.path));
  return true;
}

void SampleWalk::fork(i32 parent, i32 child) {
  exit(child);
  if (const auto at = processes_.find(parent); at != processes_.end()) processes_[child] = std::shared_ptr<Maps>(at->second);
}

void SampleWalk::exit(i32 pid) {
  const auto at = processes_.find(pid);
  if (at == processes_.end()) return;
  if (at->second != nullptr && at->second.use_count() == 1) maps_ -= at->second->size();
  processes_.erase(at);
}

void SampleWalk::map(i32 pid, const Place& place, std::string_view path, std::string_view build_id) {
  if (place.start >= place.end) return;
  std::shared_ptr<Maps>& maps = processes_[pid];
  for (const std::string& key : std::exchange(unreadable_, {})) files_.erase(key);
  const u64 copied = maps != nullptr && maps.use_count() > 1 ? maps->size() : 0;
  if (maps_ + copied >= most_maps || !budget().step(steps_of_a_map * (1 + copied))) {
    ++skipped_.maps;
    return;
  }
  if (maps == nullptr)
    maps = std::make_shared<Maps>();
  else if (copied != 0)
    maps = std::make_shared<Maps>(*maps);
  const u64 before = maps->size() - copied;
  auto at = maps->lower_bound(place.start);
  if (at != maps->begin() && std::prev(at)->second.place.end > place.start) --at;
  while (at != maps->end() && at->first < place.end) at = maps->erase(at);
  (*maps)[place.start] = {place, file_of(pid, std::string(path), std::string(build_id), place.inode)};
  maps_ += maps->size() - before;
}

const FrameRow* SampleWalk::row_at(const Maps& maps, u64 address) {
  later_ = false;
  auto at = maps.upper_bound(address);
  if (at == maps.begin()) return nullptr;
  const Map& map = (--at)->second;
  if (address >= map.place.end) return nullptr;
  later_ = !look_at(*map.file);
  if (later_ || map.file->tables.header == nullptr) return nullptr;
  const std::pair<const File*, u64> key{map.file.get(), address - map.place.start + map.place.offset};
  if (const auto known = rows_.find(key); known != rows_.end()) return known->second ? &*known->second : nullptr;
  const std::optional<FrameRow> row = map.file->row(key.second, budget());
  later_ = budget().steps() == 0;
  if (later_) return nullptr;  // it is looked up again in the next second
  const auto& kept = rows_[key] = row;
  return kept ? &*kept : nullptr;
}

StackEnd SampleWalk::frames(const PerfRecord& sample, size_t most, std::vector<u64>& out) {
  Registers r = sample.registers;
  if (r.pc == 0) return StackEnd::complete;  // a thread of the kernel
  static const Maps none;
  const auto at = processes_.find(sample.pid);
  const Maps& maps = at != processes_.end() && at->second != nullptr ? *at->second : none;
  Copied copy{sample.stack, r.sp};
  bool exact = true;
  if (rows_.size() >= most_rows) rows_.clear();
  for (size_t count = 0; r.pc != 0; ++count) {
    if (count == most) return StackEnd::depth;
    out.push_back(r.pc + (exact && count != 0 ? 1 : 0));
    const FrameRow* const row = row_at(maps, r.pc - (exact ? 0 : 1));
    if (std::exchange(later_, false)) {
      ++skipped_.stacks;
      return StackEnd::no_table;
    }
    const bool of_function =
        !exact && row == nullptr && row_at(maps, r.pc) != nullptr;  // its first byte: put there by hand, as makecontext does
    exact = false;
    if (of_function || (row != nullptr && row->ra.where == FrameRow::Where::undefined && !row->is_signal))
      return StackEnd::complete;
    bool good;
    if (row == nullptr) {
      // By the frame pointer.
      u64 ra = 0, fp = 0;
      good = r.fp >= r.sp && r.fp - r.sp < most_of_a_frame && load_word(&copy, r.fp + 8, ra) && load_word(&copy, r.fp, fp);
      if (!good && !copy.ended) return StackEnd::no_table;
      r = {ra & code_bits, r.fp + 16, fp, 0};
    } else if (row->is_signal) {
      good = step_over_signal(r, load_word, &copy);
      exact = true;
    } else {
      (void)budget().step(row->expression_size + row->fp.size + row->ra.size);
      good = step_by_row(*row, r, load_word, &copy);
    }
    if (!good) return copy.ended ? StackEnd::depth : StackEnd::bad_frame;  // depth: more than was copied
  }
  return StackEnd::complete;
}

}  // namespace ringside
