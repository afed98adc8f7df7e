#include "consumer/reading.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "analysis/column.hpp"
#include "analysis/pairs.hpp"
#include "source/sample_rings.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside {
namespace {

constexpr u64 state_bytes = 4 << 20;  // of the kernel's rings, read for what they say of threads

}  // namespace

Reading::Time Reading::real_time() {
  return {sys::now_ns, [](u64 ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }, [] { return false; }};
}

result<std::unique_ptr<Reading>> Reading::open(Options options) {
  std::unique_ptr<Reading> reading(new Reading);
  reading->trace_ = RS_TRY(open_traces(options.where, options.kernel, options.choice, options.verbose, options.make,
                                       options.same, options.remotes, options.samples));
  Trace& trace = reading->trace_;
  reading->time_ = std::move(options.time);
  reading->notices_ = std::move(options.notices);
  reading->tell();
  reading->know_files();
  reading->narrow_ = !options.window.whole();
  reading->window_ = std::move(options.window);
  if (reading->window_.asks_day()) {
    const auto wall = trace.wall();
    if (!wall)
      return refuse(
          std::errc::invalid_argument,
          "this trace does not say its time of day, so --time cannot name one; write 12358.4s as report prints it, or "
          "+300ms after the first event");
    const u64 begin = trace.live() ? trace.now() : reading->begin();
    reading->window_.resolve(*wall, begin == Timeline::forever ? 0 : begin);
  }
  if (trace.raw_times()) RS_TRY(reading->window_.count_ticks());
  reading->only_ = EventFilter(std::move(options.only));
  if (!options.filter.empty()) reading->filter_ = RS_TRY(Filter::compile(options.filter, trace.formats, trace.tasks));
  if (reading->filter_ && trace.live()) reading->tell_of_numbers(*reading->filter_);
  if (reading->filter_ && reading->filter_->names("stack")) reading->join_stacks();
  if (reading->window_.of_time() && !trace.live()) reading->narrow(state_bytes);
  if (trace.tracefs() != nullptr && World::own().kernel_counts_apart()) reading->look_up_names();
  if (reading->filter_ && !trace.live()) reading->look_up_for(*reading->filter_);
  if (options.push_down && reading->filter_) push_down(*reading->filter_, trace);
  return reading;
}

std::unique_ptr<Reading> Reading::open_growing(const std::string& dir, const RecordingMeta& now) {
  std::unique_ptr<Reading> reading(new Reading);
  reading->trace_ = ringside::open_growing(dir, now);
  reading->time_ = real_time();
  reading->following_ = true;
  constexpr u64 hour = 3'600'000'000'000;  // its events wait for no one but their recorder
  reading->trace_.timeline.follow({hour, [r = reading.get()] { return r->grown_until_; }});
  return reading;
}

void Reading::grow(const RecordingMeta& now, u64 taken_until) {
  trace_.grow(now);
  grown_until_ = now.clock.kind == ClockKind::counter ? forever : now_of(now.clock) - (sys::now_ns() - taken_until);
}

u64 Reading::begin() {
  if (!begin_ns_) begin_ns_ = trace_.timeline.begin();
  return *begin_ns_;
}

// Of files, only the range that is wanted. Before it, the last events of the kernel's rings show who runs where. The
// stacks of programs and their maps may be anywhere before.
void Reading::narrow(u64 lead) {
  (void)begin();
  const u64 last = part_end_ == forever ? forever : part_end_ - 1;
  state_from_ = trace_.timeline.narrow(stacks_anywhere() || files_ != nullptr ? 0 : std::max(from(), part_from_),
                                       std::min(until(), last), lead);
  narrowed_ = true;
}

void Reading::know_files() {
  const auto& types = trace_.formats.all();
  if (std::none_of(types.begin(), types.end(), [](const auto& type) { return type->full == file_call_event; })) return;
  files_ = std::make_unique<Descriptors>();
  trace_.formats.use_files(files_.get());
}

void Reading::see_files(TraceRecord& record) {
  if (record.lost != 0)
    files_->lose(record.ids, ring(record).ring == file_call_ring);
  else if (const EventType* const type = trace_.formats.find(record.number()); type != nullptr)
    record.files = files_->see(*type, record.payload, record.time);
}

