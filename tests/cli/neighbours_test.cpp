// Other users of the machine: files that they made are not used, and root, when it works on their files, touches nothing else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "binary.hpp"
#include "instance/instance.hpp"
#include "serve/server.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace ringside::test::neighbours_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t victim = 65533, attacker = 65534;

// Writes an event neighbour:number to the instance that this process opened; not declared for the whole program, because its
// other tests list events.
void put(u64 n) {
  static ringside_event event{
      "neighbour", "number", "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n", "\"n=%llu\", REC->n", nullptr, 0,
      nullptr,     nullptr};
  u64 payload[] = {0, n};
  if (ringside_register(&event) == 0 && ringside_wanted(&event)) ringside_write(&event, payload, sizeof payload);
}

template <class F>
pid_t start_as(uid_t user, F work) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (user != 0 && (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0))
    _exit(99);
  _exit(work());
}
template <class F>
int as(uid_t user, F work) {
  int status = -1;
  waitpid(start_as(user, work), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// mono: rings of threads, and nothing to calibrate.
result<std::unique_ptr<Instance>> make(const std::string& path, ClockKind clock = best_clock()) {
  InstanceOptions o;
  o.name = path;
  o.buffer_size = 64 << 10;
  o.subbuf_size = 4096;
  o.clock = clock;
  return Instance::create(o);
}

// An instance of this user with `events` events in it.
int make_and_write(const std::string& path, u64 events, ClockKind clock = best_clock()) {
  if (!make(path, clock)) return 1;
  if (ringside_open(path.c_str()) != 0) return 2;
  for (u64 n = 0; n < events; ++n) put(n);
  return 0;
}

// The places where a file has data, and their hash: most of an instance's files are holes.
std::string contents(const std::string& file) {
  std::string all;
  const sys::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  for (off_t at = 0; (at = lseek(fd.get(), at, SEEK_DATA)) >= 0;) {
    const off_t end = lseek(fd.get(), at, SEEK_HOLE);
    std::string bytes(static_cast<size_t>(end - at), '\0');
    if (pread(fd.get(), bytes.data(), bytes.size(), at) != end - at) return "unreadable";
    all += std::to_string(at) + ":" + std::to_string(sys::hash(bytes)) + " ";
    at = end;
  }
  return all;
}

// The whole tree below, as bytes: names, kinds, modes, owners, contents.
std::map<std::string, std::string> tree(const std::string& dir) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    struct stat st {};
    lstat(entry.path().c_str(), &st);
    std::string& text = all[entry.path()];
    text = std::to_string(st.st_mode) + " " + std::to_string(st.st_uid) + " " + std::to_string(st.st_gid) + " " +
           std::to_string(st.st_size) + " ";
    if (S_ISREG(st.st_mode)) text += contents(entry.path());
    if (S_ISLNK(st.st_mode)) text += fs::read_symlink(entry.path());
  }
  return all;
}

struct Neighbours : testing::Test {
  std::string dir, user, guarded, old_root;
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
    char path[] = "/dev/shm/ringside-neighbours-XXXXXX";
    dir = mkdtemp(path);
    if (const char* root = getenv("RINGSIDE_ROOT")) old_root = root;
    ASSERT_EQ(chmod(dir.c_str(), 0755), 0);
    guarded = dir + "/guarded";
    user = dir + "/user";
    for (const std::string& one : {guarded, user, dir + "/root", dir + "/shm"}) fs::create_directory(one);
    ASSERT_EQ(chmod(guarded.c_str(), 0700), 0);
    ASSERT_EQ(chmod((dir + "/root").c_str(), 0700), 0);
    ASSERT_EQ(chmod((dir + "/shm").c_str(), 01777), 0);
    ASSERT_EQ(chown(user.c_str(), victim, victim), 0);
    setenv("RINGSIDE_ROOT", (dir + "/root").c_str(), 1);
  }
  void TearDown() override {
    if (dir.empty()) return;
    if (!old_root.empty()) setenv("RINGSIDE_ROOT", old_root.c_str(), 1);
    fs::remove_all(dir);
  }
  // Runs the command as this user, with another directory for the instances.
  Outcome run(uid_t who, const std::string& root, const std::string& arguments) const {
    const std::string out = dir + "/shm/out" + std::to_string(who), err = dir + "/shm/err" + std::to_string(who);
    const int code = as(who, [&] {
      for (const auto& [file, fd] : {std::pair{out, 1}, {err, 2}})
        dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), fd);
      setenv("RINGSIDE_ROOT", root.c_str(), 1);
      execl("/bin/sh", "sh", "-c",
            ("cd " + dir + "/shm && exec timeout 20 " RINGSIDE_BUILD_DIR "/ringside " + arguments).c_str(), nullptr);
      return 127;
    });
    return {code, slurp(out), slurp(err)};
  }
};

