// ringside export: events in the formats of other tools.
#include "cli/export.hpp"

#include <algorithm>

#include "cli/export_ctf.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "export/exporter.hpp"
#include "export/recording_as_dat.hpp"
#include "export/recording_as_tar.hpp"
#include "text/units.hpp"
#include "source/packed_stream.hpp"
#include "source/temporary_directory.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct ExportOptions {
  std::vector<std::string> where, events;
  std::string to, format, only, filter;
  Window window;
  bool quiet = false, uncompressed = false, wall = false;
  bool recorded = false;  // at the end of a recording, which sums up itself
};

const ExportFormat& format_of(const ExportOptions& options) {
  const ExportFormat* const format = options.format.empty() ? export_format_of_file(options.to) : export_format(options.format);
  if (format != nullptr) return *format;
  throw UsageError{"the ending of " + options.to + " names no format; use " + export_format_endings() + ", or --format"};
}

// A file that appears whole or not at all; a special one is written into.
class WholeFile {
 public:
  // None: a FIFO that nobody reads yet.
  static result<std::unique_ptr<WholeFile>> try_create(const std::string& path) {
    auto file = RS_TRY(sys::NewFile::into(path, 0644, false));
    return file.fd() < 0 ? nullptr : std::unique_ptr<WholeFile>(new WholeFile(path, std::move(file)));
  }
  // Waits for the reader of a FIFO.
  static result<std::unique_ptr<WholeFile>> create(const std::string& path) {
    for (;;) {
      if (auto file = RS_TRY(try_create(path)); file != nullptr) return file;
      if (asked_to_stop())
        return refuse(std::errc::interrupted, path + " was not written: interrupted, and no program reads this FIFO");
      sleep_ns(20'000'000);
    }
  }
  result<void> write(std::string_view bytes) {
    bytes_ += bytes.size();
    return sys::write_text(file_.fd(), path_, std::string(bytes));
  }
  result<void> appear_now() { return file_.take_name(); }
  result<void> finish() { return file_.put_in_place(); }
  u64 bytes() const { return bytes_; }

