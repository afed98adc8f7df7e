// The tables on a server: made when the first row comes, and widened when a row has a column that they lack.
//
// With a cluster, each table NAME is a Distributed one over the tables NAME_local of all shards. An agent inserts into its own
// server's NAME_local: an insert into a Distributed table arrives later, in pieces, so the agent could not ask for it.
#pragma once
#include <map>
#include <memory>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "clickhouse/server.hpp"
#include "ship/rows.hpp"

namespace ringside::ship {

class Tables {
 public:
  // all: the servers of the cluster, the agent's own first.
  Tables(std::vector<clickhouse::Server*> all, std::string cluster) : all_(std::move(all)), cluster_(std::move(cluster)) {}

  // Makes the table fit. Gives the batch's columns the names that they have there: a field whose column has another type gets
  // one of its own, NAME_TYPE. The agent's own columns keep their names, whatever type they have there: it asks for its rows by
  // them.
  result<void> fit(Batch& batch);
  // A sentence about one of the agent's own columns that has another type in the table; empty: there is none.
  std::string changed_column(const Batch& batch) const;
  // Of the agent's own server: "NAME" or "NAME_local", quoted.
  std::string own_name(const std::string& table) const;
  void forget() { known_.clear(); }  // after an error: somebody may have removed one

 private:
  using Columns = std::map<std::string, std::string>;  // name, type
  result<Columns> columns_of(clickhouse::Server& server, const std::string& table);
  result<bool> make(clickhouse::Server& server, const std::string& table, const Batch& batch);  // false: it was there
  result<void> wait_until_ready(const std::string& table);  // one that another agent made, on the agent's own server
  result<void> ask(clickhouse::Server& server, const std::string& sql, std::initializer_list<int> done_already);
  void ask_pending();

  std::vector<clickhouse::Server*> all_;
  std::string cluster_;
  std::map<std::string, Columns> known_;
  struct Pending {
    clickhouse::Server* server;
    std::string sql;
  };
  std::vector<Pending> pending_;  // for servers of the cluster that did not answer
  u64 asked_pending_ns_ = 0;
};

}  // namespace ringside::ship