TEST_F(Neighbours, WhatAnotherUserMadeIsNotUsed) {
  const std::string root = dir + "/shm/ringside-" + std::to_string(victim);
  setenv("RINGSIDE_ROOT", root.c_str(), 1);
  ASSERT_EQ(as(attacker, [&] {
    umask(0);
    if (make_and_write("default", 10) != 0) return 1;
    for (const auto& entry : fs::recursive_directory_iterator(root)) fs::permissions(entry.path(), fs::perms::all);
    fs::permissions(root, fs::perms::all);
    return 0;
  }), 0);
  const auto before = tree(root);
  // Writers, by name and by path: the instance that they should use belongs to another user.
  for (const std::string& name : {std::string("default"), std::string("fresh"), root + "/default"}) {
    EXPECT_EQ(as(victim, [&] { return -ringside_open(name.c_str()); }), EACCES) << name;
    EXPECT_EQ(as(victim, [&] { return make(name).has_value() ? 0 : 7; }), 7) << name;
  }
  for (const char* arguments : {"list", "list -i default", "stat default", "report default",
                                "record -i default --duration 10ms", "record -i fresh --duration 10ms", "rm default",
                                "rm -f default", "rm --stale", "serve default", "top default --once", "record -- true"}) {
    const Outcome o = run(victim, root, arguments);
    EXPECT_NE(o.code, 0) << arguments;
    EXPECT_NE(o.code, 124) << arguments;
    EXPECT_THAT(o.err, HasSubstr("belongs to user 65534")) << arguments;
    EXPECT_THAT(o.err, HasSubstr("RINGSIDE_ROOT")) << arguments;
  }
  EXPECT_EQ(tree(root), before);
  // Nor does root, unless the instance's own path is given. Others may write to that one.
  fs::create_directory(dir + "/shm/mnt");
  for (const char* arguments : {"list", "stat default", "rm -f default", "record -i default --duration 10ms", "mount mnt"}) {
    const Outcome o = run(0, root, arguments);
    EXPECT_NE(o.code, 0) << arguments;
    EXPECT_THAT(o.err, HasSubstr("belongs to user 65534")) << arguments;
  }
  const Outcome open_to_all = run(0, dir + "/root", "stat " + root + "/default");
  EXPECT_NE(open_to_all.code, 0);
  EXPECT_THAT(open_to_all.err, HasSubstr("other users may write there (mode 0777)"));
  EXPECT_EQ(tree(root), before);
}

