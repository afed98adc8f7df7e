#include "probe/file_calls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <sstream>

#include "decode/call_files.hpp"
#include "decode/syscalls.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "schema/format_text.hpp"
#include "source/sample_rings.hpp"
#include "sys/try.hpp"

namespace ringside {

// As the programs note it; its text follows.
struct NotedCall {
  u64 time, lost;
  u32 tid, pid, step, text_size;
  i64 number, value;
  u64 args[6];
};
static_assert(sizeof(NotedCall) == 96);

namespace {

constexpr u16 file_call_id = 0xEF21;  // neither an instance's, nor the kernel's, nor those of samples or of libc
constexpr u32 notes_subbuf_size = 16384;
constexpr u32 longest_path_text = 4096, most_calls = 1024, most_listed = 16;
constexpr u64 largest_ring = u64{1} << 30;
constexpr size_t most_waiting = 1024, most_descriptors = 100'000;

// What is to be done at a call: a bit for each argument that is a path, and these. A pair of descriptors is where the first
// argument points to; fourth: the fourth.
constexpr u32 notes_begin = 1u << 8, notes_end = 1u << 9, has_list = 1u << 10, has_address = 1u << 11, has_pair = 1u << 12,
              has_fourth_pair = 1u << 13;
constexpr u32 addressed = 1;                      // connect()'s
constexpr u32 raw_address = 256, raw_pair = 257;  // steps: the text is a sockaddr, two descriptors
constexpr i32 later_pair = 16;                    // what is read at the call's end: beside its arguments

constexpr i32 noted_text = sizeof(NotedCall);

long bpf(int command, bpf_attr& attributes) { return syscall(SYS_bpf, command, &attributes, sizeof attributes); }

result<sys::Fd> make_map(u32 type, u32 key, u32 value, u32 entries, u32 flags = 0) {
  bpf_attr attributes{};
  attributes.map_type = type;
  attributes.key_size = key;
  attributes.value_size = value;
  attributes.max_entries = entries;
  attributes.map_flags = flags;
  sys::Fd map(static_cast<int>(bpf(BPF_MAP_CREATE, attributes)));
  if (map) return map;
  const int error = errno;
  if (error == EPERM || error == EACCES)
    return fail(error, "files of system calls need a BPF program, which takes the rights CAP_BPF and CAP_PERFMON: run it " +
                           sys::as_root() + ", without a lockdown of the kernel");
  return fail(error, error == ENOSYS || error == EINVAL
                         ? "files of system calls need Linux 5.8 with BPF (CONFIG_BPF_EVENTS)"
                         : "cannot make the maps of the BPF program that reads the files of system calls");
}

result<void> set(const sys::Fd& map, u32 key, const void* value) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<u32>(map.get());
  attributes.key = reinterpret_cast<u64>(&key);
  attributes.value = reinterpret_cast<u64>(value);
  if (bpf(BPF_MAP_UPDATE_ELEM, attributes) != 0) return fail(errno, "cannot set the calls that the BPF program notes");
  return {};
}

// Before Linux 5.11 maps and programs count as locked memory. The command that is recorded inherits the limit of before.
class LockedMemory {
 public:
  LockedMemory() {
    const rlimit any{RLIM_INFINITY, RLIM_INFINITY};
    raised_ = getrlimit(RLIMIT_MEMLOCK, &before_) == 0 && setrlimit(RLIMIT_MEMLOCK, &any) == 0;
  }
  ~LockedMemory() {
    if (raised_) (void)setrlimit(RLIMIT_MEMLOCK, &before_);
  }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;

