#include "ship/metrics.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "analysis/column.hpp"
#include "consumer/reading.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::ship {
namespace {

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200)) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126 ? '?' : c;
  }
  return out;
}

std::string family(const char* name, const char* type, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string single(const char* name, const char* type, const char* help, u64 value) {
  return family(name, type, help) + fmt::format("{} {}\n", name, value);
}

}  // namespace

std::string PowerHistogram::lines(const std::string& name, const std::string& labels, double unit) const {
  std::string out;
  u64 below = 0;
  for (u32 n = 0; n < most; ++n) {
    below += counts_[n];
    out += fmt::format("{}_bucket{{{},le=\"{:g}\"}} {}\n", name, labels, static_cast<double>(first_ << n) * unit, below);
  }
  return out + fmt::format("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n", name, labels,
                           count_, sum_ * unit);
}

Metrics::Metrics(Spool& spool, Options options)
    : spool_(spool),
      options_(std::move(options)),
      columns_(options_.columns.size()),
      latencies_(options_.latencies.size(), PowerHistogram(1024)),
      cut_(options_.latencies.size()) {}

result<void> Metrics::start() {
  thread_ = RS_TRY(sys::quiet_thread("that measures", [this] { run(); }));
  return {};
}

Metrics::~Metrics() {
  {
    const std::lock_guard held(mutex_);
    over_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Metrics::run() {
  for (;;) {
    {
      const std::lock_guard held(mutex_);
      if (over_) return;
    }
    const auto part = spool_.next_after(last_, 100'000'000);
    if (!part) continue;
    take(spool_.path_of(*part));
    const std::lock_guard held(mutex_);
    last_ = *part;
    taken_.notify_all();
  }
}

void Metrics::wait_for(u64 part) {
  std::unique_lock held(mutex_);
  taken_.wait(held, [&] { return over_ || last_ >= part; });
}

void Metrics::take(const std::string& recording) {
  Reading::Options open;
  open.where = {recording};
  open.notices = [](const auto&) {};
  auto opened = Reading::open(std::move(open));
  if (!opened) return;  // dropped meanwhile, or not to be read: the sender says so
  Reading& reading = **opened;
  const Trace& trace = reading.trace();
  std::vector<std::optional<Column>> columns;
  for (const std::string& text : options_.columns) {
    auto column = Column::compile(text, trace.formats, trace.tasks);
    columns.emplace_back();
    if (column && column->kind() == Column::Kind::whole) columns.back().emplace(std::move(*column));
  }
  std::vector<std::optional<Pairs>> pairs;
  for (const Latency& latency : options_.latencies) {
    auto made = Pairs::make(latency.pair, trace.formats, trace.tasks);
    pairs.emplace_back();
    if (made) pairs.back().emplace(std::move(*made));
  }
  std::vector<u64> counts;
  auto hists = columns_;
  auto times = latencies_;
  TraceRecord record;
  for (Reading::Got got = reading.next(record); got != Reading::Got::nothing; got = reading.next(record)) {
    const RingName& ring = reading.ring(record);
    if (got == Reading::Got::event) {
      const u32 number = record.number();
      if (number >= counts.size()) counts.resize(number + 1);
      ++counts[number];
      i64 value = 0;
      for (size_t n = 0; n < columns.size(); ++n)
        if (columns[n] && columns[n]->number(record, ring, value))
          hists[n].add(value < 0 && !columns[n]->is_unsigned(record) ? 0 : static_cast<u64>(value));
    }
    for (size_t n = 0; n < pairs.size(); ++n)
      if (pairs[n] && pairs[n]->take(record, ring)) times[n].add(pairs[n]->latency());
  }
  const std::lock_guard held(mutex_);
  columns_ = hists;
  latencies_ = times;
  for (size_t n = 0; n < pairs.size(); ++n)
    if (pairs[n]) cut_[n] += pairs[n]->counts().waiting;
  for (u32 number = 0; number < counts.size(); ++number) {
    if (counts[number] == 0) continue;
    const EventType* const type = trace.formats.find(number);
    const std::string name = type != nullptr ? type->full : "unknown";
    events_[events_.size() < most_events || events_.count(name) != 0 ? name : "other"] += counts[number];
  }
}

std::string Metrics::text() const {
  const SpoolBooks books = spool_.books();
  std::string out =
      single("ringside_events_read_total", "counter", "Events in finished recordings, since the spool was made.", books.read) +
      single("ringside_events_shipped_total", "counter", "Events that the server has confirmed.", books.shipped) +
      single("ringside_events_filtered_total", "counter",
             "Events that a filter or sampling left out, or that only numbers were made of.", books.filtered) +
      single("ringside_events_dropped_total", "counter",
             "Events dropped: the spool was full, they were not readable, or the server refused them.", books.dropped) +
      single("ringside_events_lost_total", "counter", "Events that are in no recording: overwritten or refused.", books.lost) +
      single("ringside_parts_unproved_total", "counter",
             "Recordings that may have lost more: a recorder was killed, a ring not read.", books.unproved) +
      single("ringside_spool_events", "gauge", "Events that wait for the server.", books.spooled) +
      single("ringside_spool_bytes", "gauge", "What they take on disk.", spool_.bytes()) +
      single("ringside_disk_full", "gauge", "Whether parts are dropped because the spool's disk is full.",
             options_.disk_is_full && options_.disk_is_full() ? 1 : 0);
  if (options_.server_answers)
    out += single("ringside_server_up", "gauge", "Whether the server took the last batch.", options_.server_answers() ? 1 : 0);
  if (const auto fills = options_.fills ? options_.fills() : std::vector<RingFill>{}; !fills.empty()) {
    out += family("ringside_ring_fill_ratio", "gauge", "How full each ring is with what is not read yet.");
    for (size_t n = 0; n < std::min(fills.size(), most_rings); ++n)
      out += fmt::format("ringside_ring_fill_ratio{{ring=\"{}\"}} {}\n", label(fills[n].name), fills[n].share);
  }
  const std::lock_guard held(mutex_);
  if (!events_.empty()) {
    out += family("ringside_events_total", "counter", "Events by their type.");
    for (const auto& [name, count] : events_)
      out += fmt::format("ringside_events_total{{event=\"{}\"}} {}\n", label(name), count);
  }
  if (!columns_.empty()) out += family("ringside_field", "histogram", "Values of a field.");
  for (size_t n = 0; n < columns_.size(); ++n)
    out += columns_[n].lines("ringside_field", "column=\"" + label(options_.columns[n]) + "\"", 1);
  if (!latencies_.empty()) out += family("ringside_latency_seconds", "histogram", "From a start to its end.");
  for (size_t n = 0; n < latencies_.size(); ++n)
    out += latencies_[n].lines("ringside_latency_seconds", "pair=\"" + label(options_.latencies[n].name) + "\"", 1e-9);
  if (!latencies_.empty())
    out += family("ringside_latency_cut_total", "counter", "Starts whose end was in a later recording, or never came.");
  for (size_t n = 0; n < latencies_.size(); ++n)
    out += fmt::format("ringside_latency_cut_total{{pair=\"{}\"}} {}\n", label(options_.latencies[n].name), cut_[n]);
  return out;
}

result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address, std::function<std::string()> text) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, std::min(colon, address.size())),
              port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const int error =
      port.empty() ? EAI_NONAME : getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return refuse(std::errc::invalid_argument, address + " is no place to listen at (" + gai_strerror(error) +
                                                   "); write 127.0.0.1:9464, or :9464 for every address of this machine");
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(text)));
  server->listen_ = sys::Fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  const bool good = server->listen_ && setsockopt(server->listen_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                    bind(server->listen_.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                    listen(server->listen_.get(), 16) == 0 &&
                    getsockname(server->listen_.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0;
  const int why = errno;
  freeaddrinfo(found);
  if (!good) return fail(why, "cannot listen at " + address);
  char service[NI_MAXSERV] = "0";
  (void)getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, service, sizeof service, NI_NUMERICSERV);
  server->port_ = static_cast<u16>(std::atoi(service));
  server->wake_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->wake_) return fail(errno, "cannot prepare the answers at " + address);
  server->thread_ = RS_TRY(sys::quiet_thread("that answers at " + address, [own = server.get()] { own->run(); }));
  return server;
}

