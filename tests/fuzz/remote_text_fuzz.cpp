// Any format and any lines as those of the kernel's own remotes. The input: the format, a byte of zeros, the lines.
#include <cstdlib>
#include <cstring>

#include "decode/formats.hpp"
#include "kernel/remote_text.hpp"

using namespace ringside;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const size_t zero = std::min(input.find('\0'), size);
  const RemoteEventText event(input.substr(0, zero));
  Formats formats;
  formats.add(1, "r", "e", event.format());
  std::string lines(input.substr(std::min(zero + 1, size)));  // a sanitizer checks its end
  std::string_view rest = lines;
  size_t before = rest.size();
  std::vector<u8> payload;
  while (const auto line = take_remote_line(rest)) {
    if (rest.size() >= before) std::abort();
    before = rest.size();
    if (line->lost != 0 && line->event) std::abort();
    if (!event.read(line->text, payload)) continue;
    const std::vector<u8> exact(payload);
    fmt::memory_buffer out;
    formats.print(*formats.find(1), {exact.data(), exact.size()}, out);
    u16 id = 0;
    std::memcpy(&id, exact.data(), sizeof id);
    if (id != event.id()) std::abort();
  }
  return 0;
}
