// A service with spans of categories, and requests that end on other threads than they begin on: spans_writer COUNT.
#include <cstdlib>
#include <ringside/trace.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace shop {
enum class State { open, paid, lost };
}
RINGSIDE_ENUM(shop::State, open, paid, lost);
RINGSIDE_EVENT(shop, order, (State, state), (u32, id));
RINGSIDE_SPAN(db, query, (cstring, sql), (u32, rows));
RINGSIDE_SPAN(db, commit);

namespace {

void serve(unsigned i) {
  RINGSIDE_FUNCTION();
  db::query outer{"SELECT a", 0};
  {
    db::query inner{"SELECT b", 0};
    inner.rows = i;
    db::commit commit;
  }
  outer.rows = 1000;
  shop::order(i % 2 == 0 ? shop::State::paid : shop::State::open, i);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  std::vector<ringside::async_span> requests;
  for (unsigned i = 0; i < count; ++i) requests.emplace_back("request", i);
  std::thread([all = std::move(requests)]() mutable {
    for (unsigned i = 0; i < all.size(); ++i) {
      serve(i);
      all[i].end();
    }
  }).join();
  return 0;
}
