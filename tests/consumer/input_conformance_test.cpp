// The kinds of input that need no other program: a recording, a compressed one, a tar of one, a trace.dat, an instance, served rings, an
// external writer, the live kernel.
#include "input_conformance.hpp"

#include <fcntl.h>
#include <sched.h>

#include <fstream>
#include <ringside/remote/process_writer.hpp>
#include <thread>

#include "export/recording_as_tar.hpp"
#include "serve/server.hpp"
#include "sys/sys.hpp"

namespace ringside::test::inputs_test {
namespace {

class TarWriting : public InstanceWriting {
 public:
  std::string make(bool room) override {
    InstanceWriting::make(room);
    const std::string file = root_.path() + "/recording.tar";
    std::ofstream to(file, std::ios::binary);
    must(recording_as_tar(recording(false), "recording", [&to](std::string_view bytes) -> result<void> {
      to << bytes;
      return {};
    }));
    return file;
  }
};

class ServedWriting : public InstanceWriting {
 public:
  std::string make(bool room) override {
    InstanceWriting::make(room);
    ServerOptions options;
    options.instance = "inputs";
    options.socket = root_.path() + "/socket";
    server_ = must(Server::create(options));
    serving_ = std::jthread([this](const std::stop_token& over) {
      while (!over.stop_requested()) must(server_->turn(20));
    });
    return options.socket;
  }

 private:
  std::unique_ptr<Server> server_;
  std::jthread serving_;
};

// The reader brings the rings, which have room for some 200,000 of these events.
class ExternalWriting : public Writing {
 public:
  std::string make(bool room) override {
    room_ = room;
    const std::string socket = root_.path() + "/writer";
    static const std::string format =
        "name: number\nID: 1\nformat:\n"
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
        "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
        "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"n=%llu\", REC->n\n";
    remote::ProcessOptions options{socket, {{1, "inputs", "number", format}}};
    options.rings = 1;
    writer_ = std::make_unique<remote::ProcessWriter<>>(options);
    EXPECT_EQ(writer_->error(), 0);
    return socket;
  }
  bool keeps_oldest() const override { return false; }
  void write(const Reading& /*reading*/) override {
    for (u64 n = 0; n < tried; ++n) {
      // Each is padded to a sixth of a sub-buffer where there is no room for all.
      u8 bytes[2800] = {};
      const Number number{1, 0, getpid(), n};
      std::memcpy(bytes, &number, sizeof number);
      auto* const ring = writer_->ring(0);
      ASSERT_NE(ring, nullptr);
      EXPECT_TRUE(ring->write(bytes, room_ ? sizeof number : sizeof bytes));
    }
  }

 private:
  bool room_ = true;
  OwnRoot root_;
  std::unique_ptr<remote::ProcessWriter<>> writer_;
};

// Nothing but what is written to trace_marker_raw, from one CPU.
class KernelWriting : public Writing {
 public:
  KernelWriting() { sched_getaffinity(0, sizeof before_, &before_); }
  ~KernelWriting() override { sched_setaffinity(0, sizeof before_, &before_); }
  std::string make(bool room) override {
    room_ = room;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    return "";
  }
  void adjust(Reading::Options& options) override {
    options.where = {};
    options.kernel = {"sched:sched_process_exec"};
    options.make.prefix = "ringside-test-";
    options.make.only_followed = true;
    options.make.overwrite = false;
    options.make.buffer_size = room_ ? 1 << 20 : 16 << 10;
  }
  void write(const Reading& reading) override {
    const sys::Fd marker(open((reading.trace().inputs.front()->where + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(marker);
    // The marker's id is the number. A full ring refuses it: EBADF.
    for (u64 n = 0; n < tried; ++n) {
      const bool done = ::write(marker.get(), &n, sizeof n) == static_cast<ssize_t>(sizeof n);
      ASSERT_TRUE(done || (!room_ && errno == EBADF)) << strerror(errno);
    }
  }

 private:
  bool room_ = true;
  cpu_set_t before_{};
};

const Case cases[] = {
    {"recording", made<RecordingWriting<false>>, false, false, true, false},
    {"compressed", made<RecordingWriting<true>>, false, false, true, false},
    {"tar", made<TarWriting>, false, false, true, false},
    {"trace_dat", made<TraceDatWriting>, false, false, true, false},
    {"instance", made<InstanceWriting>, true, false, true, false},
    {"served", made<ServedWriting>, true, true, false, false},
    {"writer", made<ExternalWriting>, true, true, false, true},
    {"kernel", made<KernelWriting>, true, true, false, true, "id"},
};

INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::test::inputs_test
