// Names of stacks whose programs cannot be opened when the recording is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "binary.hpp"
#include "kernel/perf_sampler.hpp"

namespace ringside::names_gone_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string program = RINGSIDE_BUILD_DIR "/tests/names_writer";
const std::string record = RINGSIDE_BUILD_DIR "/ringside record --libc malloc --stack ";

struct NamesGone : test::BinaryTest {
  std::string folded(const std::string& size) const {
    return ringside("flame --folded -e libc:malloc -f 'size == " + size + "'").out;
  }
};

TEST_F(NamesGone, AFileThatItsProgramRemoves) {
  const auto recorded = run("cp " + program + " b; " + record + "./b 4321 ./b");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_THAT(recorded.err, HasSubstr("kept the names of"));
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
}

TEST_F(NamesGone, AFileThatIsRemovedOrBuiltAnewLater) {
  ASSERT_EQ(run("cp " + program + " b; " + record + "-q ./b 4321").code, 0);
  ASSERT_EQ(run("rm b").code, 0);
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
  ASSERT_EQ(run("cp /bin/true b").code, 0);
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
}

TEST_F(NamesGone, AProgramInMemory) {
  const auto recorded = run(record + program + " memfd 4321");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
}

TEST_F(NamesGone, ALibraryThatItsProgramRemoves) {
  const auto recorded =
      run("cp " RINGSIDE_BUILD_DIR "/tests/names_library.so l.so; " + record + program + " library ./l.so 4321");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  // Only with a right a program finds the file that it has mapped.
  if (run("head -c 1 /proc/$$/map_files/$(head -n 1 /proc/$$/maps | cut -d ' ' -f 1)").code == 0) {
    EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("in_library")));
  } else {
    EXPECT_THAT(recorded.err, AllOf(HasSubstr("l.so cannot be opened"), HasSubstr("its functions have no names here")));
  }
}

// Two builds at one path, one after the other.
TEST_F(NamesGone, AFileThatIsBuiltAnewMeanwhile) {
  if (run("cp " + program +
          " a; objcopy --dump-section .note.gnu.build-id=id a && "
          "printf x | dd of=id bs=1 seek=20 conv=notrunc 2>/dev/null && objcopy --update-section .note.gnu.build-id=id a")
          .code != 0)
    GTEST_SKIP() << "wants objcopy";
  const auto recorded = run("cp " + program + " b; " + record + "sh -c './b 4321; cp a new; mv new b; ./b 4322; rm b'");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
  EXPECT_THAT(folded("4322"), AllOf(HasSubstr("main"), HasSubstr("inside")));
}

// The kernel's samples, of programs that know nothing of the recorder and are gone at its end.
TEST_F(NamesGone, ASampledProgramThatRemovesItself) {
  if (const auto sampler = PerfSampler::open({}); !sampler) GTEST_SKIP() << sampler.error().sentence;
  const std::string sample = RINGSIDE_BUILD_DIR "/ringside record -a --sample 999 -o sampled ";
  for (const std::string& how : {"cp " + program + " b; " + sample + "./b spin ./b", sample + program + " memfd spin ./none"}) {
    const auto recorded = run(how);
    ASSERT_EQ(recorded.code, 0) << recorded.err;
    EXPECT_THAT(ringside("flame --folded -e ringside:sample -f 'task == spinner' sampled").out, HasSubstr("spinning"))
        << how << recorded.err;
  }
}

TEST_F(NamesGone, AFileOfAnotherMountNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
  if (run("unshare -m true").code != 0) GTEST_SKIP() << "unshare does not work here";
  const auto recorded = run("cp " + program + " a; mkdir box; " + record +
                            "unshare -m sh -c 'mount -t tmpfs none box && cp a box/app && box/app 4321'");
  if (recorded.err.find("mount:") != std::string::npos) GTEST_SKIP() << recorded.err;
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_THAT(folded("4321"), AllOf(HasSubstr("main"), HasSubstr("inside")));
}

