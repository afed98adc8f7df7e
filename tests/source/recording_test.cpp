#include "source/recording.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <sstream>
#include <thread>

#include "cli/hand_made.hpp"
#include "timeline/merge.hpp"

namespace ringside::recording_test {
namespace {

namespace fs = std::filesystem;
using test::Payload;
using test::SubBuffer;

struct Recording : testing::Test {
  std::string dir = (fs::temp_directory_path() / ("ringside-recording-" + std::to_string(getpid()))).string();
  void SetUp() override { fs::remove_all(dir); }
  void TearDown() override { fs::remove_all(dir); }

  RecordingWriter writer() {
    auto w = RecordingWriter::create(dir, ClockInfo{});
    EXPECT_TRUE(w) << w.error().sentence;
    EXPECT_TRUE(w->add_ring({2, 10, 11, "task", "process"}, 4096));
    return std::move(*w);
  }
  // "time!lost" for every record; the problems after a bar.
  std::string content() {
    auto meta = RecordingMeta::read(dir);
    if (!meta) return meta.error().sentence;
    auto sources = open_recording(dir, *meta);
    if (!sources) return sources.error().sentence;
    Timeline t(std::move(*sources));
    TraceRecord r;
    std::string out;
    while (t.next(r))
      out += (out.empty() ? "" : " ") + (r.lost != 0 ? "lost:" + std::to_string(r.lost) : std::to_string(r.time));
    for (const std::string& p : t.problems()) out += " | " + p;
    return out;
  }
  void overwrite(u64 at, u64 value) {
    std::fstream f(dir + "/ring2.raw", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(at));
    f.write(reinterpret_cast<const char*>(&value), 8);
  }
};

TEST_F(Recording, KeepsEventsAndLosses) {
  auto w = writer();
  SubBuffer a(100), b(500);
  a.event(100, {1, 1}).event(200, {1, 1});
  b.event(500, {1, 1});
  ASSERT_TRUE(w.append(2, a.view()));
  ASSERT_TRUE(w.append(2, b.view(7)));
  ASSERT_TRUE(w.finish(42));
  EXPECT_EQ(content(), "100 200 lost:7 500");
  auto meta = RecordingMeta::read(dir);
  EXPECT_TRUE(meta->complete);
  EXPECT_EQ(meta->duration_ns, 42u);
  ASSERT_EQ(meta->rings.size(), 1u);
  EXPECT_EQ(meta->rings[0].events, 3u);
  EXPECT_EQ(meta->rings[0].lost, 7u);
  EXPECT_EQ(meta->rings[0].name.task, "task");
  EXPECT_EQ(fs::file_size(dir + "/ring2.raw"), 8192u);
}

TEST_F(Recording, ASubBufferReadInPartsGrowsInPlace) {
  auto w = writer();
  SubBuffer a(100);
  a.event(100, {1, 1});
  ASSERT_TRUE(w.append(2, a.view()));
  const u32 middle = a.end();
  a.event(200, {1, 1}).event(300, {1, 1});
  SubBufferView rest = a.view();
  rest.begin = middle;
  rest.time = 100;
  ASSERT_TRUE(w.append(2, rest));
  EXPECT_EQ(content(), "100 200 300");  // before finish(): the recorder may die here
  ASSERT_TRUE(w.finish(0));
  EXPECT_EQ(content(), "100 200 300");
  EXPECT_EQ(fs::file_size(dir + "/ring2.raw"), 4096u);
  // The same bytes as those of a sub-buffer that was read at once.
  std::ifstream f(dir + "/ring2.raw", std::ios::binary);
  std::string bytes(4096, 0);
  f.read(bytes.data(), 4096);
  EXPECT_EQ(std::memcmp(bytes.data(), a.bytes(), 16 + a.end()), 0);
}

// Whatever pieces it is written in, and whenever it is looked at: what was read is the recording.
TEST_F(Recording, WhatGrowsIsReadAsItGrows) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 20; ++round) {
    SetUp();
    auto w = writer();
    w.will_be_followed();
    GrowingSource growing(dir, w.meta().rings[0], ClockInfo{});
    std::string seen;
    const auto look = [&] {
      for (;;) {
        auto view = growing.next();
        ASSERT_TRUE(view) << view.error().sentence;
        if (!*view) return;
        if ((*view)->lost_before != 0) seen += (seen.empty() ? "" : " ") + ("lost:" + std::to_string((*view)->lost_before));
        abi::EventCursor c((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
        while (c.next()) seen += (seen.empty() ? "" : " ") + std::to_string(c.time());
      }
    };
    u64 time = 100;
    for (int page = 0; page < 10; ++page) {
      SubBuffer s(time);
      u64 lost = random() % 3 == 0 ? 1 + random() % 9 : 0;
      SubBufferView view = s.view();
      for (u64 piece = 0; piece < 1 + random() % 4; ++piece) {
        const u64 before = time;
        const u32 begin = s.end();
        for (u64 n = 0; n < 1 + random() % 5; ++n) s.event(time += 1 + random() % 1000, {1, 1});
        view = s.view(std::exchange(lost, 0));
        if (begin != 0) view.begin = begin, view.time = before;
        ASSERT_TRUE(w.append(2, view));
        if (random() % 2 == 0) look();
      }
      time += 1000;
    }
    look();
    EXPECT_EQ(seen, content());
    ASSERT_TRUE(w.finish(0));
    look();
    EXPECT_EQ(seen, content());
  }
}

TEST_F(Recording, APartOfASubBufferGetsTheRunningTime) {
  auto w = writer();
  SubBuffer a(100);
  a.event(100, {1, 1});
  SubBufferView part = a.event(250, {1, 1}).view();
  part.begin = part.end / 2;
  part.time = 100;
  ASSERT_TRUE(w.append(2, part));
  SubBufferView more = a.event(300, {1, 1}).view();
  more.begin = part.end;
  more.time = 250;
  ASSERT_TRUE(w.append(2, more));
  EXPECT_EQ(content(), "250 300");
}

TEST_F(Recording, AFullSubBufferStillHasRoomForItsLoss) {
  auto w = writer();
  SubBuffer a(100);
  u64 time = 100;
  std::string expected = "lost:5";
  for (; a.end() + 12 + 4 <= 4080; time += 10) {
    a.event(time, {1, 1});
    expected += " " + std::to_string(time);
  }
  while (a.end() < 4080) a.word(0x1D);
  ASSERT_TRUE(w.append(2, a.view(5)));
  EXPECT_EQ(content(), expected);
}

TEST_F(Recording, ReplacesARecordingAndNothingElse) {
  {
    auto w = writer();
    SubBuffer a(1);
    ASSERT_TRUE(w.append(2, a.event(1, {1, 1}).view()));
  }
  { auto w = writer(); }
  EXPECT_EQ(content(), "");
  std::ofstream(dir + "/letter.txt") << "dear";
  auto refused = RecordingWriter::create(dir, ClockInfo{});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().sentence.find("letter.txt"), std::string::npos);
  EXPECT_TRUE(fs::exists(dir + "/ring2.raw"));
}

TEST_F(Recording, MetaSurvivesTheRoundTrip) {
  auto w = writer();
  w.meta().clock = {ClockKind::tsc, 123, 31, 7, 9};
  w.meta().command = {"g++", "-c", "a b.cpp"};
  w.meta().events.push_back({5, "net", "in", test::malloc_format(5), true});
  w.meta().threads.push_back({1, 2, 3, "na\xffme", "p"});
  ASSERT_TRUE(w.finish(1));
  auto meta = RecordingMeta::read(dir);
  ASSERT_TRUE(meta) << meta.error().sentence;
  EXPECT_EQ(meta->clock.kind, ClockKind::tsc);
  EXPECT_EQ(meta->clock.mult, 123u);
  EXPECT_EQ(meta->command.at(2), "a b.cpp");
  EXPECT_EQ(meta->events.at(0).format, test::malloc_format(5));
  EXPECT_EQ(meta->threads.at(0).tid, 3);
}

// "parse error: unexpected number literal; expected end of input": the recorder wrote its next text into the file that was read.
TEST_F(Recording, MetaIsReadWholeWhileTheRecorderReplacesIt) {
  std::string texts[2];
  for (std::string& text : texts) {
    {
      auto w = writer();
      w.meta().command = {"true", std::string(&text == texts ? 100 : 3000, 'x')};
      ASSERT_TRUE(w.finish(1));
    }
    std::ostringstream all;
    all << std::ifstream(dir + "/meta.json").rdbuf();
    text = all.str();
  }
  std::atomic<bool> stop{false};
  std::atomic<u32> exchanged{0};
  std::thread recorder([&] {
    for (u32 n = 0; !stop; ++n, ++exchanged) {
      const std::string& text = texts[n / 2 % 2];  // each file has now this one, now that one
      const sys::Fd fd(open((dir + "/meta.json.new").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return;
      usleep(RINGSIDE_SANITIZED ? 5000 : 50);  // the file has the end of its older text; a read takes less
      if (ftruncate(fd.get(), static_cast<off_t>(text.size())) != 0 ||
          renameat2(AT_FDCWD, (dir + "/meta.json.new").c_str(), AT_FDCWD, (dir + "/meta.json").c_str(), RENAME_EXCHANGE) != 0)
        return;
    }
  });
  for (int n = 0; n < 2000; ++n) {
    const auto meta = RecordingMeta::read(dir);
    if (!meta) ADD_FAILURE() << meta.error().sentence;
    else EXPECT_EQ(meta->command.size(), 2u);
  }
  stop = true;
  recorder.join();
  EXPECT_GT(exchanged, 100u);
}

TEST_F(Recording, ABadMetaIsRefusedWithAReason) {
  { auto w = writer(); }
  const auto sentence = [&](const std::string& text) {
    std::ofstream(dir + "/meta.json") << text;
    auto meta = RecordingMeta::read(dir);
    return meta ? std::string("read") : meta.error().sentence;
  };
  EXPECT_NE(sentence("{").find("cannot be understood"), std::string::npos);
  EXPECT_NE(sentence("[]").find("cannot be understood"), std::string::npos);
  EXPECT_NE(sentence(R"({"ringside_recording":3})").find("version 3"), std::string::npos);
  const std::string ring = R"({"ring":1,"pid":1,"tid":1,"task":"","process":"","subbuf_size":4096})";
  const std::string head = R"({"ringside_recording":1,"clock":{"kind":"mono","mult":1,"shift":0,"base_ticks":0,"base_ns":0},)";
  EXPECT_EQ(sentence(head + R"("events":[],"rings":[)" + ring + "]}"), "read");
  EXPECT_NE(sentence(head + R"("events":[],"rings":[)" + ring + "," + ring + "]}").find("twice"), std::string::npos);
  EXPECT_NE(sentence(head + R"("events":[{"id":70000}],"rings":[]})").find("cannot be understood"), std::string::npos);
}

TEST_F(Recording, HostileSizesEndTheRing) {
  auto w = writer();
  SubBuffer a(100), b(200);
  ASSERT_TRUE(w.append(2, a.event(100, {1, 1}).view()));
  ASSERT_TRUE(w.append(2, b.event(200, {1, 1}).view()));
  ASSERT_TRUE(w.finish(0));
  overwrite(4096 + 8, 0xFFFFC);
  EXPECT_NE(content().find("100 | "), std::string::npos);
  EXPECT_NE(content().find("claims 1048572 bytes"), std::string::npos);
}

TEST_F(Recording, ACutFileIsReadAsFarAsItGoes) {
  auto w = writer();
  SubBuffer a(100), b(200);
  ASSERT_TRUE(w.append(2, a.event(100, {1, 1}).view()));
  const u64 first = b.event(200, {1, 1}).end();
  ASSERT_TRUE(w.append(2, b.event(300, {1, 1}).view()));
  const auto cut = [&](u64 size) {
    fs::resize_file(dir + "/ring2.raw", 4096 + size);
    return content();
  };
  EXPECT_EQ(cut(16 + b.end()), "100 200 300");
  // A recorder that was killed while it wrote leaves part of a sub-buffer.
  EXPECT_EQ(cut(16 + b.end() - 4), "100 200");
  EXPECT_EQ(cut(16 + first), "100 200");
  EXPECT_EQ(cut(16 + first - 4), "100");
  EXPECT_EQ(cut(20), "100");
  EXPECT_EQ(cut(3), "100");
}

// The recorder is killed here: meta.json is unchanged, with the sizes of the first ring.
TEST_F(Recording, ARingOfOtherSizesIsListedBeforeItsFirstEvent) {
  auto w = writer();
  ASSERT_TRUE(w.add_ring({3, 10, 12, "task", "process"}, 4096));
  ASSERT_TRUE(w.add_ring({4, 10, 13, "task", "process"}, 8192));
  SubBuffer a(100), b(200, 8192), c(300, 8192);
  ASSERT_TRUE(w.append(3, a.event(100, {1, 1}).view()));
  for (int n = 0; n < 400; ++n) b.event(200, {1, 1});
  ASSERT_GT(b.end(), 4096u);
  ASSERT_TRUE(w.append(4, b.view()));
  ASSERT_TRUE(w.append(4, c.event(300, {1, 1}).view()));
  const std::string all = content();
  EXPECT_EQ(all.substr(0, 8), "100 200 ");
  EXPECT_EQ(all.substr(all.size() - 8), " 200 300");
}

TEST_F(Recording, ACutInACompleteRecordingIsReported) {
  auto w = writer();
  SubBuffer a(100), b(200);
  ASSERT_TRUE(w.append(2, a.event(100, {1, 1}).view()));
  ASSERT_TRUE(w.append(2, b.event(200, {1, 1}).view()));
  ASSERT_TRUE(w.finish(0));
  const auto cut = [&](u64 size) {
    fs::resize_file(dir + "/ring2.raw", 4096 + size);
    return content();
  };
  EXPECT_EQ(cut(16 + b.end()), "100 200");
  EXPECT_NE(cut(20).find("the file has 4"), std::string::npos);
}

// What content() is of sub-buffers of any bytes: the first that claims more data than there is room for ends the ring, and a
// malformed event ends its sub-buffer.
std::string content_of(const std::string& bytes, const std::string& file) {
  std::string out, problems;
  const auto add = [&](const std::string& what) { out += (out.empty() ? "" : " ") + what; };
  bool zeros = false;  // in front of this sub-buffer
  for (size_t at = 0; at < bytes.size(); at += 4096) {
    alignas(8) u8 data[4096];
    std::memcpy(data, bytes.data() + at, sizeof data);
    u64 time, commit;
    std::memcpy(&time, data, 8);
    std::memcpy(&commit, data + 8, 8);
    if (time == 0 && commit == 0) {
      zeros = true;
      continue;
    }
    const auto end = static_cast<u32>(commit & 0xFFFFF);
    if (end > 4080) {
      zeros = false;
      problems += " | " + file + ": the sub-buffer at " + std::to_string(at) + " claims " + std::to_string(end) +
                  " bytes of data, the file has 4080; the rest of this ring cannot be read";
      break;
    }
    if (std::exchange(zeros, false) || (commit >> 31 & 1) != 0) {
      u64 lost = 0;
      if ((commit >> 31 & 1) != 0 && (commit >> 30 & 1) != 0 && end + 8 <= 4080) std::memcpy(&lost, data + 16 + end, 8);
      add("lost:" + std::to_string(std::max<u64>(lost, 1)));
    }
    abi::EventCursor c(data + 16, 0, end, time);
    while (c.next()) add(std::to_string(c.time()));
    if (c.malformed() != abi::Malformed::no)
      problems += " | ring 2: a sub-buffer is malformed at offset " + std::to_string(c.position()) + ": " +
                  abi::to_string(c.malformed()) + "; the rest of it was skipped";
  }
  if (zeros) problems += " | " + file + " ends with zeros where events were recorded";
  return out + problems;
}

TEST_F(Recording, RandomBytesAreReadAsFarAsTheyMakeSense) {
  auto w = writer();
  ASSERT_TRUE(w.finish(0));
  std::mt19937 random(1);
  std::map<std::string, u64> met{{"lost:", 0}, {"malformed", 0}, {"claims", 0}};
  for (int round = 0; round < 300; ++round) {
    std::string bytes(4096 * (1 + random() % 3), 0);
    for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() : 0);
    std::ofstream(dir + "/ring2.raw", std::ios::binary) << bytes;
    const std::string expected = content_of(bytes, dir + "/ring2.raw");
    ASSERT_EQ(content(), expected) << round;
    for (auto& [what, times] : met) times += expected.find(what) != std::string::npos;
  }
  for (const auto& [what, times] : met) EXPECT_GT(times, 10u) << what;
}

}  // namespace
}  // namespace ringside::recording_test
