#include "export/text.hpp"

#include <algorithm>

#include "decode/descriptors.hpp"
#include "sys/text.hpp"

namespace ringside {

const CopiedText& TextLines::prefix(const TraceRecord& record, i32 tid, const RingName& ring) {
  const u32 source = record.source;
  const i32 cpu = as_tracefs_ ? static_cast<i32>(ring.place()) : record.cpu_in(ring);
  Prefix& p = prefixes_[(static_cast<u32>(tid) + source * 61) % prefixes_.size()];
  if (p.tid != tid || p.source != source || p.cpu != cpu || p.renamed != tasks_.renamed() || p.text.empty()) {
    p.tid = tid;
    p.source = source;
    p.cpu = cpu;
    p.renamed = tasks_.renamed();
    std::string text = ring.buffer.empty() ? "" : sys::printable(ring.buffer) + ": ";
    if (tid == no_thread)
      text += fmt::format("{:>16} {:<7} ", sys::printable(ring.task), "");
    else
      text += fmt::format("{:>16}-{:<7} ", sys::printable(tasks_.name(tid, ring)), tasks_.show(tasks_.key(tid, ring)));
    if (processes_ && tid == no_thread) {
      text += "(-------) ";
    } else if (processes_) {
      const i32 process = tasks_.seen_process(tid, ring);
      text += process > 0 ? fmt::format("({:7}) ", process) : "(-------) ";
    }
    text += cpu < 0 ? "[---] " : fmt::format("[{:03}] {}", cpu, as_tracefs_ ? "----- " : "");
    p.text = CopiedText(text);
  }
  return p.text;
}

char* TextLines::put_time(u64 ns, char* to) {
  if (raw_times_) return fmt::format_to(to, "{:>12}: ", ns);
  constexpr u64 second = 1'000'000'000;
  if (wall_) ns = static_cast<u64>(wall_->of(ns));
  const u64 rounded = ns + 500;
  if (rounded - second_at_ >= second || seconds_.empty()) [[unlikely]] {
    second_at_ = rounded / second * second;
    seconds_ =
        CopiedText(wall_ ? wall_second(static_cast<i64>(rounded / second)) + "." : fmt::format("{:>5}.", rounded / second));
  }
  to = detail::put_six_digits(seconds_.put(to), static_cast<u32>(rounded - second_at_) / 1000);
  *to++ = ':';
  *to++ = ' ';
  return to;
}

const TextLines::Event& TextLines::event(u32 number) {
  return events_.at(number, formats_.version(), [&] {
    const EventType* const type = formats_.find(number);
    const std::string name = type != nullptr ? type->name : fmt::format("unknown_{}", number & 0xFFFF);
    return Event{type, CopiedText(name + (with_tasks_ || type == nullptr ? ": " : " ")), is_stack(type)};
  });
}

// Events written to trace_marker and trace_marker_raw.
bool TextLines::print_marker(const EventType& type, Bytes payload, fmt::memory_buffer& out) const {
  if (!type.of_ftrace || payload.size < 16) return false;
  if (type.name == "print") {
    const std::string_view text(reinterpret_cast<const char*>(payload.data) + 16, payload.size - 16);
    append(out, "tracing_mark_write: ");
    append(out, sys::printable(text.substr(0, std::min(text.find('\n'), text.find('\0')))));
    return true;
  }
  if (type.name != "raw_data") return false;
  u32 id;
  __builtin_memcpy(&id, payload.data + 8, sizeof id);
  fmt::format_to(std::back_inserter(out), "# {:x} buf: ", id);
  append_hex({payload.data + 12, payload.size - 12}, " ", out);
  return true;
}

// kernel_stack, user_stack: the rest of the line, and the lines under it.
void TextLines::print_stack(const EventType& type, const TraceRecord& record, fmt::memory_buffer& out) const {
  const bool of_kernel = type.name == "kernel_stack";
  append(out, of_kernel ? "<stack trace>\n" : "<user stack trace>\n");
  if (!of_kernel && record.stack != 0 && formats_.stacks() != nullptr)
    return formats_.stacks()->append_lines(record.stack, out);
  append_addresses(formats_, type, record, out);
}

void TextLines::append_addresses(const Formats& formats, const EventType& type, const TraceRecord& record,
                                 fmt::memory_buffer& out) {
  constexpr u64 trampoline = 0x7FFFFFFF;  // the kernel's mark of a trampoline of ftrace
  const bool of_kernel = type.name == "kernel_stack";
  const Bytes payload = record.payload;
  i32 size = 0;
  if (payload.size >= 12) __builtin_memcpy(&size, payload.data + 8, sizeof size);
  for (size_t at = 16; at + 8 <= payload.size && (!of_kernel || at < 16 + 8 * static_cast<size_t>(std::max(size, 0)));
       at += 8) {
    u64 address = 0;
    __builtin_memcpy(&address, payload.data + at, sizeof address);
    if (address == ~u64{0} || (!of_kernel && address == 0)) break;
    append(out, " => ");
    const Symbols& symbols = formats.symbols(record.number());
    const Symbols::Symbol* const symbol = of_kernel ? symbols.find_first(address) : nullptr;
    if (of_kernel && address == trampoline) {
      append(out, "[FTRACE TRAMPOLINE]");
    } else if (symbol == nullptr) {
      fmt::format_to(std::back_inserter(out), "{:#x}", address);
    } else {
      append(out, sys::printable(symbol->name));
      fmt::format_to(std::back_inserter(out), "+{:#x}/{:#x}", address - symbol->address,
                     symbols.end_of(*symbol) - symbol->address);
      if (!symbol->module.empty()) fmt::format_to(std::back_inserter(out), " [{}]", sys::printable(symbol->module));
    }
    out.push_back('\n');
  }
}

// Names after the kernel's own text: " # openat ENOENT", " # read 3</etc/passwd>".
void TextLines::append_call(const EventType& type, const TraceRecord& record, fmt::memory_buffer& out) {
  const SyscallWords words = syscalls_.read(type, record.payload);
  const std::string_view files = record.files != 0 ? formats_.files()->text(record.files) : std::string_view();
  const bool tells_call = !words.call.empty() && type.system == "raw_syscalls";
  if (tells_call || !words.error.empty() || !files.empty()) append(out, " #");
  for (const std::string_view word : {tells_call ? words.call : std::string_view(), words.error, files}) {
    if (!word.empty()) out.push_back(' ');
    append(out, word);
  }
}

namespace {

// What `echo` and trace_printk() write to a marker is a line: print, bprint, bputs.
void drop_newline(const EventType& type, size_t from, fmt::memory_buffer& out) {
  if (!type.of_ftrace) return;
  constexpr std::string_view newline = "\\x0a";
  const std::string_view text(out.data() + from, out.size() - from);
  if (text.ends_with(newline)) out.resize(out.size() - newline.size());
}

// The lines below show the stack: its number says no more.
void drop_stack_number(const EventType& type, size_t begin, fmt::memory_buffer& out) {
  for (const Field& field : type.fields()) {
    if (!field.is_stack) continue;
    const std::string_view printed(out.data() + begin, out.size() - begin);
    const std::string name = field.name + "=0x";
    const size_t at = printed.find(name);
    if (at == printed.npos || (at != 0 && printed[at - 1] != ' ')) continue;
    const size_t digits = std::min(printed.find_first_not_of("0123456789abcdef", at + name.size()), printed.size());
    if (digits < printed.size() && printed[digits] != ' ') continue;
    const size_t first = digits == printed.size() && at != 0 ? at - 1 : at,
                 last = digits == printed.size() ? digits : digits + 1;
    std::copy(out.data() + begin + last, out.data() + out.size(), out.data() + begin + first);
    out.resize(out.size() - (last - first));
  }
}

}  // namespace

void TextLines::print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) {
  if (record.lost != 0) {
    const bool of_cpu = as_tracefs_ || ring.its_cpu() >= 0;
    fmt::format_to(std::back_inserter(out), "{}:{} [LOST {} EVENTS]\n", of_cpu ? "CPU" : "RING", ring.place(), record.lost);
    return;
  }
  const Common common = read_common(record.payload);
  const Event& event = this->event(record.number());
  const EventType* const type = event.type;
  if (!with_tasks_) fmt::format_to(std::back_inserter(out), "[{:03}]\t", ring.place());
  const CopiedText& task =
      with_tasks_ ? prefix(record, tells_no_thread(type) ? no_thread : thread_of(type, common), ring) : no_task_;
  out.reserve(out.size() + task.room() + time_room + event.head.room());
  const auto put = [&out](const char* end) { out.resize(static_cast<size_t>(end - out.data())); };
  put(put_time(record.time, task.put(out.end())));
  if (as_tracefs_ && type != nullptr && print_marker(*type, record.payload, out)) {
  } else if (event.of_stack) {
    return print_stack(*type, record, out);
  } else {
    put(event.head.put(out.end()));
    const size_t end = out.size();
    if (type == nullptr) {
      append_hex(record.payload, " ", out);
    } else {
      formats_.print(*type, record.payload, out);
      drop_newline(*type, end, out);
      if (record.stack != 0 && !ring.kernel && formats_.stacks() != nullptr) drop_stack_number(*type, end, out);
      if (!with_tasks_ && out.size() == end) out.resize(end - 1);
      if (type->of_syscalls) append_call(*type, record, out);
    }
  }
  out.push_back('\n');
  if (record.stack != 0 && !ring.kernel && formats_.stacks() != nullptr) formats_.stacks()->append_lines(record.stack, out);
}

}  // namespace ringside
