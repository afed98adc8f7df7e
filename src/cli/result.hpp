// What a command has found, in the order in which it is printed; as text, or as the JSON document of docs/json.md.
//
//   Result out;
//   out.table("rows", std::move(table));   // both
//   out.set({{"keys", keys}});             // JSON alone
//   out.account(totals.account);
//   out.text("none lost\n");               // text alone
//   put(out.print(json));
#pragma once
#include "cli/table.hpp"

namespace ringside::cli {

class Result {
 public:
  // JSON has its rows as an array of this key; empty: it is in the text alone.
  void table(std::string key, Table table) { parts_.push_back({std::move(key), std::move(table)}); }
  void set(Json members) { parts_.push_back({"", {}, std::move(members)}); }
  void set(Members members, Cells values) { set(Table::object(members, std::move(values))); }
  void text(std::string lines) { parts_.push_back({"", {}, {}, std::move(lines)}); }
  void account(const Account& account, TimeUnit unit = TimeUnit::ns) {
    Json members = Json::object();
    if (unit == TimeUnit::ticks) members["time_unit"] = "ticks";
    add_account(members, account);
    set(std::move(members));
  }
  std::string print(bool json) const;

 private:
  struct Part {
    std::string key;
    std::optional<Table> table{};
    Json members{};
    std::string text{};
  };
  std::vector<Part> parts_;
};

constexpr Members account_members = {{"lost", Kind::count, "events that are missing; see [The account](#the-account)"},
                                     {"proved", Kind::flag, "no more can be missing"},
                                     {"account", Kind::object, "the place of every event"}};
constexpr Member unit_member = {"time_unit", Kind::text, "`ticks`, if the trace's clock has no rate: times are ticks"};
constexpr Member exact_member = {"exact", Kind::flag, "nothing is missing: not an event, not a row"};
constexpr Member misfits_member = {"misfits", Kind::count,
                                   "of `without`, events that have a field of this name which is an array or of another kind"};

Members top_members();
Members hist_members();
Members latency_members();
Members syscalls_members();
Members states_members();
Members stat_members();
Members list_members();
// docs/json.md, with the sections of these commands as their fields say.
std::string documented(std::string page);

// The columns of a key, and a row's values of them. keyed: a Hist, or Groups.
Cells keys_of(const auto& keyed, const auto& row, size_t columns) {
  Cells cells;
  for (size_t i = 0; i < columns; ++i) cells.emplace_back(keyed.json(row, i), keyed.show(row, i));
  return cells;
}

}  // namespace ringside::cli
