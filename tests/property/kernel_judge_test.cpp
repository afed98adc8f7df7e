// The kernel as the judge of ringside's ring: the same payloads at the same times to an instance's trace_marker_raw and to a
// ring of ringside, the same calls to both readers, and then the same bytes and meta-page fields. docs/conformance.md lists the
// differences.
#include "property/kernel_judge.hpp"

namespace ringside::test::kernel_judge_test {
namespace {

enum class What { write, burst, get_reader, read };
struct Step {
  What what;
  u32 size, count;
};
void show(const std::vector<Step>& steps, std::ostream& out) {
  for (const Step& s : steps) {
    const char* names[] = {"write", "burst", "get_reader", "read"};
    out << names[static_cast<int>(s.what)] << " " << s.size << " x " << s.count << "; ";
  }
}

rc::Gen<u32> sizes(u32 subbuf_size) {
  const u32 largest = std::min(subbuf_size - abi::header_size - 16, 4096u - 64);
  return rc::gen::oneOf(rc::gen::inRange(4u, 64u), rc::gen::inRange(4u, 300u), rc::gen::inRange(4u, largest + 1),
                        rc::gen::element(4u, 8u, 100u, 104u, 105u, 108u, 112u, largest));
}
// Long from the first case on: bursts go around the ring, calls come several in a row.
rc::Gen<std::vector<Step>> steps(u32 subbuf_size, std::vector<What> calls) {
  const auto step = rc::gen::apply(
      [=](int what, u32 size, u32 count, u32 call) {
        if (what == 0) return Step{What::write, size, 1};
        if (what <= 3) return Step{What::burst, size, std::max(1u, std::min(count, 6 * subbuf_size / (size + 12)))};
        return Step{calls[call % calls.size()], 0, 1};
      },
      rc::gen::inRange(0, 10), sizes(subbuf_size), rc::gen::inRange(1u, subbuf_size / 16), rc::gen::arbitrary<u32>());
  return rc::gen::resize(120, rc::gen::container<std::vector<Step>>(rc::gen::resize(100, step)));
}

INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudge,
                         testing::Values(Shape{4096, true}, Shape{4096, false}, Shape{8192, true}, Shape{8192, false},
                                         Shape{16384, true}, Shape{16384, false}, Shape{65536, true}, Shape{65536, false}),
                         [](const auto& shape) { return to_string(shape.param); });

// Both rings, mapped and served, step by step.
class Lockstep {
 public:
  Lockstep(KernelSide& kernel, u32 slots) : kernel_(kernel), ours_(kernel.shape(), slots), reader_(ours_.ring()) {
    kernel_.fresh(slots);
    kernel_.map();
    kernel_.give_memory_to(ours_.ring());
    ours_.map();
    same_meta(kernel_, ours_, "the first mapping");
  }

