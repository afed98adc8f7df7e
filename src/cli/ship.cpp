// ringside ship: an agent that records as `record` does and sends what it recorded to a ClickHouse server.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cli/json.hpp"
#include "cli/keep_names.hpp"
#include "cli/options.hpp"
#include "cli/presets.hpp"
#include "text/units.hpp"
#include "ship/metrics.hpp"
#include "ship/recorder.hpp"
#include "ship/sender.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct ShipOptions {
  std::string to, instance, spool, config, keep, host, schema;
  std::vector<std::string> kernel_events, user_events, others;
  std::string filter, kstack, metrics;
  std::vector<std::string> columns, latencies;
  std::optional<KernelWay> source;
  u64 spool_size = u64{4} << 30, buffer_size = 4 << 20, part_ns = 10'000'000'000, part_bytes = 64 << 20, duration_ns = 0;
  bool fail_on_loss = false, quiet = false, json = false;
};

// "1/100 by tid"
u64 parse_keep(const std::string& text) {
  u64 one_of = 0;
  char rest = 0;
  char by[8] = {};
  const int got = std::sscanf(text.c_str(), "1/%7lu by %7s%c", &one_of, by, &rest);
  if (got != 2 || one_of == 0 || std::string(by) != "tid")
    throw UsageError{"--keep takes \"1/100 by tid\": all events of one thread in a hundred, not \"" + text + "\""};
  return one_of;
}

std::string parse_cluster(const std::string& text) {
  if (text.empty()) return "";
  constexpr std::string_view begin = "cluster=";
  if (text.substr(0, begin.size()) != begin || text.size() == begin.size())
    throw UsageError{"--schema takes cluster=NAME, the name of a cluster in the server's configuration, not \"" + text + "\""};
  return text.substr(begin.size());
}

// NAME of a preset, or START->END:KEY.
ship::Metrics::Latency parse_latency(const std::string& text) {
  ship::Metrics::Latency latency{text, {}};
  const size_t arrow = text.find("->"), colon = text.rfind(':');
  if (find_preset(text) != nullptr) {
    latency.pair = pair_of({text}, "");
  } else if (arrow != std::string::npos) {
    // SYSTEM:EVENT has one colon, so a second one begins the keys.
    const bool keys = colon != std::string::npos && colon > arrow && text.find(':', arrow) != colon;
    latency.pair.start = text.substr(0, arrow);
    latency.pair.end = text.substr(arrow + 2, keys ? colon - arrow - 2 : std::string::npos);
    if (keys) latency.pair.keys = parse_keys(text.substr(colon + 1));
  } else {
    throw UsageError{
        "--latency takes a name that ringside latency --help lists, or START->END[:KEY] as "
        "sched:sched_waking->sched:sched_switch:pid=next_pid, not \"" +
        text + "\""};
  }
  latency.pair.slowest = 0;
  return latency;
}

result<clickhouse::Address> place_of(const std::string& text) {
  auto address = RS_TRY(clickhouse::Address::parse(text));
  if (!address.more.empty())
    throw UsageError{"ship takes no " + address.more.begin()->first +
                     "= in a server's address; ringside ship --help names the options"};
  return address;
}

Account lost_of(const ship::SpoolBooks& books) {
  Account lost;
  lost.unrecorded = books.lost;
  if (books.unproved != 0) lost.doubts.push_back(counted(books.unproved, "recording") + " may have lost more");
  return lost;
}

std::string books_of(const ship::SpoolBooks& books) {
  return fmt::format("read {} = shipped {} + filtered {} + spooled {} + dropped {}; lost before {}", format_count(books.read),
                     format_count(books.shipped), format_count(books.filtered), format_count(books.spooled),
                     format_count(books.dropped), lost_count(lost_of(books)));
}

result<ship::Sender::Options> what_to_send(const ShipOptions& options) {
  ship::Sender::Options send;
  if (!options.to.empty()) send.to = RS_TRY(place_of(options.to));
  for (const std::string& other : options.others) send.others.push_back(RS_TRY(place_of(other)));
  send.cluster = parse_cluster(options.schema);
  if (!send.others.empty() && send.cluster.empty())
    throw UsageError{"--other names servers of a cluster: name that with --schema cluster=NAME"};
  if (!options.keep.empty()) send.choice.keep_one_of = parse_keep(options.keep);
  send.choice.filter = options.filter;
  if (!options.filter.empty()) {
    const Formats none;
    const Tasks tasks;
    const auto compiled = Filter::compile(options.filter, none, tasks);
    if (!compiled && compiled.error().code != std::errc::no_such_file_or_directory) throw UsageError{compiled.error().sentence};
  }
  if (!options.config.empty()) send.login = RS_TRY(clickhouse::Login::read(options.config));
  send.host = options.host;
  send.say = say;
  return send;
}

