// The C interface: the same calls, with texts kept until the next one, and without exceptions.
#include <ringside/consumer.h>

#include <cstring>
#include <deque>
#include <initializer_list>
#include <ringside/consumer.hpp>

#include "analysis/groups.hpp"
#include "consumer/c_form.hpp"

using ringside::Consumer;
using ringside::u64;

struct ringside_consumer {
  Consumer consumer;
  ringside::Event event{};
  bool has_event = false;  // next() has handed it out
  std::deque<Consumer::Column> columns{};
  std::string text{};
  std::vector<std::string> problems{};  // when ringside_consumer_problem() began with them
  unsigned users = 1;  // itself, until it is closed, and what was made of it
  bool closed = false;
};

namespace ringside::c_form {
inline void leave(ringside_consumer* consumer) {
  if (--consumer->users == 0) delete consumer;
}
// Held by what was made of a consumer.
struct User {
  explicit User(ringside_consumer* of) : consumer(of) { ++consumer->users; }
  ~User() { leave(consumer); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;
  ringside_consumer* const consumer;
};
}  // namespace ringside::c_form
using ringside::c_form::all_there;
using ringside::c_form::guarded;
using ringside::c_form::tell;
using ringside::c_form::User;

struct ringside_hist {
  User of;
  Consumer::Hist hist;
  std::vector<Consumer::Hist::Row> rows{};
};

struct ringside_latency {
  User of;
  Consumer::Latency latency;
};

namespace {

std::vector<std::string> list(const char* const* texts) {
  std::vector<std::string> out;
  for (; texts != nullptr && *texts != nullptr; ++texts) out.emplace_back(*texts);
  return out;
}

// Of the event that next() has handed out; nullptr: there is none, or no such column.
Consumer::Column* column_of(ringside_consumer* c, int column) {
  const bool there = c->has_event && column >= 0 && static_cast<size_t>(column) < c->columns.size();
  return there ? &c->columns[static_cast<size_t>(column)] : nullptr;
}

bool has_event(const User& user) { return !user.consumer->closed && user.consumer->has_event; }

template <class T>
bool store(const std::optional<T>& from, T* to) {
  if (from) *to = *from;
  return from.has_value();
}

const Consumer::Hist::Row* row_of(const ringside_hist* hist, size_t row) {
  return row < hist->rows.size() ? &hist->rows[row] : nullptr;
}

}  // namespace

ringside_consumer* ringside::c_form::open_consumer(const ringside_consumer_options* options, ringside_remote_reader* remote,
                                                   char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> ringside_consumer* {
    Consumer::Options o;
    if (options != nullptr) {
      o.where = list(options->where);
      o.kernel = list(options->kernel);
      if (options->filter != nullptr) o.filter = options->filter;
      if (options->time != nullptr) o.time = options->time;
      if (options->kernel_buffer_size != 0) o.kernel_buffer_size = options->kernel_buffer_size;
      if (options->look_ahead_ns != 0) o.look_ahead = std::chrono::nanoseconds(options->look_ahead_ns);
      o.duration = std::chrono::nanoseconds(options->duration_ns);
    }
    if (remote != nullptr) o.remotes.push_back(remote);
    auto consumer = Consumer::open(o);
    if (consumer) return new ringside_consumer{std::move(*consumer)};
    tell(consumer.error().sentence, error, error_size);
    return nullptr;
  });
}

