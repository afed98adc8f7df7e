// Compression of a recording of kernel events, group by group as `record --compress` does it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ringside/abi/sub_buffer.hpp>

#include "bench.hpp"
#include "pages.hpp"
#include "source/groups.hpp"
#include "source/recording.hpp"

namespace bench {

// Of what the kernel does while a compiler's files are read.
void compress_rows() {
  char dir[] = "/tmp/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  const std::string recording = std::string(dir) + "/recording";
  const bool made = std::system((RINGSIDE_COMMAND " record -q -e 'sched:*' -e 'syscalls:*' -e 'kmem:*' -e 'irq:*' -b 128M -o " +
                                 recording + " -- sh -c 'find /usr/include -type f | head -" + (quick ? "1000" : "6000") +
                                 " | xargs -n 40 cat' > /dev/null 2>&1")
                                    .c_str()) == 0;
  const auto meta = RecordingMeta::read(recording);
  u64 events = 0, bytes = 0, packed = 0;
  std::vector<std::string> files;
  for (const RecordedRing& ring : made&& meta ? meta->rings : std::vector<RecordedRing>{}) {
    std::ifstream in(ring_path(recording, ring.name), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    events += ring.events;
    bytes += ring.bytes;
  }
  std::filesystem::remove_all(dir);
  if (events < 10'000) {
    for (const char* name : {"compress.ratio", "compress.mb_per_s"})
      row(name, std::nullopt, "", "needs the kernel's events: root and tracefs");
    return;
  }
  std::vector<double> rates;
  std::vector<u8> group;
  for (int i = 0; i < (quick ? 3 : 7); ++i) {
    packed = 0;
    const u64 from = cpu_ns();
    for (const std::string& file : files) {
      for (u64 at = 0; at < file.size(); at += group_size) {
        if (!make_group(
                {reinterpret_cast<const u8*>(file.data()) + at, static_cast<u32>(std::min<u64>(group_size, file.size() - at))},
                packed, at, 1, group))
          return;
        packed += group.size();
      }
    }
    rates.push_back(static_cast<double>(bytes) * 1e3 / static_cast<double>(cpu_ns() - from));
  }
  row("compress.ratio", static_cast<double>(bytes) / static_cast<double>(packed), "x",
      text("%llu kernel events (sched, syscalls, kmem, irq), %.1f MiB of events in %.1f MiB of groups",
           static_cast<unsigned long long>(events), static_cast<double>(bytes) / (1 << 20),
           static_cast<double>(packed) / (1 << 20)));
  row("compress.mb_per_s", fastest(rates), "MB/s", "bytes of these events, of CPU time of the thread that compresses");
}

}  // namespace bench