  // False: refused by both.
  bool write(u32 size) {
    const u32 number = ++number_;
    const u64 before = sys::now_ns();
    const bool taken = kernel_.write(number, size);
    const auto stamp = kernel_.newest(number);
    RC_ASSERT(taken == stamp.has_value());
    const Refused refused = ours_.writer().write(number, size, stamp.value_or(Stamp{before}));
    RC_ASSERT((refused == Refused::no) == taken);
    if (!taken) return false;
    for (u32 i = 1; i <= rounding(size); ++i) RC_ASSERT(ours_.data()[stamp->end - kernel_.data() - i] == 0);
    const u32 event = abi::event_size(common_size + size);
    u32 before_it;
    std::memcpy(&before_it, stamp->begin - abi::payload_offset(event) - abi::stamp_size, sizeof before_it);
    delta = last_ == 0 ? 0 : stamp->time - last_;
    extends += abi::word_type(before_it) == abi::type_time_extend && delta >= abi::delta_limit;
    last_ = stamp->time;
    return true;
  }
  void get_reader() {
    RC_ASSERT(kernel_.get_reader() == 0);
    RC_ASSERT(ours_.get_reader() == 0);
    (void)kernel_.newest(0);
    same_meta(kernel_, ours_, "GET_READER");
    const u32 id = kernel_.meta().reader.id;
    const Image theirs = kernel_.page(id, kernel_.data()), own = kernel_.page(id, ours_.data());
    SAME_BYTES(theirs.data(), own.data(), own.size(), "the reader page");
    flagged += abi::commit_missed(reinterpret_cast<const abi::SubBufferHeader*>(own.data())->commit);
    same_counters(kernel_, ours_, true);
  }
  // Repeats the same calls until everything is found.
  void drain() {
    for (abi::MetaPage before{}; std::memcmp(&before, &kernel_.meta(), sizeof before) != 0; get_reader())
      before = kernel_.meta();
  }
  void read() {
    Image theirs = kernel_.read(), image = read_image(reader_, true);
    RC_ASSERT(theirs.size() == image.size());
    if (!theirs.empty()) {
      kernel_.clean(theirs, image);
      SAME_BYTES(theirs.data(), image.data(), image.size(), "the copied sub-buffer");
      ++copied;
    }
    same_counters(kernel_, ours_, false);
  }
  OurSide& ours() { return ours_; }
  u64 flagged = 0, copied = 0, extends = 0;
  u64 delta = 0;  // ns, of the last event to the one before it

 private:
  KernelSide& kernel_;
  OurSide ours_;
  Reader<> reader_;
  u32 number_ = 0;
  u64 last_ = 0;
};

// Advanced by GET_READER, ours by the socket's; now and then by read(), which then copies.
TEST_P(KernelJudge, Mapped) {
  u64 overrun = 0, dropped = 0, flagged = 0, copied = 0;
  check(8, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    const auto script = *steps(GetParam().subbuf_size, {What::get_reader, What::get_reader, What::get_reader, What::read});
    Lockstep both(*kernel_, slots);
    for (const Step& step : script) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) both.write(step.size);
      if (step.what == What::get_reader) both.get_reader();
      if (step.what == What::read) both.read();
    }
    both.drain();
    const Counters all = kernel_->counters();
    RC_ASSERT(all.unread == 0u);
    overrun += all.overrun;
    dropped += all.dropped;
    flagged += both.flagged;
    copied += both.copied;
  });
  EXPECT_GT(copied, 10u);
  EXPECT_EQ(overrun > 1000 && flagged > 10, GetParam().overwrite);
  EXPECT_EQ(dropped > 100, !GetParam().overwrite);
  std::printf("%lu overwritten, %lu sub-buffers flagged, %lu refused, %lu copied\n", overrun, flagged, dropped, copied);
}

// The second event that a full ring refuses makes the kernel forget where the data of the preceding sub-buffer ended, and so
// hand it over with its padding: removes that padding. 0: nothing to do.
u32 forget_padding(Image& kernel, const Image& ours) {
  auto& theirs = *reinterpret_cast<abi::SubBufferHeader*>(kernel.data());
  const u32 end = abi::commit_size(reinterpret_cast<const abi::SubBufferHeader*>(ours.data())->commit);
  const u32 left = abi::commit_size(theirs.commit) - end;
  if (abi::header_size + end + left != kernel.size() || left < 8) return 0;
  const u32 padding[2] = {abi::event_word(abi::type_padding, 1), left - 4};
  if (std::memcmp(kernel.data() + abi::header_size + end, padding, sizeof padding) != 0) return 0;
  std::memset(kernel.data() + abi::header_size + end, 0, left);
  theirs.commit -= left;
  return 1;
}