TEST_F(Neighbours, WhatOthersMayWriteToIsNotUsed) {
  const std::string root = user + "/mine";
  setenv("RINGSIDE_ROOT", root.c_str(), 1);
  ASSERT_EQ(as(victim, [&] { return make_and_write("default", 10); }), 0);
  ASSERT_EQ(run(victim, root, "stat default").code, 0);
  for (const std::string& what : {root, root + "/default"}) {
    for (const mode_t mode : {0770, 0702}) {
      ASSERT_EQ(chmod(what.c_str(), mode), 0);
      EXPECT_EQ(as(victim, [] { return -ringside_open("default"); }), EACCES);
      const Outcome o = run(victim, root, "report default");
      EXPECT_NE(o.code, 0);
      EXPECT_THAT(o.err, HasSubstr("other users may write there"));
      EXPECT_THAT(o.err, HasSubstr("chmod go-w"));
    }
    ASSERT_EQ(chmod(what.c_str(), 0700), 0);
  }
  for (const char* file : {"instance", "gate"}) {
    ASSERT_EQ(chmod((root + "/default/" + file).c_str(), 0666), 0);
    EXPECT_EQ(as(victim, [] { return -ringside_open("default") != 0; }), 1) << file;
    ASSERT_EQ(chmod((root + "/default/" + file).c_str(), 0600), 0);
    ASSERT_EQ(chown((root + "/default/" + file).c_str(), attacker, victim), 0);
    EXPECT_EQ(as(victim, [] { return -ringside_open("default") != 0; }), 1) << file;
    ASSERT_EQ(chown((root + "/default/" + file).c_str(), victim, victim), 0);
  }
  EXPECT_EQ(as(victim, [] { return ringside_open("default"); }), 0);
}

TEST_F(Neighbours, RootWorksOnAUsersInstanceByItsPath) {
  const std::string path = user + "/inst";
  ASSERT_EQ(as(victim, [&] { return make_and_write(path, 100); }), 0);
  // Files that root writes there belong to the user.
  ASSERT_EQ(as(0, [&] { return ringside_open(path.c_str()) != 0 ? 1 : (put(7), 0); }), 0);
  const Outcome on = run(0, dir + "/root", "record -i " + path + " -u 'neighbour:*' --duration 20ms -o " + dir + "/root/rec");
  EXPECT_EQ(on.code, 0) << on.err;
  must(must(Instance::open(path))->snapshot());
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    struct stat st {};
    ASSERT_EQ(lstat(entry.path().c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, victim) << entry.path();
  }
  EXPECT_EQ(as(victim, [&] { return ringside_open(path.c_str()) != 0 ? 1 : (put(8), 0); }), 0);
  const Outcome stat = run(victim, dir + "/shm/ringside-65533", "stat " + path);
  EXPECT_EQ(stat.code, 0) << stat.err;
  EXPECT_EQ(run(0, dir + "/root", "rm " + path).code, 0);
  EXPECT_FALSE(fs::exists(path));
}

// Each way out in turn.
TEST_F(Neighbours, RootFollowsNoSymlinkOfAUser) {
  const std::string path = user + "/inst";
  ASSERT_EQ(as(0, [&] { return make_and_write(guarded + "/inst", 50); }), 0);
  fs::create_directories(guarded + "/files/deep");
  for (const char* name : {"secret", "files/one", "files/deep/two"}) std::ofstream(guarded + "/" + name) << "secret\n";
  for (const std::string& name : {std::string("set_event.new"), std::string("set_event"), std::string("per_cpu"),
                                  std::string("per_cpu/cpu0"), std::string("per_cpu/cpu0/ring"), std::string("events"),
                                  std::string("gate"), std::string("instance"), std::string("threads"), std::string("serving"),
                                  std::string("snapshot"), std::string("events/neighbour"), std::string("saved_cmdlines")}) {
    ASSERT_EQ(as(victim, [&] { return make_and_write(path, 100); }), 0);
    fs::remove_all(path + "/" + name);
    const bool is_file = !fs::exists(guarded + "/inst/" + name);
    const std::string to = is_file ? guarded + "/made" : guarded + "/inst/" + name;
    fs::create_symlink(to, path + "/" + name);
    ASSERT_EQ(lchown((path + "/" + name).c_str(), victim, victim), 0);
    const auto before = tree(guarded);
    for (const std::string& arguments :
         {"record -i " + path + " -u 'a:*' -u 'neighbour:*' --duration 20ms -o " + dir + "/root/rec", "report " + path,
          "stat " + path, "list -i " + path})
      EXPECT_LT(run(0, dir + "/root", arguments).code, 124) << arguments;
    if (auto instance = Instance::open(path)) {
      (void)(*instance)->enable("b:*", true);
      (void)(*instance)->snapshot();
      (void)(*instance)->resize(128 << 10, 4096);
      (void)(*instance)->reset();
      (void)(*instance)->trim();
    }
    EXPECT_EQ(tree(guarded), before) << name;
    // `rm` removes the link and leaves its target.
    fs::create_directory_symlink(guarded + "/files", path + "/events2");
    const Outcome gone = run(0, dir + "/root", "rm -f " + path);
    EXPECT_EQ(tree(guarded), before) << name;
    EXPECT_EQ(fs::exists(path), name == "instance")
        << name << gone.err;  // without that file, and with a foreign one, it is no instance
    fs::remove_all(path);
  }
  // A link on the way to it.
  fs::create_directory_symlink(guarded, user + "/way");
  ASSERT_EQ(lchown((user + "/way").c_str(), victim, victim), 0);
  const auto before = tree(guarded);
  for (const std::string& arguments : {"record -i " + user + "/way/inst --duration 10ms", "rm -f " + user + "/way/inst",
                                       "record -o " + user + "/way/rec -- true", "report " + user + "/way/inst"}) {
    const Outcome o = run(0, dir + "/root", arguments);
    EXPECT_NE(o.code, 0) << arguments;
    EXPECT_THAT(o.err, HasSubstr("made by another user")) << arguments;
  }
  EXPECT_EQ(tree(guarded), before);
}

