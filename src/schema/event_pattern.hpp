// A pattern that selects events, in every place that takes one: -e, set_event, an instance's own list, EVENT/ before a
// column.
//
//   SYSTEM:EVENT   globs in both; an empty one is any
//   WORD           a glob over the names of systems and of events
//   remotes/...    the same, of the kernel's own remotes alone (Linux 7: remotes/NAME of tracefs, whose name is the system's)
//
// A list has commas between its patterns. The kernel's set_event and trace-cmd -e have the same meaning.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

class EventPattern {
 public:
  static constexpr std::string_view remotes = "remotes/";
  explicit EventPattern(std::string_view text);
  bool matches(std::string_view system, std::string_view name) const;
  // "*:*", "*" and "*:read" match events of every program: they mean the program's events, not the kernel's two thousand or so.
  bool may_name_kernel() const;
  bool chooses_among(std::string_view system) const { return matches(system, "") || (!is_word_ && matches_system(system)); }
  bool of_remotes() const { return of_remotes_; }
  bool all() const { return system_ == "*" && name_ == "*"; }  // events that are not known yet, too
  const std::string& text() const { return text_; }
  // The same as SYSTEM:EVENT, two of them for a WORD: the content of an instance's set_event.
  std::vector<std::string> in_full() const;

 private:
  bool matches_system(std::string_view system) const;
  std::string text_, system_, name_;  // WORD: both are the word
  bool is_word_, of_remotes_;
};

class EventPatterns {
 public:
  EventPatterns() = default;
  // invalid_argument: empty, or with characters that no name has.
  static result<EventPatterns> parse(std::string_view list);
  static result<EventPatterns> parse(const std::vector<std::string>& lists);

  bool matches(std::string_view system, std::string_view name) const;
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  void add(EventPattern one) { all_.push_back(std::move(one)); }
  EventPatterns of_remotes(bool they) const;  // those, or the others
  void add(const EventPatterns& more) { all_.insert(all_.end(), more.begin(), more.end()); }

 private:
  std::vector<EventPattern> all_;
};

}  // namespace ringside
