// The commands as processes, each against another tool in the same run: record beside cat, report beside trace-cmd. And typed
// reading.
#include <fcntl.h>
#include <sched.h>
#include <ringside/abi/event_cursor.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "decode/formats.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

constexpr u32 subbuf_size = 16384;
constexpr u64 ring_size = 16 << 20;

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; }

struct Ran {
  int status = -1;
  double wall = 0, cpu = 0;  // seconds; cpu: with all children that it waited for
};

pid_t start(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(127);
  }
  return child;
}

Ran wait(pid_t child, u64 from) {
  Ran ran;
  rusage use{};
  if (wait4(child, &ran.status, 0, &use) != child) return ran;
  ran.wall = static_cast<double>(sys::now_ns() - from) / 1e9;
  ran.cpu = seconds(use.ru_utime) + seconds(use.ru_stime);
  return ran;
}

void silence() {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(null, 1);
  dup2(null, 2);
}

Ran shell(const std::string& command) {
  const u64 from = sys::now_ns();
  return wait(start([&] {
                silence();
                execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
              }), from);
}

// The traced load: a system call that does nothing, on a processor of its own.
void storm(u64 calls) {
  pin(0);
  for (u64 i = 0; i < calls; ++i) syscall(SYS_getppid);
}

struct Shares {
  double record = 0, cat = 0;
};

// CPU time of the recorder, as a share of the load's.
std::optional<Shares> one_storm(u64 calls, const std::string& dir, std::string& why) {
  Shares shares;
  const std::string out = dir + "/storm";
  // The load is the recorder's command, so wait4() adds its time to the recorder's; it tells its own.
  const Ran all = shell(RINGSIDE_COMMAND " record -q -e syscalls:sys_enter_getppid -b 16M -o " + dir +
                        "/rec -- " RINGSIDE_BENCH " --storm " + std::to_string(calls) + " " + out);
  double load = 0;
  std::ifstream(out) >> load;
  if (all.status != 0 || load <= 0) {
    why = "ringside record failed";
    return std::nullopt;
  }
  shares.record = (all.cpu - load) / load;

  TracefsOptions options;
  options.prefix = "ringside-bench-";
  options.buffer_size = ring_size;
  options.subbuf_size = subbuf_size;
  options.buffer_percent = 25;
  auto instance = TracefsInstance::create(options);
  if (!instance || !instance->enable(EventPattern("syscalls:sys_enter_getppid")) || !instance->tracing(true)) {
    why = "no tracefs instance";
    return std::nullopt;
  }
  std::vector<pid_t> cats;
  for (const u32 cpu : instance->cpus()) {
    const std::string raw = instance->dir() + "/per_cpu/cpu" + std::to_string(cpu) + "/trace_pipe_raw";
    cats.push_back(start([&] {
      silence();
      dup2(open((dir + "/cat" + std::to_string(cpu)).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), 1);
      execlp("cat", "cat", raw.c_str(), nullptr);
    }));
  }
  const u64 from = sys::now_ns();
  const Ran alone = wait(start([&] {
                           storm(calls);
                           _exit(0);
                         }), from);
  (void)instance->tracing(false);
  usleep(50000);
  double cat = 0;
  for (const pid_t child : cats) {
    kill(child, SIGTERM);
    cat += wait(child, from).cpu;
  }
  shares.cat = cat / alone.cpu;
  return shares;
}

void record_row(const std::string& dir) {
  std::vector<double> record, cat, ratio;
  std::string why;
  for (int i = 0; i < (quick ? 1 : 5); ++i) {
    const auto shares = one_storm(quick ? 500000 : 3000000, dir, why);
    if (!shares) break;
    record.push_back(shares->record);
    cat.push_back(shares->cat);
    ratio.push_back(shares->record / shares->cat);
  }
  if (record.empty())
    row("record.cpu_share", std::nullopt, "share", why);
  else
    row("record.cpu_share", median(record), "share",
        text("of the traced load's CPU, a storm of system calls; cat of the same rings into files: %.3f; median ratio of the "
             "two: %.2f",
             median(cat), median(ratio)));
}

