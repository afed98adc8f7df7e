// A recording that goes over a line: what arrives is what a local recorder would have written, whatever parts the bytes come in
// and wherever the line breaks; and what a stranger sends instead of one does no harm.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "cli/hand_made.hpp"
#include "source/recording_receiver.hpp"
#include "source/recording_sender.hpp"
#include "timeline/merge.hpp"

namespace ringside::recording_sent_test {
namespace {

namespace fs = std::filesystem;
using messages::Head;
using messages::Kind;
using test::SubBuffer;
using testing::HasSubstr;

std::string slurp(const std::string& path) {
  std::stringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

struct SentRecording : testing::Test {
  const std::string root = (fs::temp_directory_path() / ("ringside-sent-" + std::to_string(getpid()))).string();
  const std::string dir = root + "/there";
  void SetUp() override {
    fs::remove_all(root);
    fs::create_directories(root);
  }
  void TearDown() override { fs::remove_all(root); }

  RecordingReceiver receiver() const {
    return RecordingReceiver([this](const std::string&) -> result<std::string> { return dir; });
  }
  // Whole sub-buffers, one that grows, a gap, two rings; false: a write failed.
  static bool fill(RecordingWriter& w) {
    SubBuffer a(100), b(500), c(300), d(900);
    bool done = w.add_ring({2, 10, 11, "task", "process"}, 4096).has_value();
    a.event(100, {1, 1}).event(200, {1, 1});
    done = done && w.append(2, a.view()) && w.add_ring({3, 10, 12, "task", "process", true}, 4096);
    b.event(500, {1, 1});
    SubBufferView grows = b.view();
    done = done && w.append(2, grows);
    b.event(600, {1, 1});
    grows.begin = grows.end;
    grows.end = b.end();
    grows.time = 600;
    done = done && w.append(2, grows) && w.append(3 + RecordingWriter::kernel_rings, c.event(300, {1, 1}).view(7));
    done = done && w.keep("printk_formats", "0x1 : \"text\"\n");
    return done && w.append(2, d.event(900, {1, 1}).view()) && w.finish(42);
  }
  static constexpr const char* all_of_it = "100 200 lost:7 300 500 600 900";
  // The bytes of the line.
  std::string sent() const {
    const std::string path = root + "/line";
    {
      RecordingSender::Options how;
      how.to = "a file";
      how.answers = false;
      how.host = "board";
      auto sender =
          must(RecordingSender::begin(sys::Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)), how));
      auto w = must(RecordingWriter::create(sender, ClockInfo{}));
      EXPECT_TRUE(fill(w));
    }
    return slurp(path);
  }
  static std::string content(const std::string& of) {
    auto meta = RecordingMeta::read(of);
    if (!meta) return meta.error().sentence;
    auto sources = open_recording(of, *meta);
    if (!sources) return sources.error().sentence;
    Timeline t(std::move(*sources));
    TraceRecord r;
    std::string out;
    while (t.next(r))
      out += (out.empty() ? "" : " ") + (r.lost != 0 ? "lost:" + std::to_string(r.lost) : std::to_string(r.time));
    for (const std::string& p : t.problems()) out += " | " + p;
    return out;
  }
  static result<void> take(RecordingReceiver& receiver, const std::string& bytes) {
    return receiver.take(reinterpret_cast<const u8*>(bytes.data()), bytes.size());
  }
  static std::string message(Kind kind, u32 file, u64 offset, const std::string& payload) {
    const Head head{static_cast<u32>(kind), file, offset, static_cast<u32>(payload.size()), 0};
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + payload;
  }
  static std::string hello(const std::string& host = "board") {
    return message(Kind::hello, messages::version, 0, "ringside" + host);
  }
};

TEST_F(SentRecording, IsByteForByteWhatALocalRecorderWrites) {
  {
    auto w = must(RecordingWriter::create(root + "/here", ClockInfo{}));
    ASSERT_TRUE(fill(w));
  }
  auto r = receiver();
  ASSERT_TRUE(take(r, sent()));
  EXPECT_TRUE(r.ended());
  EXPECT_EQ(r.host(), "board");
  EXPECT_EQ(content(dir), all_of_it);
  for (const char* const file : {"ring2.raw", "cpu3.raw", "printk_formats"})
    EXPECT_EQ(slurp(dir + "/" + file), slurp(root + "/here/" + file)) << file;
  const RecordingMeta there = must(RecordingMeta::read(dir)), here = must(RecordingMeta::read(root + "/here"));
  EXPECT_TRUE(there.complete);
  EXPECT_EQ(there.rings.size(), here.rings.size());
  EXPECT_EQ(there.rings.at(0).events, here.rings.at(0).events);
  EXPECT_EQ(there.rings.at(0).file_size, here.rings.at(0).file_size);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), std::distance(fs::directory_iterator(root + "/here"), {}));
}

