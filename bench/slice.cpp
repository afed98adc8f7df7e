// A slice of large recordings, as a command that a user runs, with nothing of the recording in memory. The recordings are
// sparse: each sub-buffer of 256 KiB has one event, the rest of it is a hole.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <ringside/abi/event_header.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "bench.hpp"
#include "pages.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr u32 subbuf_size = abi::largest_subbuf, rings = 8;
constexpr u64 step_ns = 800'000;  // between the sub-buffers of a ring: 13,000 events of 60 ns

u64 sparse_recording(const std::string& dir, u64 size) {
  auto writer = must(RecordingWriter::create(dir, ClockInfo{}));
  writer.meta().events.push_back({61441, "bench", "one",
                                  "name: one\nID: 61441\nformat:\n"
                                  "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
                                  "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
                                  "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
                                  "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n",
                                  true});
  add_rings(writer, rings, subbuf_size);
  const u64 count = size / subbuf_size;
  for (u64 n = 0; n < count; ++n) {
    struct {
      abi::SubBufferHeader header;
      u32 word, payload[2];
    } const one{{1'000'000'000 + n / rings * step_ns + n % rings, 12}, abi::event_word(2, 0), {61441, 1}};
    must(writer.append(static_cast<u32>(n % rings), {reinterpret_cast<const u8*>(&one), 0, 12, 0, one.header.time_stamp}));
  }
  must(writer.finish(1));
  return 1'000'000'000 + count / rings * step_ns;
}

void forget(const std::string& dir) {
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    const sys::Fd fd(open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    fsync(fd.get());
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// Milliseconds for 1 ms of it, at random places.
double slice_ms(const std::string& dir, u64 end) {
  std::mt19937_64 random(1);
  std::vector<double> took;
  for (int i = 0; i < (quick ? 5 : 21); ++i) {
    forget(dir);
    const u64 at = 1'000'000'000 + random() % (end - 1'001'000'000);
    const std::string command = text(RINGSIDE_COMMAND " report %s --time %.9fs..%.9fs > %s.out", dir.c_str(),
                                     static_cast<double>(at) / 1e9, static_cast<double>(at + 1'000'000) / 1e9, dir.c_str());
    const u64 from = sys::now_ns();
    if (std::system(command.c_str()) != 0 || std::filesystem::file_size(dir + ".out") == 0) return 0;
    took.push_back(static_cast<double>(sys::now_ns() - from) / 1e6);
  }
  return median(took);
}

}  // namespace

void slice_rows() {
  char dir[] = "/tmp/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  const std::string recording = std::string(dir) + "/recording";
  const std::array<u64, 3> sizes{1, 10, quick ? u64{10} : 40};
  std::array<double, 3> ms{};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ms[i] = slice_ms(recording, sparse_recording(recording, sizes[i] << 30));
    if (ms[i] == 0) break;
  }
  std::filesystem::remove_all(dir);
  if (ms.back() == 0) return row("slice.us_per_gb", std::nullopt, "us", "report failed");
  row("slice.us_per_gb", ms.back() * 1000 / static_cast<double>(sizes.back()), "us",
      text("report of 1 ms out of 8 rings of %llu GB: %.1f ms, the start of the command included, nothing of it in memory; of "
           "10 GB: %.1f ms, of 1 GB: %.1f ms",
           static_cast<unsigned long long>(sizes.back()), ms[2], ms[1], ms[0]));
}

}  // namespace bench
