// Shipping into a real ClickHouse server on loopback: how many events a second, what they cost, and what an agent costs the
// writer beside it.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench.hpp"
#include "clickhouse/server.hpp"
#include "source/packer.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

// On one processor, where there are two; its output is thrown away.
pid_t start(const std::string& command, int cpu) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  pin(cpu);
  if (freopen("/dev/null", "w", stdout) == nullptr || freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
  execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
  _exit(127);
}

struct Server {
  std::string dir, url;
  pid_t pid = 0;
  ~Server() {
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    std::filesystem::remove_all(dir);
  }
  bool begin() {
    char name[] = "/tmp/ringside-bench-XXXXXX";
    if (access("/usr/sbin/clickhouse-server", X_OK) != 0 || mkdtemp(name) == nullptr) return false;
    dir = name;
    const std::string port = std::to_string(20000 + getpid() % 20000);
    std::ofstream(dir + "/config.xml")
        << "<yandex><logger><level>none</level></logger><http_port>" << port << "</http_port><tcp_port>" << std::stoi(port) + 1
        << "</tcp_port>"
        << "<listen_host>127.0.0.1</listen_host><path>" << dir << "/data/</path><tmp_path>" << dir
        << "/tmp/</tmp_path><user_files_path>" << dir << "/user/</user_files_path><format_schema_path>" << dir
        << "/schemas/</format_schema_path>"
        << "<users_config>/etc/clickhouse-server/users.xml</users_config><default_profile>default</default_profile>"
        << "<default_database>default</default_database><mark_cache_size>67108864</mark_cache_size></yandex>";
    pid = start("/usr/sbin/clickhouse-server --config-file=" + dir + "/config.xml", 1);
    url = "clickhouse://127.0.0.1:" + port + "/default";
    const auto address = clickhouse::Address::parse(url);
    for (int n = 0; n < 1000; ++n) {
      if (auto server = clickhouse::Server::open(*address, {}); server && (*server)->ask("SELECT 1")) return true;
      usleep(20000);
    }
    return false;
  }
};

// Events of five fields, all of one type, in one ring.
u64 make_part(const std::string& dir, u64 events) {
  constexpr u32 subbuf_size = 16384;
  auto writer = must(RecordingWriter::create(dir, ClockInfo{}));
  writer.meta().events.push_back(
      {1, "bench", "five",
       "name: five\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned char "
       "common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
       "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int "
       "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
       "\tfield:u64 a;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 b;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u32 "
       "c;\toffset:24;\tsize:4;\tsigned:0;\n"
       "\tfield:s32 d;\toffset:28;\tsize:4;\tsigned:1;\n\tfield:char e[8];\toffset:32;\tsize:8;\tsigned:0;\n\nprint fmt: "
       "\"%llu\", REC->a\n",
       true});
  must(writer.add_ring({0, 100, 100, "bench", "bench"}, subbuf_size));
  Packer packer(subbuf_size);
  struct {
    u16 id = 1, flags = 0;
    i32 tid = 100;
    u64 a = 0, b = 0;
    u32 c = 0;
    i32 d = 0;
    char e[8] = "shipped";
  } event;
  for (u64 n = 0; n < events; ++n) {
    event.a = n;
    event.b = n * 2654435761;
    event.c = static_cast<u32>(n % 1000);
    event.d = -static_cast<i32>(n % 77);
    const Bytes payload{reinterpret_cast<const u8*>(&event), sizeof event};
    const u64 time = 1'000'000'000 + n * 100;
    if (packer.add(time, payload)) continue;
    must(writer.append(0, packer.take()));
    packer.restart();
    (void)packer.add(time, payload);
  }
  must(writer.append(0, packer.take()));
  must(writer.finish(events * 100));
  return events;
}

void throughput(const Server& server) {
  std::vector<double> rates, costs;
  const u64 events = quick ? 2'000'000 : 8'000'000;
  for (int i = 0; i < (quick ? 2 : 5); ++i) {
    const std::string spool = server.dir + "/spool";
    std::filesystem::create_directories(spool);
    make_part(spool + "/part.1", events);
    const u64 from = sys::now_ns();
    const pid_t child = start(RINGSIDE_COMMAND " ship -q --spool " + spool + " " + server.url, 0);
    int status = 1;
    rusage used{};
    wait4(child, &status, 0, &used);
    const u64 took = sys::now_ns() - from;
    std::filesystem::remove_all(spool);
    if (status != 0) continue;
    rates.push_back(static_cast<double>(events) * 1e9 / static_cast<double>(took));
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
    costs.push_back((seconds(used.ru_utime) + seconds(used.ru_stime)) * 1e6 / static_cast<double>(events));
  }
  const bool any = !rates.empty();
  row("ship.events_per_s", any ? std::optional(fastest(rates)) : std::nullopt, "1/s",
      text("%llu events of five fields, in 20 columns, from a part to the server's confirmation; the server on the other "
           "processor",
           static_cast<unsigned long long>(events)));
  row("ship.cpu_per_million", any ? std::optional(median(costs)) : std::nullopt, "s",
      "CPU time of the agent for a million of these events");
}

// Of this thread's CPU time: what else the machine does takes turns on its processor.
double ns_per_event(u64 n) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
  };
  const double from = now();
  for (u64 k = 0; k < n; ++k) ::bench::pair(k, k);
  return (now() - from) / static_cast<double>(n);
}

void writer_cost(const Server& server) {
  std::vector<double> alone, beside, ratio;
  pin(0);
  for (int i = 0; i < (quick ? 3 : 9); ++i) {
    alone.push_back(ns_per_event(5'000'000));
    const pid_t child =
        start(RINGSIDE_COMMAND " ship -q -i bench --spool " + server.dir + "/live --part-time 200ms " + server.url, 1);
    usleep(500000);
    beside.push_back(ns_per_event(5'000'000));
    kill(child, SIGINT);
    waitpid(child, nullptr, 0);
    ratio.push_back(beside.back() / alone.back());
  }
  row("ship.writer_cost", median(ratio), "x",
      text("%.1f ns of CPU time an event beside an agent that ships them, %.1f alone", median(beside), median(alone)));
}

}  // namespace

void ship_rows() {
  Server server;
  if (!server.begin()) {
    for (const char* name : {"ship.events_per_s", "ship.cpu_per_million", "ship.writer_cost"})
      row(name, std::nullopt, "", "needs Debian's clickhouse-server");
    return;
  }
  throughput(server);
  writer_cost(server);
}

}  // namespace bench