// The same answers as from the field's tools, of one trace.dat.
void rival_rows(const std::string& file) {
  const struct {
    const char* name;
    const char* detail;
    std::string ours, theirs;
  } questions[] = {
      {"analyze.top_over_tracecmd", "how many of each event", "top " + file,
       "awk '{ ++n[$4] } END { for (e in n) print n[e], e }'"},
      {"analyze.hist_over_tracecmd", "bytes asked of kmalloc, by task", "hist kmem:kmalloc/task -v bytes_req " + file,
       "awk '$4 == \"kmalloc:\" { match($0, /bytes_req=[0-9]+/); s[$1] += substr($0, RSTART + 10, RLENGTH - 10) } END { for (t "
       "in s) print s[t], t }'"},
      {"analyze.latency_over_tracecmd", "from wake-up to run, quantiles",
       "latency sched:sched_waking sched:sched_switch --key pid=next_pid " + file,
       "awk '$4 == \"sched_waking:\" { match($0, / pid=[0-9]+/); at[substr($0, RSTART + 5, RLENGTH - 5)] = $3 } "
       "$4 == \"sched_switch:\" { match($0, /next_pid=[0-9]+/); p = substr($0, RSTART + 9, RLENGTH - 9); if (p in at) { printf "
       "\"%.9f\\n\", $3 - at[p]; delete at[p] } }' | sort -n"},
  };
  for (const auto& question : questions) {
    const std::string ours = std::string(RINGSIDE_COMMAND) + " " + question.ours,
                      theirs = "trace-cmd report " + file + " | " + question.theirs;
    std::vector<double> ratio, mine, other;
    for (int i = 0; i < (quick ? 1 : 5); ++i) {
      const Ran a = shell(ours), b = shell(theirs);
      if (a.status != 0 || b.status != 0) return row(question.name, std::nullopt, "x", "failed: " + question.ours);
      ratio.push_back(b.cpu / a.cpu);
      mine.push_back(a.wall);
      other.push_back(b.wall);
    }
    row(question.name, median(ratio), "x",
        text("%s: %.2f s against %.2f s of trace-cmd report and awk; ratio of CPU time", question.detail, median(mine),
             median(other)));
  }
}

void report_row(const std::string& dir) {
  // Of everything that happens while a compiler works: many kinds of events with all sorts of fields.
  const std::string rec = dir + "/mix", file = dir + "/mix.dat", command = std::string(RINGSIDE_COMMAND);
  const Ran made =
      shell(command + " record -q -e 'sched:*' -e 'syscalls:*' -e 'kmem:*' -e 'irq:*' -b 128M -o " + rec +
            " -- sh -c 'find /usr/include /usr/lib/gcc -type f | head -" + (quick ? "1000" : "12000") + " | xargs -n 40 cat'");
  const Ran exported = shell(command + " export " + rec + " --only kernel --to " + file);
  if (made.status != 0 || exported.status != 0) {
    row("report.over_tracecmd", std::nullopt, "x", "needs the kernel's events: root and tracefs");
    return;
  }
  const bool reads_file = shell(command + " report " + file + " | head -1 | grep -q .").status == 0;
  const std::string ours = command + " report " + (reads_file ? file : rec);
  (void)shell("{ " + ours + " | wc -l; } > " + dir + "/lines 2>/dev/null");
  double events = 0;
  std::ifstream(dir + "/lines") >> events;
  std::vector<double> text_rate, json_rate;
  for (int i = 0; i < (quick ? 2 : 7); ++i) {
    text_rate.push_back(events / shell(ours + " --jobs 1").cpu);
    json_rate.push_back(events / shell(ours + " --jobs 1 --json").cpu);
  }
  row("report.text_events_per_s", median(text_rate), "1/s",
      text("%.0f events of the kernel's as text, of CPU time of one thread; start and formats included", events));
  row("report.json_events_per_s", median(json_rate), "1/s", "the same events as JSON");
  if (shell("trace-cmd report " + file).status != 0) {
    row("report.over_tracecmd", std::nullopt, "x", "trace-cmd is not installed, or refused the file");
    return;
  }
  std::vector<double> ratio, rate, rival;
  for (int i = 0; i < (quick ? 2 : 7); ++i) {
    const Ran a = shell(ours), b = shell("trace-cmd report " + file);
    ratio.push_back(b.cpu / a.cpu);
    rate.push_back(events / a.cpu);
    rival.push_back(events / b.cpu);
  }
  row("report.over_tracecmd", median(ratio), "x",
      text("text of the same %.0f events: %.2f M/s against %.2f M/s of CPU time, start and formats included", events,
           median(rate) / 1e6, median(rival) / 1e6));
  rival_rows(file);
}

