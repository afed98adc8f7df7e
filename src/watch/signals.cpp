#include "watch/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>

#include "sys/sys.hpp"

namespace ringside {
namespace {

volatile sig_atomic_t first_signal = 0;
volatile sig_atomic_t from_terminal = 0;
pid_t first_sender = 0;
u64 first_ns = 0;
bool ignored = false;
std::atomic<void (*)()> leaving{nullptr};

// timeout(1) sends its signal to the process and right afterwards to its group: that is one request.
bool is_the_same_request(int number, const siginfo_t& from) {
  return number == first_signal && from.si_code == SI_USER && from.si_pid == first_sender && sys::now_ns() - first_ns < 500'000'000;
}

void on_signal(int number, siginfo_t* from, void*) {
  if (first_signal != 0 && is_the_same_request(number, *from)) return;
  if (first_signal != 0) leave_at_once(128 + number);
  from_terminal = from->si_code == SI_KERNEL;
  first_sender = from->si_pid;
  first_ns = sys::now_ns();
  first_signal = number;
}

}  // namespace

void catch_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;  // no SA_RESTART: sleeping calls return
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&action.sa_mask, number);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    sigaction(number, nullptr, &old);
    ignored = ignored || (number == SIGINT && old.sa_handler == SIG_IGN);
    if (old.sa_handler != SIG_IGN || number == SIGINT) sigaction(number, &action, nullptr);
  }
}

bool interrupt_was_ignored() { return ignored; }
bool asked_to_stop() { return first_signal != 0; }
int stop_signal() { return first_signal; }
bool stop_was_typed() { return from_terminal != 0; }
void sleep_ns(u64 ns) {
  timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}
void before_leaving(void (*what)()) { leaving = what; }
void leave_at_once(int exit_code, void (*last)()) {
  if (auto* const what = leaving.load()) what();
  if (last != nullptr) last();
  _exit(exit_code);
}

}  // namespace ringside