TEST_F(SentRecording, ArrivesInPartsOfAnySize) {
  const std::string all = sent();
  for (const size_t part : {1, 7, 24, 100, 4096}) {
    fs::remove_all(dir);
    auto r = receiver();
    for (size_t at = 0; at < all.size(); at += part) ASSERT_TRUE(take(r, all.substr(at, part))) << part;
    EXPECT_TRUE(r.ended());
    EXPECT_EQ(content(dir), all_of_it) << part;
  }
}

// As a recorder that was killed there: what had come is readable, and is said not to be all.
TEST_F(SentRecording, CutAnywhereItHasWhatHadCome) {
  const std::string all = sent();
  std::set<std::string> contents;
  for (size_t cut = 0; cut < all.size(); cut += cut % 3 + 1) {
    fs::remove_all(dir);
    auto r = receiver();
    ASSERT_TRUE(take(r, all.substr(0, cut))) << cut;
    EXPECT_FALSE(r.ended());
    if (!r.has_recording()) continue;
    std::string has = content(dir);
    EXPECT_EQ(has.find('|'), std::string::npos) << has;
    contents.insert(has);
    const RecordingMeta meta = must(RecordingMeta::read(dir));
    if (!meta.complete) continue;
    EXPECT_EQ(has, all_of_it);  // the end alone is missing
  }
  EXPECT_THAT(contents, testing::IsSupersetOf({"", "100 200", "100 200 500", "100 200 500 600", "100 200 lost:7 300 500 600"}));
}

