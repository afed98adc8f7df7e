// Traces that come through a pipe, or were packed into one file.
#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "binary.hpp"
#include "random_recording.hpp"

namespace ringside::test::packed_test {
namespace {

namespace fs = std::filesystem;

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string gzip(const std::string& bytes) {
  z_stream s{};
  deflateInit2(&s, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&s, bytes.size()), 0);
  s.next_in = reinterpret_cast<u8*>(const_cast<char*>(bytes.data()));
  s.avail_in = static_cast<unsigned>(bytes.size());
  s.next_out = reinterpret_cast<u8*>(out.data());
  s.avail_out = static_cast<unsigned>(out.size());
  EXPECT_EQ(deflate(&s, Z_FINISH), Z_STREAM_END);
  out.resize(s.total_out);
  deflateEnd(&s);
  return out;
}

std::string xz(const std::string& bytes) {
  std::string out(lzma_stream_buffer_bound(bytes.size()), 0);
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const u8*>(bytes.data()), bytes.size(),
                                    reinterpret_cast<u8*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), 0);
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1);
  EXPECT_EQ(ZSTD_isError(size), 0u);
  out.resize(size);
  return out;
}

const struct {
  const char* ending;
  std::string (*pack)(const std::string&);
} packers[] = {{"gz", gzip}, {"xz", xz}, {"zst", zstd}};

struct Packed : BinaryTest {
  std::string lines, lines_of_dat;
  void SetUp() override {
    BinaryTest::SetUp();
    random_recording(dir + "/run.data", {}, 3, 4096, Of::program, 50);
    ASSERT_EQ(ringside("export -q run.data --to run.dat").code, 0);
    ASSERT_EQ(ringside("export -q run.data --to run.tar").code, 0);
    lines = ringside("report run.data").out;
    lines_of_dat = ringside("report run.dat").out;
    ASSERT_GT(lines.size(), 1000u);
    ASSERT_GT(lines_of_dat.size(), 1000u);
  }
  void TearDown() override {
    for (const auto& entry : fs::directory_iterator(dir))
      EXPECT_EQ(entry.path().filename().string().find("ringside-"), std::string::npos);
    BinaryTest::TearDown();
  }
  // What it makes goes with it.
  Outcome here(const std::string& arguments) const { return run(command + arguments); }
  const std::string command = "TMPDIR=. " RINGSIDE_BUILD_DIR "/ringside ";
};

TEST_F(Packed, AFileIsReadAsWhatIsInIt) {
  for (const auto& [ending, pack] : packers) {
    const std::string dat = std::string("run.dat.") + ending, tar = std::string("run.tar.") + ending;
    write_file(dir + "/" + dat, pack(slurp(dir + "/run.dat")));
    write_file(dir + "/" + tar, pack(slurp(dir + "/run.tar")));
    EXPECT_TRUE(here("report " + dat).out == lines_of_dat) << ending;
    EXPECT_TRUE(here("report --jobs 2 " + tar).out == lines) << ending;
    EXPECT_EQ(here("stat --json " + dat).code, 0);
    EXPECT_TRUE(here("hist event " + tar).out == here("hist event run.data").out) << ending;
    // Several, one behind the other, as these tools write them.
    const std::string all = slurp(dir + "/run.dat");
    write_file(dir + "/" + dat, pack(all.substr(0, 5000)) + pack(all.substr(5000)));
    EXPECT_TRUE(here("report " + dat).out == lines_of_dat) << ending;
  }
  EXPECT_TRUE(here("report run.tar").out == lines);
  EXPECT_EQ(nlohmann::json::parse(here("stat --json run.tar").out).at("recording"), "run.tar");  // not where it was unpacked
}

TEST_F(Packed, APipeIsReadAsWhatComesThroughIt) {
  write_file(dir + "/run.tar.gz", gzip(slurp(dir + "/run.tar")));
  for (const auto& [file, expected] : {std::pair{"run.dat", &lines_of_dat}, {"run.tar", &lines}, {"run.tar.gz", &lines}}) {
    const std::string name = file;
    for (const std::string& way :
         {"cat " + name + " | " + command + "report -", command + "report - <" + name,
          "cat " + name + " | " + command + "report /dev/stdin", "bash -c '" + command + "report <(cat " + name + ")'"}) {
      const Outcome o = run(way);
      EXPECT_TRUE(o.out == *expected) << way << o.err;
    }
  }
  // The tar's writer can write all of it.
  EXPECT_EQ(run("bash -c 'set -o pipefail; tar cf - run.data | " + command + "report -'").code, 0);
}

