// The kernel's own remotes, live: what patterns remotes/NAME:EVENT name.
#include "consumer/input.hpp"
#include "consumer/trace.hpp"
#include "kernel/kernel_remote.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

class KernelRemotesInput final : public Input {
 public:
  KernelRemotesInput(EventPatterns patterns, u64 buffer_size)
      : Input("the kernel's remotes"), patterns_(std::move(patterns)), buffer_size_(buffer_size) {}
  result<void> open(Trace& trace) override {
    world = World::own();
    boot = sys::boot_id();
    clock = to_string(ClockKind::mono);
    KernelRemote::Options options;
    options.buffer_size = buffer_size_;
    options.notice = [told = told_](const std::string& sentence) { told->push_back(sentence); };
    remotes_ = RS_TRY(KernelRemote::all(patterns_, options));
    if (remotes_.empty())
      return refuse(std::errc::no_such_file_or_directory,
                    "the kernel has no remote with such an event (ringside list 'remotes/*' shows them; Linux 7 has remotes)");
    for (const auto& remote : remotes_) {
      add_events(trace, *this, remote->events());
      for (auto& source : remote->sources) {
        trace.tasks.add(source->name(), origin.ids);
        sources.push_back(std::move(source));
      }
      RS_TRY(remote->on());
    }
    trace.notices.insert(trace.notices.end(), told_->begin(), told_->end());
    return {};
  }
  std::unique_ptr<Input> another() const override { return kernel_remotes_input(patterns_, buffer_size_); }
  ClockInfo own_clock() const override { return {}; }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  Account account() const override {
    Account of = doubtful();
    for (const auto& remote : remotes_)
      for (std::string& doubt : remote->doubts()) of.doubts.push_back(std::move(doubt));
    return of;
  }
  void stop() override {
    for (const auto& remote : remotes_) remote->off();
  }

 private:
  EventPatterns patterns_;
  u64 buffer_size_;
  std::shared_ptr<std::vector<std::string>> told_ = std::make_shared<std::vector<std::string>>();
  std::vector<std::unique_ptr<KernelRemote>> remotes_;
};

}  // namespace

std::unique_ptr<Input> kernel_remotes_input(EventPatterns patterns, u64 buffer_size) {
  return std::make_unique<KernelRemotesInput>(std::move(patterns), buffer_size);
}

}  // namespace ringside