result<ship::Recorder::Options> what_to_record(const ShipOptions& options) {
  if (options.part_ns < 100'000'000) throw UsageError{"--part-time takes at least 100ms"};
  if (options.part_bytes < 65536) throw UsageError{"--part-size takes at least 64k"};
  if (!options.user_events.empty() && options.instance.empty())
    throw UsageError{"-u names events of a program: name its instance with -i"};
  ship::Recorder::Options record;
  record.instance = options.instance;
  record.user = parse_events(options.user_events);
  record.buffer_size = options.buffer_size;
  record.part_ns = options.part_ns;
  record.part_bytes = options.part_bytes;
  record.say = say;
  if (!options.kernel_events.empty()) {
    KernelFeed::Options kernel;
    kernel.events = parse_events(options.kernel_events);
    RS_TRY(check_kernel_events(kernel.events, true));
    if (!options.kstack.empty()) kernel.stacks = parse_events({options.kstack == "true" ? "*:*" : options.kstack});
    kernel.buffer_size = options.buffer_size;
    kernel.source.forced = options.source;
    kernel.notice = say;
    record.kernel = std::move(kernel);
  } else if (!options.kstack.empty()) {
    throw UsageError{"--kstack is about events of the kernel: name them with -e"};
  }
  return record;
}

ship::Metrics::Options what_to_measure(const ShipOptions& options) {
  ship::Metrics::Options measure;
  measure.columns = options.columns;
  for (const std::string& text : options.latencies) measure.latencies.push_back(parse_latency(text));
  if (options.metrics.empty() && (!options.columns.empty() || !options.latencies.empty()))
    throw UsageError{"--hist and --latency are histograms of --metrics ADDRESS:PORT"};
  for (const std::string& text : options.columns)
    if (text.find('/') == std::string::npos)
      throw UsageError{"--hist takes EVENT/FIELD, as libc:malloc/size, not \"" + text + "\""};
  return measure;
}

// A part that is sent later, or again, has them already. Without them the addresses are numbers at the server.
void keep_names_of(const std::string& part, HandedFiles* files) {
  const auto meta = RecordingMeta::read(part);
  if (!meta || !has_stacks(*meta) || access((part + "/" + kept_names).c_str(), F_OK) == 0) return;
  if (const auto kept = keep_names(part, NamesToKeep::of(files)); !kept)
    say("the names of the stacks of " + part + " are not kept: " + kept.error().sentence);
}

// The last line, and the exit code. records: this agent also recorded.
int close_books(const ShipOptions& options, const ship::Spool& spool, bool records, const result<void>& recorded,
                const result<void>& sent) {
  const ship::SpoolBooks books = spool.books();
  if (options.json)
    put(line_of(Json{{"agent", spool.agent()},
                     {"read", books.read},
                     {"shipped", books.shipped},
                     {"filtered", books.filtered},
                     {"spooled", books.spooled},
                     {"dropped", books.dropped},
                     {"lost", books.lost},
                     {"unproved", books.unproved}}));
  else if (!options.quiet)
    say(books_of(books));
  if (books.spooled != 0)
    say(counted(books.spooled, "event waits", "events wait") + " in " + options.spool + " for the next run");
  if (!books.add_up()) say("these numbers do not add up; please report it");
  if (!recorded) failed(recorded.error());
  if (!sent) failed(sent.error());
  if (!recorded || !sent || !books.add_up()) return exit_failure;
  if (!records && books.spooled != 0) return exit_failure;  // to send was all there was to do
  return options.fail_on_loss && (books.dropped != 0 || !lost_of(books).none_lost()) ? exit_loss : exit_ok;
}

// Without a server: whether this spool is one of numbers alone. One whose parts wait for a server is not emptied.
result<void> take_for_numbers(const ShipOptions& options, bool records, const ship::Spool& spool) {
  if (!records) throw UsageError{"without a server, --metrics makes numbers of what it records: name that with -i or -e"};
  if (!options.filter.empty() || !options.keep.empty())
    throw UsageError{"-F and --keep choose what is sent, and without a server nothing is"};
  const std::string mark = options.spool + "/numbers-only";
  if (!std::filesystem::exists(mark) && spool.books().spooled != 0)
    return refuse(std::errc::device_or_resource_busy,
                  options.spool + " holds " + counted(spool.books().spooled, "event") +
                      " that wait for a server, and without one they would be lost; name the server, or another --spool");
  return write_file(mark, "", "--spool DIR");
}

