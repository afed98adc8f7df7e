// A service with two kinds of events: writes net:err all the time, and db:query while that is enabled, until the file STOP is
// there; then writes how many of each to the file COUNTS.
//   counted_writer STOP COUNTS
#include <unistd.h>

#include <cstdio>
#include <ringside/trace.hpp>

RINGSIDE_EVENT(net, err, (u64, n));
RINGSIDE_EVENT(db, query, (u64, n));

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  unsigned long long errs = 0, queries = 0;
  while (access(argv[1], F_OK) != 0) {
    for (int n = 0; n < 10; ++n) {
      net::err(errs++);
      if (db::query.enabled()) db::query(queries++);
    }
    usleep(500);
  }
  std::FILE* const out = std::fopen(argv[2], "w");
  if (out == nullptr) return 1;
  std::fprintf(out, "%llu %llu\n", errs, queries);
  return std::fclose(out) == 0 ? 0 : 1;
}
