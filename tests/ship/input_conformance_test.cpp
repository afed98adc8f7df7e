// The tables of a server as an input.
#include "input_conformance.hpp"

#include "ship.hpp"

namespace ringside::test::inputs_test {
namespace {

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

const Case cases[] = {{"shipped", made<ShippedWriting>, false, false, true, false}};
INSTANTIATE_TEST_SUITE_P(Inputs, InputConformance, testing::ValuesIn(cases), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ringside::test::inputs_test
