// trace.dat files are read as they were written, in any version and compression; damaged ones as far as possible.
#include "source/trace_dat_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "export/trace_dat.hpp"
#include "random_recording.hpp"
#include "source/time_shift.hpp"
#include "timeline/merge.hpp"
#include "trace_dat_files.hpp"

namespace ringside::trace_dat_test {
namespace {

namespace fs = std::filesystem;
using test::Of;

struct TraceDatFiles : testing::Test {
  std::string dir = (fs::temp_directory_path() / ("ringside-dat-" + std::to_string(getpid()))).string();
  void SetUp() override {
    fs::remove_all(dir);
    fs::create_directories(dir);
  }
  void TearDown() override { fs::remove_all(dir); }

  static std::string slurp(const std::string& path) {
    std::stringstream s;
    s << std::ifstream(path, std::ios::binary).rdbuf();
    return s.str();
  }
  static u64 lines(const std::string& text) { return static_cast<u64>(std::count(text.begin(), text.end(), '\n')); }
  // A line for each record: time, place, event, content behind its id; then the problems.
  static std::string content(Timeline timeline, const std::vector<EventInfo>& events) {
    TraceRecord r;
    std::string out;
    std::map<u32, std::string> names;
    for (const EventInfo& e : events) names[e.number()] = e.system + ":" + e.name;
    while (timeline.next(r)) {
      const RingName& ring = timeline.source(r.source).name();
      out += std::to_string(r.time) + " " + std::to_string(ring.ring) + " ";
      const u32 id = std::min<u32>(sizeof(u16), static_cast<u32>(r.payload.size));
      out += r.lost != 0
                 ? "lost " + std::to_string(r.lost)
                 : names[r.number()] + std::string(reinterpret_cast<const char*>(r.payload.data) + id, r.payload.size - id);
      out += "\n";
    }
    for (const std::string& p : timeline.problems()) out += "problem: " + p + "\n";
    return out;
  }
  std::string recorded(bool kernel, bool program) const {
    const auto meta = must(RecordingMeta::read(dir + "/data"));
    Timeline timeline;
    for (const bool side : {true, false}) {
      for (auto& source : must(open_recording(dir + "/data", meta))) {
        if (source->name().kernel == side && (side ? kernel : program)) timeline.add(std::move(source));
      }
    }
    return content(std::move(timeline), meta.events);
  }
  // The recording in `data` as a file's bytes.
  std::string dat(bool kernel, bool program) const {
    auto meta = must(RecordingMeta::read(dir + "/data"));
    TraceDat out;
    out.clock = meta.clock;
    for (const EventInfo& e : meta.events) {
      if (e.kernel ? kernel : program) out.events.push_back(e);
    }
    for (const RingName& t : meta.threads) out.tasks[t.tid] = t.task;
    out.kallsyms = "ffffffff81000000 T start\n";
    out.printk_formats = "0xffffffff82000000 : \"text\"\n";
    for (const bool side : {true, false}) {
      if (!(side ? kernel : program)) continue;
      TraceDatBuffer buffer;
      buffer.name = side ? "kernel" : "program";
      for (auto& source : must(open_recording(dir + "/data", meta))) {
        if (source->name().kernel == side) buffer.rings.push_back(std::move(source));
      }
      out.buffers.push_back(std::move(buffer));
    }
    must(write_trace_dat(dir + "/dat", out));
    return slurp(dir + "/dat");
  }
  static result<TraceDatFile> read(const std::string& bytes) {
    auto all = std::make_shared<TraceDatBytes>();
    all->path = "x.dat";
    all->data = reinterpret_cast<const u8*>(bytes.data());
    all->size = bytes.size();
    return read_trace_dat(all);
  }
};

TEST_F(TraceDatFiles, Version6IsRead) {
  for (const u32 size : {4096u, 16384u}) {
    test::random_recording(dir + "/data", ClockInfo{}, 5, size);
    const std::string bytes = dat(false, true);
    auto file = must(read(bytes));
    EXPECT_EQ(file.version, 6u);
    EXPECT_EQ(file.events.size(), 6u);
    EXPECT_EQ(file.events.front().system + ":" + file.events.front().name, "app:numbers");
    EXPECT_EQ(file.events.front().id, 1);
    EXPECT_EQ(file.threads.size(), 5u);
    EXPECT_EQ(file.threads.front().task, "task0");
    EXPECT_EQ(file.kallsyms, "ffffffff81000000 T start\n");
    EXPECT_EQ(file.printk_formats, "0xffffffff82000000 : \"text\"\n");
    EXPECT_TRUE(file.problems.empty());
    EXPECT_EQ(content(Timeline(std::move(file.rings)), file.events), recorded(false, true));
  }
}

// trace-cmd measures the kernel's list of names before it copies it: if the list shrinks meanwhile, there are fewer bytes than
// claimed.
TEST_F(TraceDatFiles, FewerNamesThanClaimedAreRead) {
  using namespace trace_dat;
  using test::number_at;
  test::random_recording(dir + "/data", ClockInfo{}, 5, 4096, Of::both);
  std::string bytes = dat(true, true);
  const auto whole = must(read(bytes));
  ASSERT_EQ(whole.version, 7u);
  const u64 options = number_at<u64>(bytes, magic_size + 2 + 6 + std::strlen("none") + 2);
  u64 names = 0;
  for (u64 o = options + section_header_size; names == 0; o += 6 + number_at<u32>(bytes, o + 2))
    if (number_at<u16>(bytes, o) == section_cmdlines) names = number_at<u64>(bytes, o + 6) + section_header_size;
  const u64 claimed = number_at<u64>(bytes, names) + 100;
  std::memcpy(bytes.data() + names, &claimed, sizeof claimed);
  const auto less = must(read(bytes));
  EXPECT_EQ(less.threads.size(), whole.threads.size());
  ASSERT_EQ(less.problems.size(), 1u);
  EXPECT_NE(less.problems[0].find("names of threads"), std::string::npos) << less.problems[0];
}

// KernelShark reads ids as signed 16 bits. The kernel's stay, those of a program follow them.
TEST_F(TraceDatFiles, EveryIdFitsIn15Bits) {
  test::random_recording(dir + "/data", ClockInfo{}, 6, 4096, Of::both);
  for (const bool kernel : {false, true}) {
    const auto file = must(read(dat(kernel, true)));
    std::vector<u16> ids;
    for (const EventInfo& e : file.events) {
      ids.push_back(e.id);
      EXPECT_NE(e.format.find("\nID: " + std::to_string(e.id) + "\n"), std::string::npos) << e.format;
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, kernel ? (std::vector<u16>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) : (std::vector<u16>{1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(TraceDatFiles, KernelIdsAbove15BitsAreReplaced) {
  auto meta = [&] {
    test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::both);
    return must(RecordingMeta::read(dir + "/data"));
  }();
  TraceDat out;
  for (const u16 id : {u16{40000}, u16{7}}) {
    EventInfo e = meta.events.back();
    e.kernel = true;
    e.id = id;
    out.events.push_back(e);
  }
  must(write_trace_dat(dir + "/dat", out));
  EXPECT_EQ(out.events[0].id, 8);
  EXPECT_EQ(out.events[1].id, 7);
}

TEST_F(TraceDatFiles, Version7IsReadInEachCompression) {
  ClockInfo tsc;
  tsc.kind = ClockKind::tsc;
  tsc.mult = 1 << 30;
  tsc.shift = 31;
  tsc.base_ticks = u64{1} << 31;
  tsc.base_ns = 77;
  for (const ClockInfo& clock : {ClockInfo{}, tsc}) {
    test::random_recording(dir + "/data", clock, 6, 4096, Of::both);
    const std::string plain = dat(true, true);
    for (const char* by : {"none", "zlib", "zstd"}) {
      const std::string bytes = by == std::string("none") ? plain : test::compressed(plain, by);
      auto file = must(read(bytes));
      EXPECT_EQ(file.version, 7u);
      EXPECT_EQ(file.compression, by);
      EXPECT_EQ(file.events.size(), 12u);
      EXPECT_EQ(file.threads.size(), 6u);
      EXPECT_EQ(file.kallsyms, "ffffffff81000000 T start\n");
      ASSERT_EQ(file.rings.size(), 6u);
      EXPECT_EQ(file.rings.front()->name().buffer, "kernel");
      EXPECT_EQ(file.rings.back()->name().buffer, "program");
      EXPECT_TRUE(file.problems.empty());
      EXPECT_EQ(content(Timeline(std::move(file.rings)), file.events), recorded(true, true)) << by;
    }
  }
}

// What trace-cmd's library makes of the same samples is in cli/export_test.cpp.
TEST_F(TraceDatFiles, AGuestsTimesAreItsHosts) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096);  // CPUs 0 and 2
  const std::string plain = dat(false, true);
  const auto ring_of = [&](const std::string& bytes, size_t ring) {
    auto file = must(read(bytes));
    EXPECT_TRUE(file.problems.empty());
    EXPECT_FALSE(file.unshifted);
    std::vector<std::unique_ptr<Source>> one;
    one.push_back(std::move(file.rings[ring]));
    Timeline timeline(std::move(one));
    std::vector<std::pair<u64, std::string>> all;
    for (TraceRecord r; timeline.next(r);)
      all.emplace_back(r.time, r.lost != 0 ? "lost " + std::to_string(r.lost)
                                           : std::string(reinterpret_cast<const char*>(r.payload.data), r.payload.size));
    EXPECT_TRUE(timeline.problems().empty());
    return all;
  };
  struct Case {
    std::vector<test::ShiftSample> samples;
    u32 flags;
    u64 (*of)(u64);
  };
  constexpr i64 s = 1'000'000'000;
  const Case cases[] = {
      {{{0, 1000 * s, 7}}, 0, [](u64 t) { return t + u64{1000} * s; }},
      {{{9 * s, 77}, {3 * s, -100}, {5 * s, 5000}, {5 * s, 5000}}, 0, [](u64 t) { return t < 5 * s ? t - 100 : t + 5000; }},
      {{{0, 5, 3, 1}, {9 * s, 6, 1, 0}}, 0, [](u64 t) { return t * 3 / 2 + 5; }},
      {{{0, 5, u64{3} << 62, 63}, {9 * s, 6, 1, 0}}, 0, [](u64 t) { return t * 3 / 2 + 5; }},
      {{{1 * s, 0}, {2 * s, 1 * s}}, 1, [](u64 t) { return t + (t - 1 * s); }},
  };
  for (const Case& one : cases) {
    const std::string guest = test::with_option(plain, trace_dat::option_time_shift,
                                                test::time_shift({one.samples, {}, {{0, 0}}}, one.flags));
    auto expected = ring_of(plain, 0);
    for (auto& [time, content] : expected) time = one.of(time);
    EXPECT_EQ(ring_of(guest, 0), expected);
    EXPECT_EQ(ring_of(guest, 2), ring_of(plain, 2));
  }
}

TEST_F(TraceDatFiles, AGuestsUnknownShiftIsSaid) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096);
  const std::string plain = dat(false, true);
  const std::string good = test::time_shift({{{1, 2, 3, 4}}, {}, {{5, 6, 7, 8}, {9, 10, 11, 12}}});
  const auto problems = [&](const std::string& option) {
    const std::string guest = test::with_option(plain, trace_dat::option_time_shift, option);
    auto file = must(read(guest));
    EXPECT_TRUE(file.unshifted);
    EXPECT_EQ(content(Timeline(std::move(file.rings)), file.events), recorded(false, true));
    return file.problems;
  };
  EXPECT_EQ(problems(test::time_shift({})).size(), 2u);
  EXPECT_EQ(problems(std::string(16, '\xff')),
            std::vector<std::string>{"x.dat: its times are of a guest, and are not shifted to its host's"});
  EXPECT_EQ(problems(test::time_shift({{}, {}, {{0, 0}}})),
            std::vector<std::string>{"x.dat: its times of CPU 0 are of a guest, and are not shifted to its host's"});
  // Counts are those of what is there.
  const auto bytes = [](const std::string& text) { return Bytes{reinterpret_cast<const u8*>(text.data()), text.size()}; };
  const size_t fractions = size_t{3} * 8;
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(trace_dat::TimeShift::read(bytes(good.substr(0, size))).has_value(), size == good.size() - fractions) << size;
  EXPECT_TRUE(trace_dat::TimeShift::read(bytes(good)));
  for (const size_t at : {size_t{12}, size_t{16}, good.size() - 8}) {
    std::string hostile = good;
    hostile.replace(at, 4, 4, '\xff');
    EXPECT_FALSE(trace_dat::TimeShift::read(bytes(hostile))) << at;
  }
}

// Cut anywhere, a file is refused with a sentence, or gives a prefix of each ring.
TEST_F(TraceDatFiles, ACutFileIsRefusedOrGivesAPrefix) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::both, 5);
  for (const std::string& whole : {dat(false, true), dat(true, true), test::compressed(dat(true, true), "zstd")}) {
    const u64 all = lines(recorded(true, true));
    for (size_t size = 0; size < whole.size(); size += 1 + size / 97) {
      const std::string bytes(whole.data(), size);  // on the heap, of exactly this length
      auto file = read(bytes);
      if (!file) {
        EXPECT_FALSE(file.error().sentence.empty());
        continue;
      }
      const bool said = !file->problems.empty();
      const std::string text = content(Timeline(std::move(file->rings)), file->events);
      EXPECT_TRUE(said || text.find("problem: ") != std::string::npos) << size << " of " << whole.size();
      EXPECT_LE(lines(text), all + 8);
    }
  }
}

