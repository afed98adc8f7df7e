// trace.dat files of other machines: any byte order, and longs of 4 or 8 bytes. Made field by field, as a kernel there would.
#pragma once
#include <cstring>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

#include "source/trace_dat_format.hpp"

namespace ringside::test {

class ForeignDat {
 public:
  bool big = false;
  u32 word = 8;
  u32 page = 4096;
  std::string uname{};  // empty: the file has none
  std::string cmdlines{};
  std::string clock{};   // of the kernel's; empty: the file does not name it
  std::string kallsyms{};
  std::string printk{};  // formats of trace_printk
  std::string stat{};    // per_cpu/cpuN/stats, of one CPU or several; empty: the file has none
  u64 date_us = 0;       // to be added to times, which are times of day then
  struct Format {
    std::string system, text;
  };
  std::vector<Format> formats{}, ftrace{};
  std::vector<std::string> pages{};       // of CPU 0
  std::vector<std::string> pages_of_1{};  // of CPU 1; none: there is no such CPU

  template <class T>
  std::string number(T value) const {
    std::string out(sizeof value, '\0');
    for (size_t i = 0; i < sizeof value; ++i)
      out[big ? sizeof value - 1 - i : i] = static_cast<char>(static_cast<u64>(value) >> 8 * i & 0xFF);
    return out;
  }
  std::string a_long(u64 value) const { return word == 8 ? number(value) : number(static_cast<u32>(value)); }
  std::string head(u16 id, i32 pid) const { return number(id) + std::string(2, '\0') + number(pid); }
  // Of an event, or a time extend (30) or stamp (31) with its upper bits.
  std::string event_word(u32 type, u32 delta) const { return number(big ? type << 27 | delta : type | delta << 5); }
  std::string event(u32 delta, std::string payload, bool with_array = false) const {
    payload.resize((payload.size() + 3) / 4 * 4, '\0');
    const auto size = static_cast<u32>(payload.size());
    return size <= 112 && !with_array ? event_word(size / 4, delta) + payload
                                      : event_word(0, delta) + number(size + 4) + payload;
  }
  // missed: events in front of it.
  std::string sub_buffer(u64 time, const std::string& data, u64 missed = 0) const {
    const u64 commit = data.size() | (missed != 0 ? u64{3} << 30 : 0);
    std::string out = number(time) + a_long(commit) + data + (missed != 0 ? a_long(missed) : "");
    out.resize(page, '\0');
    return out;
  }
  static std::string field(const std::string& declared, u32 offset, u32 size, bool is_signed = false) {
    return "\tfield:" + declared + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
           ";\tsigned:" + (is_signed ? "1" : "0") + ";\n";
  }
  static std::string format(const std::string& name, u32 id, const std::string& fields, const std::string& print) {
    return "name: " + name + "\nID: " + std::to_string(id) + "\nformat:\n" + field("unsigned short common_type", 0, 2) +
           field("unsigned char common_flags", 2, 1) + field("unsigned char common_preempt_count", 3, 1) +
           field("int common_pid", 4, 4, true) + "\n" + fields + "\nprint fmt: " + print + "\n";
  }

  std::string bytes() const {
    using namespace trace_dat;
    const auto text = [&](const std::string& t) { return number(u64{t.size()}) + t; };
    const std::string own = std::to_string(word);
    std::string out(magic, magic_size);
    out += std::string("6\0", 2) + static_cast<char>(big) + static_cast<char>(word) + number(page);
    out += std::string("header_page\0", 12) +
           text("\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:" + own +
                ";\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:" +
                std::to_string(8 + word) + ";\tsize:" + std::to_string(page - 8 - word) + ";\tsigned:1;\n");
    out += std::string("header_event\0", 13) + text("# compressed entry header\n\ttype_len    :    5 bits\n");
    out += number(static_cast<u32>(ftrace.size()));
    for (const Format& f : ftrace) out += text(f.text);
    out += number(static_cast<u32>(formats.size()));
    for (const Format& f : formats) out += f.system + '\0' + number(u32{1}) + text(f.text);
    out += number(static_cast<u32>(kallsyms.size())) + kallsyms + number(static_cast<u32>(printk.size())) + printk +
           text(cmdlines) + number(u32{pages_of_1.empty() ? 1u : 2u}) + std::string("options  \0", 10);
    if (!uname.empty()) out += number(u16{option_uname}) + number(static_cast<u32>(uname.size() + 1)) + uname + '\0';
    const std::string date = std::to_string(date_us);
    if (date_us != 0) out += number(u16{option_date}) + number(static_cast<u32>(date.size() + 1)) + date + '\0';
    const std::string clocks = "local global [" + clock + "]";
    if (!clock.empty()) out += number(u16{option_trace_clock}) + number(static_cast<u32>(clocks.size() + 1)) + clocks + '\0';
    if (!stat.empty()) out += number(u16{option_cpustat}) + number(static_cast<u32>(stat.size() + 1)) + stat + '\0';
    out += number(u16{option_done}) + std::string("flyrecord\0", 10);
    const u64 at = (out.size() + 32 + page - 1) / page * page, size = u64{pages.size()} * page;
    out += number(at) + number(size);
    if (!pages_of_1.empty()) out += number(at + size) + number(u64{pages_of_1.size()} * page);
    out.resize(at, '\0');
    for (const std::string& p : pages) out += p;
    for (const std::string& p : pages_of_1) out += p;
    return out;
  }

  // raw_syscalls of a thread prog-42: begin and end of each call, 5 us apart.
  static ForeignDat of_calls(const std::string& uname, const std::vector<std::pair<i64, i64>>& calls, bool big = false,
                             u32 word = 8) {
    ForeignDat dat;
    dat.big = big;
    dat.word = word;
    dat.uname = uname;
    dat.cmdlines = "42 prog\n";
    const std::string own = std::to_string(word);
    dat.formats = {
        {"raw_syscalls",
         format("sys_enter", 21, field("long id", 8, word, true) + field("unsigned long args[6]", 8 + word, 6 * word),
                "\"NR %ld (%lx)\", REC->id, REC->args[0]")},
        {"raw_syscalls", format("sys_exit", 22, field("long id", 8, word, true) + field("long ret", 8 + word, word, true),
                                "\"NR %ld = %ld\", REC->id, REC->ret")}};
    std::string data;
    for (const auto& [id, returned] : calls) {
      std::string enter = dat.head(21, 42) + dat.a_long(static_cast<u64>(id));
      for (u64 i = 1; i <= 6; ++i) enter += dat.a_long(i);
      data += dat.event(1000, enter);
      data += dat.event(5000, dat.head(22, 42) + dat.a_long(static_cast<u64>(id)) + dat.a_long(static_cast<u64>(returned)));
    }
    dat.pages = {dat.sub_buffer(1'000'000'000, data)};
    return dat;
  }
};

}  // namespace ringside::test