// `top` beside a writer at full speed.
void top_row(Instance& instance, const std::string& dir) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return row("live.top_refused", std::nullopt, "share", "one processor only");
  const u64 duration = quick ? 2'000'000'000 : 10'000'000'000;
  must(instance.resize(256 << 20, 65536));
  ::bench::pair(0, 0);  // into a ring of the new size
  const auto refused = [&] {
    u64 sum = 0, written = 0;
    for (const RingInfo& ring : instance.rings())
      sum += ring.counters.dropped + ring.counters.commit_overrun, written += ring.counters.written;
    return std::pair(sum, written);
  };
  const std::string seen = dir + "/top";
  const auto before = refused();
  const u64 from = sys::now_ns();
  const pid_t top = start([&] {
    silence();
    pin(1);
    const int out = open(seen.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, 1);
    execl(RINGSIDE_COMMAND, "ringside", "top", "bench", "--json", nullptr);
  });
  usleep(500000);
  cpu_set_t where;
  sched_getaffinity(0, sizeof where, &where);
  pin(0);
  u64 tried = 0;
  const u64 began = sys::now_ns();
  for (const u64 end = began + duration; sys::now_ns() < end;)
    for (int k = 0; k < 1000; ++k, ++tried) ::bench::pair(tried, tried);
  const double took = static_cast<double>(sys::now_ns() - began) / 1e9;
  sched_setaffinity(0, sizeof where, &where);
  usleep(100000);
  kill(top, SIGINT);
  const Ran ran = wait(top, from);
  const auto after = refused();
  nlohmann::json answer;
  try {
    answer = nlohmann::json::parse(std::ifstream(seen));
  } catch (const nlohmann::json::exception&) {
  }
  must(instance.resize(8 << 20, 16384));
  ::bench::pair(0, 0);
  if (ran.status != 0 || !answer.contains("count")) return row("live.top_refused", std::nullopt, "share", "top failed");
  const u64 counted = answer["count"], lost = answer["lost"];
  row("live.top_refused", static_cast<double>(after.first - before.first) / static_cast<double>(tried), "share",
      text("top beside a writer of %.0f M events/s; it counted %.2f %% of them and the rest as lost%s",
           static_cast<double>(tried) / took / 1e6, 100 * static_cast<double>(counted) / static_cast<double>(counted + lost),
           counted + lost >= tried ? "" : "; THE BOOKS DO NOT BALANCE"));
}

// As an analysis reads: the fields were looked up once, then each is an offset, a size and a sign.
void decode_row() {
  Formats formats;
  const char* const format =
      "name: sched_switch\nID: 1\nformat:\n"
      "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
      "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
      "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
      "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
      "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
      "\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n"
      "\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
      "\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n"
      "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n"
      "\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n"
      "print fmt: \"%d\", REC->prev_pid\n";
  formats.add(1, "sched", "sched_switch", format);
  if (!formats.find(1)->parsed())
    return row("decode.fields_per_s", std::nullopt, "1/s", "the format was not understood");
  std::vector<const Field*> fields;
  for (const char* name : {"prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio"})
    fields.push_back(formats.find(1)->field(name));
  LocalRing local(65536, 65);
  Writer<Tsc> writer(local.ring, Tsc{});
  constexpr u64 events = 40000;
  for (u64 k = 0; k < events; ++k)
    writer.write(64, [&](u8* payload) {
      for (u64 at = 0; at < 64; at += 8) __builtin_memcpy(payload + at, &k, 8);
      const u64 common = 1;
      __builtin_memcpy(payload, &common, 8);
    });
  Reader<> reader(local.ring);
  std::vector<double> rate;
  std::vector<std::vector<u8>> copies;
  while (reader.get_reader(false) == Got::data) copies.emplace_back(reader.data(), reader.data() + reader.view().end);
  for (int i = 0; i < (quick ? 5 : 25); ++i) {
    u64 sum = 0, read = 0;
    const u64 from = sys::now_ns();
    for (const auto& page : copies) {
      abi::EventCursor c(page.data(), 0, static_cast<u32>(page.size()), 0);
      while (c.next()) {
        for (const Field* field : fields) sum += static_cast<u64>(read_integer(c.payload(), *field));
        read += fields.size();
      }
    }
    const double took = static_cast<double>(sys::now_ns() - from);
    rate.push_back(sum == 1 || read < events ? 0 : static_cast<double>(read) * 1e9 / took);
  }
  row("decode.fields_per_s", median(rate), "1/s", "five integers of each sched_switch, the walk over the events included");
}

}  // namespace

int run_storm(u64 calls, const char* out) {
  storm(calls);
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::ofstream(out) << seconds(use.ru_utime) + seconds(use.ru_stime) << "\n";
  return 0;
}

void command_rows(Instance& instance) {
  decode_row();
  char dir[] = "/tmp/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return;
  top_row(instance, dir);
  record_row(dir);
  report_row(dir);
  std::filesystem::remove_all(dir);
}

}  // namespace bench