// Any damage gives an error, a problem, or other events; never more than the bytes can hold.
TEST_F(TraceDatFiles, ADamagedFileIsReadWithinBounds) {
  std::mt19937_64 random(1);
  test::random_recording(dir + "/data", ClockInfo{}, 4, 4096, Of::both, 10);
  const std::string both = dat(true, true);
  const std::string guest = test::with_option(
      dat(false, true), trace_dat::option_time_shift,
      test::time_shift({{{0, 1}}, {}, {{0, 5, 3, 1}, {9, 6}}, {}, {{0, 5}, {4'000'000'000, 6}, {9'000'000'000, 600}}}, 1));
  const std::string wholes[] = {dat(false, true), both, test::compressed(both, "zlib"), test::compressed(both, "zstd"), guest};
  int refused = 0, read_on = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = wholes[round % 5];
    for (u64 changes = 1 + random() % 8; changes > 0; --changes) {
      // Most of the file is events; their descriptions are at both ends.
      const u64 near = random() % 3;
      u64 at = near == 0 ? random() % 4096 : near == 1 ? bytes.size() - 1 - random() % 600 : random() % bytes.size();
      at = std::min<u64>(at, bytes.size() - 8);
      const u64 extremes[] = {0, 1, ~u64{0}, u64{1} << 31, u64{1} << 63, bytes.size(), at, random()};
      std::memcpy(bytes.data() + at, &extremes[random() % 8], size_t{1} << random() % 4);
    }
    auto file = read(bytes);
    if (!file) {
      ++refused;
      continue;
    }
    ++read_on;
    const std::string text = content(Timeline(std::move(file->rings)), file->events);
    EXPECT_LT(text.size(), u64{64} << 20);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read_on, 100);
}