TEST_F(SentRecording, AStrangersMessagesAreRefused) {
  const std::string begin = hello(), ring = message(Kind::ring, 0, 0, "ring2.raw");
  const auto refused = [&](const std::string& bytes) {
    fs::remove_all(dir);
    auto r = receiver();
    const auto taken = take(r, bytes);
    return taken ? std::string("taken") : taken.error().sentence;
  };
  EXPECT_EQ(refused(begin + ring), "taken");
  EXPECT_THAT(refused("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), HasSubstr("does not begin with a hello"));
  EXPECT_THAT(refused(message(Kind::hello, messages::version, 0, "sideringboard")), HasSubstr("does not begin with a hello"));
  EXPECT_THAT(refused(message(Kind::hello, 7, 0, "ringsideboard")), HasSubstr("speaks version 7"));
  EXPECT_THAT(refused(ring), HasSubstr("does not begin with a hello"));
  EXPECT_THAT(refused(begin + begin), HasSubstr("does not begin with a hello"));
  for (const char* const name : {"../ring2.raw", "/ring2.raw", "meta.json", "ring2.zst", "ring02.raw", "ring2.raw/x", "",
                                 "ring.raw", "ring2.raw\n", "ring4294967297.raw"})
    EXPECT_THAT(refused(begin + message(Kind::ring, 0, 0, name)), HasSubstr("a ring has the name")) << name;
  EXPECT_THAT(refused(begin + ring + message(Kind::ring, 1, 0, "ring2.raw")), HasSubstr("comes twice"));
  EXPECT_THAT(refused(begin + message(Kind::ring, 1, 0, "ring2.raw")), HasSubstr("wrong number"));
  for (const char* const name : {"../meta.json", "ring2.raw", "", "meta.json.new", "/etc/passwd"})
    EXPECT_THAT(refused(begin + message(Kind::text, 0, std::strlen(name), std::string(name) + "{}")),
                HasSubstr("a text has the name"))
        << name;
  EXPECT_THAT(refused(begin + message(Kind::text, 0, 10, "short")), HasSubstr("a text has no name"));
  EXPECT_THAT(refused(begin + message(Kind::bytes, 0, 0, "data")), HasSubstr("was not named"));
  EXPECT_THAT(refused(begin + ring + message(Kind::bytes, 0, u64{1} << 40, "data")), HasSubstr("has a gap"));
  EXPECT_THAT(refused(begin + ring + message(Kind::bytes, 0, ~u64{0} - 1, "data")), HasSubstr("has a gap"));
  EXPECT_THAT(refused(begin + ring + message(Kind::size, 0, u64{1} << 62, "")), HasSubstr("has a gap"));
  EXPECT_THAT(refused(begin + message(static_cast<Kind>(99), 0, 0, "")), HasSubstr("kind 99"));
  EXPECT_THAT(refused(begin + message(Kind::end, 0, 0, "")), HasSubstr("no meta.json"));
  EXPECT_THAT(refused(begin + ring + message(Kind::size, 0, 0, "x")), HasSubstr("too long"));
  EXPECT_THAT(refused(sent() + "x"), HasSubstr("follow its end"));
  // A length alone is refused: nothing waits for so much.
  Head head{static_cast<u32>(Kind::bytes), 0, 0, messages::most_bytes + 1, 0};
  EXPECT_THAT(refused(begin + ring + std::string(reinterpret_cast<char*>(&head), sizeof head)), HasSubstr("too long"));
}

TEST_F(SentRecording, NamesMayFollowTheEndOnceTheyAreAskedFor) {
  const std::string all = sent(), end = message(Kind::end, 1, 0, ""), names = message(Kind::text, 0, 5, "namesF\t\t0\t0\tx\n");
  const std::string offered = all.substr(0, all.size() - sizeof(Head)) + end;
  auto r = receiver();
  ASSERT_TRUE(take(r, offered));
  EXPECT_TRUE(r.ended() && r.offers_names() && !r.awaits_names());
  r.ask();
  ASSERT_TRUE(take(r, names.substr(0, 30)));
  EXPECT_TRUE(r.awaits_names());
  ASSERT_TRUE(take(r, names.substr(30)));
  EXPECT_FALSE(r.awaits_names());
  EXPECT_EQ(slurp(dir + "/names"), "F\t\t0\t0\tx\n");
  EXPECT_FALSE(take(r, names));
  for (const std::string& other : {message(Kind::text, 0, 9, "meta.json{}"), message(Kind::bytes, 0, 0, "x"), end}) {
    fs::remove_all(dir);
    auto asked = receiver();
    ASSERT_TRUE(take(asked, offered));
    asked.ask();
    EXPECT_FALSE(take(asked, other));
  }
  fs::remove_all(dir);
  auto unasked = receiver();
  EXPECT_FALSE(take(unasked, offered + names));
}

TEST_F(SentRecording, NamesOfHostsAreNamesOfFiles) {
  EXPECT_EQ(RecordingReceiver::safe_host("board-7.lan"), "board-7.lan");
  EXPECT_EQ(RecordingReceiver::safe_host("../../etc"), "_._.._etc");
  EXPECT_EQ(RecordingReceiver::safe_host("."), "_");
  EXPECT_EQ(RecordingReceiver::safe_host("a b\n\xff"), "a_b__");
  EXPECT_EQ(RecordingReceiver::safe_host(std::string(1000, 'x')).size(), size_t{messages::longest_host});
}

// It follows no link that somebody puts in the place of a ring, and replaces no directory of something else.
TEST_F(SentRecording, ADirectoryOfOthersStaysTheirs) {
  fs::create_directories(dir);
  std::ofstream(dir + "/letter.txt") << "dear";
  auto r = receiver();
  EXPECT_THAT(take(r, hello()).error().sentence, HasSubstr("letter.txt"));
  fs::remove(dir + "/letter.txt");
  std::ofstream(root + "/treasure") << "gold";
  auto again = receiver();
  ASSERT_TRUE(take(again, hello()));
  fs::create_symlink(root + "/treasure", dir + "/ring2.raw");
  EXPECT_FALSE(take(again, message(Kind::ring, 0, 0, "ring2.raw") + message(Kind::bytes, 0, 0, "lead")));
  EXPECT_EQ(slurp(root + "/treasure"), "gold");
}

TEST_F(SentRecording, AnyBytesAreTakenOrRefusedAndStayInTheDirectory) {
  const std::string all = sent();
  const std::set<std::string> names{"meta.json", "meta.json.new", "kallsyms", "printk_formats", "names"};
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    fs::remove_all(dir);
    std::string bytes = all;
    for (unsigned n = random() % 8 + 1; n != 0; --n) {
      // Heads are a small part of the bytes, and the first ones matter most.
      const size_t most = random() % 2 == 0 ? 200 : bytes.size();
      bytes[random() % most] = static_cast<char>(random() % 4 == 0 ? random() : random() % 8);
    }
    auto r = receiver();
    for (size_t at = 0; at < bytes.size(); at += 512)
      if (!take(r, bytes.substr(at, 512))) break;
    r.close();
    if (r.greeted()) {
      for (const auto& entry : fs::directory_iterator(dir)) {
        const std::string name = entry.path().filename();
        EXPECT_TRUE(names.count(name) != 0 || ring_of_file(name)) << name;
      }
    }
    if (r.has_recording()) (void)content(dir);
    EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), fs::exists(dir) ? 2 : 1);
  }
}

