// ringside mount: unmodified programs, and system calls, on a real mount; sessions compared with the kernel's own tracefs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <signal.h>
#include <sys/mman.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "cli/mount_fixture.hpp"
#include "instance/instance.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "tick_writer.hpp"

namespace ringside::mount_test {
namespace {

using namespace test;

TEST_F(Mount, InstancesAreDirectories) {
  start();
  EXPECT_EQ(mkdir(web.c_str(), 0700), 0);
  EXPECT_EQ(mkdir(web.c_str(), 0700), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(mkdir((at + "/instances/.x").c_str(), 0700), -1);
  EXPECT_EQ(mkdir((at + "/x").c_str(), 0700), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(Instance::list(), std::vector<std::string>{"web"});
  InstanceOptions o;
  o.name = "other";
  must(Instance::create(o));
  EXPECT_TRUE(fs::exists(at + "/instances/other/trace"));
  EXPECT_EQ(rmdir(web.c_str()), 0) << strerrorname_np(errno);
  EXPECT_FALSE(fs::exists(web));
  EXPECT_EQ(rmdir(web.c_str()), -1);
  EXPECT_EQ(errno, ENOENT);
  must(Instance::remove("other", true));
  EXPECT_FALSE(fs::exists(at + "/instances/other/trace"));
  // Each processor has a directory, for tools that count them.
  for (long n = 0; n < sysconf(_SC_NPROCESSORS_CONF); ++n)
    EXPECT_TRUE(fs::exists(at + "/per_cpu/cpu" + std::to_string(n) + "/trace_pipe_raw"));
  EXPECT_FALSE(fs::exists(at + "/per_cpu/cpu00"));
  EXPECT_FALSE(fs::exists(at + "/per_cpu/cpu99999999999"));
}

// The same session on an instance of the kernel's, answer by answer.
TEST_F(Mount, AnswersAsTheKernelDoes) {
  auto kernel = tracefs_dir();
  if (!kernel) GTEST_SKIP() << kernel.error().sentence;
  TracefsOptions make;
  make.prefix = "ringside-mount-";
  make.clock = ClockKind::mono;
  make.buffer_size = 1410 << 10;
  auto theirs = TracefsInstance::create(make);
  if (!theirs) GTEST_SKIP() << theirs.error().sentence;
  ASSERT_TRUE(theirs->write("buffer_size_kb", "1410"));
  ASSERT_TRUE(theirs->write("buffer_percent", "50"));
  ASSERT_TRUE(theirs->write("options/record-tgid", "0"));  // as a user of the top level may have left it
  ASSERT_TRUE(theirs->tracing(true));
  start();
  make_web();
  ASSERT_EQ(write_to(web + "/events/enable", "0"), "1");
  struct Step {
    const char *file, *text;
    bool same_text;
  };
  const std::string all_cpus = text_of(theirs->dir() + "/tracing_cpumask");
  const Step steps[] = {{"tracing_on", "0", true},
                        {"tracing_on", "1", true},
                        {"tracing_on", "2", true},
                        {"tracing_on", "x", true},
                        {"tracing_on", "-1", true},
                        {"tracing_on", " 1", true},
                        {"tracing_on", "1\n", true},
                        {"tracing_on", "00", true},
                        {"tracing_on", "1", true},
                        {"buffer_percent", "0", true},
                        {"buffer_percent", "100", true},
                        {"buffer_percent", "101", true},
                        {"buffer_percent", "-1", true},
                        {"buffer_percent", "x", true},
                        {"buffer_percent", "50", true},
                        {"buffer_size_kb", "0", true},
                        {"buffer_size_kb", "x", true},
                        {"buffer_size_kb", "1", true},
                        {"buffer_size_kb", "16", true},
                        {"buffer_size_kb", "-1", true},
                        {"buffer_size_kb", "8", true},
                        {"buffer_subbuf_size_kb", "0", true},
                        {"buffer_subbuf_size_kb", "3", true},
                        {"buffer_subbuf_size_kb", "5", true},
                        {"buffer_subbuf_size_kb", "17", true},
                        {"buffer_subbuf_size_kb", "1024", true},
                        {"buffer_subbuf_size_kb", "4", true},
                        {"options/overwrite", "0", true},
                        {"options/overwrite", "2", true},
                        {"options/overwrite", "x", true},
                        {"options/overwrite", "1", true},
                        {"trace_options", "bogus", false},
                        {"trace_options", "nooverwrite", false},
                        {"trace_options", "overwrite", false},
                        {"options/markers", "1", true},
                        {"current_tracer", "nop", true},
                        {"current_tracer", "bogus", true},
                        {"tracing_cpumask", "1", true},
                        {"tracing_cpumask", "0", true},
                        {"tracing_cpumask", "x", true},
                        {"tracing_cpumask", "fffffffff", true},
                        {"tracing_cpumask", all_cpus.c_str(), true},
                        {"options/raw", "1", true},
                        {"options/raw", "2", true},
                        {"options/raw", "0", true},
                        {"trace_options", "nohash-ptr", false},
                        {"options/hash-ptr", "x", true},
                        {"options/event-fork", "1", true},
                        {"trace_clock", "bogus", false},
                        {"trace_clock", "mono", false},
                        {"set_event", "bogus:x", true},
                        {"set_event", "*:*nonexist*", true},
                        {"set_event", "", true},
                        {"events/enable", "x", true},
                        {"events/enable", "2", true},
                        {"events/enable", "0", true},
                        {"timestamp_mode", "x", true},
                        {"trace_marker_raw", "ab", true},
                        {"buffer_size_kb", "16", true},
                        {"trace_marker_raw", "abcd", true},
                        {"trace_marker", "hello", true},
                        {"trace", "x", false},
                        {"per_cpu/cpu0/buffer_size_kb", "0", true},
                        {"per_cpu/cpu0/stats", "x", false},
                        {"set_event_pid", "", true},
                        {"events/header_page", "x", false},
                        {"trace_pipe", "x", false},
                        {"nothing", "x", true}};
  for (const Step& s : steps) {
    const std::string file = std::string("/") + s.file;
    EXPECT_EQ(write_to(web + file, s.text), write_to(theirs->dir() + file, s.text)) << s.file << " <- '" << s.text << "'";
    if (s.same_text) {
      EXPECT_EQ(text_of(web + file), text_of(theirs->dir() + file)) << s.file << " after '" << s.text << "'";
    }
  }
  for (const char* file : {"/events/header_page", "/events/header_event", "/buffer_percent", "/set_event_pid"})
    EXPECT_EQ(text_of(web + file), text_of(theirs->dir() + file)) << file;
  for (const int flags : {O_RDONLY, O_WRONLY}) {
    for (const char* file : {"/trace_marker", "/per_cpu/cpu0/stats", "/per_cpu/cpu0", "/events/enable", "/none"}) {
      const sys::Fd a(::open((web + file).c_str(), flags)), b(::open((theirs->dir() + file).c_str(), flags));
      EXPECT_EQ(static_cast<bool>(a), static_cast<bool>(b)) << file << " " << flags;
    }
  }
  const auto change = [](const std::string& in) {
    const std::string trace = in + "/trace", fresh = in + "/fresh";
    std::string said;
    for (const std::function<int()>& how : std::initializer_list<std::function<int()>>{
             [&] { return unlink(trace.c_str()); }, [&] { return rename(trace.c_str(), fresh.c_str()); },
             [&] { return symlink("trace", fresh.c_str()); }, [&] { return link(trace.c_str(), fresh.c_str()); },
             [&] { return mkdir(fresh.c_str(), 0700); }, [&] { return rmdir((in + "/events").c_str()); },
             [&] { return ::open(fresh.c_str(), O_CREAT | O_WRONLY, 0600); },
             [&] { return mknod(fresh.c_str(), S_IFREG | 0600, 0); }, [&] { return truncate(trace.c_str(), 0); }})
      said += ended(how()) + " ";
    return said;
  };
  EXPECT_EQ(change(web), change(theirs->dir()));
  EXPECT_EQ(write_to(web + "/buffer_size_kb", "1000000000"), "ENOMEM");
  // The header of `trace`, and a marker's line, except for names, times and flags.
  ASSERT_EQ(write_to(web + "/trace", "", O_WRONLY | O_TRUNC), "0");
  ASSERT_EQ(write_to(theirs->dir() + "/trace", "", O_WRONLY | O_TRUNC), "0");
  ASSERT_EQ(write_to(web + "/trace_marker", "hello"), "5");
  ASSERT_EQ(write_to(theirs->dir() + "/trace_marker", "hello"), "5");
  const auto skeleton = [](const std::string& text) {
    std::string out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      out += (line[0] == '#' ? line : line.substr(line.rfind(": tracing"))) + "\n";
    return out;
  };
  EXPECT_EQ(skeleton(text_of(web + "/trace")), skeleton(text_of(theirs->dir() + "/trace")));
  for (const std::string& in : {web, theirs->dir()}) ASSERT_EQ(write_to(in + "/options/record-tgid", "1"), "1");
  EXPECT_EQ(skeleton(text_of(web + "/trace")), skeleton(text_of(theirs->dir() + "/trace"))) << "with a column of process IDs";
}

TEST_F(Mount, EventsAreSwitchedAndFiltered) {
  start();
  const OnCpu pinned(0);
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  ASSERT_EQ(end_of(start_tick_writer("web", 3)), 0);
  EXPECT_EQ(text_of(web + "/available_events"), "app:tick\n");
  EXPECT_EQ(text_of(web + "/set_event"), "");
  EXPECT_EQ(text_of(web + "/events/app/tick/enable"), "0\n");
  EXPECT_EQ(text_of(web + "/events/app/enable"), "0\n");
  EXPECT_EQ(text_of(web + "/events/app/tick/id"), "61441\n");
  EXPECT_NE(text_of(web + "/events/app/tick/format").find("field:u64 number"), std::string::npos);
  for (const char* word : {"app:tick", "app:", "app", "tick", "*:tick", "a?p:t*", "*:*"}) {
    EXPECT_EQ(write_to(web + "/set_event", word, O_WRONLY | O_TRUNC), std::to_string(std::strlen(word)));
    EXPECT_EQ(text_of(web + "/set_event"), "app:tick\n") << word;
    EXPECT_EQ(text_of(web + "/events/app/enable"), "1\n");
    EXPECT_EQ(write_to(web + "/set_event", "!app:tick"), "9");
    EXPECT_EQ(text_of(web + "/events/app/tick/enable"), "0\n") << word;
  }
  EXPECT_EQ(write_to(web + "/events/app/tick/enable", "1"), "1");
  ASSERT_EQ(end_of(start_tick_writer("web", 10)), 0);
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: number="), 10u);

  const std::string filter = web + "/events/app/tick/filter";
  EXPECT_EQ(text_of(filter), "none\n");
  EXPECT_EQ(write_to(filter, "bogus == 1"), "EINVAL");
  EXPECT_NE(text_of(filter).find("\nparse_error: no event here has a field \"bogus\""), std::string::npos) << text_of(filter);
  EXPECT_EQ(write_to(filter, "number =="), "EINVAL");
  EXPECT_EQ(write_to(filter, "number >= 7"), "11");
  EXPECT_EQ(text_of(filter), "number >= 7\n");
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: number="), 3u);
  // The filter also applies to what read() copies: the other events are padding there.
  const sys::Fd raw(::open((web + "/per_cpu/cpu0/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK));
  alignas(8) u8 image[4096];
  ASSERT_EQ(read(raw.get(), image, sizeof image), 4096);
  abi::EventCursor c(image + 16, 0, abi::commit_size(reinterpret_cast<abi::SubBufferHeader*>(image)->commit), 0);
  u64 n = 0;
  while (c.next()) n += *reinterpret_cast<const u64*>(c.payload().data + 8) >= 7 ? 1 : 100;
  EXPECT_EQ(c.malformed(), abi::Malformed::no);
  EXPECT_EQ(n, 3u);
  EXPECT_EQ(stats(web + "/per_cpu/cpu0").read, 10u);
  EXPECT_EQ(write_to(filter, "0"), "1");
  EXPECT_EQ(text_of(filter), "none\n");
  EXPECT_EQ(write_to(web + "/events/app/filter", "number < 2"), "10");
  EXPECT_EQ(text_of(filter), "number < 2\n");
  EXPECT_EQ(write_to(web + "/events/app/filter", "bogus < 2"), "EINVAL");
  write_to(web + "/events/app/filter", "0");
  // Only for some threads.
  const pid_t one = start_tick_writer("web", 4), two = start_tick_writer("web", 5);
  end_of(one);
  end_of(two);
  EXPECT_EQ(write_to(web + "/set_event_pid", std::to_string(one) + "\n"), std::to_string(std::to_string(one).size() + 1));
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: number="), 4u);
  EXPECT_EQ(write_to(web + "/set_event_pid", "x"), "EINVAL");
  EXPECT_EQ(text_of(web + "/set_event_pid"), std::to_string(one) + "\n");
  EXPECT_EQ(write_to(web + "/set_event_pid", "", O_WRONLY | O_TRUNC), "0");
  EXPECT_EQ(write_to(web + "/set_event_notrace_pid", std::to_string(one)), std::to_string(std::to_string(one).size()));
  EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: number="), 5u);
  // Switching an event all day leaves one line.
  for (int i = 0; i < 50; ++i) write_to(web + "/events/app/tick/enable", i % 2 == 0 ? "0" : "1");
  EXPECT_LT(test::slurp(dir + "/root/web/set_event").size(), 100u);
}

TEST_F(Mount, MarkersAndPipes) {
  start();
  ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
  const sys::Fd pipe(::open((web + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(pipe);
  char some[8192];
  EXPECT_EQ(ended(read(pipe.get(), some, sizeof some)), "EAGAIN");
  EXPECT_EQ(ended(::open((web + "/trace_pipe").c_str(), O_RDONLY)), "EBUSY");
  EXPECT_EQ(write_to(web + "/trace_marker", "first"), "5");
  EXPECT_EQ(write_to(web + "/trace_marker", "second\n"), "7");
  EXPECT_EQ(write_to(web + "/trace_marker_raw", std::string("\x2a\0\0\0abc", 7)), "7");
  const std::string trace = text_of(web + "/trace");
  EXPECT_NE(trace.find("entries-in-buffer/entries-written: 3/3"), std::string::npos) << trace;
  EXPECT_NE(trace.find(": tracing_mark_write: first\n"), std::string::npos) << trace;
  EXPECT_NE(trace.find(": # 2a buf: 61 62 63"), std::string::npos) << trace;
  EXPECT_EQ(text_of(web + "/trace"), trace) << "nothing was consumed";
  EXPECT_NE(text_of(web + "/saved_cmdlines").find(std::to_string(getpid()) + " "), std::string::npos);
  // A line at a time, as long as one fits.
  ssize_t n = read(pipe.get(), some, 100);
  ASSERT_GT(n, 0);
  EXPECT_EQ(std::string(some, static_cast<size_t>(n)).back(), '\n');
  EXPECT_EQ(lines_with(std::string(some, static_cast<size_t>(n)), "\n"), 1u);
  std::string rest;
  while ((n = read(pipe.get(), some, sizeof some)) > 0) rest.append(some, static_cast<size_t>(n));
  EXPECT_EQ(lines_with(rest, "\n"), 2u) << rest;
  EXPECT_EQ(text_of(web + "/trace").find("tracing_mark"), std::string::npos) << "consumed";
  // A long text becomes several events.
  const std::string text(10000, 'x');
  size_t done = 0;
  const sys::Fd marker(::open((web + "/trace_marker").c_str(), O_WRONLY));
  while (done < text.size()) {
    const ssize_t took = write(marker.get(), text.data() + done, text.size() - done);
    ASSERT_GT(took, 0);
    done += static_cast<size_t>(took);
  }
  EXPECT_EQ(lines_with(text_of(web + "/trace"), "tracing_mark_write"), 3u);
  EXPECT_EQ(lines_with(text_of(web + "/trace"), "x"), 10000u);
  write_to(web + "/tracing_on", "0");
  EXPECT_EQ(write_to(web + "/trace_marker", "off"), "EBADF");
}

TEST_F(Mount, ACrashedServerLeavesNothingInTheWay) {
  start();
  make_web();
  ASSERT_EQ(end_of(start_tick_writer("web", 10)), 0);
  EXPECT_EQ(write_to(web + "/trace_marker", "x"), "1");
  Mapping map(web + "/per_cpu/cpu0/trace_pipe_raw");
  ASSERT_NE(map.base, nullptr);
  kill(server, SIGKILL);
  end_of(server);
  EXPECT_FALSE(map.step());
  EXPECT_EQ(map.meta().nr_subbufs, cpu_rings() ? 356u : 355u) << "the pages stay";
  EXPECT_FALSE(mounted());
  start();
  EXPECT_TRUE(mounted());
  // A client that mapped the ring at the crash is no longer counted after the next request.
  { const Mapping again(web + "/per_cpu/cpu0/trace_pipe_raw"); }
  EXPECT_TRUE(eventually([&] { return write_to(web + "/buffer_size_kb", "64") == "2"; }));
  // A second server does not take a living one's place.
  const Outcome second = ringside("mount m");
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find("is mounted already"), std::string::npos) << second.err;
  // Ctrl-C leaves nothing behind, not even the top level.
  kill(server, SIGINT);
  EXPECT_EQ(end_of(server), 0);
  server = -1;
  EXPECT_FALSE(mounted());
  for (const auto& entry : fs::directory_iterator(dir + "/root"))
    EXPECT_TRUE(entry.path().filename() == "web" || entry.path().filename() == ".remotes");
}

// Both signals come before the first one's work: the second one ends it at once, as a lack of memory does.
TEST_F(Mount, OnlyAtAnEmptyDirectory) {
  std::ofstream(at + "/.hidden") << "text";
  const test::Outcome o = ringside("mount " + at);
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "ringside: cannot mount at " + at +
                       ": it holds \".hidden\", which the mount would hide; choose an empty directory\n");
  fs::remove(at + "/.hidden");
  start();
}

TEST_F(Mount, AServerThatEndsAtOnceUnmounts) {
  start();
  kill(server, SIGSTOP);
  kill(server, SIGINT);
  kill(server, SIGTERM);
  kill(server, SIGCONT);
  EXPECT_EQ(end_of(server), 128 + SIGTERM);
  server = -1;
  EXPECT_EQ(test::slurp("/proc/self/mountinfo").find(at), std::string::npos);
}

TEST_F(Mount, UnmountsWithItsLastUser) {
  start({"--auto"});
  {
    const sys::Fd fd(::open((at + "/tracing_on").c_str(), O_RDONLY));
    std::this_thread::sleep_for(1500ms);
    EXPECT_TRUE(mounted());
  }
  EXPECT_TRUE(eventually([&] { return waitpid(server, nullptr, WNOHANG) == server; }));
  server = -1;
  EXPECT_FALSE(mounted());
}

// Other users see nothing, or read and write nothing; one that takes as much as possible leaves enough for the others.
TEST_F(Mount, OtherUsers) {
  const OnCpu pinned(0);
  fs::permissions(dir, fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  const auto as_nobody = [&](const std::function<int()>& what) {
    const pid_t child = fork();
    if (child == 0) {
      if (setgid(65534) != 0 || setuid(65534) != 0) _exit(99);
      _exit(what());
    }
    return end_of(child);
  };
  start();
  EXPECT_EQ(as_nobody([&] { return ::open((at + "/trace").c_str(), O_RDONLY) < 0 ? errno : 0; }), EACCES);
  kill(server, SIGTERM);
  end_of(server);
  start({"--allow-other"});
  make_web();
  ASSERT_EQ(end_of(start_tick_writer("web", 100)), 0);
  EXPECT_EQ(as_nobody([&] { return ::open((web + "/trace").c_str(), O_RDONLY) < 0 ? errno : 0; }), 0);
  EXPECT_EQ(as_nobody([&] { return ::open((web + "/tracing_on").c_str(), O_WRONLY) < 0 ? errno : 0; }), EACCES);
  EXPECT_EQ(as_nobody([&] { return mkdir((at + "/instances/x").c_str(), 0700) < 0 ? errno : 0; }), EACCES);
  EXPECT_EQ(as_nobody([&] { return chmod((web + "/trace").c_str(), 0777) < 0 ? errno : 0; }), EPERM);
  EXPECT_EQ(as_nobody([&] {
    Mapping map(web + "/per_cpu/cpu0/trace_pipe_raw");
    return map.base != nullptr && map.step() && map.step() && map.events == 100 ? 0 : 1;
  }), 0);
  EXPECT_EQ(as_nobody([&] {
    int opened = 0;
    while (opened < 5000 && ::open((web + "/trace").c_str(), O_RDONLY) >= 0) ++opened;
    return opened < 1000 && errno == EMFILE ? 0 : 1;
  }), 0);
  EXPECT_EQ(text_of(web + "/tracing_on"), "1\n");
}

// A server of an ordinary user, mounted by fusermount3: without rights, and with the right that mapping needs, from its
// program's file.
TEST_F(Mount, AnOrdinaryUsersServer) {
  const OnCpu pinned(0);
  if (std::system("command -v fusermount3 >/dev/null") != 0) GTEST_SKIP() << "fusermount3 (package fuse3) is not installed";
  constexpr uid_t user = 65534;
  const std::string program = dir + "/ringside", home = dir + "/home", log = home + "/log";
  fs::permissions(dir, fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  fs::copy_file(RINGSIDE_BUILD_DIR "/ringside", program);
  fs::create_directories(home);
  for (const std::string& mine : {at, home}) ASSERT_EQ(chown(mine.c_str(), user, user), 0);
  for (const u32 flags : {0u, 0x02000000u, 0x02000001u}) {  // without; as setcap cap_sys_admin+p writes it; +ep
    const bool capable = flags != 0;
    const u32 mapping_right[] = {flags, 1 << 21, 0, 0, 0};
    if (capable && setxattr(program.c_str(), "security.capability", mapping_right, sizeof mapping_right, 0) != 0)
      GTEST_SKIP() << "no file capabilities at " << dir << ": " << strerrorname_np(errno);
    constexpr int refused = 77;
    const pid_t child = fork();
    if (child == 0) {
      // In a mount namespace of its own, where /dev/fuse has its usual mode.
      const std::string dev = dir + "/dev", device = dev + "/fuse";
      mkdir(dev.c_str(), 0755);
      if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("none", dev.c_str(), "tmpfs", 0, "mode=0755") != 0 || mknod(device.c_str(), S_IFCHR, makedev(10, 229)) != 0 ||
          chmod(device.c_str(), 0666) != 0 || mount(device.c_str(), "/dev/fuse", nullptr, MS_BIND, nullptr) != 0)
        _exit(refused);
      if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0) _exit(refused);
      setenv("RINGSIDE_ROOT", (home + "/root").c_str(), 1);
      server = fork();
      if (server == 0) {
        dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        execl(program.c_str(), program.c_str(), "mount", at.c_str(), nullptr);
        _exit(127);
      }
      EXPECT_TRUE(eventually([&] { return mounted(); })) << test::slurp(log);
      EXPECT_NE(test::slurp("/proc/" + std::to_string(server) + "/status").find("CapEff:\t0000000000000000"),
                std::string::npos);
      EXPECT_EQ(std::system(("timeout 20 " + program + " mount " + dir + "/root 2>/dev/null").c_str()), 1 << 8)
          << "a directory of another user's";
      EXPECT_EQ(mkdir(web.c_str(), 0700), 0);
      write_to(web + "/events/enable", "1");
      EXPECT_EQ(end_of(start_tick_writer("web", 10)), 0);
      EXPECT_EQ(lines_with(text_of(web + "/trace"), ": tick: number="), 10u);
      const std::string raw = web + "/per_cpu/cpu0/trace_pipe_raw";
      EXPECT_EQ(ended(::open(raw.c_str(), O_RDWR)), "EACCES");
      if (capable) {
        Mapping map(raw);
        EXPECT_TRUE(map.base != nullptr && map.step() && map.step()) << strerrorname_np(errno) << test::slurp(log);
        EXPECT_EQ(map.events, 10u);
        EXPECT_EQ(test::slurp(log).find("cannot be mapped"), std::string::npos);
      } else {
        const sys::Fd fd(::open(raw.c_str(), O_RDONLY | O_NONBLOCK));
        EXPECT_EQ(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0), MAP_FAILED);
        EXPECT_EQ(errno, ENODEV);
        EXPECT_TRUE(eventually([&] { return test::slurp(log).find("CAP_SYS_ADMIN") != std::string::npos; }))
            << test::slurp(log);
        char some[4096];
        EXPECT_EQ(ended(read(fd.get(), some, sizeof some)), "4096");
      }
      EXPECT_EQ(write_to(web + "/trace_marker", "x"), "1");
      EXPECT_TRUE(eventually([&] { return rmdir(web.c_str()) == 0; })) << strerrorname_np(errno);
      kill(server, SIGTERM);
      EXPECT_EQ(end_of(server), 0);
      EXPECT_FALSE(mounted());
      fflush(stdout);
      _exit(HasFailure() ? 1 : 0);
    }
    const int end = end_of(child);
    if (end == refused) GTEST_SKIP() << "no mount namespace with a device of its own here";
    EXPECT_EQ(end, 0) << (capable ? "with" : "without") << " CAP_SYS_ADMIN";
  }
}

// One program on the kernel's mapping and on ringside's: the same steps, the same bytes.
TEST_F(Mount, AnIndependentClientSeesTheSame) {
  auto kernel = tracefs_dir();
  if (!kernel) GTEST_SKIP() << kernel.error().sentence;
  start();
  std::string ours, theirs;
  for (const char* size : {"4", "8", "16", "64"}) {
    // An event that is late by more than 134 ms takes more room: then it tries again.
    for (int attempt = 0; attempt < 5; ++attempt) {
      TracefsOptions make;
      make.prefix = "ringside-mount-";
      make.clock = ClockKind::mono;
      auto instance = TracefsInstance::create(make);
      if (!instance) GTEST_SKIP() << instance.error().sentence;
      ASSERT_EQ(mkdir(web.c_str(), 0700), 0);
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(0, &one);
      std::string* out[] = {&theirs, &ours};
      const std::string where[] = {instance->dir(), web};
      std::thread([&] {
        sched_setaffinity(0, sizeof one, &one);
        for (int i = 0; i < 2; ++i) {
          write_to(where[i] + "/tracing_on", "1");
          write_to(where[i] + "/buffer_subbuf_size_kb", size);
          write_to(where[i] + "/buffer_size_kb", "256");
          const sys::Fd marker(::open((where[i] + "/trace_marker").c_str(), O_WRONLY));
          for (int n = 0; n < 400; ++n) {
            const std::string text = std::to_string(n) + std::string(static_cast<size_t>(n * 37 % 900), 'a');
            (void)!write(marker.get(), text.data(), text.size());
          }
        }
      }).join();
      for (int i = 0; i < 2; ++i) {
        const Outcome o =
            run("timeout 20 " RINGSIDE_BUILD_DIR "/tests/mapping_client " + where[i] + "/per_cpu/cpu0/trace_pipe_raw");
        EXPECT_EQ(o.code, 0) << where[i] << o.err;
        *out[i] = o.out;
        // The fourth number of the first line counts sub-buffers: without the spare one.
        if (i == 1 && cpu_rings()) {
          unsigned page = 0, length = 0, subbuf = 0, nr = 0;
          int from = 0, to = 0;
          ASSERT_EQ(sscanf(o.out.c_str(), "meta %u %u %u %n%u%n", &page, &length, &subbuf, &from, &nr, &to), 4);
          out[i]->replace(static_cast<size_t>(from), static_cast<size_t>(to - from), std::to_string(nr - 1));
        }
      }
      ASSERT_TRUE(eventually([&] { return rmdir(web.c_str()) == 0; })) << strerrorname_np(errno);
      if (ours == theirs) break;
    }
    EXPECT_EQ(ours, theirs) << size;
    EXPECT_GT(lines_with(ours, "\n"), 300u);
  }
}

TEST_F(Mount, LibtracefsWorks) {
  InstanceOptions o;
  o.name = "web";
  o.clock = ClockKind::mono;
  must(Instance::create(o));
  ASSERT_EQ(end_of(start_tick_writer("web", 3)), 0);
  // Like the kernel's, its users search for events at the top level.
  start({"--instance", "web"});
  const Outcome fresh = run("timeout 60 " RINGSIDE_BUILD_DIR "/tests/tracefs_client " + at + " made");
  EXPECT_EQ(fresh.code, 0) << fresh.err;
  EXPECT_EQ(lines_with(fresh.out, "print: "), 3u) << fresh.out;
  EXPECT_NE(fresh.out.find("marker 2"), std::string::npos) << fresh.out;
  EXPECT_FALSE(fs::exists(at + "/instances/made"));
  ASSERT_EQ(mkdir((at + "/instances/busy").c_str(), 0700), 0);
  ASSERT_EQ(end_of(start_tick_writer("busy", 3)), 0);
  const Outcome known = run("timeout 60 " RINGSIDE_BUILD_DIR "/tests/tracefs_client " + at + " busy app tick");
  EXPECT_EQ(known.code, 0) << known.err;
  EXPECT_EQ(text_of(at + "/instances/busy/events/app/tick/enable"), "1\n");
}

// Debian's trace-cmd, which does not know ringside, in a mount namespace with the mount in place of tracefs.
TEST_F(Mount, TraceCmdRecords) {
  if (std::system("command -v trace-cmd >/dev/null") != 0) GTEST_SKIP() << "trace-cmd is not installed";
  if (auto kernel = tracefs_dir(); !kernel) GTEST_SKIP() << kernel.error().sentence;
  InstanceOptions o;
  o.name = "web";
  o.clock = ClockKind::mono;
  o.subbuf_size = 4096;
  o.buffer_size = 8 << 20;
  must(Instance::create(o));
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/example_01_write").code, 0);  // its events are known by now
  start({"--instance", "web", "--cpus", "16"});
  // The command waits for its recorders, then writes. trace-cmd reads as many rings as it assumes processors.
  std::ofstream(dir + "/one") << "1\n";
  std::ofstream(dir + "/possible") << "0-15\n";
  const std::string tracing = must(tracefs_dir());
  for (const std::string how : {"--nosplice", ""}) {
    const Outcome r = run("timeout 60 unshare -m --propagation private sh -c 'mount --bind m " + tracing +
                          " && mount --bind possible /sys/devices/system/cpu/possible && mount --bind one "
                          "/proc/sys/kernel/ftrace_enabled; RINGSIDE_INSTANCE=web exec trace-cmd record " +
                          how + " -o " + dir +
                          "/t.dat -e net:packet_in sh -c \"sleep 0.5; for i in 1 2 3 4 5 6 7 8; do " RINGSIDE_BUILD_DIR
                          "/example_01_write; done; sleep 0.2\"'");
    if (r.err.find("unshare") != std::string::npos && r.code == 1) GTEST_SKIP() << r.err;
    EXPECT_EQ(r.code, 0) << r.err;
    const Outcome report = run("trace-cmd report t.dat");
    EXPECT_EQ(report.code, 0) << report.err;
    EXPECT_EQ(lines_with(report.out, "packet_in:"), 24u) << how << report.out << r.err << r.out;
  }
}

}  // namespace
}  // namespace ringside::mount_test
