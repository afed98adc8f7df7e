// An answer of a ClickHouse server, in the format Native: every value of what is accepted is read.
#include "clickhouse/native.hpp"

using namespace ringside;
using namespace ringside::clickhouse;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(input), size);
  const auto blocks = read_blocks(bytes);
  if (!blocks) return 0;
  u64 sum = 0;
  for (const BlockIn& block : *blocks) {
    for (const ColumnIn& column : block.columns) {
      const u64 values = column.is_array ? (column.ends.empty() ? 0 : column.ends.back()) : block.rows;
      for (u64 at = 0; at < values; ++at) {
        if (column.kind == ColumnIn::Kind::text) for (const char c : column.texts[at]) sum += static_cast<u8>(c);
        else sum += static_cast<u64>(column.whole(at)) + column.raw(at).size();
      }
    }
  }
  asm volatile("" : : "r"(sum));
  return 0;
}
