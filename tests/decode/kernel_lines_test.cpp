// The kernel's own lines, of its file `trace`, against ours of the same events: whatever can be made to occur in a moment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <sstream>
#include <thread>

#include "cli/hand_made.hpp"
#include "decode/formats.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace ringside::kernel_lines_test {
namespace {

namespace fs = std::filesystem;

// One of everything that a program does.
void work(const std::string& dir) {
  const std::string path = dir + "/work";
  for (int i = 0; i < 3; ++i) {
    std::ofstream(path) << std::string(100'000, 'x');
    std::ifstream in(path);
    std::stringstream all;
    all << in.rdbuf();
    fs::rename(path, path + "2");
    fs::remove(path + "2");
  }
  void* const memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 1, 1 << 20);
  munmap(memory, 1 << 20);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) {
    (void)!write(ends[0], "hello", 5);
    char text[8];
    (void)!read(ends[1], text, sizeof text);
    close(ends[0]);
    close(ends[1]);
  }
  std::thread([] { usleep(2000); }).join();
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(3);
  }
  waitpid(child, nullptr, 0);
}

// %ps of a module's function: "name [module]", here the name.
std::string without_modules(std::string line) {
  static const std::vector<std::string> modules = [] {
    std::vector<std::string> all;
    std::ifstream loaded("/proc/modules");
    for (std::string each; std::getline(loaded, each);) all.push_back(" [" + each.substr(0, each.find(' ')) + "]");
    return all;
  }();
  for (const std::string& module : modules)
    for (size_t at = 0; (at = line.find(module, at)) != line.npos;) line.erase(at, module.size());
  return line;
}

constexpr char any_pointer = 1;
constexpr const char* hex_digits = "0123456789abcdef";
constexpr const char* word_letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

// Behind the letters of a set that begin at `at`. (std::regex takes most of the test's time under a sanitizer.)
size_t behind(const std::string& line, const char* set, size_t at) {
  return std::min(line.find_first_not_of(set, at), line.size());
}

// "function+0x12/0x34 [module]" of the kernel's, here "function+0x12".
std::string without_sizes(std::string line) {
  for (size_t at = 0; (at = line.find("/0x", at)) != line.npos; ++at) {
    const size_t sign = line.rfind("+0x", at);
    size_t end = behind(line, hex_digits, at + 3);
    if (sign == line.npos || sign + 3 == at || behind(line, hex_digits, sign + 3) != at || end == at + 3) continue;
    if (line.compare(end, 2, " [") == 0)
      if (const size_t close = behind(line, word_letters, end + 2); close > end + 2 && line[close] == ']') end = close + 1;
    line.erase(at, end - at);
  }
  return line;
}

std::string without_pages(std::string line) {
  for (size_t at = 0; (at = line.find("page=", at)) != line.npos;) {
    at += 5;
    size_t end = behind(line, hex_digits, at);
    end = end - at < 16 ? 0 : at + 16;
    if (line.compare(at, 5, "(nil)") == 0) end = at + 5;
    if (line.compare(at, 2, "0x") == 0 && behind(line, hex_digits, at + 2) > at + 2) end = behind(line, hex_digits, at + 2);
    if (end != 0) line.replace(at, end - at, "?");
  }
  return line;
}

