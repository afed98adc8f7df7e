// The formats that events are exported in, and what makes a file of each.
//
// A new format of records is one file of this room with a class that is an Exporter, one row in formats.cpp, and its test:
// `ringside export`, `record --to`, --help, completion and the manual take it from the row.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "schema/event_pattern.hpp"
#include "source/account.hpp"
#include "source/wall.hpp"
#include "source/world.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class Stacks;

// Makes a file of records. Its functions are called in the order in which they are declared. Not thread-safe.
class Exporter {
 public:
  using Put = std::function<result<void>(std::string_view bytes)>;  // appends to the file
  virtual ~Exporter() = default;
  virtual result<void> begin(u64 /*first_ns*/) { return {}; }  // before the first record, or before add_missing()
  // An event, or a gap (record.lost), in time order.
  virtual result<void> add(const TraceRecord& record, const RingName& ring) = 0;
  virtual result<void> put_out() = 0;  // all that was added is in the file then; at any time after begin()
  // Once, if there are losses that no gap has, or doubts.
  virtual result<void> add_missing(u64 time, const Account& account) = 0;
  virtual result<void> finish() { return put_out(); }  // also without a begin(), of no records
  // A sentence about events that the format cannot carry; empty: there were none.
  virtual std::string left_out() const { return ""; }
};

// What an exporter may ask. The references outlive it.
struct Exported {
  const Formats& formats;
  const Tasks& tasks;
  World world{};                         // unknown, if the trace is of several machines
  std::optional<WallClock> wall{};       // of the trace's times; none: unknown
  bool raw_times = false;                // times are ticks of a clock without a known rate
  bool show_wall = false;                // the time of day of each event, where the format has a place for it
  bool compressed = true;                // where the format has a choice
  Stacks* stacks = nullptr;              // of TraceRecord::stack; null: they are not joined
  const EventPatterns& only;             // the events that were chosen; empty: all

  std::optional<WallClock> shown_wall() const { return show_wall ? wall : std::nullopt; }
};

struct ExportFormat {
  enum class Of : u8 { records, dat, tar, ctf };  // records: made one by one; the others are made of a whole recording
  const char* name;                               // of --format
  const char* endings;                            // of a file's name, with a space between
  const char* text;                               // for --help
  Of of = Of::records;
  std::unique_ptr<Exporter> (*make)(const Exported& of, Exporter::Put put) = nullptr;  // of records
  bool stacks = false;                            // it shows them, so that the reading joins them
  const char* look = "";                          // what shows it

  bool grows() const { return of == Of::records; }  // it can be written while its events are recorded
};

const std::vector<ExportFormat>& export_formats();
const ExportFormat* export_format(std::string_view name);             // null: there is none
const ExportFormat* export_format_of_file(std::string_view file);     // by its ending; null: it has none of them
std::string export_format_endings(bool (*of)(const ExportFormat&));  // ".pftrace, .dat, ...": the first of each that is asked for
inline std::string export_format_endings() {
  return export_format_endings([](const ExportFormat&) { return true; });
}

// Each has its file.
std::unique_ptr<Exporter> perfetto_exporter(const Exported& of, Exporter::Put put);
std::unique_ptr<Exporter> json_exporter(const Exported& of, Exporter::Put put);
std::unique_ptr<Exporter> csv_exporter(const Exported& of, Exporter::Put put);

}  // namespace ringside