// Takes each part away once numbers were made of it.
result<void> keep_back(ship::Spool& spool, ship::Metrics& metrics, const std::atomic<bool>& gone) {
  while (!gone) {
    const auto part = spool.next(100'000'000);
    if (!part && spool.ended()) break;
    if (!part) continue;
    metrics.wait_for(*part);
    if (auto begun = spool.begin({*part, spool.first_batch()}); !begun) {
      if (begun.error().code == std::errc::no_such_file_or_directory) continue;  // dropped for want of room
      return begun;
    }
    RS_TRY(spool.keep_back());
  }
  return {};
}

result<int> run_ship(const ShipOptions& options) {
  const bool alone = options.to.empty();  // no server: only numbers
  if (alone && options.metrics.empty())
    throw UsageError{
        "ship takes TO, the server that gets the events, as clickhouse://HOST/DATABASE; or --metrics ADDRESS:PORT"};
  ship::Sender::Options send = RS_TRY(what_to_send(options));
  ship::Recorder::Options record = RS_TRY(what_to_record(options));
  ship::Metrics::Options measure = what_to_measure(options);
  const bool records = record.kernel || !record.instance.empty();
  catch_signals();

  std::atomic<bool> leave{false}, gone{false};
  send.leave = [&] { return leave.load(); };
  send.stop = [&] { return gone.load(); };
  const auto spool = RS_TRY(ship::Spool::open(options.spool, options.spool_size));
  std::unique_ptr<ship::Recorder> recorder;
  send.keep_names = [&](const std::string& part) { keep_names_of(part, recorder != nullptr ? recorder->files() : nullptr); };
  std::unique_ptr<ship::Sender> sender;
  if (alone)
    RS_TRY(take_for_numbers(options, records, *spool));
  else
    sender = RS_TRY(ship::Sender::create(*spool, std::move(send)));
  result<void> recorded, sent;
  if (records) recorder = RS_TRY(ship::Recorder::create(*spool, std::move(record)));
  std::unique_ptr<ship::Metrics> metrics;
  std::unique_ptr<ship::MetricsServer> asked;
  if (!options.metrics.empty()) {
    if (!alone) measure.server_answers = [&] { return sender->answers(); };
    measure.disk_is_full = [&] { return recorder != nullptr && recorder->disk_is_full(); };
    measure.fills = [&] { return recorder != nullptr ? recorder->fills() : std::vector<ship::RingFill>{}; };
    metrics = std::make_unique<ship::Metrics>(*spool, std::move(measure));
    RS_TRY(metrics->start());
    asked = RS_TRY(ship::MetricsServer::start(options.metrics, [&] { return metrics->text(); }));
    if (!options.quiet) say("numbers for Prometheus at port " + std::to_string(asked->port()) + ", /metrics");
    if (!alone) sender->first_wait([&](u64 part) { metrics->wait_for(part); });
  }
  std::atomic<bool> sender_ended{false};
  auto thread = RS_TRY(sys::start_thread("that sends", [&] {
    sent = alone ? keep_back(*spool, *metrics, gone) : sender->run();
    sender_ended = true;
  }));
  const struct Join {  // also where an exception ends this
    std::thread& thread;
    std::atomic<bool>& gone;
    ship::Spool& spool;
    ~Join() {
      gone = true;
      spool.end();
      if (thread.joinable()) thread.join();
    }
  } join{thread, gone, *spool};
  const u64 start = sys::now_ns();
  while (records && recorded && !sender_ended && !asked_to_stop() &&
         !(options.duration_ns != 0 && sys::now_ns() - start >= options.duration_ns))
    recorded = recorder->poll();
  if (records) {
    const auto finished = recorder->finish();
    if (recorded) recorded = finished;
  }
  spool->end();
  // The rest goes out as long as the server takes it, and, after a signal, for a while.
  leave = true;
  constexpr u64 patience = 10'000'000'000;
  for (u64 stopped = 0; !sender_ended;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!asked_to_stop()) continue;
    if (stopped == 0) stopped = sys::now_ns();
    if (sys::now_ns() - stopped > patience || !records) gone = true;
  }
  thread.join();
  return close_books(options, *spool, records, recorded, sent);
}

}  // namespace