 private:
  rlimit before_{};
  bool raised_ = false;
};

// A BPF program, instruction by instruction.
class Assembler {
 public:
  using Label = std::vector<size_t>;  // the jumps to it
  void move(u8 to, u8 from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from); }
  void set(u8 to, i32 value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void plus(u8 to, i32 value) { add(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value); }
  void load(u8 size, u8 to, u8 from, i32 at) { add(BPF_LDX | BPF_MEM | size, to, from, at); }
  void store(u8 size, u8 to, i32 at, u8 from) { add(BPF_STX | BPF_MEM | size, to, from, at); }
  void store_value(u8 size, u8 to, i32 at, i32 value) { add(BPF_ST | BPF_MEM | size, to, 0, at, value); }
  void shift_right(u8 to, i32 by) { add(BPF_ALU64 | BPF_RSH | BPF_K, to, 0, 0, by); }
  void shift_right_signed(u8 to, i32 by) { add(BPF_ALU64 | BPF_ARSH | BPF_K, to, 0, 0, by); }
  void shift_left(u8 to, i32 by) { add(BPF_ALU64 | BPF_LSH | BPF_K, to, 0, 0, by); }
  void mask(u8 to, i32 with) { add(BPF_ALU64 | BPF_AND | BPF_K, to, 0, 0, with); }
  void add_atomically(u8 to, u8 from) { add(BPF_STX | BPF_ATOMIC | BPF_DW, to, from, 0, BPF_ADD); }
  void call(i32 helper) { add(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
  void leave() { set(0, 0), add(BPF_JMP | BPF_EXIT, 0, 0); }
  void map(u8 to, const sys::Fd& map, bool its_value = false) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, its_value ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD, 0, map.get());
    add(0, 0, 0);
  }
  void jump(Label& to) {
    to.push_back(code_.size());
    add(BPF_JMP | BPF_JA, 0, 0);
  }
  void jump_if(u8 how, u8 of, i32 value, Label& to) {
    to.push_back(code_.size());
    add(static_cast<u8>(BPF_JMP | how | BPF_K), of, 0, 0, value);
  }
  void here(Label& label) {
    for (const size_t from : label) code_[from].off = static_cast<std::int16_t>(code_.size() - from - 1);
    label.clear();
  }
  std::vector<u64> code() const {
    std::vector<u64> words(code_.size());
    std::memcpy(words.data(), code_.data(), words.size() * sizeof(u64));
    return words;
  }

 private:
  void add(u8 code, u8 to, u8 from, i32 at = 0, i32 value = 0) {
    bpf_insn one{};
    one.code = code;
    one.dst_reg = to & 15;
    one.src_reg = from & 15;
    one.off = static_cast<std::int16_t>(at);
    one.imm = value;
    code_.push_back(one);
  }
  std::vector<bpf_insn> code_;
};

// The programs. r6: the event; r7: process and thread; r8: the note in the making; r9: what is to be done.
class Noter {
 public:
  struct Maps {
    const sys::Fd &followed, &wanted, &scratch, &losses, &ring, &later;
    bool all;
  };
  explicit Noter(const Maps& maps) : maps_(maps) {
    a_.move(6, 1);
    a_.call(BPF_FUNC_get_current_pid_tgid);
    a_.move(7, 0);
  }
  void leave_unless_followed() {
    if (maps_.all) return;
    a_.store(BPF_W, 10, -4, 7);
    look_up(maps_.followed);
  }
  void look_up_call(i32 number_at) {
    a_.load(BPF_DW, 1, 6, number_at);
    a_.jump_if(BPF_JGE, 1, most_calls, out_);
    a_.store(BPF_W, 10, -4, 1);
    look_up(maps_.wanted);
    a_.load(BPF_W, 9, 0, 0);
  }
  void leave_unless(u32 bits) {
    a_.move(1, 9);
    a_.mask(1, static_cast<i32>(bits));
    a_.jump_if(BPF_JEQ, 1, 0, out_);
  }
  void begin_note() {
    a_.store_value(BPF_W, 10, -4, 0);
    look_up(maps_.scratch);
    a_.move(8, 0);
    a_.call(BPF_FUNC_ktime_get_ns);
    a_.store(BPF_DW, 8, offsetof(NotedCall, time), 0);
    a_.store(BPF_W, 8, offsetof(NotedCall, tid), 7);
    a_.move(1, 7);
    a_.shift_right(1, 32);
    a_.store(BPF_W, 8, offsetof(NotedCall, pid), 1);
    a_.store_value(BPF_DW, 8, offsetof(NotedCall, number), 0);
    a_.store_value(BPF_DW, 8, offsetof(NotedCall, value), 0);
    for (int i = 0; i < 6; ++i) a_.store_value(BPF_DW, 8, argument(i), 0);
  }
  void copy(i32 from, i32 to, u8 size = BPF_DW) {
    a_.load(size, 1, 6, from);
    a_.store(BPF_DW, 8, to, 1);
  }
  static constexpr i32 argument(int n) { return static_cast<i32>(offsetof(NotedCall, args)) + 8 * n; }
  void step(u32 which) { a_.store_value(BPF_W, 8, offsetof(NotedCall, step), static_cast<i32>(which)); }
  void value(i32 is) { a_.store_value(BPF_DW, 8, offsetof(NotedCall, value), is); }
  void put() {
    a_.store_value(BPF_W, 8, offsetof(NotedCall, text_size), 0);
    a_.set(3, noted_text);
    output();
  }
  // The text at the address in r3.
  void put_text(Assembler::Label& none) {
    a_.move(1, 8);
    a_.plus(1, noted_text);
    a_.set(2, longest_path_text);
    a_.call(BPF_FUNC_probe_read_user_str);
    a_.jump_if(BPF_JSLT, 0, 1, none);
    a_.jump_if(BPF_JSGT, 0, longest_path_text, none);
    a_.store(BPF_W, 8, offsetof(NotedCall, text_size), 0);
    a_.move(3, 0);
    a_.plus(3, noted_text);
    output();
  }
  // Bits of r9 decide at each call.
  template <class Then>
  void if_wanted(u32 bits, const Then& then) {
    Assembler::Label after;
    a_.move(1, 9);
    a_.mask(1, static_cast<i32>(bits));
    a_.jump_if(BPF_JEQ, 1, 0, after);
    then();
    a_.here(after);
  }
  // A path that cannot be read here is read at the call's end: the kernel has fetched its page then.
  void put_path(int n) {
    if_wanted(1u << n, [&] {
      Assembler::Label none, done;
      value(n);
      a_.load(BPF_DW, 3, 8, argument(n));
      put_text(none);
      a_.jump(done);
      a_.here(none);
      a_.move(1, 9);
      a_.mask(1, has_list);
      a_.jump_if(BPF_JNE, 1, 0, done);  // execve: its memory is another one then
      read_later(n, n);
      a_.here(done);
    });
  }
  void put_pair(u32 wanted, int n) {
    if_wanted(wanted, [&] { read_later(n, later_pair); });
  }
  void put_what_is_read_later() {
    Assembler::Label none, pair, done;
    a_.store(BPF_W, 10, -4, 7);
    a_.map(1, maps_.later);
    a_.move(2, 10);
    a_.plus(2, -4);
    a_.call(BPF_FUNC_map_lookup_elem);
    a_.jump_if(BPF_JEQ, 0, 0, none);
    a_.load(BPF_DW, 3, 0, 0);
    a_.store(BPF_DW, 8, argument(0), 3);
    a_.load(BPF_DW, 1, 0, 8);
    a_.store(BPF_DW, 8, offsetof(NotedCall, value), 1);
    a_.jump_if(BPF_JGE, 1, later_pair, pair);
    step(static_cast<u32>(FileCall::Step::text));
    put_text(done);
    a_.jump(done);
    a_.here(pair);
    step(raw_pair);
    a_.move(1, 8);
    a_.plus(1, noted_text);
    a_.set(2, 8);
    a_.call(BPF_FUNC_probe_read_user);
    a_.jump_if(BPF_JNE, 0, 0, done);
    a_.store_value(BPF_W, 8, offsetof(NotedCall, text_size), 8);
    a_.set(3, noted_text + 8);
    output();
    a_.here(done);
    a_.store(BPF_W, 10, -4, 7);
    remove(maps_.later);
    a_.store_value(BPF_DW, 8, argument(0), 0);
    a_.here(none);
  }
  // The texts of a program's arguments, up to most_listed.
  void put_list(int n) {
    Assembler::Label end;
    for (u32 i = 0; i < most_listed; ++i) {
      value(n + 256 * static_cast<i32>(i));
      a_.move(1, 10);
      a_.plus(1, -16);
      a_.set(2, 8);
      a_.load(BPF_DW, 3, 8, argument(n));
      a_.plus(3, static_cast<i32>(8 * i));
      a_.call(BPF_FUNC_probe_read_user);
      a_.jump_if(BPF_JNE, 0, 0, end);
      a_.load(BPF_DW, 3, 10, -16);
      a_.jump_if(BPF_JEQ, 3, 0, end);
      put_text(end);
    }
    a_.here(end);
  }
  // An address of a socket: as much as there is.
  void put_address(int n) {
    step(raw_address);
    Assembler::Label end;
    for (const i32 size : {110, 28, 16}) {
      Assembler::Label shorter;
      a_.load(BPF_DW, 1, 8, argument(n + 1));
      a_.jump_if(BPF_JLT, 1, size == 110 ? 3 : size, shorter);
      a_.move(1, 8);
      a_.plus(1, noted_text);
      a_.set(2, size);
      a_.load(BPF_DW, 3, 8, argument(n));
      a_.call(BPF_FUNC_probe_read_user);
      a_.jump_if(BPF_JNE, 0, 0, shorter);
      a_.store_value(BPF_W, 8, offsetof(NotedCall, text_size), size);
      a_.set(3, noted_text + size);
      output();
      a_.set(1, 0);
      a_.jump_if(BPF_JEQ, 1, 0, end);
      a_.here(shorter);
    }
    a_.here(end);
  }
  // A thread: the number is in the event.
  void follow(i32 number_at) {
    if (maps_.all) return;
    a_.load(BPF_W, 1, 6, number_at);
    a_.store(BPF_W, 10, -4, 1);
    a_.store_value(BPF_W, 10, -8, 1);
    a_.map(1, maps_.followed);
    a_.move(2, 10);
    a_.plus(2, -4);
    a_.move(3, 10);
    a_.plus(3, -8);
    a_.set(4, 0);
    a_.call(BPF_FUNC_map_update_elem);
  }
  void forget() {
    a_.store(BPF_W, 10, -4, 7);
    remove(maps_.later);
    if (!maps_.all) remove(maps_.followed);
  }
  std::vector<u64> code() {
    a_.here(out_);
    a_.leave();
    return a_.code();
  }