 private:
  WholeFile(std::string path, sys::NewFile file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  sys::NewFile file_;
  u64 bytes_ = 0;
};

// Of several machines: none, because system calls of one would have the names of another.
World one_world(const Trace& trace) {
  const World& first = trace.first().world;
  const bool same = std::all_of(trace.inputs.begin(), trace.inputs.end(), [&](const auto& in) { return in->world == first; });
  return same ? first : World{};
}

std::unique_ptr<Exporter> make_exporter(const ExportFormat& format, WholeFile& file, Reading& reading, bool compressed,
                                        const EventPatterns& only = {}, bool with_wall = false) {
  const Trace& trace = reading.trace();
  const Exported of{.formats = trace.formats,
                    .tasks = trace.tasks,
                    .world = one_world(trace),
                    .wall = with_wall ? wall_of(trace, true) : trace.wall(),
                    .raw_times = trace.raw_times(),
                    .show_wall = with_wall,
                    .compressed = compressed,
                    .stacks = format.stacks ? &reading.join_stacks() : nullptr,
                    .only = only};
  return format.make(of, [&file](std::string_view bytes) { return file.write(bytes); });
}

// begun: there was a record.
result<void> finish(Exporter& exporter, Reading& reading, bool begun) {
  const Account& account = reading.complete().account;
  if (account.elsewhere() != 0 || !account.exact()) {
    const u64 last = reading.totals().last_ns;
    if (!begun) RS_TRY(exporter.begin(last));
    RS_TRY(exporter.add_missing(last, account));
  }
  return exporter.finish();
}

// What is wrong with the finished file, and the exit code.
int say_faults(Reading& reading, const ExportFormat& format, const Exporter& exporter) {
  const bool problems = say_problems(reading);
  if (format.stacks) say_first(reading.stack_remarks());
  const std::string out = exporter.left_out();
  if (!out.empty()) say(out);
  return problems || !out.empty() ? exit_failure : exit_ok;
}

result<int> export_events(const ExportOptions& options, const ExportFormat& format) {
  Reading::Options open = reading_of(options.where, options.filter);
  const EventPatterns only = open.only = parse_events(options.events);
  open.window = options.window;
  auto reading = RS_TRY(Reading::open(std::move(open)));
  if (!options.recorded) check_wanted(only, options.window, *reading);
  reading->look_up_names();
  catch_signals();  // an unfinished file is removed
  auto file = RS_TRY(WholeFile::create(options.to));
  const auto exporter = make_exporter(format, *file, *reading, !options.uncompressed, only, options.wall);
  Progress progress(options.quiet);
  TraceRecord record;
  bool begun = false;
  for (u64 n = 1;; ++n) {
    if (n % 4096 == 0) {  // also of those that are not wanted
      if (asked_to_stop() && !options.recorded)
        return refuse(std::errc::interrupted, options.to + " was not written: interrupted");
      progress.update([&](double seconds) {
        return fmt::format("{}, {}, {:.0f} s", counted(reading->totals().account.read, "event"), format_size(file->bytes()),
                           seconds);
      });
    }
    const Reading::Got got = reading->next(record);
    if (got == Reading::Got::nothing) break;
    if (got == Reading::Got::other) continue;
    if (!std::exchange(begun, true)) RS_TRY(exporter->begin(record.time));
    RS_TRY(exporter->add(record, reading->ring(record)));
  }
  RS_TRY(finish(*exporter, *reading, begun));
  RS_TRY(file->finish());
  progress.clear();
  const int code = say_faults(*reading, format, *exporter);
  const Totals& totals = reading->complete();
  if (!options.recorded)
    say(counted(totals.account.read, "event") +
        (totals.account.none_lost() ? "" : ", " + lost_count(totals.account) + " lost" + lost_places(totals.account)) + ", " +
        format_size(file->bytes()) + " in " + options.to +
        (*format.look != 0 ? std::string("; look with: ") + format.look : ""));
  return code;
}

// A trace.dat keeps what a reading of the whole recording finds.
result<std::vector<std::string>> problems_of(const std::string& recording, bool quiet) {
  Reading::Options open = reading_of({recording}, "");
  open.notices = [](const std::vector<std::string>&) {};  // the file has them, too
  const auto reading = RS_TRY(Reading::open(std::move(open)));
  Progress progress(quiet);
  u64 n = 0;
  reading->take_rest([&](const auto&...) {
    if (++n % 4096 == 0)
      progress.update([&](double seconds) { return fmt::format("{} read, {:.0f} s", counted(n, "event"), seconds); });
  });
  (void)reading->complete();
  std::vector<std::string> problems;
  (void)reading->each_new_problem([&](const std::string& problem) { problems.push_back(problem); });
  return problems;
}

// The files of a recording as they are, in a directory that has the tar's name.
result<int> export_tar(const std::string& from, const ExportOptions& options) {
  const auto file = RS_TRY(WholeFile::create(options.to));
  const std::string folder = options.to.ends_with(".tar") ? std::filesystem::path(options.to).stem().string() : default_recording;
  RS_TRY(recording_as_tar(from, folder, [&](std::string_view bytes) -> result<void> {
    if (asked_to_stop()) return refuse(std::errc::interrupted, options.to + " was not written: interrupted");
    return file->write(bytes);
  }));
  RS_TRY(file->finish());
  if (!options.quiet && !options.recorded)
    say(format_size(file->bytes()) + " in " + options.to + "; look with: " + export_format("tar")->look + " " + options.to);
  return exit_ok;
}

// A trace.dat is not written from its begin to its end.
result<int> export_piped_dat(const std::string& from, const ExportOptions& options) {
  const auto part = RS_TRY(TemporaryDirectory::make("dat", "a trace.dat"));
  const std::string whole = part.path() + "/trace";
  std::vector<std::string> problems = RS_TRY(problems_of(from, options.quiet));
  RS_TRY(export_recording(from, whole, options.only, &problems, asked_to_stop));
  const auto to = RS_TRY(WholeFile::create(options.to));
  const sys::Fd made = RS_TRY(sys::open_regular(whole));
  const auto bytes = plain_stream(made.get(), whole);
  std::vector<u8> buffer(1 << 20);
  while (const size_t n = RS_TRY(bytes->read(buffer.data(), buffer.size())))
    RS_TRY(to->write({reinterpret_cast<const char*>(buffer.data()), n}));
  RS_TRY(to->finish());
  for (const std::string& problem : problems) say(problem);
  return problems.empty() ? exit_ok : exit_failure;
}

result<int> run_export(ExportOptions options) {
  if (options.to.empty()) {
    const std::string last = options.where.empty() ? "" : options.where.back();
    const bool a_name = Where::now(last).is_nothing() && export_format_of_file(last) != nullptr;
    throw UsageError{"export needs the file to write" + did_you_mean({"-o " + (a_name ? last : "FILE")})};
  }
  const bool piped = options.to == "-";
  if (piped && options.format.empty())
    throw UsageError{"-o - is stdout, whose name has no ending: add --format json, csv, perfetto, dat or tar"};
  using Of = ExportFormat::Of;
  const ExportFormat& format = format_of(options);
  if (piped && format.of == Of::ctf) throw UsageError{"a CTF directory cannot be written to stdout; name it with -o"};
  if (piped) options.to = "/proc/self/fd/1";  // not every machine has /dev/stdout, and a file of that name would be made
  if (format.of != Of::dat && !options.only.empty()) throw UsageError{"--only is for a trace.dat; choose events with -e"};
  if (format.of == Of::ctf && !options.window.whole())
    throw UsageError{"a CTF directory has the whole time and all CPUs; choose events with -e and -F"};
  if (format.of == Of::ctf) return export_ctf(options.where, options.events, options.filter, options.to, options.quiet);
  if (format.of == Of::records) return export_events(options, format);
  const std::string one = format.of == Of::tar ? "a tar" : "a trace.dat";
  if (options.where.size() > 1) throw UsageError{one + " is made of one recording"};
  if (!options.events.empty() || !options.filter.empty() || !options.window.whole())
    throw UsageError{one + " has all events of a recording" +
                     (format.of == Of::tar ? "" : "; --only leaves the kernel's or the program's out")};
  const std::string from = options.where.empty() ? default_recording : options.where[0];
  const Where where = Where::of(from);
  if (!where.is_recording() && !where.is_nothing())
    return refuse(std::errc::invalid_argument,
                  where.text + " is " + where.what() + ", not a recording; only what ringside record has made becomes " + one);
  catch_signals();  // an unfinished file is removed
  if (format.of == Of::tar) return export_tar(from, options);
  if (piped) return export_piped_dat(from, options);
  std::vector<std::string> problems = RS_TRY(problems_of(from, options.quiet));
  auto written = RS_TRY(export_recording(from, options.to, options.only, &problems, asked_to_stop));
  say(counted(written.sub_buffers, "sub-buffer") + ", " + format_size(written.bytes) + "; look with: trace-cmd report " +
      options.to);
  for (const std::string& problem : problems) say(problem);
  return problems.empty() ? exit_ok : exit_failure;
}

class GrowingFile final : public GrowingExport {
 public:
  GrowingFile(const std::string& to, std::unique_ptr<Reading> reading)
      : to_(to), format_(*export_format_of_file(to)), reading_(std::move(reading)) {
    if (format_.stacks) reading_->join_stacks();  // from the first event on
  }
  result<void> advance(const RecordingMeta& now, u64 taken_until) override {
    constexpr u64 most_ns = 10'000'000, put_out_every_ns = 200'000'000;
    if (taken_until == 0) return {};
    reading_->grow(now, taken_until);
    if (!RS_TRY(may_take())) return {};
    const u64 begin = sys::now_ns();
    RS_TRY(take([&] { return sys::now_ns() - begin > most_ns; }));
    if (exporter_ == nullptr || begin - put_out_ns_ < put_out_every_ns) return {};
    put_out_ns_ = begin;
    return exporter_->put_out();
  }
  result<int> finish(const RecordingMeta& now) override {
    reading_->grow(now, sys::now_ns());
    reading_->stop();
    if (exporter_ == nullptr) RS_TRY(begin(WholeFile::create(to_)));
    RS_TRY(take([] { return false; }));
    RS_TRY(cli::finish(*exporter_, *reading_, begun_));
    return say_faults(*reading_, format_, *exporter_);
  }