// What differs on purpose (src/decode/README.md, "Judges"). hashed: the kernel's pointers are not the events'.
std::string alike(std::string line, bool kernels, bool hashed = false) {
  if (kernels) line = without_modules(without_sizes(std::move(line)));
  line = without_pages(std::move(line));
  std::string out;
  for (size_t at = 0; at < line.size();) {  // pointers: 16 digits of the kernel's, 0x and fewer here
    const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(line[at - 1])) == 0;
    const size_t digits = std::min(line.find_first_not_of("0123456789abcdef", at), line.size()) - at;
    const bool ends = at + digits == line.size() || std::isalnum(static_cast<unsigned char>(line[at + digits])) == 0;
    if (begins && ends && digits == 16) {
      const u64 value = std::strtoull(line.substr(at, digits).c_str(), nullptr, 16);
      out += hashed ? std::string(1, any_pointer) : value == 0 ? "(nil)" : fmt::format("0x{:x}", value);
      at += digits;
    } else {
      out += line[at] == '\t' ? ' ' : line[at];
      ++at;
    }
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

// The kernel's line may have any_pointer.
bool same(std::string_view ours, std::string_view right) {
  for (; !right.empty(); right.remove_prefix(1)) {
    if (right[0] == any_pointer) {
      if (!ours.starts_with("0x") && !ours.starts_with("(nil)")) return false;
      ours.remove_prefix(ours[0] == '(' ? 5 : std::min(ours.find_first_not_of("0123456789abcdef", 2), ours.size()));
    } else {
      if (ours.empty() || ours[0] != right[0]) return false;
      ours.remove_prefix(1);
    }
  }
  return ours.empty();
}

// An instance's lines by CPU, in order: names and texts.
using Lines = std::map<u32, std::vector<std::pair<std::string, std::string>>>;
Lines lines_of(const std::string& instance) {
  Lines all;
  std::ifstream trace(instance + "/trace");
  EXPECT_TRUE(trace.good()) << instance;
  // "            true-4711    (4711) [001] d..1.  1234.567890: name: text"
  for (std::string line; std::getline(trace, line);) {
    int at = 0;
    u32 cpu = 0;
    if (std::sscanf(line.c_str(), "%*16c-%*u %n", &at); at == 0) continue;
    if (line[static_cast<size_t>(at)] == '(') at = static_cast<int>(line.find(')', static_cast<size_t>(at))) + 1;
    int name = 0;
    if (std::sscanf(line.c_str() + at, " [%u] %*s %*[0-9.]: %n", &cpu, &name); name == 0) continue;
    const size_t begin = static_cast<size_t>(at + name), end = line.find_first_of(" :(", begin);
    if (end == line.npos || end == begin || line[end] != ':') continue;
    all[cpu].emplace_back(line.substr(begin, end - begin), line.substr(end + (line.compare(end, 2, ": ") == 0 ? 2 : 1)));
  }
  return all;
}

// Linux 6.1 prints each text as an empty one while the option hash-ptr is off.
bool lacks_texts(const Lines& lines) {
  for (const auto& [cpu, events] : lines)
    for (const auto& [name, text] : events)
      if (text.find("comm= ") != text.npos) return true;
  return false;
}

// Names that the format does not resolve, and the kernel's own variables.
bool names_the_unknown(const std::string& format) {
  for (const char* const word :
       {"jiffies - ", "{ HRTIMER_MODE_", "IOPRIO_CLASS_", "{I_DIRTY", "{ I_DIRTY", "scsi_trace_parse_cdb", "{ TASK_"})
    if (format.find(word) != format.npos) return true;
  return false;
}

TEST(KernelLines, AreOurs) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  if (geteuid() != 0) GTEST_SKIP() << "only root may read all symbols of the kernel";
  std::string dir = "/tmp/ringside-lines-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  TracefsOptions options;
  options.buffer_size = 16 << 20;
  options.clock = ClockKind::mono;
  options.overwrite = false;  // the first events are as good as the last
  options.own_events = true;
  auto instance = must(TracefsInstance::create(options));
  Formats formats;
  for (const EventInfo& e : kernel_internal_events()) formats.add(e.id, e.system, e.name, e.format);
  for (const char* const system :
       {"sched",     "irq",        "timer",   "kmem",      "raw_syscalls", "signal",     "task", "mmap",
        "mmap_lock", "exceptions", "filemap", "workqueue", "writeback",    "block",      "rcu",  "percpu",
        "cgroup",    "sock",       "ext4",    "jbd2",      "xfs",          "btrfs",      "ipi",  "irq_vectors",
        "tlb",       "x86_fpu",    "lock",    "oom",       "vmscan",       "capability", "csd",  "thp"}) {
    auto enabled = instance.enable(EventPattern(std::string(system) + ":*"));
    if (!enabled) continue;  // this kernel has none of them
    for (const EventInfo& e : *enabled) formats.add(e.id, e.system, e.name, e.format);
  }
  const bool can_unhash = fs::exists(instance.dir() + "/options/hash-ptr");  // Linux 5.10 cannot
  bool hashed = !can_unhash;
  if (can_unhash) must(instance.write("options/hash-ptr", "0"));
  formats.symbols().load(must(sys::read_file("/proc/kallsyms")));
  if (auto texts = sys::read_file(must(tracefs_dir()) + "/printk_formats")) formats.add_strings(*texts);
  must(instance.follow(getpid()));
  must(instance.tracing(true));
  must(instance.write("trace_marker", "a marker's text\n"));
  work(dir);
  must(instance.tracing(false));
  fs::remove_all(dir);

  Lines theirs = lines_of(instance.dir());
  if (hashed = hashed || lacks_texts(theirs); hashed && can_unhash) {
    must(instance.write("options/hash-ptr", "1"));
    theirs = lines_of(instance.dir());
  }
  u64 compared = 0, different = 0;
  std::map<std::string, u64> kinds;
  for (const u32 cpu : instance.cpus()) {
    const sys::Fd raw(open((instance.dir() + "/per_cpu/cpu" + std::to_string(cpu) + "/trace_pipe_raw").c_str(),
                           O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_TRUE(raw.get() >= 0);
    std::vector<u8> page(1 << 20);
    size_t at = 0;
    const auto& lines = theirs[cpu];
    for (ssize_t got = 0; (got = read(raw.get(), page.data(), page.size())) > 0;) {
      const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(page.data());
      abi::EventCursor cursor(page.data() + abi::header_size, 0, abi::commit_size(header.commit), header.time_stamp);
      while (cursor.next()) {
        const Common common = read_common(cursor.payload());
        const EventType* const type = formats.find(common.id);
        ASSERT_NE(type, nullptr) << common.id;
        ASSERT_LT(at, lines.size()) << "CPU " << cpu;
        const auto& [name, text] = lines[at++];
        ASSERT_EQ(type->name == "print" ? "tracing_mark_write" : type->name, name) << "CPU " << cpu << ", event " << at;
        if (type->system == "ftrace" && type->name != "print") continue;
        if (type->name == "print") continue;  // the kernel names no caller there
        fmt::memory_buffer out;
        formats.print(*type, cursor.payload(), out);
        const std::string ours = alike({out.data(), out.size()}, false), right = alike(text, true, hashed);
        ++compared;
        ++kinds[type->full];
        if (same(ours, right)) continue;
        std::ifstream format(must(tracefs_dir()) + "/events/" + type->system + "/" + type->name + "/format");
        std::stringstream whole;
        whole << format.rdbuf();
        if (names_the_unknown(whole.str())) continue;
        if (++different <= 20) ADD_FAILURE() << type->full << "\nours:  " << ours << "\nright: " << right;
      }
    }
    EXPECT_EQ(at, lines.size()) << "CPU " << cpu;
  }
  EXPECT_EQ(different, 0u);
  EXPECT_GT(compared, 500u);
  EXPECT_GT(kinds.size(), 20u);
  std::printf("%lu lines of %zu kinds of events%s\n", compared, kinds.size(), hashed ? ", pointers hashed" : "");
}

}  // namespace
}  // namespace ringside::kernel_lines_test
