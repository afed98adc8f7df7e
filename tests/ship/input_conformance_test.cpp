// The kinds of input that need another program: a CTF trace, which babeltrace2 writes and reads, and the tables of a server.
#include "input_conformance.hpp"

#include <cstdlib>

#include "ship.hpp"

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

class ShippedWriting : public InstanceWriting {
 public:
  std::string missing() const override { return TestServer::missing(); }
  std::string make(bool room) override {
    InstanceWriting::make(room);
    const std::string database = ship_test::new_database(), spool = root_.path() + "/spool";
    std::filesystem::create_directories(spool);
    std::filesystem::rename(recording(false), spool + "/part.0000001");
    const std::string url = ship_test::server().url(database);
    EXPECT_EQ(std::system((RINGSIDE_BUILD_DIR "/ringside ship -q --host here --spool " + spool + " '" + url + "'").c_str()), 0);
    return url;
  }
};

const Case cases[] = {{"ctf", made<CtfWriting>, false, false, true, false},
                      {"shipped", made<ShippedWriting>, false, false, true, false}};
INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::test::inputs_test