 private:
  result<void> begin(result<std::unique_ptr<WholeFile>> file) {
    file_ = RS_TRY(std::move(file));
    RS_TRY(file_->appear_now());
    exporter_ = make_exporter(format_, *file_, *reading_, true);
    return {};
  }
  // A special file is opened before the first event. False: nobody reads the FIFO yet, and the events wait in the recording.
  result<bool> may_take() {
    if (exporter_ != nullptr) return true;
    const auto to = RS_TRY(sys::Output::at(to_));
    if (!to.special) return true;
    auto file = RS_TRY(WholeFile::try_create(to_));
    if (file == nullptr) return false;
    RS_TRY(begin(std::move(file)));
    return true;
  }
  template <class Enough>
  result<void> take(const Enough& enough) {
    TraceRecord record;
    for (u64 n = 1; n % 256 != 0 || !enough(); ++n) {
      const Reading::Got got = reading_->next(record);
      if (got == Reading::Got::nothing) break;
      if (got == Reading::Got::other) continue;
      if (exporter_ == nullptr) RS_TRY(begin(WholeFile::create(to_)));
      if (!std::exchange(begun_, true)) RS_TRY(exporter_->begin(record.time));
      RS_TRY(exporter_->add(record, reading_->ring(record)));
    }
    return {};
  }