// Swaps names for symlinks, without a pause, and makes the instance anew whenever it is gone.
int swap_for_ever(const std::string& user, const std::string& guarded) {
  const auto exchange = [](const std::string& a, const std::string& b) {
    (void)!renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  };
  const std::pair<const char*, const char*> names[] = {{"", "/a/inst"},
                                                       {"/per_cpu", "/a/inst/per_cpu"},
                                                       {"/per_cpu/cpu0", "/a/inst/per_cpu/cpu0"},
                                                       {"/per_cpu/cpu0/ring", "/a/inst/per_cpu/cpu0/ring"},
                                                       {"/per_cpu/cpu0/trace_pipe_raw", "/a/inst/per_cpu/cpu0/trace_pipe_raw"},
                                                       {"/events", "/files"},
                                                       {"/events/neighbour", "/files/deep"},
                                                       {"/events/neighbour/number", "/files/deep"},
                                                       {"/events/neighbour/number/format", "/secret"},
                                                       {"/set_event", "/secret"},
                                                       {"/set_event.new", "/secret"},
                                                       {"/gate", "/a/inst/gate"},
                                                       {"/instance", "/a/inst/instance"},
                                                       {"/threads", "/secret"},
                                                       {"/serving", "/secret"},
                                                       {"/saved_cmdlines", "/secret"},
                                                       {"/snapshot", "/files"},
                                                       {"/snapshot/per_cpu", "/files"},
                                                       {"/snapshot/per_cpu/cpu0", "/files/deep"},
                                                       {"/snapshot/events", "/files"},
                                                       {"/snapshot/instance", "/secret"}};
  const std::string inst = user + "/a/inst", links = user + "/links";
  const std::pair<std::string, std::string> others[] = {{user + "/a", links + "/a"},
                                                        {user + "/a/rec", links + "/rec"},
                                                        {user + "/a/rec/meta.json", links + "/rec"},
                                                        {user + "/a/rec/ring0.raw", links + "/sock"},
                                                        {user + "/a/sock", links + "/sock"}};
  const auto is_there = [&] { return access((inst + "/instance").c_str(), F_OK) == 0; };
  std::error_code gone;
  for (u64 round = 0;; ++round) {
    if (!is_there()) {
      for (const std::string& old : {inst, links}) fs::remove_all(old, gone);
      for (const std::string& folder : {links, user + "/a/rec"}) fs::create_directory(folder, gone);
      for (size_t n = 0; n < std::size(names); ++n)
        fs::create_symlink(guarded + names[n].second, links + "/" + std::to_string(n), gone);
      fs::create_symlink(guarded + "/a", links + "/a", gone);
      for (const char* name : {"rec", "sock"}) fs::create_symlink(guarded + "/a/" + name, links + "/" + name, gone);
      const pid_t maker = fork();
      if (maker == 0) _exit(make_and_write(inst, 1000, round % 4 == 0 ? best_clock() : ClockKind::mono));
      waitpid(maker, nullptr, 0);
    }
    const size_t many = round % 50 + 1;  // one name for a while, and all in turn
    for (size_t n = 0; n < std::size(names); ++n) {
      const std::string name = inst + names[n].first, link = links + "/" + std::to_string(n);
      if (!is_there()) break;
      for (size_t k = 0; k < many; ++k) exchange(name, link), exchange(name, link);
      if (n % 4 != 0) continue;
      const auto& [here, there] = others[n / 4 % std::size(others)];
      for (size_t k = 0; k < many; ++k) exchange(here, there), exchange(here, there);
    }
  }
}