 private:
  // Its key is on the stack.
  void remove(const sys::Fd& map) {
    a_.map(1, map);
    a_.move(2, 10);
    a_.plus(2, -4);
    a_.call(BPF_FUNC_map_delete_elem);
  }
  void read_later(int n, i32 as) {
    a_.store(BPF_W, 10, -4, 7);
    a_.load(BPF_DW, 1, 8, argument(n));
    a_.store(BPF_DW, 10, -24, 1);
    a_.store_value(BPF_DW, 10, -16, as);
    a_.map(1, maps_.later);
    a_.move(2, 10);
    a_.plus(2, -4);
    a_.move(3, 10);
    a_.plus(3, -24);
    a_.set(4, 0);
    a_.call(BPF_FUNC_map_update_elem);
  }
  void look_up(const sys::Fd& map) {
    a_.map(1, map);
    a_.move(2, 10);
    a_.plus(2, -4);
    a_.call(BPF_FUNC_map_lookup_elem);
    a_.jump_if(BPF_JEQ, 0, 0, out_);
  }
  // r3: the size.
  void output() {
    Assembler::Label done;
    a_.map(1, maps_.losses, true);
    a_.load(BPF_DW, 2, 1, 0);
    a_.store(BPF_DW, 8, offsetof(NotedCall, lost), 2);
    a_.map(1, maps_.ring);
    a_.move(2, 8);
    a_.set(4, BPF_RB_NO_WAKEUP);
    a_.call(BPF_FUNC_ringbuf_output);
    a_.jump_if(BPF_JEQ, 0, 0, done);
    a_.map(1, maps_.losses, true);
    a_.set(2, 1);
    a_.add_atomically(1, 2);
    a_.here(done);
  }
  Maps maps_;
  Assembler a_;
  Assembler::Label out_;
};

// Where a field is in the payload, by the kernel's text.
result<i32> offset_of(const std::string& format, const std::string& field) {
  const std::string mark = " " + field + ";\toffset:";
  const size_t at = format.find(mark);
  i32 offset = 0;
  if (at != std::string::npos) std::from_chars(format.data() + at + mark.size(), format.data() + format.size(), offset);
  if (offset <= 0) return refuse(std::errc::bad_message, "the kernel's event has no field " + field);
  return offset;
}

std::string printable_address(const u8* bytes, u32 size) {
  char text[INET6_ADDRSTRLEN] = {};
  sa_family_t family = 0;
  if (size < sizeof family) return "";
  std::memcpy(&family, bytes, sizeof family);
  if (family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, bytes, sizeof in);
    return fmt::format("{}:{}", inet_ntop(AF_INET, &in.sin_addr, text, sizeof text), ntohs(in.sin_port));
  }
  if (family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, bytes, sizeof in);
    return fmt::format("[{}]:{}", inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text), ntohs(in.sin6_port));
  }
  if (family != AF_UNIX) return "";
  const auto* const path = reinterpret_cast<const char*>(bytes) + offsetof(sockaddr_un, sun_path);
  const size_t room = size - offsetof(sockaddr_un, sun_path);
  if (room > 1 && path[0] == '\0') return "@" + std::string(path + 1, strnlen(path + 1, room - 1));
  return {path, strnlen(path, room)};
}

