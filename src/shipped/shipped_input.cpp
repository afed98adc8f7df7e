#include "shipped/shipped_input.hpp"

#include "consumer/recorded_input.hpp"
#include "consumer/trace.hpp"
#include "shipped/shipped.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

class ShippedInput : public RecordedInput {
 public:
  ShippedInput(const std::string& place, ShippedAsRecording::Machine machine,
               std::shared_ptr<ShippedAsRecording> fetched = nullptr)
      : RecordedInput(place), machine_(std::move(machine)), fetched_(std::move(fetched)) {}
  // The times of one boot of one machine are those of its own recordings.
  result<void> fetch(bool alone) override {
    alone_ = alone;
    const auto times = alone ? ShippedAsRecording::Times::mono : ShippedAsRecording::Times::wall;
    fetched_ = RS_TRY(ShippedAsRecording::read(RS_TRY(ShippedAsRecording::Place::parse(where)), machine_, times));
    return {};
  }
  result<void> open(Trace& trace) override {
    RS_TRY(open_in(trace, fetched_->recording()));
    for (const std::string& remark : fetched_->remarks()) trace.notices.push_back(machine_.host + ": " + remark);
    return {};
  }
  // Its gaps that have no event after them in what was asked for.
  Account account() const override {
    Account of = RecordedInput::account();
    if (recording() != nullptr) of.overrun = recording()->account.overrun;
    return of;
  }
  std::unique_ptr<Input> another() const override { return another_input(); }
  const MachineTime* time_of_day() const override { return &machine_; }
  std::optional<WallClock> wall() const override { return alone_ ? RecordedInput::wall() : WallClock{0, machine_.error_ns}; }
  std::optional<u64> recorded_events() const override { return std::nullopt; }
  std::vector<std::unique_ptr<Source>> open_again() const override { return open_again_in(fetched_->recording()); }

 private:
  std::unique_ptr<Input> another_input() const {
    auto input = std::make_unique<ShippedInput>(where, machine_, fetched_);
    input->alone_ = alone_;
    return input;
  }
  ShippedAsRecording::Machine machine_;
  std::shared_ptr<ShippedAsRecording> fetched_;
  bool alone_ = false;
};

}  // namespace

static result<std::vector<std::unique_ptr<Input>>> shipped_inputs(const std::string& place) {
  std::vector<std::unique_ptr<Input>> inputs;
  for (auto& machine : RS_TRY(ShippedAsRecording::machines(RS_TRY(ShippedAsRecording::Place::parse(place)))))
    inputs.push_back(std::make_unique<ShippedInput>(place, std::move(machine)));
  return inputs;
}

void open_servers() { open_servers_by(shipped_inputs); }

}  // namespace ringside