bool Reading::stacks_anywhere() const {
  const auto& types = trace_.formats.all();
  return stacks_ != nullptr && std::any_of(types.begin(), types.end(), [](const auto& type) {
           return type->full == "ringside:stack" || type->full == "ringside:code_map";
         });
}

bool Reading::has_stacks() const {
  const auto& types = trace_.formats.all();
  return stacks_ != nullptr && std::any_of(types.begin(), types.end(), [](const auto& type) {
           return type->system == "ringside" || type->name == "kernel_stack" || type->name == "user_stack" ||
                  type->stack() != nullptr;
         });
}

std::vector<u64> Reading::seams(u32 parts) {
  (void)begin();
  if (trace_.live() || parts < 2 || files_ != nullptr) return {};
  return trace_.timeline.seams(parts, from(), until());
}

u64 Reading::bytes() {
  (void)begin();
  return trace_.live() ? 0 : trace_.timeline.bytes(from(), until());
}

bool Reading::tells_names() {
  look_at_rings();
  return tells_names_;
}

void Reading::go_to(u64 from, u64 end, bool ordered) {
  part_from_ = from;
  part_end_ = end;
  narrow_ = true;
  if (ordered) return;
  held_.reset();
  names_.skip();
  narrow(from == 0 && window_.of_time() ? state_bytes : 0);
}

bool Reading::in_order(std::string_view column) {
  const bool names = tells_names();
  if (column == "stack") return true;
  if (column == "cpu" || column == "CPU") return tells_cpus_;
  return names && is_told(column);
}

bool Reading::in_order(const Filter& filter) {
  const auto asks = [&](std::string_view name) { return filter.names(name) && in_order(name); };
  return asks("stack") || asks("cpu") || asks("CPU") || std::any_of(std::begin(told_by_events), std::end(told_by_events), asks);
}

void Reading::look_up_names() {
  if (!trace_.live() && !following_ && !has_begun() && !std::exchange(looked_ahead_, true) && tells_names()) {
    (void)begin();
    names_.begin(trace_.look_ahead(names_, state_from_, until(), time_.over));
  }
  if (looks_up_ || trace_.tracefs() == nullptr) return;
  looks_up_ = true;
  unasked_ = trace_.tell_names();
}

void Reading::look_up_for(const Column& column) {
  if (column.of_stacks()) join_stacks();
  if (column.shows_names() || is_told(column.field())) look_up_names();
}

// A recorder in a container compares what it takes for its own numbers with the kernel's.
void Reading::tell_of_numbers(const Filter& filter) {
  static constexpr std::string_view fields[] = {"prev_pid", "next_pid",   "parent_pid", "child_pid",
                                                "old_pid",  "common_pid", "pid"};
  const auto counts_apart = [](const auto& input) { return input->world.kernel_counts_apart(); };
  bool of_kernel = trace_.tracefs() != nullptr;
  for (u32 n = 0; n < trace_.timeline.size(); ++n) of_kernel = of_kernel || trace_.timeline.name(n).kernel;
  const auto* const named = std::find_if(std::begin(fields), std::end(fields), [&](auto name) { return filter.names(name); });
  if (tells_numbers_ || named == std::end(fields) || !of_kernel ||
      std::none_of(trace_.inputs.begin(), trace_.inputs.end(), counts_apart))
    return;
  tells_numbers_ = true;
  trace_.notices.push_back("the field " + std::string(*named) +
                           " of the kernel's events has numbers of the first PID namespace; tid has those of the recorder's");
  tell();
}

void Reading::look_up_for(const Filter& filter) {
  tell_of_numbers(filter);
  if (filter.names("stack")) join_stacks();
  for (const std::string_view name : told_by_events) names_decide_ = names_decide_ || filter.names(name);
  if (names_decide_) look_up_names();
}

void Reading::look_up_for(const Pairs& pairs) {
  for (const Column& column : pairs.columns()) look_up_for(column);
  for (const Filter* filter : pairs.conditions()) look_up_for(*filter);
}