// "0100007F:1F90" of /proc/net/tcp: the words of the address are this machine's, the port is a number.
std::string address_in_proc(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return "";
  u32 words[4] = {}, port = 0;
  for (size_t i = 0; i < colon / 8; ++i) std::from_chars(text.data() + 8 * i, text.data() + 8 * i + 8, words[i], 16);
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), port, 16);
  char shown[INET6_ADDRSTRLEN] = {};
  if (inet_ntop(colon == 8 ? AF_INET : AF_INET6, words, shown, sizeof shown) == nullptr) return "";
  return fmt::format(fmt::runtime(colon == 8 ? "{}:{}" : "[{}]:{}"), shown, port);
}

// The sockets of a process's network namespace, by their text in /proc/PID/fd.
std::map<std::string, std::string> sockets_of(i32 pid) {
  std::map<std::string, std::string> all;
  const std::string net = "/proc/" + std::to_string(pid) + "/net/";
  for (const char* const kind : {"tcp", "tcp6", "udp", "udp6"}) {
    const auto text = sys::read_file(net + kind);
    if (!text) continue;
    std::istringstream lines(*text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, peer, state, queues, timer, again, user, time, inode;
      words >> number >> local >> peer >> state >> queues >> timer >> again >> user >> time >> inode;
      std::string shown = kind[0] == 't' ? "TCP" : "UDP";
      if (std::string_view(kind).ends_with('6')) shown += "v6";
      const std::string here = address_in_proc(local), there = address_in_proc(peer);
      if (here.empty() || there.empty() || inode == "0") continue;
      all["socket:[" + inode + "]"] = shown + ":[" + here + (there.ends_with(":0") ? "" : "->" + there) + "]";
    }
  }
  const auto text = sys::read_file(net + "unix");
  std::istringstream lines(text ? *text : std::string());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string address, count, protocol, flags, type, state, inode, path;
    if (words >> address >> count >> protocol >> flags >> type >> state >> inode >> path)
      all["socket:[" + inode + "]"] = "UNIX:[" + path + "]";
  }
  return all;
}

