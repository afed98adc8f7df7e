// A recording on its way to another machine: messages in one direction, over any stream of bytes. Each has a head and `size`
// bytes after it. The receiver does what a message says at once, so that a line that breaks leaves what a killed recorder
// leaves: whole sub-buffers, and the last meta.json.
//
//   hello  magic, the sender's host name             file: the version. The first one, and only that
//   ring   the name of a ring's file (cpu3.raw)      file: its number from here on: 0, 1, 2, ...
//   bytes  bytes of that file at `offset`            at most one sub-buffer past its end
//   size   -                                         `offset`: the size of that file
//   text   a name, and the whole content             offset: the length of the name. meta.json, kallsyms, printk_formats, names
//   end    -                                         the recorder has ended in good order. file: 1 if it gives names when asked
//
// Over a connection, the receiver answers hello and end with a line: "ok", or a sentence that says why not. After an end with 1
// comes the line "names N" and N bytes, the addresses whose names it wants (KeptNames); if N is not 0, a last text `names`
// answers. Numbers are little-endian.
#pragma once
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/types.hpp>

namespace ringside::messages {

enum class Kind : u32 { hello = 1, ring, bytes, size, text, end };

struct Head {
  u32 kind, file;
  u64 offset;
  u32 size, reserved;  // 0
};
static_assert(sizeof(Head) == 24);

inline constexpr char magic[8] = {'r', 'i', 'n', 'g', 's', 'i', 'd', 'e'};
inline constexpr u32 version = 1;
inline constexpr u32 longest_host = 64, longest_name = 32, longest_answer = 512;
inline constexpr u32 most_asked = 16 << 20;
inline constexpr u32 most_bytes = abi::largest_subbuf, largest_text = u32{256} << 20, most_rings = 1 << 20;

}  // namespace ringside::messages