// Of a thread that began or was renamed since, an event has given the name.
void Reading::look_up(const TraceRecord& record, const RingName& name) {
  if (!name.kernel || record.lost != 0) return;
  const i32 tid = read_common(record.payload).tid;
  const auto [at, fresh] = named_.try_emplace(tid, true);
  const bool outside = tid != 0 && trace_.tasks.is_outside(tid, name);  // as far as is known now
  if (fresh && tid != 0) at->second = (!outside && trace_.tasks.find(tid, name) != nullptr) || trace_.learn_name(tid);
  if (!fresh && outside) {
    constexpr u64 again_ns = 100'000'000;
    if (const u64 now = time_.now(); now >= look_again_ns_) trace_.find_here(), look_again_ns_ = now + again_ns;
  }
  unnamed_ += !at->second;
}

void Reading::learn_names() {
  if (!looks_up_) trace_.learn_names();
}

void Reading::add(Reading& part) {
  Account& sum = totals_.account;
  const Account& more = part.totals_.account;
  sum.read += more.read;
  sum.left_out += more.left_out;
  sum.overrun += more.overrun;
  sum.overrun_at_least |= more.overrun_at_least;
  totals_.late += part.totals_.late;
  totals_.first_ns = std::min(totals_.first_ns, part.totals_.first_ns);
  totals_.last_ns = std::max(totals_.last_ns, part.totals_.last_ns);
  stacks_behind_ += part.stacks_behind_;
  stacks_joined_ += part.stacks_joined_;
  cut_ = cut_ || part.cut_;
  ended_ = true;
  for (const FailedFormat& failed : part.trace_.formats.take_failed())
    if (const EventType* const own = trace_.formats.find(failed.type->id)) (void)own->format();  // it fails here too: tell()
  trace_.tasks.add_past(part.trace_.tasks);
  names_.add(part.names_);
}

bool Reading::outside(TraceRecord& record) {
  if (!begin_ns_) begin_ns_ = record.time;
  if (record.source >= last_ns_.size()) last_ns_.resize(record.source + 1);
  const u64 before = std::exchange(last_ns_[record.source], record.time), begin = std::max(part_from_, from()), end = until();
  if (record.time < begin || begin > end) return true;
  if (record.time > end) {
    if (record.lost == 0 || before >= end) return true;
    record.time = end;  // the gap began in the window, or before it
  }
  return !is_of(window_, record);
}

bool Reading::is_of(const Window& window, const TraceRecord& record) const {
  if (window.cpus.empty()) return true;
  const RingName& name = ring(record);
  const i32 cpu = record.lost != 0 ? name.its_cpu() : record.cpu_in(name);
  if (record.lost != 0 && cpu < 0) return true;  // it may be of these
  return cpu >= 0 && std::find(window.cpus.begin(), window.cpus.end(), static_cast<u32>(cpu)) != window.cpus.end();
}

Stacks& Reading::join_stacks() {
  if (stacks_ == nullptr) {
    stacks_ = std::make_unique<Stacks>(trace_.formats, trace_.tasks);
    for (const auto& input : trace_.inputs) {
      const u32 machine = trace_.tasks.machine(input->origin.ids);
      Names& names = stacks_->names();
      names.know(machine, trace_.formats.symbols(machine));
      if (const std::string kept = input->kept_names(); !kept.empty()) names.take_kept(kept, machine);
      const bool this_boot = input->boot.empty() || input->boot == sys::boot_id();
      if (!this_boot || (input->world.pid_namespace != 0 && input->world.pid_namespace != sys::pid_namespace()))
        names.are_elsewhere(machine);
    }
    stacks_->on_missing([this](Stacks& stacks) {
      trace_.read_again([&](u32 number, Bytes payload) {
        if (stacks.part(number) == Stacks::Part::stack) stacks.learn(payload, *trace_.formats.find(number));
      });
    });
    trace_.formats.use_stacks(stacks_.get());
    if (narrowed_) narrow(state_bytes);
  }
  return *stacks_;
}