bool closes_on_exec(i32 pid, i32 descriptor) {
  const auto info = sys::read_file(fmt::format("/proc/{}/fdinfo/{}", pid, descriptor));
  const size_t at = info ? info->find("flags:") : std::string::npos;
  return at != std::string::npos && (std::strtoull(info->c_str() + at + 6, nullptr, 8) & 02000000) != 0;
}

}  // namespace

// ---- The ring, as a source.

class FileCalls::Ring final : public Source {
 public:
  explicit Ring(FileCalls& calls, const RingName& name) : Source(name, calls.clock_), calls_(calls) {}
  result<std::optional<SubBufferView>> next() override {
    calls_.pump();
    while (!calls_.ready_.empty()) {
      calls_.shown_ = std::move(calls_.ready_.front());
      calls_.ready_.pop_front();
      if (calls_.shown_->pending()) return calls_.shown_->take();
    }
    if (!calls_.packer_.pending()) return std::nullopt;
    return calls_.packer_.take();
  }
  Counters counters() const override {
    Counters c;
    c.read = calls_.taken_;
    c.overrun = calls_.lost_;
    c.written = c.read + c.overrun;
    c.subbuf_size = notes_subbuf_size;
    c.nr_subbufs = 64;
    c.capacity_bytes = calls_.ring_size_;
    return c;
  }
  bool ended() const override { return calls_.over_; }

 private:
  FileCalls& calls_;
};

// ---- The programs.

FileCalls::FileCalls(const ClockInfo& clock) : clock_(clock), packer_(notes_subbuf_size) {}
FileCalls::~FileCalls() = default;

result<void> FileCalls::make_maps(const Options& options) {
  ring_size_ = std::bit_ceil(std::clamp<u64>(options.buffer_size, sys::page_bytes(), largest_ring));
  followed_ = RS_TRY(make_map(BPF_MAP_TYPE_HASH, 4, 4, 1 << 20, BPF_F_NO_PREALLOC));
  wanted_ = RS_TRY(make_map(BPF_MAP_TYPE_ARRAY, 4, 4, most_calls));
  scratch_ = RS_TRY(make_map(BPF_MAP_TYPE_PERCPU_ARRAY, 4, noted_text + longest_path_text, 1));
  later_ = RS_TRY(make_map(BPF_MAP_TYPE_HASH, 4, 16, 1 << 16, BPF_F_NO_PREALLOC));
  losses_ = RS_TRY(make_map(BPF_MAP_TYPE_ARRAY, 4, 8, 1, BPF_F_MMAPABLE));
  ring_ = RS_TRY(make_map(BPF_MAP_TYPE_RINGBUF, 0, 0, static_cast<u32>(ring_size_)));
  const u64 page = sys::page_bytes();
  positions_ = RS_TRY(sys::Region::map(ring_.get(), page, true, "the ring of file calls"));
  data_ = RS_TRY(sys::Region::map(ring_.get(), page + 2 * ring_size_, false, "the ring of file calls", page));
  counted_ = RS_TRY(sys::Region::map(losses_.get(), page, false, "the losses of file calls"));
  for (const CallFiles& call : all_call_files()) {
    const auto number = syscall_number(call.name, World::own().architecture);
    if (!number || *number >= most_calls || !call.is_needed()) continue;
    u32 wanted = notes_begin | call.paths;
    if (call.does != CallFiles::Does::nothing) wanted |= notes_end;
    if (call.does == CallFiles::Does::exec) wanted |= has_list;
    if (call.does == CallFiles::Does::connect) wanted |= has_address;
    if (call.does == CallFiles::Does::pair) wanted |= std::string_view(call.name) == "socketpair" ? has_fourth_pair : has_pair;
    RS_TRY(set(wanted_, static_cast<u32>(*number), &wanted));
  }
  return {};
}