TEST_F(TraceDatFiles, ContradictingHeadersAreRefused) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096);
  const std::string good = dat(false, true);
  const auto sentence = [&](auto change) {
    std::string bytes = good;
    change(bytes);
    auto file = read(bytes);
    return file ? "it was read" : file.error().sentence;
  };
  EXPECT_NE(sentence([](std::string& b) { b[0] = 'x'; }).find("no trace.dat"), std::string::npos);
  EXPECT_NE(sentence([](std::string& b) { b[10] = '5'; }).find("version \"5\""), std::string::npos);
  EXPECT_NE(sentence([](std::string& b) { b[12] = 1; }), "it was read");  // all its numbers are turned
  EXPECT_NE(sentence([](std::string& b) { b[14] = 7; }).find("sub-buffers of"), std::string::npos);
  const auto replace = [](std::string& b, const std::string& from, const std::string& to) {
    b.replace(b.find(from), from.size(), to);
  };
  EXPECT_NE(sentence([&](std::string& b) {
              replace(b, "offset:8;\tsize:8;\tsigned:1;\n\tfield: int overwrite",
                      "offset:8;\tsize:2;\tsigned:1;\n\tfield: int overwrite");
            }).find("whose commit has 2 bytes"),
            std::string::npos);
  // Both rings in one place.
  const u64 table = good.find("flyrecord") + 10;
  EXPECT_NE(sentence([&](std::string& b) { b.replace(table + 32, 16, b.substr(table, 16)); }).find("overlap"),
            std::string::npos);
  std::string version_7 = test::compressed(
      [&] {
        test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::both);
        return dat(true, true);
      }(),
      "zstd");
  version_7.replace(version_7.find("zstd"), 4, "lzma");
  auto file = read(version_7);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().sentence.find("compressed with \"lzma\""), std::string::npos);
}

}  // namespace
}  // namespace ringside::trace_dat_test