// A stack event comes after its event, and between them are only those of what interrupted it.
void Reading::join(TraceRecord& record) {
  if (record.lost != 0) return;
  using Part = Stacks::Part;
  const RingName& name = ring(record);
  const Part own = stacks_->part(record.number());
  if (own == Part::stack || own == Part::code_map) stacks_->see(record, name);
  if (record.time < part_from_) return;
  Stacks::Behind behind;
  if (name.kernel && (own == Part::kernel_stack || own == Part::user_stack)) {
    ++stacks_behind_;
    return;  // it is no event that has a stack, but the stack of one
  }
  const auto part_behind = [&](Bytes payload) {
    TraceRecord other;
    other.ids = record.ids;
    other.payload = payload;
    return stacks_->part(other.number());
  };
  const auto is_part = [&](Bytes payload) { return part_behind(payload) != Part::none; };
  if (name.kernel && !trace_.timeline.none_behind(record, is_part)) {
    u32 between = 0;
    trace_.timeline.look_behind(record, [&](u32 n, Bytes next) {
      if (n == 0) behind = {}, between = 0;
      const Part part = part_behind(next);
      const bool together = Stacks::together(record.payload, next);
      if (part != Part::kernel_stack && part != Part::user_stack) return !together && ++between < Timeline::most_between;
      if (!together) return true;
      Bytes& place = part == Part::kernel_stack ? behind.kernel : behind.user;
      if (place.size != 0) return false;
      place = next;
      return behind.kernel.size == 0 || behind.user.size == 0;
    });
    stacks_joined_ += (behind.kernel.size != 0) + (behind.user.size != 0);
  }
  if (own == Part::none && behind.kernel.size + behind.user.size == 0) return;  // most events
  record.stack = stacks_->number(record, name, behind);
}

std::vector<std::string> Reading::stack_remarks() const {
  if (stacks_ == nullptr) return {};
  std::vector<std::string> out = stacks_->remarks();
  if (stacks_behind_ > stacks_joined_) {
    const u64 n = stacks_behind_ - stacks_joined_;
    out.push_back(std::to_string(n) +
                  (n == 1 ? " stack of the kernel's follows no event" : " stacks of the kernel's follow no event"));
  }
  return out;
}

void Reading::follow(std::optional<u64> look_ahead_ns, u64 duration_ns) {
  following_ = true;
  if (filter_) look_up_for(*filter_);
  if (look_ahead_ns) trace_.follow(*look_ahead_ns);
  tell();
  settled_before_ = settle();
  looked_ns_ = time_.now();
  end_ns_ = duration_ns != 0 ? looked_ns_ + duration_ns : forever;
}

void Reading::begin_books() {
  books_begin_ns_ = trace_.now();
  refused_before_ = trace_.account().refused;
  totals_.lost_earlier += refused_before_.sum();
  settled_before_ = settle();
}