struct Line {
  sys::Fd ours, theirs;
  Line() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ours = sys::Fd(pair[0]);
    theirs = sys::Fd(pair[1]);
  }
};

RecordingSender::Options to_collector() {
  RecordingSender::Options how;
  how.to = "tcp:there:5";
  how.host = "board";
  how.patience_ns = how.hurried_ns = 0;
  return how;
}

// What the receiver asks for after the end.
TEST(RecordingSender, GivesNamesWhenItIsAsked) {
  Line line;
  const std::string asks = "ok\nok\nnames 7\nF\tx\ny\nz";
  ASSERT_EQ(write(line.theirs.get(), asks.data(), asks.size()), static_cast<ssize_t>(asks.size()));
  const auto sender = must(RecordingSender::begin(std::move(line.ours), to_collector()));
  ASSERT_TRUE(sender->end(true));
  EXPECT_EQ(sender->asked(), "F\tx\ny\nz");
  for (const std::string answer : {"names 99999999999\n", "names -1\n", "names\n", "names 4 \nabcd", "no\n", "names 5\nabc"}) {
    Line other;
    const std::string all = "ok\nok\n" + answer;
    ASSERT_EQ(write(other.theirs.get(), all.data(), all.size()), static_cast<ssize_t>(all.size()));
    const auto again = must(RecordingSender::begin(std::move(other.ours), to_collector()));
    EXPECT_FALSE(again->end(true)) << answer;
    EXPECT_EQ(again->asked(), "");
  }
}

TEST(RecordingSender, GivesUpAReceiverThatDoesNotAnswer) {
  Line line;
  const auto sender = RecordingSender::begin(std::move(line.ours), to_collector());
  ASSERT_FALSE(sender);
  EXPECT_THAT(sender.error().sentence, HasSubstr("tcp:there:5 does not answer"));
}