TEST_F(Packed, AnExportGoesThroughAPipe) {
  for (const auto& [format, expected] : {std::pair{"dat", &lines_of_dat}, {"tar", &lines}}) {
    const Outcome o = run(command + "export -q run.data -o - --format " + format + " | " + command + "report -");
    EXPECT_TRUE(o.out == *expected) << format << o.err;
  }
}

TEST_F(Packed, ARecordingIsMadeAsOneFile) {
  for (const char* const to : {"--to one.tar", "-o other.tar"}) {
    const Outcome o = here(std::string("record --libc io ") + to + " cat /etc/hostname");
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string file = std::string(to).substr(5 - (to[1] == 'o') * 2);
    EXPECT_NE(here("report " + file).out, "") << file;
    EXPECT_TRUE(fs::is_regular_file(dir + "/" + file));
    EXPECT_FALSE(fs::exists(dir + "/" + file + ".parts"));
  }
}

// Its names are those of GNU tar, too.
TEST_F(Packed, OtherTarsAreRead) {
  ASSERT_EQ(run("tar cf other.tar run.data && cd run.data && tar cf ../inside.tar . && cd .. && mkdir elsewhere && tar xf "
                "run.tar -C elsewhere")
                .code,
            0);
  for (const char* const file : {"other.tar", "inside.tar", "elsewhere/run"})
    EXPECT_TRUE(here(std::string("report ") + file).out == lines) << file;
}

TEST_F(Packed, ATarOfSeveralRecordingsIsRefused) {
  ASSERT_EQ(run("mkdir parts && cp -r run.data parts/a && cp -r run.data parts/b && tar -C parts -cf parts.tar a b").code, 0);
  const Outcome o = ringside("report parts.tar");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("parts.tar is a tar of 2 recordings"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("tar xf"), std::string::npos) << o.err;
}

// As tapes have it.
TEST_F(Packed, ZerosAfterWhatGzipPackedArePadding) {
  const std::string packed = gzip(slurp(dir + "/run.dat"));
  for (const size_t zeros : {1, 512, 200'000}) {
    write_file(dir + "/padded", packed + std::string(zeros, 0));
    EXPECT_TRUE(here("report padded").out == lines_of_dat) << zeros;
  }
  write_file(dir + "/more", packed + std::string(512, 0) + "garbage");
  EXPECT_EQ(here("report more").code, 1);
  write_file(dir + "/more", packed + std::string(512, 0) + packed);
  EXPECT_EQ(here("report more").code, 1);
}

// tar -r appends newer versions of files.
TEST_F(Packed, TheLastOfTwoFilesOfOneNameCounts) {
  ASSERT_EQ(run("mkdir old && cp -r run.data old && echo old >old/run.data/meta.json && tar cf twice.tar -C old run.data && "
                "tar rf twice.tar run.data")
                .code,
            0);
  const Outcome o = here("report twice.tar");
  EXPECT_TRUE(o.out == lines) << o.err;
}

TEST_F(Packed, ADamagedFileIsRefusedByAReason) {
  const std::string dat = slurp(dir + "/run.dat"), tar = slurp(dir + "/run.tar");
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    write_file(dir + "/bad", bytes);
    const Outcome o = here("report bad");
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err.find(words), std::string::npos) << o.err << words;
  };
  for (const auto& [ending, pack] : packers) {
    const std::string packed = pack(dat);
    refused(packed.substr(0, packed.size() / 2), "ends in the middle of what");
    std::string damaged = packed;
    damaged[2] = '\x55';
    for (size_t at = 40; at < 60; ++at) damaged[at] = static_cast<char>(~damaged[at]);
    write_file(dir + "/bad", damaged);
    EXPECT_EQ(here("report bad").code, 1) << ending;
    refused(packed + "garbage", "bad ");
    refused(pack("no trace"), "is neither a trace.dat nor a tar of a recording");
    refused(pack(""), "is empty");
    refused(pack(dat.substr(0, 20) + std::string(128 << 20, 0)), "more than 200 times as large");
  }
  refused(tar.substr(0, tar.size() / 2), "ends in the middle of a file of its tar");
  std::string evil = tar;
  std::memcpy(evil.data(), "../../run.data/evil", 20);
  refused(evil, "its tar has a file ../../run.data/evil");
  std::string link = tar;
  for (size_t at = 0; at + 512 <= link.size(); at += 512) {
    if (std::memcmp(link.data() + at + 257, "ustar", 5) == 0) link[at + 156] = '2';
  }
  refused(link, "");
}

}  // namespace
}  // namespace ringside::test::packed_test
