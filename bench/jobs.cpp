// Several threads read one recording: what two of them make of it against what one does, as commands that a user runs.
#include <cstdlib>
#include <filesystem>
#include <random>
#include <ringside/abi/sub_buffer.hpp>

#include "bench.hpp"
#include "pages.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr u32 rings = 8, subbuf_size = 65536;
constexpr u16 first_id = 61441;

// Requests that begin and end on any ring, up to 1,000 open at a time; which of them ends next is chance. Runs of 1 to 63
// events.
std::vector<Pages> requests(u64 count) {
  std::vector<std::unique_ptr<LocalRing>> memory;
  std::vector<std::unique_ptr<Writer<Given>>> writers;
  for (u32 i = 0; i < rings; ++i) {
    memory.push_back(std::make_unique<LocalRing>(subbuf_size, static_cast<u32>(count * 2 * 32 / rings / 60000 + 4)));
    writers.push_back(std::make_unique<Writer<Given>>(memory.back()->ring, Given{}));
  }
  std::mt19937_64 random(1);
  std::vector<u64> open;
  u64 time = 0;
  for (u64 begun = 0, ended = 0, run = 0, ring = 0; ended < count; --run) {
    if (run == 0) {
      ring = random() % rings;
      run = 1 + random() % 63;
    }
    const bool begins = begun < count && open.size() < 1000 && (open.empty() || random() % 2 == 0);
    if (begins) open.push_back(begun * 0x9E3779B97F4A7C15);
    else std::swap(open[random() % open.size()], open.back());
    writers[ring]->clock().time = time += 40;
    writers[ring]->write(24, [&](u8* payload) {
      const u32 words[6] = {static_cast<u32>(first_id + !begins), 4711,
                            static_cast<u32>(open.back()),        static_cast<u32>(open.back() >> 32),
                            static_cast<u32>(random() % 10'000),  static_cast<u32>(random())};
      __builtin_memcpy(payload, words, sizeof words);
    });
    if (begins) ++begun;
    else open.pop_back(), ++ended;
  }
  std::vector<Pages> all;
  for (const auto& ring : memory) all.push_back(pages_of(*ring));
  return all;
}

// The same requests again and again.
void make_recording(const std::string& dir, u64 count, u32 times) {
  const auto all = requests(count);
  auto writer = must(RecordingWriter::create(dir, ClockInfo{}));
  for (const u16 id : {first_id, static_cast<u16>(first_id + 1)}) {
    const std::string name = id == first_id ? "begin" : "end";
    writer.meta().events.push_back(
        {id, "bench", name,
         "name: " + name + "\nID: " + std::to_string(id) +
             "\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
             "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\tfield:unsigned char "
             "common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
             "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:u64 request;\toffset:8;\tsize:8;\tsigned:0;\n"
             "\tfield:u32 key;\toffset:16;\tsize:4;\tsigned:0;\n\tfield:u32 number;\toffset:20;\tsize:4;\tsigned:0;\n\n"
             "print fmt: \"request=%llu key=%u number=%u\", REC->request, REC->key, REC->number\n",
         true});
  }
  add_rings(writer, rings, subbuf_size);
  writer.meta().threads.push_back({0, 4711, 4711, "worker", "app"});
  for (u32 n = 0; n < times; ++n) {
    for (u32 ring = 0; ring < rings; ++ring) {
      for (const auto& [words, end] : all[ring]) {
        std::vector<u64> page = words;
        page[0] += 1'000'000'000 + n * count * 2 * 40;
        must(writer.append(ring, {reinterpret_cast<const u8*>(page.data()), 0, end, 0, page[0]}));
      }
    }
  }
  must(writer.finish(1));
}

double wall_ms(const std::string& arguments, int jobs) {
  const std::string command = text(RINGSIDE_COMMAND " %s --jobs %d > /dev/null", arguments.c_str(), jobs);
  const u64 from = sys::now_ns();
  return std::system(command.c_str()) != 0 ? 0 : static_cast<double>(sys::now_ns() - from) / 1e6;
}

}  // namespace

void jobs_rows() {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return row("analyze.scale2", std::nullopt, "x", "one processor only");
  char dir[] = "/tmp/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  const std::string recording = std::string(dir) + "/recording";
  make_recording(recording, 1'000'000, quick ? 4 : 16);
  const struct {
    const char* name;
    std::string arguments;
  } analyses[] = {{"count", "top " + recording},
                  {"hist", "hist key " + recording},
                  {"filter3", "top -f 'key < 9000 && number & 0xff && common_pid == 4711' " + recording},
                  {"latency", "latency bench:begin bench:end --key request " + recording},
                  {"report", "report --time ..+0.3s " + recording}};
  std::string detail;
  std::optional<double> least = 1e9;
  for (const auto& [name, arguments] : analyses) {
    std::vector<double> ratios, one;
    for (int i = 0; i < (quick ? 3 : 9); ++i) {
      const double a = wall_ms(arguments, 1), b = wall_ms(arguments, 2);
      ratios.push_back(b == 0 ? 0 : a / b);
      one.push_back(a);
    }
    least = std::min(*least, median(ratios));
    detail += text("%s%s %.2f (%.0f ms)", detail.empty() ? "" : ", ", name, median(ratios), median(one));
  }
  std::filesystem::remove_all(dir);
  if (*least == 0) return row("analyze.scale2", std::nullopt, "x", "a command failed");
  row("analyze.scale2", least, "x", "the least of: " + detail + "; time of one thread / of two, in brackets that of one");
}

}  // namespace bench