// It has no build id that would tell it from the one that ran.
TEST_F(NamesGone, AChangedFileWithoutABuildIdIsNotBelieved) {
  if (run("objcopy --remove-section .note.gnu.build-id " + program + " b").code != 0) GTEST_SKIP() << "wants objcopy";
  ASSERT_EQ(run(record + "-q ./b 4321").code, 0);
  EXPECT_THAT(folded("4321"), HasSubstr("inside"));
  // Of the names that were kept only the file's own facts are left: an address that had no room.
  std::string names = test::slurp(dir + "/ringside.data/names"), facts;
  for (size_t at = 0, end; at < names.size(); at = end + 1) {
    end = names.find('\n', at);
    if (names[at] == 'F') facts += names.substr(at, end - at + 1);
  }
  std::ofstream(dir + "/ringside.data/names") << facts;
  EXPECT_THAT(folded("4321"), HasSubstr("inside"));
  ASSERT_EQ(run("cp " + program + " new; objcopy --remove-section .note.gnu.build-id new; mv new b; touch -d yesterday b").code,
            0);
  EXPECT_THAT(folded("4321"), testing::Not(HasSubstr("inside")));
  EXPECT_THAT(ringside("flame --folded -e libc:malloc").err, HasSubstr("has changed since"));
}

TEST_F(NamesGone, TheRecorderSaysWhichFileNamesNothing) {
  const std::string place = "$((0x$(readelf -SW b | sed 's,\\[ *,[,' | awk '$2 == \".debug_info\" { print $5 }') + 40))";
  if (run("objcopy --compress-debug-sections=zlib " + program +
          " b && readelf -SW b | grep -q ' [.]debug_info ' && printf %0100d 0 | "
          "dd of=b bs=1 conv=notrunc seek=" +
          place)
          .code != 0)
    GTEST_SKIP() << "wants objcopy and readelf, and a program with debugging information";
  const auto recorded = run(record + "./b 4321");
  EXPECT_THAT(recorded.err, HasSubstr("/b: its debugging information is compressed, and is damaged"));
  EXPECT_THAT(folded("4321"), HasSubstr("inside"));
}

// Each part alone has the names of its stacks, whatever becomes of the file.
TEST_F(NamesGone, PartsOfARecording) {
  const auto recorded = run("cp " + program +
                            " b; " RINGSIDE_BUILD_DIR
                            "/ringside record --rotate 100ms --libc malloc --stack sh -c './b 4321; "
                            "until test -d ringside.data.0001; do sleep 0.05; done; ./b 4322; "
                            "until test -d ringside.data.0003; do sleep 0.05; done; ./b 4323; rm b'");
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_THAT(recorded.err, HasSubstr("of the stacks of the earlier parts"));
  std::set<std::string> named;
  for (const auto& at : std::filesystem::directory_iterator(dir)) {
    if (!at.is_directory() || at.path().filename().string().rfind("ringside.data", 0) != 0) continue;
    const std::string of = " " + at.path().string();
    for (const char* const size : {"4321", "4322", "4323"}) {
      const std::string stacks = ringside(std::string("flame --folded -e libc:malloc -f 'size == ") + size + "'" + of).out;
      if (stacks.empty()) continue;
      EXPECT_THAT(stacks, AllOf(HasSubstr("main"), HasSubstr("inside"))) << of;
      named.insert(size);
    }
  }
  EXPECT_EQ(named.size(), 3u);
}

// What trigger saves has the names, too.
TEST_F(NamesGone, ARecordingOfATrigger) {
  const auto saved = run("cp " + program +
                         " b; RINGSIDE_STACK=1 " RINGSIDE_BUILD_DIR
                         "/ringside trigger 'libc:malloc if size == 4321' --snapshot hit --libc malloc -- ./b 4321 ./b");
  ASSERT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(saved.err, HasSubstr("kept the names of"));
  EXPECT_NE(access((dir + "/b").c_str(), F_OK), 0) << "the program has removed it";
  EXPECT_THAT(ringside("flame --folded -e libc:malloc -f 'size == 4321' hit").out,
              AllOf(HasSubstr("main"), HasSubstr("inside")));
}

// A stranger's file.
TEST_F(NamesGone, DamagedNamesNameNothing) {
  ASSERT_EQ(run(record + "-q " + program + " 4321").code, 0);
  for (const char* text :
       {"P\t1\n", "A\tzz\nP\n", "F\nA\nP\t\t\t\t\t\t\n", "F\tx\t-1\t-1\t/\nA\tffffffffffffffffff\nP\t1\t2\t3\t4\t5\t6\n"}) {
    std::ofstream(dir + "/ringside.data/names") << text;
    EXPECT_THAT(folded("4321"), HasSubstr("inside")) << text;
  }
}

}  // namespace
}  // namespace ringside::names_gone_test