Command add_ship(CLI::App& app) {
  const auto options = std::make_shared<ShipOptions>();
  CLI::App* c = app.add_subcommand("ship", "record all the time, and send the events to a ClickHouse server");
  c->add_option("TO", options->to,
                "the server and its database: clickhouse://HOST:8123/DATABASE; none: only numbers, by --metrics");
  c->add_option("-i,--instance", options->instance, "instance to record; made if it is not there");
  add_events(*c, options->kernel_events, "events of the kernel, of all processes");
  add_events(*c, options->user_events, "of the programs' events only these (default: all)", "-u,--user");
  c->add_flag("--kstack", options->kstack,
              "with the kernel's calls that led to each of its events; --kstack=PATTERN: to these");
  add_filter(*c, options->filter);
  c->add_option("--keep", options->keep,
                "send the events of some threads only: \"1/100 by tid\"; the others are counted as filtered")
      ->type_name("PART");
  c->add_option("--config", options->config,
                "a file that only its owner can read, of lines NAME = VALUE: user, password, tls = yes, ca, certificate, key")
      ->type_name("FILE");
  options->spool = "/var/spool/ringside";
  c->add_option("--spool", options->spool, "directory for recordings on their way; each agent has its own")
      ->capture_default_str()
      ->type_name("DIR");
  add_size(*c, "--spool-size", options->spool_size,
           "what they may take; then the oldest one is dropped, and its events are counted (default 4G)");
  add_time(*c, "--part-time", options->part_ns, "a recording is sent after this time (default 10s)");
  add_size(*c, "--part-size", options->part_bytes, "or when it has this size (default 64M)");
  c->add_option("--host", options->host,
                "this machine's name in the tables (default: its host name; of a recording of another boot, its recorder's)")
      ->type_name("NAME");
  c->add_option("--schema", options->schema,
                "cluster=NAME: tables over all servers of that cluster; this agent sends to TO alone")
      ->type_name("WORD");
  c->add_option("--other", options->others,
                "with --schema: the cluster's other servers, which get the same tables; may be repeated")
      ->type_name("TO")
      ->allow_extra_args(false);
  c->add_option("--metrics", options->metrics,
                "answer Prometheus at this address: its books, fill of rings and spool, counts of events")
      ->type_name("ADDRESS:PORT");
  c->add_option("--hist", options->columns, "with --metrics: a histogram of a field, EVENT/FIELD; may be repeated")
      ->type_name("COLUMN")
      ->allow_extra_args(false);
  c->add_option("--latency", options->latencies,
                "with --metrics: a histogram of the time from START to END: a name of ringside latency, or START->END:KEY; may "
                "be repeated")
      ->type_name("PAIR")
      ->allow_extra_args(false);
  add_size(*c, "-b,--buffer-size", options->buffer_size, "size of each ring (default 4M)");
  add_source(*c, options->source);
  add_duration(*c, options->duration_ns, "stop recording after this time, and end when all is sent");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost or dropped");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  add_json(*c, options->json, "the summary as one line of JSON");
  c->footer(
      "Examples:\n"
      "  ringside ship -e sched clickhouse://db:8123/traces     the scheduler's events of this machine, until Ctrl-C\n"
      "  ringside ship -i web -F 'duration_ns > 1ms' --config /etc/ringside/ship.conf clickhouse://db/traces\n"
      "  ringside ship -e sched --metrics 127.0.0.1:9464 --latency wakeup clickhouse://db/traces\n"
      "  ringside ship -e sched --metrics 127.0.0.1:9464 --latency wakeup --spool /run/ringside   numbers alone, no server\n"
      "  ringside record --rotate 10s -o /var/spool/ringside/part ./server &\n"
      "  ringside ship clickhouse://db/traces                   what is in the spool, then end\n"
      "Each type of events is a table, \"sched:sched_switch\", with a column for each field. docs/fleet.md has ten questions "
      "in SQL.\n"
      "The recorder never waits for the server: recordings wait in the spool, also those of an agent that was killed. Each "
      "event arrives\n"
      "once, whatever is killed or restarted meanwhile. The summary accounts for every event, since the spool was made:\n"
      "read = shipped + filtered + spooled + dropped.\n"
      "Without -i and -e it sends what is in the spool, recordings named part.NUMBER, and ends: with 1 if some could not "
      "be sent.\n"
      "Columns of every table of events: time, time_ns (since 1970), error_ns (how far that may be off), mono_ns, host, boot, "
      "agent, batch,\n"
      "ring, number, cpu, tid, task, flags. A field of such a name gets a _ after it.");
  return {c, [options] { return run_ship(*options); }};
}

}  // namespace ringside::cli
