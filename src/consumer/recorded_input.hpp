// A recording as an input: what a directory with a meta.json has, and what is converted or fetched into one.
#pragma once
#include <optional>

#include "consumer/input.hpp"

namespace ringside {

class RecordedInput : public Input {
 public:
  using Input::Input;
  result<void> open(Trace& trace) override { return open_in(trace, where); }
  std::unique_ptr<Input> another() const override { return recording_input(where); }
  ClockInfo own_clock() const override { return meta_ ? meta_->clock : ClockInfo{}; }
  const RecordingMeta* recording() const override { return meta_ ? &*meta_ : nullptr; }
  bool is_copy_of(const Input& other) const override;
  bool goes_on_from(const Input& earlier) const override;
  bool is_apart_from(const Input& other) const override;
  std::optional<u64> recorded_events() const override;
  std::vector<NameChange> take_names() override;
  std::optional<WallClock> wall() const override { return meta_ ? meta_->wall : std::nullopt; }
  std::string kept_names() const override { return read_kept(dir_, ringside::kept_names).value_or(""); }
  Account account() const override;
  std::vector<std::unique_ptr<Source>> open_again() const override { return open_again_in(where); }

 protected:
  result<void> open_in(Trace& trace, const std::string& dir);
  std::vector<std::unique_ptr<Source>> open_again_in(const std::string& dir) const;
  void load_names(Trace& trace, const std::string& dir) const;   // the kernel's
  virtual bool names_idle() const { return true; }               // its events may name no thread 0

  std::string dir_ = where;  // once it is open
  std::optional<RecordingMeta> meta_{};
  size_t names_taken_ = 0;
};

// What was in a tar. Its messages and columns have `where`.
class Unpacked;
std::unique_ptr<Input> unpacked_input(const std::string& where, std::shared_ptr<const Unpacked> recording);

}  // namespace ringside
