// Blocks in ClickHouse's format Native, both ways: a varint for the number of columns and one for that of rows, then each
// column: its name, its type, its values. Numbers are little-endian, a text is a varint for its length and its bytes, arrays
// are the running ends of all (u64), then the values of all.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::clickhouse {

void put_varint(std::string& out, u64 value);
inline void put_text(std::string& out, std::string_view text) {
  put_varint(out, text.size());
  out.append(text);
}
template <class T>
void put_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A column on its way out. `data` holds the values as the format has them.
struct ColumnOut {
  std::string name, type;
  std::string data{};
  std::string ends{};     // arrays: the running ends
  u64 elements = 0;       // arrays: of all
  void end_array(u64 more) { put_number(ends, elements += more); }
  size_t bytes() const { return data.size() + ends.size(); }
};
// The same value in every row.
ColumnOut constant(std::string name, std::string type, std::string_view value, u64 rows);
std::string write_block(const std::vector<ColumnOut>& columns, u64 rows);

// A column of an answer. Its memory is the answer's.
struct ColumnIn {
  enum class Kind : u8 { whole, real, text };
  std::string name, type;
  Kind kind = Kind::whole;
  u32 size = 0;             // bytes of one value; 0: texts
  bool is_signed = false, is_array = false;
  const char* data = nullptr;             // numbers
  std::vector<std::string_view> texts{};
  std::vector<u64> ends{};                // arrays

  u64 begin_of(u64 row) const { return row == 0 ? 0 : ends[row - 1]; }
  i64 whole(u64 at) const;                // a value, or with arrays an element
  std::string_view raw(u64 at, u64 values = 1) const { return {data + at * size, values * size}; }
};
struct BlockIn {
  u64 rows = 0;
  std::vector<ColumnIn> columns;
  const ColumnIn* column(std::string_view name) const;
};
// All blocks of an answer, which must outlive them. It may hold anything: nothing is read beyond its end, and the memory
// taken is bounded by a small multiple of its size. bad_message: it is cut, or has an unknown type.
result<std::vector<BlockIn>> read_blocks(std::string_view answer);

// In SQL: "sched:sched_switch" and 'text'.
std::string quoted(std::string_view text, char mark);
inline std::string quoted_name(std::string_view name) { return quoted(name, '"'); }
inline std::string quoted_text(std::string_view text) { return quoted(text, '\''); }
// The name of a column beside one of the same name and another type: prio_Int64, list_ArrayUInt8.
std::string name_with_type(const std::string& name, std::string_view type);

}  // namespace ringside::clickhouse
