#include "pass.hpp"

#include <algorithm>

namespace ringside::python {

py::str to_str(std::string_view text) {
  PyObject* const made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

void raise(const Error& error) {
  const py::object type = py::module_::import("ringside._ringside").attr("Error");
  PyErr_SetObject(type.ptr(), to_str(error.sentence).ptr());
  throw py::error_already_set();
}

Pass::Pass(const Wanted& wanted) {
  Reading::Options open;
  open.where = wanted.where;
  open.kernel = wanted.kernel;
  open.filter = wanted.filter;
  if (!wanted.time.empty()) or_raise(open.window.parse_time(wanted.time));
  open.push_down = true;
  open.only = or_raise(EventPatterns::parse(wanted.events));
  open.notices = [this](const std::vector<std::string>& more) { notices_.insert(notices_.end(), more.begin(), more.end()); };
  open.time.over = [this] { return interrupted_; };
  result<std::unique_ptr<Reading>> reading = [&] {
    const py::gil_scoped_release released;
    return Reading::open(std::move(open));
  }();
  reading_ = or_raise(std::move(reading));
  static constexpr double most = 1e10;  // seconds: three hundred years; what is longer has no end
  const auto ns = [](double seconds) { return static_cast<u64>(std::min(std::max(0.0, seconds), most) * 1e9); };
  for (const auto& input : reading_->trace().inputs) {
    if (input->begins_when_opened() && input->tracefs() == nullptr && !wanted.follow)
      throw py::value_error(input->where +
                            " is an external writer: it writes nothing before it is opened, and gives each event once; read it "
                            "with ringside.follow()");
  }
  reading_->look_up_names();
  if (wanted.follow && reading_->trace().live())
    reading_->follow(ns(wanted.look_ahead), wanted.timeout < most ? ns(wanted.timeout) : 0);
}

bool Pass::interrupted() {
  const py::gil_scoped_acquire held;
  if (!interrupted_ && PyErr_CheckSignals() != 0) interrupted_ = true;
  return interrupted_;
}

bool Pass::wait() {
  if (interrupted()) return true;
  // The formats may grow in here; readers of events wait for as long as it sleeps, which is 5 ms at most.
  const auto held = hold();
  return reading_->wait(5'000'000);
}

const std::vector<std::string>& Pass::notices() {
  const auto held = formats_held();
  (void)reading_->notices();
  return notices_;
}

std::vector<std::string> Pass::problems() {
  const auto held = formats_held();
  return reading_->complete().account.reasons();  // with the timeline's problems
}

u64 Pass::lost() {
  const auto held = formats_held();
  return over_ ? reading_->complete().account.lost() : reading_->totals().account.overrun;
}

}  // namespace ringside::python