// Each ring by its words: a reader that takes the last events of a ring leaves no gap in it, and a ring that was given back
// leaves nothing.
Reading::Settled Reading::settle() const {
  const auto cleared = [&](Settled& all) {
    for (const auto& input : trace_.inputs) {
      const auto now = input->cleared();
      all.unseen += now ? now->written : 0;
      all.overrun += now ? now->overrun : 0;
      all.sure = all.sure && (now || input->instance() == nullptr);
    }
  };
  Settled all;
  for (int tries = 0; tries < 100; ++tries) {
    all = {};
    cleared(all);
    Settled after;
    const u64 before = all.unseen;
    for (u32 n = 0; n < trace_.timeline.size(); ++n)
      if (const auto passed = trace_.timeline.source(n).passed()) all.unseen += passed->passed - passed->given;
    cleared(after);
    all.sure = all.sure && after.sure && before == after.unseen;
    if (all.sure) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (u32 n = 0; n < trace_.timeline.size(); ++n)
    if (!trace_.timeline.name(n).kernel) all.overrun += trace_.timeline.source(n).counters().overrun;
  return all;
}

u64 Reading::taken_by_others() const {
  if (!settled_before_) return 0;
  const u64 lost = lost_of_programs_ + settled_.unseen;
  return lost - std::min(lost, settled_.overrun);
}

bool Reading::wait(u64 look_every_ns, u64 until_ns) {
  if (!following_ || stopped_) return false;
  if (!is_over()) {
    // A long read means that events come fast: return to it soon.
    const u64 now = time_.now(), rest = look_every_ns - std::min(now - looked_ns_, look_every_ns - 100'000);
    time_.sleep(std::min({rest, std::max(end_ns_, now + 1) - now, std::max(until_ns, now + 1) - now}));
    looked_ns_ = time_.now();
  }
  is_over() ? stop() : refresh();
  return true;
}

void Reading::look_at_rings() {
  bool threads = false, kernel = false;
  rings_ = trace_.timeline.size();
  for (u32 n = 0; n < rings_; ++n) {
    threads = threads || trace_.timeline.name(n).of_a_thread();
    kernel = kernel || trace_.timeline.name(n).kernel;
  }
  tells_names_ = kernel || trace_.live() || following_ || trace_.tasks.has_changes();
  tells_cpus_ = threads && kernel;
}

void Reading::refresh() {
  trace_.refresh();
  tell();
}

void Reading::stop() {
  if (!following_ || stopped_) return;
  stopped_ = true;
  trace_.stop();
  tell();
}

void Reading::tell() {
  for (FailedFormat& failed : trace_.formats.take_failed()) trace_.notices.push_back(std::move(failed.sentence));
  if (!notices_) return;
  notices_(trace_.notices);
  trace_.notices.clear();
}

// As their recorders counted them; 0: one of the WHEREs does not say.
u64 Reading::recorded_events() const {
  u64 events = 0;
  for (const auto& input : trace_.inputs) {
    const std::optional<u64> own = input->recorded_events();
    if (!own) return 0;
    events += *own;
  }
  return following_ ? 0 : events;
}

Account Reading::account() const {
  Account all = trace_.account();
  const Account& here = totals_.account;
  all.read = here.read;
  all.left_out = here.left_out;
  all.overrun += here.overrun + settled_.unseen;
  all.overrun_at_least |= here.overrun_at_least;
  all.refused -= refused_before_;
  if (cut_) all.doubts.emplace_back(too_late);
  if (!settled_.sure)
    all.doubts.emplace_back("rings were given back while this was counted: the number of events that others took is not sure");
  if (unnamed_ != 0 && names_decide_)
    all.doubts.emplace_back("the names of some threads are unknown: these had ended before their first event was read");
  const u64 recorded = ended_ && all.proved() && window_.whole() ? recorded_events() : 0;
  if (totals_.seen() < recorded)
    all.doubts.push_back(counted(recorded - totals_.seen(), "event that was recorded is", "events that were recorded are") +
                         " not in the files: these were cut, or changed");
  return all;
}

const Totals& Reading::complete() {
  if (settled_before_) {
    const Settled now = settle(), &before = *settled_before_;
    settled_ = {now.unseen - before.unseen, now.overrun - before.overrun, now.sure && before.sure};
    if (static_cast<i64>(settled_.unseen) < 0) settled_.unseen = 0;
  }
  complete_ = totals_;
  complete_.account = account();
  tell();
  return complete_;
}

size_t Reading::each_new_problem(const std::function<void(const std::string&)>& use) {
  tell();
  const auto& problems = trace_.timeline.problems();
  for (; told_ < problems.size(); ++told_) use(problems[told_]);
  for (std::string& doubt : found_doubts()) {
    if (std::find(told_doubts_.begin(), told_doubts_.end(), doubt) != told_doubts_.end()) continue;
    use(doubt);
    told_doubts_.push_back(std::move(doubt));
  }
  return told_ + told_doubts_.size();
}

// Doubts of complete() that were not reported yet, by a notice of the opening or by the timeline. A caller that cuts a reading
// short reports that itself.
std::vector<std::string> Reading::found_doubts() const {
  std::vector<std::string> found = complete_.account.doubts;
  const auto drop = [&](const std::vector<std::string>& told) {
    std::erase_if(found, [&](const std::string& doubt) { return std::find(told.begin(), told.end(), doubt) != told.end(); });
  };
  drop({too_late});
  if (!found.empty()) drop(trace_.timeline.problems());
  for (const auto& input : trace_.inputs) drop(input->doubts);
  return found;
}

u32 push_down(const Filter& filter, const Trace& trace) {
  TracefsInstance* const kernel = trace.tracefs();
  u32 pushed = 0;
  for (const auto& type : trace.formats.all()) {
    const u32 first = trace.inputs.back()->origin.ids + kernel_ids;
    if (kernel == nullptr || type->id < first || type->id >= first + kernel_ids || !filter.kernel_may(*type)) continue;
    // A kernel that does not understand the filter refuses it, and lets everything through.
    pushed += kernel->write(("events/" + type->system + "/" + type->name + "/filter").c_str(), filter.text()).has_value();
  }
  return pushed;
}

}  // namespace ringside