MetricsServer::~MetricsServer() {
  if (wake_) eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void MetricsServer::run() {
  for (;;) {
    pollfd wait[2] = {{wake_.get(), POLLIN, 0}, {listen_.get(), POLLIN, 0}};
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return;
    if (wait[0].revents != 0) return;
    const sys::Fd client(accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client)
      answer(client.get());
    else if (errno != EAGAIN && errno != EINTR)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // no descriptor is left
  }
}

void MetricsServer::answer(int client) {
  constexpr size_t most_request = 16384;
  const u64 deadline = sys::now_ns() + 2'000'000'000;
  const auto wait = [&](short what) {
    pollfd p[2] = {{client, what, 0}, {wake_.get(), POLLIN, 0}};
    const u64 now = sys::now_ns();
    return now < deadline && ::poll(p, 2, static_cast<int>((deadline - now) / 1'000'000) + 1) > 0 && p[1].revents == 0;
  };
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    char bytes[4096];
    if (request.size() > most_request || !wait(POLLIN)) return;
    const ssize_t n = recv(client, bytes, sizeof bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (n > 0) request.append(bytes, static_cast<size_t>(n));
  }
  const std::string line = request.substr(0, request.find("\r\n"));
  const bool found = line.starts_with("GET /metrics ") || line.starts_with("GET /metrics?");
  const std::string body = found ? text_() : "The numbers are at /metrics\n";
  const std::string answer = fmt::format(
                                 "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: "
                                 "{}\r\nConnection: close\r\n\r\n",
                                 found ? "200 OK" : "404 Not Found", body.size()) +
                             body;
  for (size_t at = 0; at < answer.size();) {
    if (!wait(POLLOUT)) return;
    const ssize_t n = send(client, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return;
    if (n > 0) at += static_cast<size_t>(n);
  }
}

}  // namespace ringside::ship
