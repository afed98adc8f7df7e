// The numbers of the trace.dat format, for its reader and its writer. All integers are little-endian.
//
//   both   "\x17\x08\x44tracing" "6\0" or "7\0", u8 endianness, u8 long size, u32 page size (bytes of a sub-buffer), then
//   6      blocks H F E K P C one after the other, u32 CPUs, "options  \0" with options until id 0, "flyrecord\0", for each CPU
//          {u64 offset, u64 size}; a further buffer's table lies where its option says
//   7      compression "name\0version\0", u64 where the first options section is; then sections: u16 id, u16 flags (1:
//          compressed), u32 name, u64 size, data. Options say where blocks and buffers are, the last one where more options are
//   H      "header_page\0" u64 size, text; "header_event\0" u64 size, text
//   F      u32 count, for each {u64 size, text}: formats of the system ftrace
//   E      u32 systems, for each "name\0", u32 count, for each {u64 size, text}
//   K, P   u32 size, text: kallsyms; printk_formats          C   u64 size, text: a line "tid comm" for each thread
#pragma once
#include <ringside/base/types.hpp>
#include <string_view>

namespace ringside::trace_dat {

inline constexpr char magic[] = "\x17\x08\x44tracing";  // without the NUL
inline constexpr u32 magic_size = sizeof magic - 1;
inline constexpr u32 most_cpus = 65536;  // of one buffer; rings of a file

// For version 7, where blocks are named by their section; version 6 has those below 16.
enum Option : u16 {
  option_done = 0,
  option_date = 1,     // text: microseconds to add to times
  option_cpustat = 2,  // text: per_cpu/cpuN/stats, or the name of the buffer from here on
  option_buffer = 3,   // 6: u64 offset, name; 7: also clock, u32 page size, u32 CPUs, for each {u32 cpu, u64 offset, u64 size}
  option_trace_clock = 4,
  option_uname = 5,      // text: of the recorder: system, host, release and machine, with spaces between them
  option_offset = 7,     // text: nanoseconds to add to times
  option_cpu_count = 8,  // u32: of all buffers
  // Of a guest: u64, u32 flags (1: interpolate), u32 CPUs, for each {u32 n, u64 times[n], i64 offsets[n], u64 scalings[n]}, for
  // each u64 fraction_bits[n]
  option_time_shift = 12,
  option_tsc_to_ns = 14,  // u32 mult, u32 shift, u64 (unused by trace-cmd)
  option_buffer_text = 22,
};

enum Section : u16 {
  section_options = 0,
  section_data = 3,
  section_strings = 15,
  section_headers = 16,  // these six are options as well: u64 where the section is
  section_ftrace = 17,
  section_events = 18,
  section_kallsyms = 19,
  section_printk = 20,
  section_cmdlines = 21,
};
inline constexpr u32 section_header_size = 16;

// Lines of an option_cpustat that ringside writes, before any CPU's: "KEY: VALUE".
inline constexpr std::string_view stat_refused = "refused events", stat_unrecorded = "unrecorded events";
inline constexpr std::string_view stat_doubt = "more may be missing";
inline constexpr std::string_view stat_unordered = "times go back";
inline constexpr u16 section_compressed = 1;

}  // namespace ringside::trace_dat
