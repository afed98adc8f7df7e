#include "shipped/rows.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "text/units.hpp"
#include "shipped/columns.hpp"
#include "source/packer.hpp"
#include "sys/try.hpp"

namespace ringside::shipped {

using clickhouse::ColumnIn;

namespace {

// The bytes of a field, from its column.
void put_field(const Field& field, const ColumnIn& column, u64 row, std::vector<u8>& payload) {
  const auto put = [&](size_t at, std::string_view bytes) {
    if (at + bytes.size() > payload.size()) payload.resize(at + bytes.size());
    std::memcpy(payload.data() + at, bytes.data(), bytes.size());
  };
  // After all fixed ones; its place and length in front.
  const auto put_behind = [&](std::string_view bytes, bool ended) {
    const size_t at = payload.size(), length = std::min<size_t>(bytes.size() + (ended ? 1 : 0), 65535);
    if (at > 65535) return;
    payload.resize((at + length + 3) & ~size_t{3});
    std::memcpy(payload.data() + at, bytes.data(), std::min(bytes.size(), length));
    const u32 word = static_cast<u32>(at - (field.relative ? field.offset + 4 : 0)) | static_cast<u32>(length) << 16;
    put(field.offset, {reinterpret_cast<const char*>(&word), sizeof word});
  };
  switch (field.kind) {
    case FieldKind::integer:
      put(field.offset, column.raw(row).substr(0, field.size));
      break;
    case FieldKind::floating:
      put(field.offset, column.raw(row));
      break;
    case FieldKind::text: {
      std::string_view text = column.texts[row];
      if (field.size != 0) text = text.substr(0, field.size);
      put(field.offset, text);
      if (field.size == 0) payload.push_back(0);
      break;
    }
    case FieldKind::loc_text:
      put_behind(column.texts[row], true);
      break;
    case FieldKind::array:
    case FieldKind::loc_array: {
      const u64 begin = column.begin_of(row), count = column.ends[row] - begin;
      const std::string_view bytes = column.raw(begin, count);
      if (field.is_rest)
        put(field.offset, bytes);
      else if (field.kind == FieldKind::array)
        put(field.offset, bytes.substr(0, field.size));
      else
        put_behind(bytes, false);
      break;
    }
  }
}

}  // namespace

bool fits(const Field& field, const ColumnIn& column) {
  const bool array = field.kind == FieldKind::array || field.kind == FieldKind::loc_array,
             text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
  const u32 size = array ? std::max(field.element, 1u) : field.size;
  return column.type == type_of(field) && column.is_array == array && (column.kind == ColumnIn::Kind::text) == text &&
         (text || column.size == size || size > 8);
}

result<void> put_fields(const EventType& type, const std::vector<const ColumnIn*>& columns, u64 row, std::vector<u8>& payload) {
  // All fixed ones first: the others lie after them.
  size_t fixed = 8;
  for (const Field& field : type.fields())
    fixed = std::max<size_t>(fixed, field.offset + (field.is_rest ? 0 : field.size));
  if (fixed > subbuf_size / 2)
    return refuse(std::errc::bad_message, "the format of " + type.full + " has an event of " + format_size(fixed));
  payload.resize(fixed);
  for (size_t n = 0; n < type.fields().size(); ++n)
    if (columns[n] != nullptr) put_field(type.fields()[n], *columns[n], row, payload);
  return {};
}

void put_common(const EventType& type, u32 id, u32 flags, i32 tid, std::vector<u8>& payload) {
  const u16 words[] = {static_cast<u16>(id), static_cast<u16>(flags)};
  std::memcpy(payload.data(), words, sizeof words);
  if (type.has_tid()) std::memcpy(payload.data() + 4, &tid, sizeof tid);
}

result<void> Rows::add(const Place& place, const std::string& table, const std::vector<u8>& payload) {
  Row row{place};
  if (payload.size() > subbuf_size / 2)
    return refuse(std::errc::bad_message, "an event of " + table + " has " + format_size(payload.size()));
  row.size = static_cast<u32>(payload.size());
  row.at = payloads_.size();
  rows_.push_back(row);
  payloads_.insert(payloads_.end(), payload.begin(), payload.end());
  return {};
}

void Rows::add_gap(const Place& place, u64 lost) {
  Row row{place};
  row.lost = lost;
  rows_.push_back(row);
}

result<u64> Rows::write(RecordingWriter& writer) {
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    const auto order = [](const Place& place) { return std::tie(place.ring, place.part, place.number, place.time); };
    return order(a.place) < order(b.place);
  });
  u64 lost_behind = 0;
  for (size_t at = 0; at < rows_.size();) {
    const u32 ring = rows_[at].place.ring;
    Packer packer(subbuf_size);
    u64 lost_at_end = 0;
    for (; at < rows_.size() && rows_[at].place.ring == ring; ++at) {
      const Row& row = rows_[at];
      if (row.lost != 0) {
        lost_at_end += row.lost;
        continue;
      }
      const Bytes payload{payloads_.data() + row.at, row.size};
      if (lost_at_end != 0 && packer.pending()) RS_TRY(writer.append(ring, packer.take()));
      if (lost_at_end != 0) {
        packer.restart();
        packer.lost(std::exchange(lost_at_end, 0));
      }
      if (packer.add(row.place.time, payload)) continue;
      if (packer.pending()) RS_TRY(writer.append(ring, packer.take()));
      packer.restart();
      if (!packer.add(row.place.time, payload))
        return refuse(std::errc::bad_message, "an event of " + format_size(row.size) + " has no place in a recording");
    }
    if (packer.pending()) RS_TRY(writer.append(ring, packer.take()));
    lost_behind += lost_at_end;
  }
  return lost_behind;
}

}  // namespace ringside::shipped
