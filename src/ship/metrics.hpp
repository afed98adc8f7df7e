// An agent's answer to Prometheus: its books, the fill of its rings and its spool, counts of events, histograms of fields and
// latencies. It is text, made anew for each request; the number of lines is bounded.
//
// Histograms come from complete parts, whether the server answers or not. A pair whose start and end are in two parts is in
// none of them: ringside_latency_cut_total counts these starts.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ringside/base/result.hpp>
#include <string>
#include <thread>
#include <vector>

#include "analysis/pairs.hpp"
#include "ship/spool.hpp"
#include "sys/sys.hpp"

namespace ringside::ship {

struct RingFill {
  std::string name;
  double share = 0;  // of its capacity, unread
};

// Counts by powers of two.
class PowerHistogram {
 public:
  explicit PowerHistogram(u64 first = 1) : first_(first) {}
  void add(u64 value) {
    u32 bucket = 0;
    while (bucket < most && value > first_ << bucket) ++bucket;
    ++counts_[bucket];
    ++count_;
    sum_ += static_cast<double>(value);
  }
  // Lines of NAME_bucket, NAME_sum, NAME_count. unit: what a value of 1 is.
  std::string lines(const std::string& name, const std::string& labels, double unit) const;

 private:
  static constexpr u32 most = 34;
  u64 first_;
  std::array<u64, most + 1> counts_{};
  u64 count_ = 0;
  double sum_ = 0;
};

class Metrics {
 public:
  struct Latency {
    std::string name;
    Pairs::Options pair;
  };
  struct Options {
    std::function<bool()> disk_is_full{};
    std::vector<std::string> columns{};  // EVENT/FIELD
    std::vector<Latency> latencies{};
    std::function<bool()> server_answers{};  // none: there is no server
    std::function<std::vector<RingFill>()> fills{};
  };
  static constexpr size_t most_events = 1000, most_rings = 256;

  Metrics(Spool& spool, Options options);
  ~Metrics();  // its thread ends
  result<void> start();

  void take(const std::string& recording);
  void wait_for(u64 part);  // until it has been taken
  std::string text() const;

 private:
  void run();

  Spool& spool_;
  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable taken_;
  u64 last_ = 0;
  bool over_ = false;
  std::map<std::string, u64> events_;
  std::vector<PowerHistogram> columns_, latencies_;
  std::vector<u64> cut_;
  std::thread thread_;
};

// Answers GET /metrics, one client at a time, each in two seconds at most.
class MetricsServer {
 public:
  // address: HOST:PORT, or :PORT for all of this machine's.
  static result<std::unique_ptr<MetricsServer>> start(const std::string& address, std::function<std::string()> text);
  ~MetricsServer();
  u16 port() const { return port_; }

 private:
  explicit MetricsServer(std::function<std::string()> text) : text_(std::move(text)) {}
  void run();
  void answer(int client);

  std::function<std::string()> text_;
  sys::Fd listen_, wake_;
  u16 port_ = 0;
  std::thread thread_;
};

}  // namespace ringside::ship
