// External writers whose readers come and go without end, under a process's limits.
#include <gmock/gmock.h>
#include <ringside/base/sanitizers.hpp>
#include <sys/resource.h>

#include "unit/writer_process.hpp"

namespace ringside::test::remote_process_test {
namespace {

using testing::HasSubstr;

#if !RINGSIDE_SANITIZED  // a sanitizer's run-time takes more addresses than that
// Addresses that wait for a reader are given up for another one's.
TEST(RemoteProcesses, ReadersOfEverDifferentSizesFitIntoALimitOfAddresses) {
  const std::string path = fresh_path();
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit limit{2ul << 30, 2ul << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    ProcessWriter<> writer({path, {}});
    for (;;) pause();
  }
  for (u64 reader = 0; reader < 12; ++reader) {
    const u64 size = (256 + reader) << 20;
    EXPECT_TRUE(attach(path, Layout::meta_page, 20s, size)) << reader;
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  unlink(path.c_str());
}
#endif

// What a thread may still look at stays, two mappings a ring; the program needs some of its own.
TEST(RemoteProcesses, AWriterRefusesReadersBeforeItsMappingsAreUsedUp) {
  const std::string path = fresh_path();
  ProcessWriter<> writer({path, {}});
  Process::Options options;
  options.buffer.rings = 1024;
  options.buffer.subbuf_size = 4096;
  options.buffer.size = 8192;
  int readers = 0;
  for (;;) {
    auto next = Process::attach(path, options);
    if (next) {
      ++readers;
      --options.buffer.rings;  // other rings than those of the reader before
      continue;
    }
    if (next.error().code.value() == EBUSY) continue;  // the one before is not gone yet
    EXPECT_EQ(next.error().code.value(), ENOMEM);
    EXPECT_THAT(next.error().sentence, HasSubstr("restart it")) << next.error().sentence;
    break;
  }
  EXPECT_EQ(readers, 16);
}

}  // namespace
}  // namespace ringside::test::remote_process_test
