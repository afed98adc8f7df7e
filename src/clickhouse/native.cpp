#include "clickhouse/native.hpp"

#include <cctype>
#include <cstring>

namespace ringside::clickhouse {
namespace {

// Reads the bytes of an answer. After a failure everything is empty.
struct Cursor {
  std::string_view left;
  bool good = true;

  std::string_view take(u64 bytes) {
    if (bytes > left.size()) good = false;
    if (!good) return {};
    const std::string_view out = left.substr(0, bytes);
    left.remove_prefix(bytes);
    return out;
  }
  u64 varint() {
    u64 value = 0;
    for (u32 shift = 0; shift < 64; shift += 7) {
      const std::string_view one = take(1);
      if (one.empty()) return 0;
      const auto byte = static_cast<u8>(one[0]);
      value |= u64{byte & 127u} << shift;
      if ((byte & 128) == 0) return value;
    }
    good = false;
    return 0;
  }
  std::string_view text() { return take(varint()); }
};

bool parse_type(std::string_view type, ColumnIn& column) {
  constexpr std::string_view array = "Array(";
  if (type.substr(0, array.size()) == array && type.back() == ')') {
    if (column.is_array) return false;
    column.is_array = true;
    return parse_type(type.substr(array.size(), type.size() - array.size() - 1), column);
  }
  struct Known {
    std::string_view name;
    ColumnIn::Kind kind;
    u32 size;
    bool is_signed;
  };
  using Kind = ColumnIn::Kind;
  constexpr Known known[] = {
      {"UInt8", Kind::whole, 1, false},  {"UInt16", Kind::whole, 2, false}, {"UInt32", Kind::whole, 4, false},
      {"UInt64", Kind::whole, 8, false}, {"Int8", Kind::whole, 1, true},    {"Int16", Kind::whole, 2, true},
      {"Int32", Kind::whole, 4, true},   {"Int64", Kind::whole, 8, true},   {"Float32", Kind::real, 4, true},
      {"Float64", Kind::real, 8, true},  {"Date", Kind::whole, 2, false},   {"DateTime", Kind::whole, 4, false},
      {"String", Kind::text, 0, false}};
  if (type.substr(0, 9) == "DateTime(") type = "DateTime";
  for (const Known& one : known) {
    if (one.name != type) continue;
    column.kind = one.kind;
    column.size = one.size;
    column.is_signed = one.is_signed;
    return true;
  }
  return false;
}

// The values of `count` elements.
void read_values(Cursor& in, ColumnIn& column, u64 count) {
  if (column.kind != ColumnIn::Kind::text) {
    if (count > in.left.size()) in.good = false;  // before the product, which could overflow
    column.data = in.take(in.good ? count * column.size : 0).data();
    return;
  }
  if (count > in.left.size()) in.good = false;  // each has a byte at least
  if (in.good) column.texts.reserve(count);
  for (u64 n = 0; n < count && in.good; ++n) column.texts.push_back(in.text());
}

}  // namespace

void put_varint(std::string& out, u64 value) {
  while (value >= 128) {
    out.push_back(static_cast<char>(value | 128));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

ColumnOut constant(std::string name, std::string type, std::string_view value, u64 rows) {
  ColumnOut column{std::move(name), std::move(type)};
  std::string one;
  if (column.type == "String") put_text(one, value);
  else one = value;
  column.data.reserve(one.size() * rows);
  for (u64 n = 0; n < rows; ++n) column.data += one;
  return column;
}

std::string write_block(const std::vector<ColumnOut>& columns, u64 rows) {
  size_t bytes = 32;
  for (const ColumnOut& column : columns) bytes += column.bytes() + column.name.size() + column.type.size() + 8;
  std::string out;
  out.reserve(bytes);
  put_varint(out, columns.size());
  put_varint(out, rows);
  for (const ColumnOut& column : columns) {
    put_text(out, column.name);
    put_text(out, column.type);
    out += column.ends;
    out += column.data;
  }
  return out;
}

i64 ColumnIn::whole(u64 at) const {
  i64 value = 0;
  const char* const from = data + at * size;
  std::memcpy(&value, from, size);
  if (is_signed && size < 8) {
    const u32 shift = 64 - 8 * size;
    value = static_cast<i64>(static_cast<u64>(value) << shift) >> shift;
  }
  return value;
}

const ColumnIn* BlockIn::column(std::string_view name) const {
  for (const ColumnIn& one : columns)
    if (one.name == name) return &one;
  return nullptr;
}

result<std::vector<BlockIn>> read_blocks(std::string_view answer) {
  std::vector<BlockIn> blocks;
  Cursor in{answer};
  while (!in.left.empty()) {
    BlockIn block;
    const u64 columns = in.varint();
    block.rows = in.varint();
    if (columns > in.left.size()) in.good = false;  // each has a name and a type
    for (u64 n = 0; n < columns && in.good; ++n) {
      ColumnIn column;
      column.name = in.text();
      column.type = in.text();
      if (!in.good) break;
      if (!parse_type(column.type, column))
        return refuse(std::errc::bad_message, "the server's answer has a column " + column.name.substr(0, 100) +
                                                  " of the type " + column.type.substr(0, 100) + ", which is not read here");
      u64 elements = block.rows;
      if (column.is_array) {
        if (block.rows > in.left.size() / 8) in.good = false;
        elements = 0;
        if (in.good) column.ends.reserve(block.rows);
        for (u64 row = 0; row < block.rows && in.good; ++row) {
          u64 end = 0;
          const std::string_view bytes = in.take(8);
          if (bytes.size() == 8) std::memcpy(&end, bytes.data(), 8);
          if (end < elements) in.good = false;
          elements = end;
          column.ends.push_back(end);
        }
      }
      if (in.good) read_values(in, column, elements);
      block.columns.push_back(std::move(column));
    }
    if (!in.good) return refuse(std::errc::bad_message, "the server's answer is cut, or no block of the format Native");
    if (columns == 0 && block.rows != 0) return refuse(std::errc::bad_message, "the server's answer has rows without columns");
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::string quoted(std::string_view text, char mark) {
  std::string out(1, mark);
  for (const char c : text) {
    if (c == mark || c == '\\') out += '\\';
    out += c;
  }
  return out + mark;
}

std::string name_with_type(const std::string& name, std::string_view type) {
  std::string out = name + "_";
  for (const char c : type)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  return out;
}

}  // namespace ringside::clickhouse