TEST(RecordingSender, GivesUpAReceiverThatTakesNothing) {
  Line line;
  ASSERT_EQ(write(line.theirs.get(), "ok\n", 3), 3);
  const auto sender = must(RecordingSender::begin(std::move(line.ours), to_collector()));
  const u32 ring = must(sender->add_ring("ring0.raw"));
  std::vector<u8> bytes(1 << 16);
  const iovec part{bytes.data(), bytes.size()};
  result<void> sent;
  for (u64 n = 0; sent && n < 10'000; ++n) sent = sender->write(ring, n * bytes.size(), &part, 1);
  ASSERT_FALSE(sent);
  EXPECT_THAT(sent.error().sentence, HasSubstr("takes nothing"));
  EXPECT_EQ(sender->end().error().sentence, sent.error().sentence);  // it is over
}

// In the middle of a wait it is asked to hurry.
TEST(RecordingSender, WaitsLessOnceItIsToHurry) {
  Line line;
  auto how = to_collector();
  how.patience_ns = ~u64{0};
  int asked = 0;
  how.hurried = [&asked] { return ++asked == 3; };
  const auto sender = RecordingSender::begin(std::move(line.ours), how);
  ASSERT_FALSE(sender);
  EXPECT_EQ(asked, 3);
}

TEST(RecordingSender, SaysWhyTheReceiverRefuses) {
  Line line;
  const char refusal[] = "this collector takes one \033[31mrecorder\n";
  ASSERT_GT(write(line.theirs.get(), refusal, sizeof refusal - 1), 0);
  const auto refused = RecordingSender::begin(std::move(line.ours), to_collector());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().sentence, HasSubstr("refuses: this collector takes one "));
  EXPECT_EQ(refused.error().sentence.find('\033'), std::string::npos);
  Line closed;
  closed.theirs = {};
  const auto none = RecordingSender::begin(std::move(closed.ours), to_collector());
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().sentence, HasSubstr("cannot send to tcp:there:5"));
  Line flood;
  const std::string noise(10'000, 'x');
  ASSERT_GT(write(flood.theirs.get(), noise.data(), noise.size()), 0);
  EXPECT_THAT(RecordingSender::begin(std::move(flood.ours), to_collector()).error().sentence, HasSubstr("refuses: xxx"));
}

// A collector whose disk is full, for example.
TEST(RecordingSender, SaysWhyTheReceiverClosesTheLine) {
  Line line;
  ASSERT_EQ(write(line.theirs.get(), "ok\n", 3), 3);
  const auto sender = must(RecordingSender::begin(std::move(line.ours), to_collector()));
  const u32 ring = must(sender->add_ring("ring0.raw"));
  const std::string last = "cannot write to there/ring0.raw: No space left on device\n";
  ASSERT_EQ(write(line.theirs.get(), last.data(), last.size()), static_cast<ssize_t>(last.size()));
  line.theirs = {};
  u8 byte = 1;
  const iovec part{&byte, 1};
  const auto sent = sender->write(ring, 0, &part, 1);
  ASSERT_FALSE(sent);
  EXPECT_THAT(sent.error().sentence, HasSubstr("tcp:there:5: cannot write to there/ring0.raw: No space left on device"));
}

// A recording whose line breaks has counted what was sent, and takes nothing more.
TEST(RecordingSender, ABrokenLineIsAFullDisk) {
  Line line;
  ASSERT_EQ(write(line.theirs.get(), "ok\n", 3), 3);
  auto sender = must(RecordingSender::begin(std::move(line.ours), to_collector()));
  auto w = must(RecordingWriter::create(sender, ClockInfo{}));
  ASSERT_TRUE(w.add_ring({2, 10, 11, "task", "process"}, 4096));
  SubBuffer a(100), b(200);
  ASSERT_TRUE(w.append(2, a.event(100, {1, 1}).view()));
  line.theirs = {};
  const auto lost = w.append(2, b.event(200, {1, 1}).view());
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().code, std::errc::bad_message);
  EXPECT_THAT(lost.error().sentence, HasSubstr("the collector has ended, or the connection is cut"));
  EXPECT_EQ(w.ring(2).events, 1u);
  EXPECT_FALSE(w.finish(1));
}

}  // namespace
}  // namespace ringside::recording_sent_test