// A script run by the kernel unmapped, and then by a ring of ringside at the kernel's times.
class Replayed {
 public:
  Replayed(KernelSide& kernel, u32 slots, std::vector<Step> script)
      : kernel_(kernel),
        script_(std::move(script)),
        ring_(shared_ring(kernel.shape().subbuf_size, slots + 1, !kernel.shape().overwrite)),
        writer_(ring_),
        reader_(ring_) {
    kernel_.fresh(slots);
    for (const Step& step : script_) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) {
        const u64 before = sys::now_ns();
        written_.push_back({before, kernel_.write(static_cast<u32>(written_.size()), step.size)});
      }
      if (step.what == What::read) images.push_back(kernel_.read());
    }
    do images.push_back(kernel_.read());
    while (!images.back().empty());
    for (const Image& image : images) {
      Walked all;
      if (!image.empty()) walk_new(image.data(), all, [&](u32 number, const Stamp& stamp) { stamps_[number] = stamp; });
    }
  }
  ~Replayed() { unmap(ring_); }

  // use(reader, n) for each read, the n-th of the kernel's.
  template <class Use>
  void run(Use use) {
    u32 number = 0;
    size_t next = 0;
    for (const Step& step : script_) {
      for (u32 i = 0; i < step.count && step.size != 0; ++i) {
        ++number;
        const auto stamp = stamps_.find(number);
        const Refused refused =
            writer_.write(number, step.size, stamp != stamps_.end() ? stamp->second : Stamp{written_[number].before});
        RC_ASSERT((refused == Refused::no) == written_[number].taken);
      }
      if (step.what == What::read) use(reader_, next++);
    }
    while (next < images.size()) use(reader_, next++);
    const Counters k = kernel_.counters();
    const RingCounters o = counters<>(ring_);
    RC_ASSERT(o.written == k.written);
    RC_ASSERT(o.read == k.read);
    RC_ASSERT(o.overrun == k.overrun);
    RC_ASSERT(o.dropped == k.dropped);
  }
  std::vector<Image> images;  // one for each read(), empty if there was nothing; the last one is empty

 private:
  struct Written {
    u64 before;
    bool taken;
  };
  KernelSide& kernel_;
  std::vector<Step> script_;
  Ring ring_;
  OurWriter writer_;
  Reader<> reader_;
  std::vector<Written> written_{1};
  std::map<u32, Stamp> stamps_;
};

// Not mapped: read() hands over finished sub-buffers whole, and copies from unfinished ones.
TEST_P(KernelJudge, Read) {
  u64 whole = 0, partial = 0, lost = 0, forgotten = 0;
  check(8, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    Replayed both(*kernel_, slots, *steps(GetParam().subbuf_size, {What::read}));
    both.run([&](Reader<>& reader, size_t n) {
      Image& theirs = both.images[n];
      Image own = read_image(reader, false);
      RC_ASSERT(theirs.size() == own.size());
      if (theirs.empty()) return;
      kernel_->clean(theirs, own);
      if (!GetParam().overwrite) forgotten += forget_padding(theirs, own);
      SAME_BYTES(theirs.data(), own.data(), own.size(), "sub-buffer " + std::to_string(n));
      const auto& header = *reinterpret_cast<const abi::SubBufferHeader*>(own.data());
      ++(abi::commit_size(header.commit) + 400 > GetParam().subbuf_size ? whole : partial);
      lost += abi::commit_missed(header.commit);
    });
  });
  EXPECT_GT(whole, 20u);
  EXPECT_GT(partial, 5u);
  EXPECT_EQ(lost > 5, GetParam().overwrite);
  std::printf("%lu whole sub-buffers (%lu with padding), %lu partial, %lu with losses\n", whole, forgotten, partial, lost);
}

