#include "cli/rotation.hpp"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>

#include "text/units.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside::cli {

void Rotation::add_options(CLI::App& app) {
  app.add_option_function<std::string>(
         "--rotate",
         [this](const std::string& text) {
           // A bare number would be both.
           const bool unit = !text.empty() && std::isdigit(static_cast<unsigned char>(text.back())) == 0;
           const auto size = unit ? parse_size(text) : std::nullopt, time = unit ? parse_time(text) : std::nullopt;
           bytes_ = time ? 0 : size.value_or(0);
           ns_ = time.value_or(0);
           if (bytes_ == 0 && ns_ == 0)
             throw CLI::ValidationError("--rotate", "\"" + text + "\" is neither a size (256M) nor a time (60s)");
         },
         "go on in a new recording after so much data or time; finished parts become DIR.0001, DIR.0002, ...")
      ->type_name("SIZE|TIME");
  app.add_option("--keep", keep_, "with --rotate: finished parts kept at most; the oldest ones are removed (default: all)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
}

void Rotation::check() const {
  if (keep_ != 0 && !wanted()) throw UsageError{"--keep is about the parts that --rotate makes"};
  if (bytes_ != 0 && bytes_ < 65536) throw UsageError{"--rotate takes at least 64k"};
  if (ns_ != 0 && ns_ < 100'000'000) throw UsageError{"--rotate takes at least 100ms"};
}

result<std::string> Rotation::put_aside(const std::string& dir) {
  std::string path = dir;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const auto at = RS_TRY(sys::open_parent(path));
  if (next_ == 0) {  // after those of earlier runs
    const std::string start = at.name + ".";
    const auto names = RS_TRY(sys::names_in(at.dir.get()));
    for (const std::string& name : names) {
      u64 number = 0;
      const char* const end = name.data() + name.size();
      if (name.compare(0, start.size(), start) != 0 || name.size() > start.size() + 12) continue;
      if (const auto [stop, error] = std::from_chars(name.data() + start.size(), end, number);
          error == std::errc() && stop == end)
        next_ = std::max(next_, number);
    }
  }
  const std::string name = fmt::format("{}.{:04}", at.name, ++next_);
  if (renameat2(at.dir.get(), at.name.c_str(), at.dir.get(), name.c_str(), RENAME_NOREPLACE) != 0)
    return fail(errno, "cannot rename the finished part " + path + " to " + name);
  parts_.push_back(name);
  if (keep_ != 0 && parts_.size() > keep_) {
    if (!sys::remove_beneath(at.dir.get(), parts_.front().c_str()))
      return fail(errno, "cannot remove the oldest part " + parts_.front());
    parts_.pop_front();
  }
  return fmt::format("{}.{:04}", path, next_);
}

}  // namespace ringside::cli
