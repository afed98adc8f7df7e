#include "record/sample_walk.hpp"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "stacks/judged.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr u64 largest_table = u64{256} << 20, most_bytes = u64{2} << 30;
constexpr size_t most_rows = 1 << 16;  // remembered of a file
constexpr u64 most_of_a_note = 65536;
constexpr u64 most_of_a_frame = u64{8} << 20;

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};

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
  std::vector<u8> bytes;
  FrameTables tables;  // header null: it has none
  u64 bias = 0;        // of the copy
  std::vector<Segment> code;
  std::unordered_map<u64, std::optional<FrameRow>> rows;  // by offset

  void read(int fd, const std::string& build_id);
  void read_vdso();
  const FrameRow* row(u64 offset);
};

void SampleWalk::File::read(int fd, const std::string& build_id) {
  struct stat st {};
  if (fstat(fd, &st) != 0 || static_cast<u64>(st.st_size) > most_bytes) return;
  const u64 size = static_cast<u64>(st.st_size);
  elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, ElfEnd> elf(elf_begin(fd, ELF_C_READ, nullptr));
  size_t count = 0;
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF || gelf_getclass(elf.get()) != ELFCLASS64 ||
      elf_getphdrnum(elf.get(), &count) != 0)
    return;
  // libelf reads a note as a whole.
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || (header.sh_type == SHT_NOTE && header.sh_size > most_of_a_note)) return;
  }
  for (size_t i = 0; i < count && i < 1024; ++i) {
    GElf_Phdr part;
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &part) == nullptr ||
        (part.p_type == PT_NOTE && part.p_filesz > most_of_a_note))
      return;
  }
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
    bytes.resize(std::min(part.p_filesz, size - part.p_offset));
    const ssize_t n = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(part.p_offset));
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (header - part.p_vaddr < bytes.size())
      tables = {bytes.data() + (header - part.p_vaddr), bytes.data(), bytes.data() + bytes.size()};
    bias = reinterpret_cast<u64>(bytes.data()) - part.p_vaddr;
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

const FrameRow* SampleWalk::File::row(u64 offset) {
  if (tables.header == nullptr) return nullptr;
  if (rows.size() >= most_rows) rows.clear();
  const auto [at, fresh] = rows.try_emplace(offset);
  if (fresh) {
    for (const Segment& s : code) {
      if (offset - s.offset >= s.size) continue;
      FrameRow found;
      if (find_frame_row(tables, offset - s.offset + s.address + bias, found) == FrameFound::yes) at->second = found;
      break;  // segments that overlap are a forger's
    }
  }
  return at->second ? &*at->second : nullptr;
}

SampleWalk::SampleWalk() : none_(std::make_unique<File>()) {}
SampleWalk::~SampleWalk() = default;

// The process may have another root than this one; when it is gone, its file is most likely still here.
SampleWalk::File* SampleWalk::file_of(i32 pid, const std::string& path, const std::string& build_id, u64 inode) {
  const auto [at, fresh] = files_.try_emplace((build_id.empty() ? std::to_string(inode) : build_id) + "\n" + path);
  if (!fresh) return at->second.get();
  at->second = std::make_unique<File>();
  File& file = *at->second;
  if (path == "[vdso]") {
    file.read_vdso();
  } else if (!path.empty() && path[0] == '/' && path[1] != '/' && bytes_ < most_bytes) {
    for (const i32 root : {pid, 0}) {
      const auto fd = open_judged(path, {.pid = root});
      if (fd && (!build_id.empty() || has_inode(fd->get(), inode))) file.read(fd->get(), build_id);
      if (file.tables.header != nullptr) break;
      file.code.clear();
    }
  }
  bytes_ += file.bytes.size();
  if (file.tables.header != nullptr) return &file;
  files_.erase(at);  // the next process may have a file of this name that can be read
  return none_.get();
}

void SampleWalk::map(i32 pid, const Place& place, std::string_view path, std::string_view build_id) {
  if (place.start >= place.end) return;
  std::shared_ptr<Maps>& maps = processes_[pid];
  if (maps == nullptr) maps = std::make_shared<Maps>();
  else if (maps.use_count() > 1) maps = std::make_shared<Maps>(*maps);
  auto at = maps->lower_bound(place.start);
  if (at != maps->begin() && std::prev(at)->second.place.end > place.start) --at;
  while (at != maps->end() && at->first < place.end) at = maps->erase(at);
  (*maps)[place.start] = {place, file_of(pid, std::string(path), std::string(build_id), place.inode)};
}

const FrameRow* SampleWalk::row_at(const Maps& maps, u64 address) const {
  auto at = maps.upper_bound(address);
  if (at == maps.begin()) return nullptr;
  const Map& map = (--at)->second;
  return address < map.place.end ? map.file->row(address - map.place.start + map.place.offset) : nullptr;
}

StackEnd SampleWalk::frames(const PerfRecord& sample, size_t most, std::vector<u64>& out) {
  Registers r = sample.registers;
  if (r.pc == 0) return StackEnd::complete;  // a thread of the kernel
  static const Maps none;
  const auto at = processes_.find(sample.pid);
  const Maps& maps = at != processes_.end() && at->second != nullptr ? *at->second : none;
  Copied copy{sample.stack, r.sp};
  bool exact = true;
  for (size_t count = 0; r.pc != 0; ++count) {
    if (count == most) return StackEnd::depth;
    out.push_back(r.pc + (exact && count != 0 ? 1 : 0));
    const FrameRow* const row = row_at(maps, r.pc - (exact ? 0 : 1));
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
      good = step_by_row(*row, r, load_word, &copy);
    }
    if (!good) return copy.ended ? StackEnd::depth : StackEnd::bad_frame;  // depth: more than was copied
  }
  return StackEnd::complete;
}

}  // namespace ringside