// Images with the pieces of each sub-buffer joined, and without fill padding: for the comparison with a recording.
struct Whole {
  u64 time, lost;  // ~0: some
  Image data;
  friend bool operator==(const Whole&, const Whole&) = default;
};
std::vector<Whole> put_together(const std::vector<Image>& images, const std::function<void(Image&)>& clean) {
  std::vector<Whole> all;
  u64 last = 0;
  for (Image image : images) {
    if (image.empty()) continue;
    clean(image);
    SubBufferView view;
    RC_ASSERT(view_copy(image.data(), image.size(), static_cast<u32>(image.size()), view));
    const u64 commit = reinterpret_cast<const abi::SubBufferHeader*>(image.data())->commit;
    abi::EventCursor c(image.data() + abi::header_size, 0, view.end, view.time);
    u32 end = 0;
    while (c.next()) end = c.position();
    RC_ASSERT(c.malformed() == abi::Malformed::no);
    if (end == 0) continue;
    const u8* const data = image.data() + abi::header_size;
    if (all.empty() || view.time != last || view.lost_before != 0)
      all.push_back({view.time, view.lost_before != 0 && !abi::commit_stored(commit) ? ~u64{0} : view.lost_before, {}});
    all.back().data.insert(all.back().data.end(), data, data + end);
    abi::EventCursor again(data, 0, end, view.time);
    while (again.next()) last = again.time();
  }
  return all;
}

// The recorder's file, which grows in place and keeps no padding, against all that read() gave.
TEST_P(KernelJudge, Recorded) {
  const std::string dir = std::filesystem::temp_directory_path() / ("ringside-judge-" + std::to_string(getpid()));
  check(5, [&] {
    const u32 slots = *rc::gen::inRange(2u, 6u);
    Replayed both(*kernel_, slots, *steps(GetParam().subbuf_size, {What::read}));
    std::filesystem::remove_all(dir);
    RecordingWriter writer = must(RecordingWriter::create(dir, ClockInfo{}));
    must(writer.add_ring(RingName{}, GetParam().subbuf_size));
    both.run([&](Reader<>& reader, size_t) {
      if (const auto view = read_view(reader)) must(writer.append(0, *view));
    });
    must(writer.finish(0));
    const std::string file = must(sys::read_file(dir + "/ring0.raw"));
    RC_ASSERT(file.size() % GetParam().subbuf_size == 0u);
    std::vector<Image> own;
    for (size_t at = 0; at < file.size(); at += GetParam().subbuf_size)
      own.emplace_back(file.begin() + static_cast<long>(at), file.begin() + static_cast<long>(at + GetParam().subbuf_size));
    auto theirs = put_together(both.images, [&](Image& image) { kernel_->clean(image, image); });
    auto ours = put_together(own, [](Image&) {});
    RC_ASSERT(theirs.size() == ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (theirs[i].lost == ~u64{0} && ours[i].lost != 0) theirs[i].lost = ours[i].lost;  // the kernel had no room for it
      RC_ASSERT(theirs[i] == ours[i]);
    }
    RC_ASSERT(writer.ring(0).events == kernel_->counters().read);
    RC_ASSERT(writer.ring(0).lost == kernel_->counters().overrun);
  });
  std::filesystem::remove_all(dir);
}

class KernelJudgeTimes : public KernelJudge {};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudgeTimes, testing::Values(Shape{4096, true}, Shape{16384, false}),
                         [](const auto& shape) { return to_string(shape.param); });

// A delta that needs a time extend, in front of an event that then fits exactly, misses by 4 bytes, misses by 8 bytes, or does
// not fit.
TEST_P(KernelJudgeTimes, ExtendsAtTheEnd) {
  constexpr u32 size = 36, event = abi::event_size(common_size + size);
  const u32 capacity = GetParam().subbuf_size - abi::header_size;
  check(1, [&] {
    Lockstep both(*kernel_, 8);
    u32 used = 0;
    const auto gap = [] { usleep(140'000); };  // more than 2^27 ns
    for (const u32 left : {event + 8, event + 4, event, event - 4}) {
      for (u32 more = capacity - used - left; more != 0;) {
        const u32 filler = more > 116 ? 60 : more;
        both.write(filler - 4 - common_size);
        RC_PRE(both.delta < abi::delta_limit);  // this process was stopped for so long
        more -= filler;
      }
      gap();
      both.write(size);
      used = left == event + 8 ? 0 : event;
    }
    gap();
    both.write(size);  // in the middle of a sub-buffer
    gap();
    both.get_reader();
    both.drain();
    RC_ASSERT(both.extends == 2u);
  });
}

}  // namespace
}  // namespace ringside::test::kernel_judge_test