result<void> FileCalls::attach(const std::string& event, const std::vector<u64>& program) {
  std::vector<char> why(1 << 16);
  static constexpr char license[] = "Dual MIT/GPL";
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_TRACEPOINT;
  attributes.insns = reinterpret_cast<u64>(program.data());
  attributes.insn_cnt = static_cast<u32>(program.size());
  attributes.license = reinterpret_cast<u64>(license);
  sys::Fd loaded(static_cast<int>(bpf(BPF_PROG_LOAD, attributes)));
  if (!loaded) {
    const int error = errno;
    attributes.log_buf = reinterpret_cast<u64>(why.data());
    attributes.log_size = static_cast<u32>(why.size());
    attributes.log_level = 1;
    (void)bpf(BPF_PROG_LOAD, attributes);
    std::string said = why.data();
    while (said.ends_with('\n')) said.pop_back();
    said = said.substr(said.rfind('\n', said.rfind("processed ")) + 1);
    return fail(error, "the kernel refuses the BPF program of " + event + " (" + said.substr(0, 300) + ")");
  }
  const std::string folder = RS_TRY(tracefs_dir()) + "/events/" + event;
  perf_event_attr opened{};
  opened.size = sizeof opened;
  opened.type = PERF_TYPE_TRACEPOINT;
  opened.config = std::strtoull(RS_TRY(sys::read_file(folder + "/id")).c_str(), nullptr, 10);
  opened.sample_period = 1;
  sys::Fd fd(static_cast<int>(syscall(SYS_perf_event_open, &opened, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!fd || ioctl(fd.get(), PERF_EVENT_IOC_SET_BPF, loaded.get()) != 0 || ioctl(fd.get(), PERF_EVENT_IOC_ENABLE, 0) != 0)
    return fail(errno, "cannot attach a BPF program to the event " + event);
  programs_.push_back(std::move(loaded));
  events_.push_back(std::move(fd));
  return {};
}

result<std::unique_ptr<FileCalls>> FileCalls::open(const Options& options, const ClockInfo& clock) {
  if (clock.kind != ClockKind::mono)
    return refuse(std::errc::invalid_argument,
                  "files of system calls need the clock mono, the one that BPF programs read: --clock mono, for an "
                  "instance when it is made");
  if (!sys::pids_are_the_kernels())
    return refuse(std::errc::not_supported,
                  "files of system calls cannot be noted in a PID namespace (a container): record "
                  "outside of it");
  const LockedMemory unlimited;
  std::unique_ptr<FileCalls> calls(new FileCalls(clock));
  RS_TRY(calls->make_maps(options));
  const Noter::Maps maps{calls->followed_, calls->wanted_, calls->scratch_, calls->losses_,
                         calls->ring_,     calls->later_,  options.all};
  using Step = FileCall::Step;
  const auto word = [](Step step) { return static_cast<u32>(step); };
  const std::string events = RS_TRY(tracefs_dir()) + "/events/";
  const std::string enter = RS_TRY(sys::read_file(events + "raw_syscalls/sys_enter/format")),
                    exit = RS_TRY(sys::read_file(events + "raw_syscalls/sys_exit/format")),
                    fork = RS_TRY(sys::read_file(events + "task/task_newtask/format"));
  // Threads before calls: a new one is known before its first call.
  Noter begun(maps);
  begun.leave_unless_followed();
  begun.follow(RS_TRY(offset_of(fork, "pid")));
  begun.begin_note();
  begun.step(word(Step::fork));
  begun.copy(RS_TRY(offset_of(fork, "pid")), offsetof(NotedCall, value), BPF_W);
  begun.copy(RS_TRY(offset_of(fork, "clone_flags")), Noter::argument(0));
  begun.put();
  RS_TRY(calls->attach("task/task_newtask", begun.code()));
  Noter gone(maps);
  gone.leave_unless_followed();
  gone.forget();
  gone.begin_note();
  gone.step(word(Step::gone));
  gone.put();
  RS_TRY(calls->attach("sched/sched_process_exit", gone.code()));
  Noter entered(maps);
  const i32 args = RS_TRY(offset_of(enter, "args[6]"));
  entered.leave_unless_followed();
  entered.look_up_call(RS_TRY(offset_of(enter, "id")));
  entered.leave_unless(notes_begin);
  entered.begin_note();
  entered.copy(RS_TRY(offset_of(enter, "id")), offsetof(NotedCall, number));
  for (int i = 0; i < 6; ++i) entered.copy(args + 8 * i, Noter::argument(i));
  entered.step(word(Step::begin));
  entered.put();
  entered.step(word(Step::text));
  for (int i = 0; i < 5; ++i) entered.put_path(i);
  entered.if_wanted(has_list, [&] {
    for (const int path : {0, 1}) entered.if_wanted(1u << path, [&] { entered.put_list(path + 1); });
  });
  entered.put_pair(has_pair, 0);
  entered.put_pair(has_fourth_pair, 3);
  entered.if_wanted(has_address, [&] { entered.put_address(addressed); });
  RS_TRY(calls->attach("raw_syscalls/sys_enter", entered.code()));
  Noter returned(maps);
  returned.leave_unless_followed();
  returned.look_up_call(RS_TRY(offset_of(exit, "id")));
  returned.leave_unless(notes_begin);
  returned.begin_note();
  returned.copy(RS_TRY(offset_of(exit, "id")), offsetof(NotedCall, number));
  returned.put_what_is_read_later();
  returned.leave_unless(notes_end);
  returned.copy(RS_TRY(offset_of(exit, "ret")), offsetof(NotedCall, value));
  returned.step(word(Step::end));
  returned.put();
  RS_TRY(calls->attach("raw_syscalls/sys_exit", returned.code()));
  for (const i32 pid : options.pids) RS_TRY(calls->follow(pid));
  if (options.all)
    for (const i32 pid : numbers_in("/proc")) calls->know(pid);
  return calls;
}

result<void> FileCalls::follow(i32 pid) {
  const u32 one = 1;
  for (const i32 tid : numbers_in("/proc/" + std::to_string(pid) + "/task"))
    RS_TRY(set(followed_, static_cast<u32>(tid), &one));
  know(pid);
  return {};
}

void FileCalls::off() {
  if (over_) return;
  events_.clear();  // a program runs as long as its event is open, disabled or not
  pump(true);
  over_ = true;
}

// ---- The notes.

EventInfo FileCalls::event() {
  EventInfo info;
  info.id = file_call_id;
  info.system = "ringside";
  info.name = "file_call";
  info.enabled = true;
  std::string fields =
      "\tfield:u32 step;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:s32 pid;\toffset:12;\tsize:4;\tsigned:1;\n"
      "\tfield:s64 nr;\toffset:16;\tsize:8;\tsigned:1;\n\tfield:s64 value;\toffset:24;\tsize:8;\tsigned:1;\n"
      "\tfield:u64 args[6];\toffset:32;\tsize:48;\tsigned:0;\n"
      "\tfield:__data_loc char[] text;\toffset:80;\tsize:4;\tsigned:0;\n";
  info.format = format_text(info.name, info.id, fields,
                            "\"%s nr=%lld value=%lld text=%s\", __print_symbolic(REC->step, {0, \"begin\"}, {1, \"text\"}, {2, "
                            "\"end\"}, {3, \"fork\"}, {4, \"gone\"}, {5, \"descriptor\"}, {6, \"directory\"}), REC->nr, "
                            "REC->value, __get_str(text)");
  return info;
}

std::vector<std::unique_ptr<Source>> FileCalls::take_sources() {
  RingName name;
  name.ring = file_call_ring;
  name.pid = name.tid = getpid();
  name.task = name.process = "ringside";
  std::vector<std::unique_ptr<Source>> sources;
  sources.push_back(std::make_unique<Ring>(*this, name));
  return sources;
}

void FileCalls::begin_another() {
  ready_.push_back(std::move(packer_));
  packer_ = Packer(notes_subbuf_size);
}

void FileCalls::write(const NotedCall& noted, std::string_view text) {
  FileCall out;
  out.common = file_call_id | u64{noted.tid} << 32;
  out.step = static_cast<FileCall::Step>(noted.step);
  out.pid = static_cast<i32>(noted.pid);
  out.number = noted.number;
  out.value = noted.value;
  std::memcpy(out.args, noted.args, sizeof out.args);
  out.text = static_cast<u32>(sizeof out | (text.size() + 1) << 16);
  payload_.assign(sizeof out + text.size() + 1, 0);
  std::memcpy(payload_.data(), &out, sizeof out);
  std::memcpy(payload_.data() + sizeof out, text.data(), text.size());
  const Bytes bytes{payload_.data(), payload_.size()};
  last_ = std::max(last_, noted.time);
  ++taken_;
  if (packer_.add(last_, bytes)) return;
  begin_another();
  if (!packer_.add(last_, bytes)) lose(1), --taken_;
}

void FileCalls::lose(u64 lost) {
  begin_another();
  packer_.lost(lost);
  lost_ += lost;
}

void FileCalls::take(const u8* from, u64 size) {
  NotedCall noted{};
  if (size < sizeof noted) return;
  std::memcpy(&noted, from, sizeof noted);
  const u64 text_size = std::min<u64>(noted.text_size, size - sizeof noted);
  std::string text(reinterpret_cast<const char*>(from) + sizeof noted, text_size);
  if (noted.lost > lost_) lose(noted.lost - lost_);
  if (noted.step == raw_address) {
    noted.step = static_cast<u32>(FileCall::Step::text);
    noted.value = addressed;
    // The program copies a fixed size: the rest is the caller's memory, and none of the address.
    text = printable_address(from + sizeof noted, static_cast<u32>(std::min<u64>(text_size, noted.args[addressed + 1])));
    if (text.empty()) return;
  }
  if (noted.step == raw_pair) {
    i32 two[2] = {};
    if (text_size < sizeof two) return;
    std::memcpy(two, from + sizeof noted, sizeof two);
    noted.step = static_cast<u32>(FileCall::Step::text);
    noted.value = 0;
    text = fmt::format("{} {}", two[0], two[1]);
  }
  write(noted, std::string_view(text.c_str()));
}

void FileCalls::pump(bool all) {
  if (over_) return;
  auto* const consumed = reinterpret_cast<u64*>(positions_.data());
  const u64 end = __atomic_load_n(reinterpret_cast<const u64*>(data_.data()), __ATOMIC_ACQUIRE), mask = ring_size_ - 1;
  const u8* const data = data_.data() + sys::page_bytes();
  u64 at = *consumed;
  while (at < end && (all || ready_.size() < most_waiting)) {
    const u8* const record = data + (at & mask);
    const u32 length = __atomic_load_n(reinterpret_cast<const u32*>(record), __ATOMIC_ACQUIRE);
    if ((length & BPF_RINGBUF_BUSY_BIT) != 0) break;
    const u64 size = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
    if ((length & BPF_RINGBUF_DISCARD_BIT) == 0) take(record + BPF_RINGBUF_HDR_SZ, size);
    at += (size + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
    __atomic_store_n(consumed, at, __ATOMIC_RELEASE);
  }
  // Losses that no later note reports.
  const u64 lost = __atomic_load_n(reinterpret_cast<const u64*>(counted_.data()), __ATOMIC_ACQUIRE);
  if (at == end && lost > lost_) lose(lost - lost_);
}

// Calls go on meanwhile: args[1] is the time before, and a descriptor that a call has changed since then is not taken.
void FileCalls::know(i32 pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  NotedCall noted{};
  noted.tid = noted.pid = static_cast<u32>(pid);
  noted.args[1] = sys::now_ns();
  std::vector<std::tuple<i32, bool, std::string>> found;
  bool sockets = false;
  std::vector<i32> descriptors = numbers_in(process + "/fd");
  descriptors.push_back(0);  // numbers_in() is about processes
  for (const i32 descriptor : descriptors) {
    std::string text = sys::link_text(process + "/fd/" + std::to_string(descriptor));
    if (text.empty() || found.size() == most_descriptors) continue;
    sockets = sockets || text.starts_with("socket:");
    found.emplace_back(descriptor, closes_on_exec(pid, descriptor), std::move(text));
  }
  const auto known = sockets ? sockets_of(pid) : std::map<std::string, std::string>();
  const std::string directory = sys::link_text(process + "/cwd");
  noted.time = sys::now_ns();  // before pump(): no later note gets an earlier place than its own
  pump();
  noted.step = static_cast<u32>(FileCall::Step::directory);
  if (!directory.empty()) write(noted, directory);
  noted.step = static_cast<u32>(FileCall::Step::descriptor);
  for (const auto& [descriptor, closes, text] : found) {
    noted.value = descriptor;
    noted.args[0] = closes ? 1 : 0;
    const auto at = known.find(text);
    write(noted, at == known.end() ? text : at->second);
  }
}

}  // namespace ringside
