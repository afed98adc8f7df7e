#include "shipped/shipped.hpp"

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "text/units.hpp"
#include "shipped/columns.hpp"
#include "shipped/parts.hpp"
#include "shipped/query.hpp"
#include "shipped/rows.hpp"
#include "source/recording.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace shipped {
namespace {

using clickhouse::BlockIn;
using clickhouse::ColumnIn;
using clickhouse::quoted_name;
using clickhouse::quoted_text;

// Makes the recording of one machine out of its rows.
class Maker {
 public:
  Maker(const ShippedAsRecording::Place& place, const ShippedAsRecording::Machine& machine, ShippedAsRecording::Times times,
        clickhouse::Server& server)
      : place_(place), machine_(machine), times_(times), server_(server) {}

  result<void> make(const std::string& dir) {
    RS_TRY(parts_.read(server_, dir));
    for (const std::string& table : RS_TRY(tables_of_events(server_))) {
      if (!parts_.name(table) && table != unknown_events) continue;
      RS_TRY(read_table(table));
    }
    RS_TRY(read_gaps());
    RS_TRY(read_symbols());
    return write(dir);
  }

  std::vector<std::string> remarks() const {
    std::vector<std::string> out;
    const u64 filtered = parts_.filtered();
    if (filtered != 0) out.push_back(counted(filtered, "event") + " of these recordings not shipped (ship -F, --keep)");
    if (early_ != 0)
      out.push_back(counted(early_, "event is", "events are") + " left out: the rest of their recordings has not arrived yet");
    if (strange_ != 0)
      out.push_back(counted(strange_, "event is", "events are") +
                    " left out: their recordings' description does not name them");
    return out;
  }

