// Every open question of an execution (who runs next, which old value a load yields, does a signal arrive) is one call of
// choose(n). The answers are the execution: one line of numbers is a whole bug report.
//
//   enumerate   depth first: replay the path, and change its last answer that has another one; ends when none has
//   random      drawn from a seed, for ever
//   replay      answers from a line ("1 0 2"); behind its end every answer is 0
//
// 0 is always the dull answer (go on, newest value), so a line is cut at its last answer that is not.
#pragma once
#include <ringside/base/types.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace ringside::model {

enum class Mode { enumerate, random, replay };

class Choices {
 public:
  explicit Choices(Mode mode = Mode::enumerate, u64 seed = 1, const std::string& line = {}) : mode_(mode), state_(seed) {
    std::istringstream numbers(line);
    if (mode == Mode::replay)
      for (u32 answer; numbers >> answer;) path_.push_back({answer, 0});
    if (mode == Mode::random) draw_eagerness();
  }

  // One of 0 .. n-1, each as good as the other.
  u32 choose(u32 n) {
    if (n < 2) return 0;
    return at_ < path_.size() ? again(n) : first(n, mode_ == Mode::random ? u32(draw() % n) : 0);
  }

  // The same where 0 means "nothing happens": a random execution would otherwise spend its budgets in its first accesses.
  // `offered`: only that many of the n are tried, from the first on. A line of answers fits with any of them.
  u32 deviate(u32 n, u32 offered) {
    if (n < 2) return 0;
    if (at_ < path_.size()) return again(offered);
    bool leave = mode_ == Mode::random && (draw() & eagerness_) == 0;
    return first(offered, leave && offered > 1 ? u32(1 + draw() % (offered - 1)) : 0);
  }
  u32 deviate(u32 n) { return deviate(n, n); }

  // Enumerates from the first execution again.
  void begin_again() {
    path_.clear();
    at_ = 0;
  }

  // To the next execution; false: there is none.
  bool next() {
    if (mode_ == Mode::replay) return false;
    path_.resize(mode_ == Mode::random ? 0 : at_);
    at_ = 0;
    if (mode_ == Mode::random) return draw_eagerness(), true;
    while (!path_.empty() && path_.back().answer + 1 == path_.back().ways) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().answer;
    return true;
  }

  // The path met a question with another number of answers: the code under test is not a function of its choices.
  bool diverged() const { return diverged_; }

  std::string line() const {
    size_t end = at_;
    while (end > 0 && path_[end - 1].answer == 0) --end;
    std::string text;
    for (size_t i = 0; i < end; ++i) text += (i ? " " : "") + std::to_string(path_[i].answer);
    return text;
  }

 private:
  struct Step {
    u32 answer, ways;  // ways = 0: not known yet, read from a line
  };

  u32 again(u32 n) {
    Step& step = path_[at_++];
    diverged_ |= (step.ways != 0 && step.ways != n) || step.answer >= n;
    step.ways = n;
    return step.answer < n ? step.answer : 0;
  }

  u32 first(u32 n, u32 answer) {
    path_.push_back({answer, n});
    ++at_;
    return answer;
  }

  u64 draw() {  // splitmix64
    u64 z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Short and long executions want different rates of events; each execution draws its own: one access in 2, 4, .. 128.
  void draw_eagerness() { eagerness_ = (u64{2} << draw() % 7) - 1; }

  Mode mode_;
  u64 state_;
  u64 eagerness_ = 0;
  std::vector<Step> path_;
  size_t at_ = 0;
  bool diverged_ = false;
};

}  // namespace ringside::model
