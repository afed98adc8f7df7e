// Finds what main.cpp wrote.
#include <ringside/ring/writer.hpp>
#include <ringside/consumer.hpp>

int main(int, char** argv) {
  using namespace ringside;
  Consumer::Options options;
  options.where = {argv[1]};
  options.duration = std::chrono::milliseconds(10);
  auto consumer = must(Consumer::open(options));
  const auto answer = must(consumer.field<u32>("outside:hello", "answer"));
  bool found = false;
  consumer.run([&](const Event& e) { found = found || (answer.in(e) && answer(e) == 42); });
  return found ? 0 : 1;
}
