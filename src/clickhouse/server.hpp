// A ClickHouse server by its HTTP interface, and inserts that are done once.
//
//   auto server = RS_TRY(Server::open(RS_TRY(Address::parse("clickhouse://127.0.0.1/traces")), {}));
//   auto blocks = RS_TRY(server->select("SELECT count() FROM events"));
//
// An insert whose answer does not arrive may have happened, may be going on, or may still be in a socket of the server's. So
// each one runs in a session (the server's term) that was made before it, with session_check=1: fence() returns when that
// session has ended, and from then on the insert has happened, or never will. The server has one query at a time in a session
// (error 373), and refuses those of a session that it does not know (372). A server that may keep an insert for later
// (async_insert) is asked not to.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

#include "clickhouse/native.hpp"

namespace ringside::clickhouse {

// clickhouse://HOST[:PORT][/DATABASE][?NAME=VALUE&...]
struct Address {
  std::string host = "127.0.0.1";
  u16 port = 8123;
  std::string database = "default";
  std::map<std::string, std::string> more{};

  static bool is(std::string_view text) { return text.substr(0, 13) == "clickhouse://"; }
  static result<Address> parse(std::string_view text);
  std::string show() const;  // without `more`
};

// Secrets: they come from a file of lines "NAME = VALUE" (user, password, tls, ca, certificate, key), never from a
// command line.
struct Login {
  std::string user{}, password{};
  bool tls = false;
  std::string ca{}, certificate{}, key{};  // files
  // Refuses a file that others may read.
  static result<Login> read(const std::string& path);
};

struct Time {
  std::function<u64()> now;  // ns
  std::function<void(u64 ns)> sleep;
};
Time real_time();

class Server {
 public:
  // stop: ends waiting, and answers that take long.
  static result<std::unique_ptr<Server>> open(const Address& address, const Login& login, std::function<bool()> stop = nullptr,
                                              Time time = real_time());
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The answer to a statement. The error is the server's or the connection's. protocol_error: the server refuses the request as
  // it is; any other may pass, as those of load, rights and connections do. code(): the server's number for it; 0: it did not
  // answer.
  result<std::string> ask(const std::string& sql);
  int code() const { return code_; }
  // A SELECT's rows, in the memory of `answer`.
  result<std::vector<BlockIn>> select(const std::string& sql, std::string& answer);
  result<u64> count(const std::string& sql);  // of a statement with one number

  result<void> begin_session(const std::string& name);
  result<void> insert(const std::string& sql, std::string_view block, const std::string& session);
  // Waits until that session has ended. An error: the server did not answer, or does not end it in two minutes, so the outcome
  // stays unknown.
  result<void> fence(const std::string& session);

  const Address& address() const { return address_; }
  std::string who() const;                               // "the ClickHouse server at HOST:PORT"
  void most_answer(u64 bytes) { most_answer_ = bytes; }  // 64 MiB, unless more is wanted

 private:
  struct Way;  // libcurl's
  Server(const Address& address, const Login& login, std::function<bool()> stop, Time time);
  result<std::string> post(const std::string& parameters, std::string_view body, bool once);
  std::errc kind_of_error(std::string_view answer) const;

  Address address_;
  Login login_;
  std::function<bool()> stop_;
  Time time_;
  std::unique_ptr<Way> way_;
  u64 most_answer_ = u64{64} << 20;
  int code_ = 0;
  bool may_defer_ = false;  // it knows async_insert
};

}  // namespace ringside::clickhouse
