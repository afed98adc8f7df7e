// ringside recover: the rings of external writers out of a memory dump, by their page footers alone.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "cli/formats_option.hpp"
#include "cli/recording.hpp"
#include "consumer/where.hpp"
#include "text/units.hpp"
#include "instance/instance.hpp"
#include "record/source_feed.hpp"
#include "remote/dump.hpp"
#include "remote/memory_image.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct RecoverOptions {
  std::string file, out = default_recording, like, formats, clock;
  bool quiet = false;
};

// Holes of the file hold nothing.
result<sys::Region> map_dump(const std::string& path, u64& size) {
  sys::guard_mappings();
  const sys::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (const int error = errno; !fd) {
    if (Instance::open(path))
      throw UsageError{
          path + " is an instance, and recover reads a memory dump; the last events of an instance: ringside crash " + path};
    return fail(error, "cannot open " + path);
  }
  if (struct stat st {}; fstat(fd.get(), &st) == 0 && S_ISDIR(st.st_mode))
    throw UsageError{path +
                     " is a directory, and recover reads a memory dump; a recording or an instance needs none: ringside "
                     "report, ringside crash"};
  const off_t end = lseek(fd.get(), 0, SEEK_END);
  if (end < 0) return fail(errno, "cannot measure " + path + "; copy it to a file first");
  size = static_cast<u64>(end);
  if (size < page_size) return refuse(std::errc::invalid_argument, path + " is shorter than a page");
  return sys::Region::map(fd.get(), size, false, path);
}

result<int> run_recover(const RecoverOptions& options) {
  u64 size = 0;
  auto dump = RS_TRY(map_dump(options.file, size));
  auto image = remote::MemoryImage::of({dump.data(), size});
  if (!image) return refuse(std::errc::bad_message, options.file + ": " + image.error().sentence);
  const auto rings = remote::find_rings(image->pieces());
  if (rings.empty())
    return refuse(std::errc::no_message_available,
                  options.file + ", read as " + image->format() +
                      ", holds no sub-buffer with a page footer of ringside's (layout footers; at page boundaries)");
  ClockInfo clock;
  std::string boot;  // a dump does not have it
  World world;
  i32 writer = 0;  // its process, if known
  std::vector<EventInfo> events;
  std::vector<RingName> threads;
  if (!options.like.empty()) {
    auto like = RS_TRY(RecordingMeta::read(options.like));
    clock = like.clock;
    boot = like.boot;
    world = like.world;
    events = like.events;
    threads = like.threads;
    for (const RecordedRing& ring : like.rings)
      if (ring.name.of_a_thread()) writer = ring.name.pid;
  }
  for (EventInfo& event : events) event.apart = event.kernel ? 0 : 1;
  if (!options.formats.empty()) events = RS_TRY(read_formats(options.formats));
  if (options.like.empty() || !options.clock.empty()) {
    auto kind = clock_from(options.clock.empty() ? "mono" : options.clock);
    if (!kind) throw UsageError{kind.error().sentence};
    // Ticks of a counter mean the same as those of the other recording.
    if (clock.kind != *kind || *kind == ClockKind::mono) clock = {};
    clock.kind = *kind;
  }
  SourceFeed dumped(events, threads);
  for (const remote::DumpedRing& ring : rings) {
    auto source = std::make_unique<remote::DumpSource>(ring, clock);
    RingName name = source->name();
    name.task = name.process = "recovered";
    name.apart = 1;
    name.pid = writer;
    std::vector<std::string> problems = ring.survey.problems;
    if (&ring == &rings.front()) problems.insert(problems.begin(), image->problems().begin(), image->problems().end());
    dumped.add({std::move(source), name}, std::move(problems));
  }
  auto run = RS_TRY(new_recording(options.out, clock));
  run->meta().boot = boot;
  run->meta().world = world;
  RS_TRY(run->add(dumped));
  while (!dumped.ended() && !run->failed()) run->poll();
  auto finished = run->finish(0);
  Told().doubts(*run);
  if (!finished && !run->failed()) return tl::unexpected<Error>(finished.error());
  if (!options.quiet)
    say(fmt::format("{} of {} recovered, {} missing; {}", counted(run->events(), "event"), counted(rings.size(), "ring"),
                    lost_count(run->account()), options.out));
  return finished ? exit_code(*run, false) : exit_failure;
}

}  // namespace

Command add_recover(CLI::App& app) {
  auto options = std::make_shared<RecoverOptions>();
  CLI::App* c = app.add_subcommand("recover", "rings of external writers out of a memory dump");
  c->add_option(
       "FILE", options->file,
       "a memory dump: pages at page boundaries (a guest's RAM, a shared region), an ELF core, or a kdump of zlib or zstd "
       "(qemu's dump-guest-memory, also with -z)")
      ->required();
  c->add_option("-o,--output", options->out, "directory of the recording; an older one there becomes DIR.old")
      ->capture_default_str();
  c->add_option("--like", options->like, "take the clock and the events' formats from this recording")->type_name("DIR");
  c->add_option("--formats", options->formats, formats_help)->type_name("PATH");
  c->add_option("--clock", options->clock,
                "the writer's clock: mono, tsc or cntvct (raw ticks), or counter (default: that of --like, else mono)");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  c->footer(
      "Examples:\n"
      "  ringside recover guest.ram -o crash.data && ringside report crash.data\n"
      "  ringside recover region.bin --like earlier.data -o crash.data\n"
      "  ringside recover core --formats hv.format --clock counter\n"
      "Each sub-buffer of the layout \"footers\" ends in 32 bytes that name its ring, its place in the order and the number of "
      "its first\n"
      "event; nothing else is needed. Footers that contradict each other are named and left out: then the exit code is 1.");
  return {c, [options] { return run_recover(*options); }};
}

}  // namespace ringside::cli
