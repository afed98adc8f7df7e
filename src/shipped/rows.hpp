// Rows of a server's tables as events of a recording.
#pragma once
#include <string>
#include <vector>

#include "clickhouse/server.hpp"
#include "decode/formats.hpp"
#include "source/recording.hpp"

namespace ringside::shipped {

constexpr u32 subbuf_size = 262144;  // the largest event that was shipped is shorter

// Whether a column can have come from this field.
bool fits(const Field& field, const clickhouse::ColumnIn& column);
// The fields of an event, each from its column (null: it stays 0), after the common ones that are there.
result<void> put_fields(const EventType& type, const std::vector<const clickhouse::ColumnIn*>& columns, u64 row,
                        std::vector<u8>& payload);
void put_common(const EventType& type, u32 id, u32 flags, i32 tid, std::vector<u8>& payload);

class Rows {
 public:
  // The place of a row among those of its ring.
  struct Place {
    u32 ring = 0, part = 0, number = 0;
    u64 time = 0;
  };
  result<void> add(const Place& place, const std::string& table, const std::vector<u8>& payload);
  void add_gap(const Place& place, u64 lost);
  // All of them, in order. Returns the events that were lost after the last one of their ring.
  result<u64> write(RecordingWriter& writer);

 private:
  struct Row {
    Place place;
    u32 size = 0;
    u64 lost = 0;
    size_t at = 0;  // of its payload
  };
  std::vector<Row> rows_;
  std::vector<u8> payloads_;
};

}  // namespace ringside::shipped