TEST_F(Neighbours, RootWorksWhileAUserSwapsNames) {
  const char* const given = std::getenv("RINGSIDE_TEST_SECONDS");
  const u64 seconds = given != nullptr ? std::strtoull(given, nullptr, 10) : 10;
  fs::create_directories(guarded + "/files/deep");
  fs::create_directories(guarded + "/a");
  ASSERT_EQ(as(0, [&] { return make_and_write(guarded + "/a/inst", 50); }), 0);
  for (const char* name : {"secret", "files/one", "files/deep/two", "files/deep/format"})
    std::ofstream(guarded + "/" + name) << "secret\n";
  {  // a recording that root made
    auto writer = must(RecordingWriter::create(guarded + "/a/rec", calibrate(ClockKind::mono)));
    must(writer.add_ring({0, 1, 1, "task", "process"}, 4096));
    must(writer.finish(1));
  }
  for (const char* name : {"/a", "/a/rec"}) {
    fs::create_directory(user + name);
    ASSERT_EQ(chown((user + name).c_str(), victim, victim), 0);
  }
  ASSERT_EQ(as(victim, [&] { return make_and_write(user + "/a/inst", 1000); }), 0);
  const auto before = tree(guarded);

  prctl(PR_SET_CHILD_SUBREAPER, 1);  // a child of the swapper's may outlive it
  const pid_t swapper = start_as(victim, [&] { return swap_for_ever(user, guarded); });
  const std::string path = user + "/a/inst";
  std::map<std::string, std::pair<u64, u64>> outcomes;  // done, refused
  const auto count = [&](const char* what, bool done) { ++(done ? outcomes[what].first : outcomes[what].second); };
  const u64 end = sys::now_ns() + seconds * 600'000'000;
  // In a child: the user's changes to the maps of the user's own instance must not affect this test's process.
  int status = -1;
  int report[2];
  ASSERT_EQ(pipe2(report, O_CLOEXEC), 0);
  const pid_t worker = start_as(0, [&] {
    const auto each_was_done_once = [&] {
      return std::all_of(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.second.first != 0; });
    };
    const u64 latest = end + 60'000'000'000;
    for (u64 round = 0; sys::now_ns() < end || (!each_was_done_once() && sys::now_ns() < latest);) {
      if (auto instance = Instance::open(path)) {
        ++round;
        Instance& i = **instance;
        count("open", true);
        count("enable", i.enable("x" + std::to_string(round % 7) + ":*", round % 2 == 0).has_value());
        count("snapshot", i.snapshot().has_value());
        count("drop", i.drop_snapshot().has_value());
        count("resize", i.resize(round % 2 == 0 ? 32 << 10 : 64 << 10, 4096).has_value());
        count("reset", i.reset().has_value());
        (void)i.trim();
        (void)i.events();
        (void)i.read("saved_cmdlines");
        auto writer = RecordingWriter::create(user + "/a/rec", i.clock());
        count("record", writer.has_value());
        for (const RingInfo& ring : i.rings()) {
          auto source = i.source(ring.name.ring);
          count("source", source.has_value());
          if (!source || !writer || !writer->add_ring(ring.name, 4096)) continue;
          for (auto view = (*source)->next(); view && *view; view = (*source)->next())
            (void)writer->append(ring.name.ring, **view);
          writer->release(ring.name.ring);
        }
        if (writer) count("finish", writer->keep("kallsyms", "text") && writer->finish(1));
      } else {
        count("open", false);
      }
      {
        ServerOptions serve;
        serve.instance = path;
        serve.socket = user + "/a/sock";
        serve.mode = 0666;
        count("serve", Server::create(serve).has_value());
      }
      if (auto meta = RecordingMeta::read(user + "/a/rec")) count("read", open_recording(user + "/a/rec", *meta).has_value());
      if (round % 4 == 3) {
        count("rm", Instance::remove(path, true).has_value());
        ++round;
      }
    }
    std::string text;
    for (const auto& [what, n] : outcomes)
      text += what + ": " + std::to_string(n.first) + " done, " + std::to_string(n.second) + " refused\n";
    (void)!::write(report[1], text.data(), text.size());
    return each_was_done_once() ? 0 : 1;
  });
  waitpid(worker, &status, 0);
  kill(swapper, SIGKILL);
  int killed = 0;
  waitpid(swapper, &killed, 0);
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL) << "the user's process ended by itself: " << killed;
  char text[2048] = "";
  close(report[1]);
  (void)!::read(report[0], text, sizeof text - 1);
  close(report[0]);
  RecordProperty("outcomes", text);
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("refused")) << text;
  EXPECT_EQ(tree(guarded), before) << text;
  if (std::getenv("RINGSIDE_VERBOSE") != nullptr) std::fputs(text, stderr);
}

