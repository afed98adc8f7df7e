// Hostile requests to a mount's server (mount/server.hpp), as a kernel would pass them on from hostile users: each is answered
// once, and when all files are closed nothing is open, waits or counts as mapped. Input: requests as {u8 what, u8 which, u8
// length, bytes}.
#include <fcntl.h>
#include <ringside/abi/meta_page.hpp>
#include <ringside/remote/process_writer.hpp>
#include <ringside/ringside.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "instance/instance.hpp"
#include "mount/server.hpp"

using namespace ringside;

namespace {

u64 unanswered = 0, backings = 0;

[[noreturn]] void broken(const char* rule) {
  std::fprintf(stderr, "BROKEN: %s\n", rule);
  std::abort();
}

class CountedReply final : public mount::Reply {
 public:
  explicit CountedReply(size_t most) : most_(most) { ++unanswered; }
  ~CountedReply() override {
    if (!answered_) broken("a request was dropped without an answer");
  }
  void error(int number) override {
    if (number <= 0 || number > 4095) broken("an answer is no errno");
    answer();
  }
  void data(std::string_view bytes) override {
    if (bytes.size() > most_) broken("an answer is longer than requested");
    answer();
  }
  void done() override { answer(); }

 private:
  void answer() {
    if (answered_) broken("a request was answered twice");
    answered_ = true;
    --unanswered;
  }
  size_t most_;
  bool answered_ = false;
};
class NoPoller final : public mount::Poller {
  void notify() override {}
};

struct Subject {
  std::string dir = std::filesystem::temp_directory_path() / ("ringside-mount-fuzz-" + std::to_string(getpid()));
  std::unique_ptr<mount::Server> server;
  // An external writer in this process, whose only ring is written to before each input.
  std::unique_ptr<remote::ProcessWriter<>> writer;
  Subject() {
    std::filesystem::create_directories(dir);
    setenv("RINGSIDE_ROOT", dir.c_str(), 1);
    InstanceOptions o;
    o.name = "inst";
    o.buffer_size = 1 << 16;
    o.subbuf_size = 4096;
    must(Instance::create(o));
    if (fork() == 0) {
      if (ringside_open("inst") == 0) {
        ringside_event event{"fuzz", "event", "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n", "\"n=%llu\", REC->n",
                             nullptr, 0, nullptr, nullptr};
        ringside_register(&event);
        for (u64 i = 0; i < 5000; ++i) {
          u64 payload[] = {0, i};
          ringside_write(&event, payload, sizeof payload);
        }
      }
      _exit(0);
    }
    wait(nullptr);
    writer = std::make_unique<remote::ProcessWriter<>>(
        remote::ProcessOptions{remote::announced_path("app"), {{1, "fuzz", "event", "name: event\n"}}});
    mount::ServerOptions options;
    options.instances = {"inst"};
    options.cpus = 2;
    options.most_files = 40;
    options.most_files_of_a_user = 30;
    options.most_waiting = 10;
    options.most_waiting_of_a_user = 6;
    server = must(mount::Server::create(options, {[](int) { return static_cast<int>(++backings); }, [](int) { --backings; }}));
    u64 at = mount::root_inode;
    for (const char* name : {"remotes", "app", "buffer_size_kb"}) at = must(server->lookup(at, name)).inode;
    const mount::Client client{0, getpid()};
    const u64 handle = must(server->open(at, O_WRONLY, client)).handle;
    must(server->write(handle, "16", client));  // small: it is made for each input
    server->release(handle);
  }
  ~Subject() {
    server.reset();
    writer.reset();
    std::filesystem::remove_all(dir);
  }
};

constexpr const char* paths[] = {"trace",
                                 "trace_pipe",
                                 "per_cpu/cpu0/trace_pipe_raw",
                                 "per_cpu/cpu1/trace_pipe_raw",
                                 "set_event",
                                 "events/fuzz/event/filter",
                                 "events/fuzz/filter",
                                 "buffer_percent",
                                 "tracing_on",
                                 "trace_options",
                                 "per_cpu/cpu0/stats",
                                 "per_cpu/cpu0/trace_pipe",
                                 "trace_clock",
                                 "options/overwrite",
                                 "events/fuzz/event/format",
                                 "per_cpu/cpu0/snapshot_raw",
                                 "snapshot",
                                 "README",
                                 "events/enable",
                                 "saved_cmdlines",
                                 "tracing_cpumask",
                                 "per_cpu/cpu0/buffer_size_kb",
                                 "events/header_page",
                                 "instances",
                                 "remotes/app/trace",
                                 "remotes/app/trace_pipe",
                                 "remotes/app/tracing_on",
                                 "remotes/app/buffer_size_kb",
                                 "remotes/app/per_cpu/cpu0/trace_pipe_raw",
                                 "remotes/app/per_cpu/cpu0/trace_pipe",
                                 "remotes/app/per_cpu/cpu1/stats",
                                 "remotes/app/events/fuzz/event/enable"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static Subject world;
  mount::Server& server = *world.server;
  std::vector<u64> inodes{mount::root_inode}, handles{0};
  u64 token = 0;
  if (auto* ring = world.writer->ring(0))
    for (u64 i = 0; i < 300; ++i) {
      const u64 event[3] = {1, i, i};
      ring->write(event, 8 + i % 17);
    }
  // Waits for another thread's operation, because the writer answers.
  const auto over = [&](u64 handle) {
    int error = 0;
    if (const auto job = server.job(handle))
      while ((error = job->error.load()) < 0) usleep(20);
    return error;
  };
  const auto go = [&](u64 from, const std::string& path) -> u64 {
    for (size_t at = 0; at <= path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      auto found = server.lookup(from, path.substr(at, end - at));
      if (!found) return ~u64{0};
      inodes.push_back(from = found->inode);
      at = end + 1;
    }
    return from;
  };
  for (size_t at = 0; at + 3 <= size && token < 200;) {
    const u8 what = bytes[at], which = bytes[at + 1];
    const size_t length = std::min<size_t>(bytes[at + 2], size - at - 3);
    const std::string text(reinterpret_cast<const char*>(bytes) + at + 3, length);
    at += 3 + length;
    const u64 inode = inodes[which % inodes.size()], handle = handles[which % handles.size()];
    u64 number = 0;
    std::memcpy(&number, text.data(), std::min<size_t>(text.size(), 8));
    const mount::Client client{which % 3u, static_cast<i32>(getpid())};
    ++token;
    switch (what % 14) {
      case 0:
      case 1: {
        const u64 to = what % 14 == 0 ? go(mount::root_inode, paths[which % std::size(paths)]) : go(inode, text);
        const int flags = static_cast<int>(number & 0xFFFF);
        if (auto opened = server.open(to, flags, client)) {
          if (opened->backing > 0 && (flags & O_ACCMODE) != O_RDONLY) broken("a writable file is mapped");
          const int error = over(opened->handle);
          if (opened->backing == 0 && which % 2 == 0) (void)server.finish(opened->handle, error);
          handles.push_back(opened->handle);
        }
        break;
      }
      case 2:
      case 3:
        server.read(handle, what % 28 < 14 ? 0 : number, 1 + (number >> 32) % 9000, (number & 1) != 0, (number & 6) == 6,
                    client, token, std::make_unique<CountedReply>(9000));
        break;
      case 4:
      case 5:
        if (auto wrote = server.write(handle, text, client); wrote && *wrote > text.size())
          broken("more was written than was given");
        over(handle);
        break;
      case 6:
        server.command(handle, (number & 1) != 0 ? abi::get_reader_ioctl : static_cast<u32>(number >> 8), client, token,
                       std::make_unique<CountedReply>(0));
        break;
      case 7:
        (void)server.poll(handle, (which & 1) != 0 ? std::make_unique<NoPoller>() : nullptr);
        break;
      case 8:
        server.flush(handle);
        break;
      case 9:
        server.release(handle);
        break;
      case 10:
        server.interrupt(number % (token + 1));
        break;
      case 11:
        (void)server.list(inode);
        (void)server.attributes(number);
        break;
      case 12:
        server.forget(inode, 1);
        break;
      case 13:
        server.turn();
        break;
    }
  }
  for (const u64 handle : handles) server.release(handle);
  server.turn();
  for (size_t i = 1; i < inodes.size(); ++i) server.forget(inodes[i], 1000);
  if (unanswered != 0) broken("requests were not answered");
  if (backings != 0) broken("backing files are left");
  if (server.open_files() != 0) broken("files are left open");
  if (server.waiting() != 0) broken("requests still wait");
  return 0;
}