 private:
  result<void> read_table(const std::string& table) {
    std::string answer;
    const auto blocks = RS_TRY(server_.select(
        "SELECT * FROM " + quoted_name(table) + " WHERE " + of_machine(machine_) + " AND " + in_range(place_), answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *batch = RS_TRY(wanted(block, "batch", false)),
                     *ring = RS_TRY(wanted(block, "ring", false)), *number = RS_TRY(wanted(block, "number", false)),
                     *tid = RS_TRY(wanted(block, "tid", false)), *flags = RS_TRY(wanted(block, "flags", false)),
                     *time = RS_TRY(wanted(block, times_ == ShippedAsRecording::Times::mono ? "mono_ns" : "time_ns", false));
      const ColumnIn* const whole = block.column("payload");
      std::map<u32, std::vector<const ColumnIn*>> columns;  // of each type, in the order of its fields
      std::vector<u8> payload;
      for (u64 row = 0; row < block.rows; ++row) {
        Part* const part = parts_.of(agent->texts[row], static_cast<u64>(batch->whole(row)));
        if (part == nullptr) {
          ++early_;
          continue;
        }
        const auto place = static_cast<u32>(ring->whole(row));
        std::optional<u32> event;
        const bool kernel = place >= RecordingWriter::kernel_rings;
        if (const auto known = part->events.find({kernel, table}); known != part->events.end())
          event = known->second;
        else if (table == unknown_events && whole != nullptr && whole->kind == ColumnIn::Kind::text && !whole->is_array)
          event = parts_.number_of_unknown(kernel, whole->texts[row]);
        if (!event) {
          ++strange_;
          continue;
        }
        const u32 own_ring = parts_.ring_of(*part, place);
        const EventType* const type = parts_.formats().find(*event);
        payload.assign(8, 0);
        if (type == nullptr || !type->parsed()) {
          if (whole != nullptr && whole->kind == ColumnIn::Kind::text && !whole->is_array)
            payload.assign(whole->texts[row].begin(), whole->texts[row].end());
          if (payload.size() < 8) payload.resize(8);
          const auto id = static_cast<u16>(*event);
          std::memcpy(payload.data(), &id, sizeof id);
        } else {
          auto [own, fresh] = columns.try_emplace(*event);
          if (fresh) {
            const std::vector<std::string> names = columns_of(*type);
            for (size_t n = 0; n < names.size(); ++n) {
              const Field& field = type->fields()[n];
              const ColumnIn* column = block.column(names[n]);
              if (column == nullptr || !fits(field, *column))
                column = block.column(clickhouse::name_with_type(names[n], type_of(field)));
              own->second.push_back(column != nullptr && fits(field, *column) ? column : nullptr);
            }
          }
          put_common(*type, *event, static_cast<u32>(flags->whole(row)), static_cast<i32>(tid->whole(row)), payload);
          RS_TRY(put_fields(*type, own->second, row, payload));
        }
        RS_TRY(rows_.add({own_ring, part->order, static_cast<u32>(number->whole(row)), static_cast<u64>(time->whole(row))},
                         table, payload));
      }
    }
    return {};
  }

  result<void> read_gaps() {
    std::string answer;
    const auto blocks = RS_TRY(server_.select("SELECT agent, batch, ring, number, count, why FROM losses WHERE " +
                                                  of_machine(machine_) + " AND " + in_range(place_, "from_ns", "time_ns"),
                                              answer));
    for (const BlockIn& block : blocks) {
      const ColumnIn *agent = RS_TRY(wanted(block, "agent", true)), *reason = RS_TRY(wanted(block, "why", true)),
                     *batch = RS_TRY(wanted(block, "batch", false)), *ring = RS_TRY(wanted(block, "ring", false)),
                     *number = RS_TRY(wanted(block, "number", false)), *count = RS_TRY(wanted(block, "count", false));
      for (u64 row = 0; row < block.rows; ++row) {
        const auto lost = static_cast<u64>(count->whole(row));
        if (is_of_dropped_events(reason->texts[row])) unrecorded_ += lost;
        dropped_unproved_ = dropped_unproved_ || reason->texts[row] == why::dropped_unproved;
        Part* const part =
            reason->texts[row] == "gap" ? parts_.of(agent->texts[row], static_cast<u64>(batch->whole(row))) : nullptr;
        if (part == nullptr) continue;
        const u32 own_ring = parts_.ring_of(*part, static_cast<u32>(ring->whole(row)));
        rows_.add_gap({own_ring, part->order, static_cast<u32>(number->whole(row)), 0}, lost);
      }
    }
    return {};
  }

  // The newest ones of this boot.
  result<void> read_symbols() {
    if (RS_TRY(server_.count("SELECT count() FROM system.tables WHERE database = " + quoted_text(place_.address.database) +
                             " AND name = 'kernel_symbols'")) == 0)
      return {};
    std::string answer;
    for (const BlockIn& block : RS_TRY(server_.select(
             "SELECT text FROM kernel_symbols WHERE " + of_machine(machine_) + " ORDER BY time_ns DESC LIMIT 1", answer))) {
      const ColumnIn* const text = RS_TRY(wanted(block, "text", true));
      if (block.rows != 0) symbols_ = text->texts[0];
    }
    return {};
  }

  result<void> write(const std::string& dir) {
    auto writer = RS_TRY(RecordingWriter::create(dir + "/recording", {}));
    RS_TRY(parts_.describe(writer));
    if (!symbols_.empty()) RS_TRY(writer.keep("kallsyms", symbols_));
    if (dropped_unproved_)
      writer.meta().account.doubts.emplace_back("an agent dropped a recording that may have lost more events than it counted");
    writer.meta().account.unrecorded += unrecorded_;
    writer.meta().account.overrun += RS_TRY(rows_.write(writer));
    RS_TRY(writer.finish(parts_.duration_ns()));
    writer.meta().start_ns = parts_.start_ns();
    return writer.save();
  }

  const ShippedAsRecording::Place& place_;
  const ShippedAsRecording::Machine& machine_;
  ShippedAsRecording::Times times_;
  clickhouse::Server& server_;
  Parts parts_{place_, machine_, times_};
  Rows rows_;
  std::string symbols_;
  u64 unrecorded_ = 0, early_ = 0, strange_ = 0;
  bool dropped_unproved_ = false;
};

}  // namespace
}  // namespace shipped

result<std::unique_ptr<ShippedAsRecording>> ShippedAsRecording::read(const Place& place, const Machine& machine, Times times) {
  std::unique_ptr<ShippedAsRecording> made(
      new ShippedAsRecording(RS_TRY(TemporaryDirectory::make("shipped", "the events of " + machine.host))));
  const auto server = RS_TRY(clickhouse::Server::open(place.address, place.login));
  server->most_answer(u64{4} << 30);
  shipped::Maker maker(place, machine, times, *server);
  RS_TRY(maker.make(made->dir_.path()));
  made->remarks_ = maker.remarks();
  return made;
}

}  // namespace ringside