  std::string to_;
  const ExportFormat& format_;
  std::unique_ptr<Reading> reading_;
  std::unique_ptr<WholeFile> file_{};  // from the first event on
  std::unique_ptr<Exporter> exporter_{};
  bool begun_ = false;  // there was an event
  u64 put_out_ns_ = 0;
};

}  // namespace

std::unique_ptr<GrowingExport> GrowingExport::of(const std::string& dir, const std::string& file, const RecordingMeta& now) {
  return std::make_unique<GrowingFile>(file, Reading::open_growing(dir, now));
}

result<int> export_recorded(const std::string& dir, const std::string& file, bool again) {
  const auto to = RS_TRY(sys::Output::at(file));
  if (again && to.special) return refuse(std::errc::io_error, file + " has a part of the events: it cannot begin anew");
  ExportOptions options;
  options.where = {dir};
  options.to = file;
  options.recorded = true;
  const ExportFormat& format = format_of(options);
  return format.of == ExportFormat::Of::tar ? export_tar(dir, options) : export_events(options, format);
}

Command add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* c = app.add_subcommand(
      "export", "write events for Perfetto, trace-cmd and KernelShark, babeltrace2 and Trace Compass, as JSON or as CSV");
  c->add_option("WHERE", options->where,
                "recording, trace.dat file or instance, which is not consumed; several are merged (default: ringside.data)");
  c->add_option("-o,--to,--output", options->to,
                "the file to write; an older one is replaced. Its ending names the format: " + export_format_endings() +
                    "; -: stdout")
      ->type_name("FILE");
  std::vector<std::string> names;
  std::string described;
  for (const ExportFormat& format : export_formats()) {
    names.emplace_back(format.name);
    described += fmt::format("{}{} ({})", described.empty() ? "" : ", ", format.name, format.text);
  }
  c->add_option("--format", options->format, "whatever the file's name is: " + described)
      ->check(CLI::IsMember(names));
  add_events(*c, options->events, "only these events");
  add_filter(*c, options->filter);
  add_window(*c, options->window);
  c->add_option("--only", options->only, "dat: leave the other out: kernel, or program")
      ->check(CLI::IsMember({"kernel", "program"}));
  c->add_flag("--uncompressed", options->uncompressed, "perfetto: packets that other programs can read without zlib");
  c->add_flag("--wall", options->wall, "json, csv: the time of day of each event, too");
  c->add_flag("-q,--quiet", options->quiet, "no progress");
  c->footer(
      "Examples:\n"
      "  ringside export --to build.pftrace                for https://ui.perfetto.dev\n"
      "  ringside export web trace.dat --to both.pftrace   a program and the kernel on one timeline\n"
      "  ringside export --to trace.dat && trace-cmd report trace.dat\n"
      "  ringside export build.data --only kernel --to kernel.dat    for kernelshark\n"
      "  ringside export -e 'libc:*' --to libc.csv\n"
      "  ringside export --time +12s..+12.1s --to slice.pftrace      a tenth of a second\n"
      "  ringside export build.data --to build.tar         one file with all of it, names too, for a colleague's ringside "
      "report\n"
      "  ringside export build.data -o - --format tar | zstd > build.tar.zst\n"
      "  ringside export --to build.ctf && babeltrace2 build.ctf    for Trace Compass, too\n"
      "Perfetto: the kernel's events in its own messages, so that it shows CPUs, thread states and system calls; a program's "
      "spans and events\n"
      "with a duration as slices, counters as counters, others as instants, fields as arguments; losses as slices on tracks of "
      "their own.\n"
      "CTF: written by babeltrace2, which must be installed; losses are its discarded events. Without a file:\n"
      "  babeltrace2 --plugin-path=DIR --component=source.ringside.rings --params='inputs=[\"web\"],follow=yes'\n"
      "trace.dat: version 6 of the format; version 7 with a buffer for each where both are in it. Sub-buffers go in as they "
      "are, but for\n"
      "the ids of a program's events, which begin after the kernel's. A ring's number is the CPU that trace-cmd shows.");
  return {c, [options] { return run_export(*options); }};
}

}  // namespace ringside::cli
