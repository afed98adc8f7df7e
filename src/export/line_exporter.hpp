// An exporter of text, which is written in large pieces.
#pragma once
#include <fmt/format.h>

#include <utility>

#include "export/exporter.hpp"

namespace ringside {

class LineExporter : public Exporter {
 public:
  explicit LineExporter(Put put) : put_(std::move(put)) {}
  result<void> add(const TraceRecord& record, const RingName& ring) final {
    print(record, ring, out_);
    return out_.size() >= (256 << 10) ? put_out() : result<void>();
  }
  result<void> put_out() final {
    auto done = put_({out_.data(), out_.size()});
    out_.clear();
    return done;
  }
  result<void> add_missing(u64 time, const Account& account) final {
    print_missing(time, account, out_);
    return {};
  }

 protected:
  virtual void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) = 0;
  virtual void print_missing(u64 time, const Account& account, fmt::memory_buffer& out) = 0;
  fmt::memory_buffer out_;  // not written yet

 private:
  Put put_;
};

}  // namespace ringside
