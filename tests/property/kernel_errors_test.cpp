// The kernel as the judge of ringside's ring: the same errors, and the same state after each.
#include "property/kernel_judge.hpp"

namespace ringside::test::kernel_judge_test {
namespace {

// The same errno for forbidden operations.
class KernelJudgeErrors : public KernelJudge {
 protected:
  static int map_error(int fd, u64 size, int protection, int flags, u64 offset = 0) {
    void* const at = mmap(nullptr, size, protection, flags, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return errno;
    munmap(at, size);
    return 0;
  }
  template <class T>
  static int code(const result<T>& r) {
    return r ? 0 : r.error().code.value();
  }
};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelJudgeErrors, testing::Values(Shape{4096, true}, Shape{16384, true}),
                         [](const auto& shape) { return to_string(shape.param); });

TEST_P(KernelJudgeErrors, TheSame) {
  constexpr u32 slots = 3;
  const u64 subbuf_size = GetParam().subbuf_size, whole = subbuf_size * (slots + 2);
  kernel_->fresh(slots);
  OurSide ours(GetParam(), slots);
  EXPECT_EQ(kernel_->get_reader(), ENODEV) << "not mapped";
  kernel_->map();
  ours.map();
  handout::ReaderAnswer none;
  EXPECT_EQ(code(ours.client().ask(handout::Kind::get_reader, 1, &none, sizeof none)), ENODEV) << "not mapped";

  const sys::Fd read_only(open((kernel_->cpu_dir() + "/trace_pipe_raw").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const int kernel = read_only.get(), own = ours.data_fd();
  EXPECT_EQ(map_error(kernel, whole, PROT_READ, MAP_SHARED), 0);
  EXPECT_EQ(map_error(own, whole, PROT_READ, MAP_SHARED), 0);
  EXPECT_EQ(map_error(kernel, 1, PROT_READ, MAP_SHARED, subbuf_size), 0);
  EXPECT_EQ(map_error(own, 1, PROT_READ, MAP_SHARED, subbuf_size), 0);
  EXPECT_EQ(map_error(kernel, page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EACCES);
  EXPECT_EQ(map_error(own, page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EACCES);
  for (const int fd : {kernel, own}) {
    void* const at = mmap(nullptr, page_size, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_EQ(mprotect(at, page_size, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, EACCES);
    munmap(at, page_size);
  }
  EXPECT_EQ(code(sys::Region::map(kernel, whole + subbuf_size, false, "the kernel's ring")), EINVAL) << "beyond the end";
  EXPECT_EQ(code(sys::Region::map(own, whole + subbuf_size, false, "our ring")), EINVAL) << "beyond the end";
  EXPECT_EQ(ioctl(kernel, 0x1234), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(ioctl(own, 0x1234), -1);
  EXPECT_EQ(errno, ENOTTY);

  const std::string kib = std::to_string(u64{slots + 3} * subbuf_size / 1024);
  const std::string other = std::to_string(2 * subbuf_size / 1024);
  EXPECT_EQ(code(kernel_->instance().write("per_cpu/cpu0/buffer_size_kb", kib)), EBUSY);
  EXPECT_EQ(code(ours.instance().resize((slots + 3) * subbuf_size, GetParam().subbuf_size)), EBUSY);
  EXPECT_EQ(code(kernel_->instance().write("buffer_subbuf_size_kb", other)), EBUSY);
  EXPECT_EQ(code(ours.instance().resize(8 * subbuf_size, 2 * GetParam().subbuf_size)), EBUSY);
  EXPECT_EQ(code(kernel_->instance().write("buffer_subbuf_size_kb", std::to_string(subbuf_size / 1024))), 0) << "the same size";
  EXPECT_EQ(code(ours.instance().resize(slots * (subbuf_size - abi::header_size), GetParam().subbuf_size)), 0)
      << "the same size";
  if (access((kernel_->instance().dir() + "/snapshot").c_str(), F_OK) == 0) {
    EXPECT_EQ(code(kernel_->instance().write("snapshot", "1")), EBUSY);
  }
  EXPECT_EQ(code(ours.instance().snapshot()), EBUSY);
  EXPECT_EQ(kernel_->get_reader(), 0);
  EXPECT_EQ(ours.get_reader(), 0);

  ours.unmap();
  EXPECT_EQ(code(ours.instance().snapshot()), 0);
  EXPECT_EQ(code(ours.instance().resize((slots + 3) * subbuf_size, GetParam().subbuf_size)), 0);
}

// Operations that a file, which the server hands out, cannot refuse: docs/conformance.md.
TEST_P(KernelJudgeErrors, OthersOfAFile) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  const int own = ours.data_fd();
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ, MAP_PRIVATE), EPERM);
  EXPECT_EQ(map_error(own, page_size, PROT_READ, MAP_PRIVATE), 0);
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ | PROT_EXEC, MAP_SHARED), EPERM);
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ | PROT_WRITE, MAP_SHARED), EPERM) << "a file opened for writing";
  const u64 end = u64{GetParam().subbuf_size} * 5;
  EXPECT_EQ(map_error(kernel_->raw(), page_size, PROT_READ, MAP_SHARED, end), EINVAL);
  EXPECT_EQ(map_error(own, page_size, PROT_READ, MAP_SHARED, end), 0);
  EXPECT_EQ(ioctl(kernel_->raw(), abi::get_reader_ioctl), 0);
  EXPECT_EQ(ioctl(own, abi::get_reader_ioctl), -1);
  EXPECT_EQ(errno, ENOTTY);
  // A private page is the mapper's own: writes to it do not reach the ring.
  auto* const copy = static_cast<u8*>(mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, own, 0));
  ASSERT_NE(static_cast<void*>(copy), MAP_FAILED);
  copy[0] ^= 0xFF;
  EXPECT_EQ(ours.meta().meta_page_size, GetParam().subbuf_size);
  munmap(copy, page_size);
  // A part.
  for (const int fd : {kernel_->raw(), own}) {
    auto* const all = static_cast<u8*>(mmap(nullptr, end, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(static_cast<void*>(all), MAP_FAILED);
    EXPECT_EQ(munmap(all + GetParam().subbuf_size, GetParam().subbuf_size), fd == own ? 0 : -1);
    munmap(all, end);
  }
  EXPECT_EQ(ours.ring().control->mapped, 1u);
}

// Consumed beside the mappers: the kernel's meta-page waits for the next GET_READER, ours does not.
TEST_P(KernelJudgeErrors, MetaAfterRead) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  ASSERT_TRUE(kernel_->write(1, 40));
  ASSERT_EQ(ours.writer().write(1, 40, {sys::now_ns()}), Refused::no);
  EXPECT_FALSE(kernel_->read().empty());
  auto source = must(ours.instance().source(0));
  EXPECT_TRUE(must(source->next()));
  source->consume();
  EXPECT_EQ(kernel_->meta().read, 0u);
  EXPECT_EQ(ours.meta().read, 1u);
  source = nullptr;
  EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
  EXPECT_EQ(text(kernel_->meta()), text(ours.meta()));
}

// Emptied while it is mapped: the meta-page is at once that of an empty ring, and new events are read as before. (The ids go on
// in another order: docs/conformance.md.)
TEST_P(KernelJudgeErrors, Reset) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  kernel_->map();
  ours.map();
  u32 number = 0;
  const auto write = [&](u32 count) {
    for (u32 i = 0; i < count; ++i) {
      ASSERT_TRUE(kernel_->write(++number, 40));
      ASSERT_EQ(ours.writer().write(number, 40, {sys::now_ns()}), Refused::no);
    }
  };
  write(1000);
  EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
  must(kernel_->instance().write("trace", "0"));
  must(ours.instance().reset());
  for (const u32 count : {0u, 10u, 10u}) {
    write(count);
    if (count != 0) {
      EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
    }
    abi::MetaPage theirs = kernel_->meta(), own = ours.meta();
    EXPECT_EQ(reinterpret_cast<const abi::SubBufferHeader*>(kernel_->subbuf(theirs.reader.id))->commit,
              reinterpret_cast<const abi::SubBufferHeader*>(ours.subbuf(own.reader.id))->commit);
    theirs.reader.id = own.reader.id = 0;
    EXPECT_EQ(text(theirs), text(own));
  }
}

// Mapped when part of a sub-buffer has been read: except for the ids, both sides agree.
TEST_P(KernelJudgeErrors, MappedLate) {
  kernel_->fresh(3);
  OurSide ours(GetParam(), 3);
  Reader<> reader(ours.ring());
  u32 number = 0;
  const auto write = [&](u32 count) {
    for (u32 i = 0; i < count; ++i) {
      ASSERT_TRUE(kernel_->write(++number, 40));
      ASSERT_EQ(ours.writer().write(number, 40, {sys::now_ns()}), Refused::no);
    }
  };
  const auto same = [&] {
    abi::MetaPage theirs = kernel_->meta(), own = ours.meta();
    theirs.reader.id = own.reader.id = 0;
    EXPECT_EQ(text(theirs), text(own));
  };
  write(16);
  EXPECT_EQ(kernel_->read().size(), read_image(reader, false).size());
  write(10);
  kernel_->map();
  ours.map();
  EXPECT_EQ(kernel_->meta().reader.id, 0u);
  EXPECT_EQ(ours.meta().reader.id, 1u);
  EXPECT_EQ(kernel_->meta().read, 16u);
  same();
  for (const u32 count : {0u, 5u, 3000u, 0u, 0u, 0u}) {
    write(count);
    EXPECT_EQ(kernel_->get_reader() + ours.get_reader(), 0);
    same();
  }
}

}  // namespace
}  // namespace ringside::test::kernel_judge_test