// As older versions left them, and as a maker leaves one that dies in the middle.
TEST_F(Neighbours, HalfMadeInstances) {
  const std::string at = dir + "/root/old";
  const char* const parts[] = {"per_cpu/",      "events/",           "set_event", "events/header_page", "gate", "instance",
                               "per_cpu/cpu0/", "per_cpu/cpu0/ring", "threads"};
  for (size_t made = 0; made <= std::size(parts); ++made) {
    fs::create_directory(at);
    for (size_t n = 0; n < made; ++n) {
      if (std::string_view(parts[n]).back() == '/')
        fs::create_directories(at + "/" + parts[n]);
      else
        std::ofstream(at + "/" + parts[n]) << std::string(n % 2 * 8192, '\0');
    }
    const Outcome list = run(0, dir + "/root", "list");
    EXPECT_EQ(list.code, 0);
    EXPECT_THAT(list.out, HasSubstr("half-made"));
    EXPECT_THAT(list.err, HasSubstr("ringside rm -f old"));
    for (const char* arguments : {"record -i old --duration 10ms", "rm old", "stat old"}) {
      const Outcome o = run(0, dir + "/root", arguments);
      EXPECT_NE(o.code, 0) << arguments;
      EXPECT_THAT(o.err, HasSubstr("ringside rm -f")) << arguments << made;
    }
    EXPECT_EQ(run(0, dir + "/root", "rm -f old").code, 0);
    EXPECT_FALSE(fs::exists(at));
  }
  // A directory that is no instance is not removed.
  fs::create_directory(at);
  std::ofstream(at + "/instance") << "of something else";
  std::ofstream(at + "/thesis.tex") << "years of work";
  EXPECT_NE(run(0, dir + "/root", "rm -f old").code, 0);
  EXPECT_NE(run(0, dir + "/root", "rm -f " + at).code, 0);
  EXPECT_TRUE(fs::exists(at + "/thesis.tex"));
}

}  // namespace
}  // namespace ringside::test::neighbours_test