extern "C" {

ringside_consumer* ringside_consumer_open(const ringside_consumer_options* options, char* error, size_t error_size) {
  if (!all_there({{"options", options}}, error, error_size)) return nullptr;
  return ringside::c_form::open_consumer(options, nullptr, error, error_size);
}

void ringside_consumer_close(ringside_consumer* consumer) {
  if (consumer == nullptr || consumer->closed) return;
  consumer->closed = true;
  ringside::c_form::leave(consumer);
}

bool ringside_consumer_next(ringside_consumer* c, ringside_consumer_event* event) {
  return guarded(nullptr, 0, [&] {
    c->has_event = false;
    if (!c->consumer.next(c->event)) return false;
    c->has_event = true;
    const ringside::Event& e = c->event;
    *event = {e.time, e.lost, e.data, e.size, e.id, c->consumer.cpu(e), c->consumer.tid(e)};
    return true;
  });
}

bool ringside_consumer_wait(ringside_consumer* c) {
  return guarded(nullptr, 0, [&] { return c->consumer.wait(); });
}

void ringside_consumer_stop(ringside_consumer* c) { c->consumer.stop(); }

int ringside_consumer_column(ringside_consumer* c, const char* text, char* error, size_t error_size) {
  const int number = guarded(error, error_size, [&] {
    if (!all_there({{"consumer", c}, {"text", text}}, error, error_size)) return 0;
    auto column = c->consumer.column(text);
    if (!column) {
      tell(column.error().sentence, error, error_size);
      return 0;
    }
    c->columns.push_back(std::move(*column));
    return static_cast<int>(c->columns.size());
  });
  return number - 1;
}

bool ringside_consumer_number(ringside_consumer* c, int column, int64_t* value) {
  return guarded(nullptr, 0, [&] {
    auto* const from = column_of(c, column);
    return from != nullptr && store(from->number(c->event), value);
  });
}

bool ringside_consumer_real(ringside_consumer* c, int column, double* value) {
  return guarded(nullptr, 0, [&] {
    auto* const from = column_of(c, column);
    return from != nullptr && store(from->real(c->event), value);
  });
}

const char* ringside_consumer_text(ringside_consumer* c, int column) {
  return guarded(nullptr, 0, [&]() -> const char* {
    auto* const from = column_of(c, column);
    const auto text = from != nullptr ? from->text(c->event) : std::nullopt;
    if (!text) return nullptr;
    c->text = *text;
    return c->text.c_str();
  });
}

const char* ringside_consumer_line(ringside_consumer* c) {
  return guarded(nullptr, 0, [&]() -> const char* {
    if (!c->has_event) return nullptr;
    c->text = c->consumer.text(c->event);
    return c->text.c_str();
  });
}

uint64_t ringside_consumer_events(const ringside_consumer* c) { return c->consumer.events(); }
uint64_t ringside_consumer_lost(const ringside_consumer* c) { return c->consumer.lost(); }

uint64_t ringside_consumer_missing(ringside_consumer* c, bool* proved) {
  if (proved != nullptr) *proved = false;
  return guarded(nullptr, 0, [&] {
    const Consumer::Missing missing = c->consumer.missing();
    if (proved != nullptr) *proved = missing.doubts.empty();
    return missing.count;
  });
}

const char* ringside_consumer_problem(ringside_consumer* c, size_t n) {
  return guarded(nullptr, 0, [&]() -> const char* {
    if (n == 0) c->problems = c->consumer.problems();
    return n < c->problems.size() ? c->problems[n].c_str() : nullptr;
  });
}

ringside_hist* ringside_hist_open(ringside_consumer* c, const char* keys, const char* value, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> ringside_hist* {
    if (!all_there({{"consumer", c}, {"keys", keys}}, error, error_size)) return nullptr;
    std::vector<std::string> values;
    if (value != nullptr) values.emplace_back(value);
    auto hist = c->consumer.hist(ringside::split_columns(keys), values);
    if (hist) return new ringside_hist{User(c), std::move(*hist)};
    tell(hist.error().sentence, error, error_size);
    return nullptr;
  });
}

void ringside_hist_close(ringside_hist* hist) { delete hist; }

bool ringside_hist_add(ringside_hist* hist) {
  return guarded(nullptr, 0, [&] { return has_event(hist->of) && hist->hist.add(hist->of.consumer->event); });
}

size_t ringside_hist_sort(ringside_hist* hist) {
  return guarded(nullptr, 0, [&] {
    hist->rows = hist->hist.rows();
    return hist->rows.size();
  });
}

const char* ringside_hist_key(const ringside_hist* hist, size_t row, unsigned key) {
  const auto* r = row_of(hist, row);
  return r != nullptr && key < r->key.size() ? r->key[key].c_str() : nullptr;
}
uint64_t ringside_hist_count(const ringside_hist* hist, size_t row) {
  const auto* r = row_of(hist, row);
  return r != nullptr ? r->count : 0;
}
double ringside_hist_sum(const ringside_hist* hist, size_t row) {
  const auto* r = row_of(hist, row);
  return r != nullptr && !r->values.empty() ? r->values[0].sum() : 0;
}
double ringside_hist_quantile(const ringside_hist* hist, size_t row, double q) {
  const auto* r = row_of(hist, row);
  return r != nullptr && !r->values.empty() ? r->values[0].quantile(q) : 0;
}
uint64_t ringside_hist_evicted(const ringside_hist* hist) { return hist->hist.evicted_events(); }

ringside_latency* ringside_latency_open(ringside_consumer* c, const char* start, const char* end, const char* start_key,
                                        const char* end_key, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> ringside_latency* {
    if (!all_there({{"consumer", c}, {"start", start}, {"end", end}}, error, error_size)) return nullptr;
    if (end_key != nullptr && !all_there({{"start_key", start_key}}, error, error_size)) return nullptr;
    Consumer::LatencyOptions options;
    options.start = start;
    options.end = end;
    if (start_key != nullptr) options.keys.emplace_back(start_key, end_key != nullptr ? end_key : start_key);
    auto latency = c->consumer.latency(options);
    if (latency) return new ringside_latency{User(c), std::move(*latency)};
    tell(latency.error().sentence, error, error_size);
    return nullptr;
  });
}

void ringside_latency_close(ringside_latency* latency) { delete latency; }

bool ringside_latency_add(ringside_latency* latency, uint64_t* ns) {
  return guarded(nullptr, 0, [&] {
    return has_event(latency->of) && store(latency->latency.add(latency->of.consumer->event), ns);
  });
}

uint64_t ringside_latency_count(const ringside_latency* latency) { return latency->latency.all().count(); }
double ringside_latency_quantile(const ringside_latency* latency, double q) { return latency->latency.all().quantile(q); }
uint64_t ringside_latency_unmatched(const ringside_latency* latency) { return latency->latency.counts().unmatched; }

}  // extern "C"
