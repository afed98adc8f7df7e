// A CTF trace as an input: babeltrace2 writes it and reads it.
#include "input_conformance.hpp"

#include <cstdlib>

#include "binary.hpp"

namespace ringside::test::inputs_test {
namespace {

class CtfWriting : public InstanceWriting {
 public:
  CtfWriting() { setenv("BABELTRACE_PLUGIN_PATH", RINGSIDE_BUILD_DIR "/babeltrace2", 1); }
  ~CtfWriting() override { unsetenv("BABELTRACE_PLUGIN_PATH"); }
  std::string missing() const override {
    return std::system("babeltrace2 --version >/dev/null 2>&1") == 0 ? "" : "no babeltrace2";
  }
  std::string make(bool room) override {
    InstanceWriting::make(room);
    const std::string trace = root_.path() + "/trace.ctf";
    const std::string command = RINGSIDE_BUILD_DIR "/ringside export -q --to " + trace + " " + recording(false);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return trace;
  }
};

const Case cases[] = {{"ctf", made<CtfWriting>, false, false, true, false}};
INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::test::inputs_test
