// The sub-buffers of one CPU in a trace.dat, compressed or not.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "source/decompress.hpp"
#include "source/foreign_sub_buffers.hpp"
#include "source/source.hpp"
#include "source/time_shift.hpp"
#include "source/trace_dat_file.hpp"
#include "source/trace_dat_reader.hpp"

namespace ringside::trace_dat {

class TraceDatSource final : public Source {
 public:
  TraceDatSource(std::shared_ptr<TraceDatBytes> file, RingName name, const ClockInfo& clock, u32 subbuf_size,
                 const CpuData& data, Compression compression, const Counters& counters);
  TraceDatSource(const TraceDatSource&) = delete;
  TraceDatSource& operator=(const TraceDatSource&) = delete;
  ~TraceDatSource() override { file_->decompressed -= chunk_.size() * 8; }

  result<std::optional<SubBufferView>> next() override;
  Counters counters() const override { return counters_; }
  bool ended() const override { return true; }
  // Where compressed sub-buffers lie is known only from those before them. Shifted times may go back.
  u64 sub_buffers() const override {
    return compression_ == Compression::none && !unordered_ && !shift_ ? all_.size / counters_.subbuf_size : 0;
  }
  void shift_by(TimeShift::OfCpu shift) { shift_ = std::move(shift); }  // before the first next()
  void convert_by(std::shared_ptr<const ForeignSubBuffers> foreign) { foreign_ = std::move(foreign); }  // the same
  void say_unordered() { unordered_ = true; }  // nothing is looked for by its time
  u64 time_stamp(u64 index) const override;
  void seek(u64 index) override {
    const u64 at = index * counters_.subbuf_size;
    pages_ = {};
    at_begin_ = index == 0;
    rest_ = {all_.data + at, all_.size - at};
  }

 private:
  std::string who() const;
  result<std::optional<SubBufferView>> next_sub_buffer();
  void place_overrun(SubBufferView& view, bool first);
  SubBufferView next_piece();
  // The next run of sub-buffers; none at the end.
  result<void> refill();
  result<void> damaged() const;
  result<SubBufferView> view(const u8* image, u32 have, u32 size);
  result<SubBufferView> convert(const u8* image, u32 have);
  tl::unexpected<Error> claims_more(u32 claimed, u32 there) const;
  bool resize(u32 size);

  std::shared_ptr<TraceDatBytes> file_;
  CpuData data_;
  Counters counters_;
  Compression compression_;
  std::shared_ptr<const ForeignSubBuffers> foreign_;  // null: its sub-buffers are shown as they are
  bool unordered_ = false;
  std::optional<TimeShift::OfCpu> shift_;
  std::optional<SubBufferView> unshifted_;  // what is left of a sub-buffer
  Bytes all_{};
  Bytes rest_{};   // of the file, not read yet
  Bytes pages_{};  // sub-buffers, in place or in chunk_
  bool cut_ = false, started_ = false, at_begin_ = true;
  struct Overrun {
    u64 more = 0;  // than the sub-buffers show
    u32 gaps = 0;  // that have no number
  };
  std::optional<Overrun> overrun_{};  // looked for at the first place that needs it
  u32 chunks_ = 0;  // left
  std::vector<u64> chunk_, page_;
};

}  // namespace ringside::trace_dat
