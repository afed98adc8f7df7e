// For unit tests: records the events that this process writes in a scope, and says what they were.
//
//   TEST(Shop, AnOrderIsTraced) {
//     ringside::testing::Capture capture{"shop:*"};
//     buy(17);
//     const auto events = capture.events();
//     ASSERT_EQ(events.size(), 1u);
//     EXPECT_EQ(events[0].name, "shop:order");
//     EXPECT_EQ(events[0].number("id"), 17);
//     EXPECT_EQ(events[0].text("customer"), "Ada");
//     EXPECT_EQ(capture.lost(), 0u);
//   }
//
// Without an open instance it opens one of its own, with these events enabled, and removes it with the scope; so tests need no
// RINGSIDE_INSTANCE, and may run at the same time. In a test that `ringside record` started, or that has opened an instance
// itself, the events go there as before, and these are enabled in addition; those of other processes that write there are seen,
// too. Link with ringside::consumer and ringside::ringside. Errors are exceptions: std::runtime_error, with a sentence. One
// thread at a time; the events may come from any. There is one Capture at a time.
#pragma once
#include <ringside/ringside.h>
#include <unistd.h>

#include <chrono>
#include <ringside/consumer.hpp>
#include <stdexcept>

namespace ringside::testing {

namespace detail {
void remove_instance(const char* path) noexcept;  // with all that is in it

class Opened {
 public:
  explicit Opened(const std::string& events) {
    if (ringside_instance() != nullptr) {
      check(ringside_enable(events.c_str()), "cannot enable " + events);
      return;
    }
    // The time: a process with this number may have died in a Capture, or live in another PID namespace.
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    const std::string name = "capture-" + std::to_string(getpid()) + "-" + std::to_string(ns);
    ringside_options o{};
    o.name = name.c_str();
    o.events = events.c_str();
    check(ringside_open_with(&o, sizeof o), "cannot open an instance for " + events);
    own_ = ringside_instance();
  }
  ~Opened() {
    if (own_.empty()) return;
    if (const char* const now = ringside_instance(); now != nullptr && own_ == now) ringside_close();
    remove_instance(own_.c_str());
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  static void check(int error, const std::string& what) {
    if (error != 0) throw std::runtime_error("ringside::testing::Capture: " + what + ": " + std::strerror(-error));
  }
  std::string own_;
};
}  // namespace detail

// An event that was captured; it may outlive the Capture. Its fields by name: std::runtime_error if it has none of that name,
// or one of another kind.
class Captured {
 public:
  std::string name;  // "shop:order"
  std::string line;  // as `ringside report` prints it
  u64 time = 0;      // ns
  int tid = 0;

  i64 number(const std::string& field) const { return get(field, &Consumer::Column::number, "whole number"); }
  double real(const std::string& field) const { return get(field, &Consumer::Column::real, "number"); }
  std::string text(const std::string& field) const { return std::string(get(field, &Consumer::Column::text, "text")); }

 private:
  friend class Capture;
  Captured(std::shared_ptr<Consumer> consumer, const Event& e)
      : name(consumer->name(e)),
        line(consumer->text(e)),
        time(e.time),
        tid(consumer->tid(e)),
        consumer_(std::move(consumer)),
        event_(e),
        bytes_(e.data, e.data + e.size) {}
  template <class Value>
  Value get(const std::string& field, std::optional<Value> (Consumer::Column::*as)(const Event&), const char* kind) const {
    Event e = event_;
    e.data = bytes_.data();
    auto column = consumer_->column(name + "/" + field);
    if (!column) throw std::runtime_error(column.error().sentence);
    if (const auto value = ((*column).*as)(e)) return *value;
    throw std::runtime_error(name + ": " + field + " is no " + kind);
  }
  std::shared_ptr<Consumer> consumer_;
  Event event_;
  std::vector<u8> bytes_;
};

class Capture {
 public:
  // events: patterns, as `ringside enable` takes them: "shop:*", "net:err,db".
  explicit Capture(const std::string& events = "*:*") : opened_(events) {
    Consumer::Options open;
    open.where = {ringside_instance()};
    open.look_ahead = {};
    auto consumer = Consumer::open(open);
    if (!consumer) throw std::runtime_error(consumer.error().sentence);
    consumer_ = std::make_shared<Consumer>(std::move(*consumer));
    take();
    all_.clear();  // earlier ones
    lost_before_ = consumer_->missing().count;
  }

  // All since the beginning, in the order of their times: what was written before this call.
  const std::vector<Captured>& events() { return take(), all_; }
  // Those of this name: "shop:order".
  std::vector<Captured> events(std::string_view name) {
    std::vector<Captured> some;
    for (const Captured& e : events())
      if (e.name == name) some.push_back(e);
    return some;
  }
  size_t count(std::string_view name) { return events(name).size(); }
  // Begins anew.
  void clear() {
    take();
    all_.clear();
    lost_before_ = consumer_->missing().count;
  }
  // Events that the rings lost or refused since the beginning.
  u64 lost() {
    take();
    return consumer_->missing().count - lost_before_;
  }

 private:
  void take() {
    consumer_->refresh();
    for (Event e; consumer_->next(e);)
      if (e.lost == 0) all_.push_back(Captured(consumer_, e));
  }

  detail::Opened opened_;
  std::shared_ptr<Consumer> consumer_;
  std::vector<Captured> all_;
  u64 lost_before_ = 0;
};

}  // namespace ringside::testing
