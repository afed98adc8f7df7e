#include "clickhouse/server.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "clickhouse/curl.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::clickhouse {
namespace {

constexpr int no_session = 372, session_in_use = 373;  // the server's numbers
constexpr u32 session_seconds = 60;
constexpr u64 longest_fence_ns = 120'000'000'000;  // a session without an insert ends within some seconds
// Load, quotas, rights, the server's own state: the same request may be taken later.
constexpr int passing[] = {81,  159, 160, 164, 173, 192, 193, 194, 195, 201, 202, 203, 209, 210, 225, 236, 241,
                           242, 243, 252, 279, 285, 286, 291, 319, 372, 373, 394, 439, 473, 497, 516, 517, 999};

// The first line, without the repeated parts.
std::string short_text(std::string text) {
  text = text.substr(0, std::min({text.find('\n'), text.find(", e.what()"), size_t{400}}));
  if (const size_t at = text.find("DB::Exception: "); at != std::string::npos) text = text.substr(at + 15);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = '?';
  return text.empty() ? "no reason given" : text;
}

// "Code: 60, e.displayText() = DB::Exception: Table ..." -> 60; newer ones write "Code: 60. DB::Exception: ..."
int code_of(std::string_view answer) {
  constexpr std::string_view begin = "Code: ";
  int code = 0;
  if (answer.substr(0, begin.size()) == begin)
    std::from_chars(answer.data() + begin.size(), answer.data() + answer.size(), code);
  return code;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0 || c == '-' || c == '_' || c == '.') out += c;
    else out += fmt::format("%{:02X}", u);
  }
  return out;
}

std::string trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r"), to = text.find_last_not_of(" \t\r");
  return from == std::string_view::npos ? std::string() : std::string(text.substr(from, to - from + 1));
}

}  // namespace

result<Address> Address::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    const size_t login = text.rfind('@');  // the text before it is not shown
    return refuse(std::errc::invalid_argument, std::string(text.substr(login == std::string_view::npos ? 0 : login + 1, 200)) +
                                                   " is no place on a server: " + why +
                                                   "; write clickhouse://HOST:8123/DATABASE");
  };
  if (!is(text)) return bad("it does not begin with clickhouse://");
  Address address;
  std::string_view rest = text.substr(13);
  const size_t question = std::min(rest.find('?'), rest.size());
  std::string_view more = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  if (rest.find('@') != std::string_view::npos)
    return bad("names and passwords are in a file (--config), where no other process sees them");
  const size_t slash = std::min(rest.find('/'), rest.size());
  if (slash < rest.size()) address.database = rest.substr(slash + 1);
  std::string_view host = rest.substr(0, slash);
  const size_t bracket = host.rfind(']'), colon = host.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const std::string_view port = host.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc() || end != port.data() + port.size() || address.port == 0)
      return bad("\"" + std::string(port) + "\" is no port");
    host = host.substr(0, colon);
  }
  address.host = host;
  const auto named = [](std::string_view name) {
    return !name.empty() && name.size() <= 200 &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:[]") ==
               std::string_view::npos;
  };
  if (!named(address.host)) return bad("it names no host");
  if (!named(address.database)) return bad("it names no database");
  while (!more.empty()) {
    const std::string_view one = more.substr(0, more.find('&'));
    more.remove_prefix(std::min(one.size() + 1, more.size()));
    const size_t equal = one.find('=');
    if (equal == std::string_view::npos) return bad("\"" + std::string(one) + "\" is not NAME=VALUE");
    address.more[std::string(one.substr(0, equal))] = one.substr(equal + 1);
  }
  return address;
}

Time real_time() {
  return {sys::now_ns, [](u64 ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }};
}

std::string Server::who() const { return "the ClickHouse server at " + address_.host + ":" + std::to_string(address_.port); }

std::string Address::show() const { return fmt::format("clickhouse://{}:{}/{}", host, port, database); }

result<Login> Login::read(const std::string& path) {
  const sys::Fd file = RS_TRY(sys::open_regular(path));
  struct stat st {};
  if (fstat(file.get(), &st) != 0) return fail(errno, "cannot look at " + path);
  if ((st.st_mode & 077) != 0 || (st.st_uid != geteuid() && st.st_uid != 0))
    return refuse(std::errc::permission_denied,
                  path + " holds a password, and other users may read or change it: chmod 600 " + path + ", and make it yours");
  const std::string text = RS_TRY(sys::read_text(file.get(), path, 65536));
  Login login;
  u32 number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const size_t equal = line.find('=');
    const std::string name = trimmed(std::string_view(line).substr(0, equal)),
                      value = equal == std::string::npos ? "" : trimmed(std::string_view(line).substr(equal + 1));
    const std::map<std::string, std::string*> places = {{"user", &login.user},
                                                        {"password", &login.password},
                                                        {"ca", &login.ca},
                                                        {"certificate", &login.certificate},
                                                        {"key", &login.key}};
    if (const auto place = places.find(name); place != places.end() && equal != std::string::npos) {
      *place->second = value;
    } else if (name == "tls" && (value == "yes" || value == "no")) {
      login.tls = value == "yes";
    } else {
      return refuse(
          std::errc::invalid_argument,
          fmt::format("{}, line {}: it takes user, password, tls = yes, ca, certificate and key, each as NAME = VALUE", path,
                      number));
    }
  }
  return login;
}

// One request of libcurl's.
struct Server::Way {
  const Curl& curl;
  CURL* easy = curl.easy_init();
  std::string_view left{};  // of the body
  std::string answer{};
  u64 most_answer = 0;
  bool full = false;  // the answer is longer
  curl_slist* headers = nullptr;
  char why[CURL_ERROR_SIZE] = {};  // says more than the code of an error

  ~Way() {
    curl.slist_free_all(headers);
    curl.easy_cleanup(easy);
  }
  void prepare(const std::string& url, const Login& login, std::string_view body, u64 most);
  void stop_when(const std::function<bool()>& over);
  void use_once() {
    curl.easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl.easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
  }

 private:
  static size_t send(char* to, size_t size, size_t count, void* way) {
    std::string_view& left = static_cast<Way*>(way)->left;
    const size_t bytes = left.copy(to, size * count);
    left.remove_prefix(bytes);
    return bytes;
  }
  static size_t receive(char* from, size_t size, size_t count, void* way) {
    Way& to = *static_cast<Way*>(way);
    to.full = to.full || to.answer.size() + size * count > to.most_answer;
    if (to.full) return 0;
    to.answer.append(from, size * count);
    return size * count;
  }
};

void Server::Way::prepare(const std::string& url, const Login& login, std::string_view body, u64 most) {
  curl.easy_reset(easy);
  curl.slist_free_all(headers);
  headers = curl.slist_append(nullptr, "Expect:");
  if (!login.user.empty()) headers = curl.slist_append(headers, ("X-ClickHouse-User: " + login.user).c_str());
  if (!login.password.empty()) headers = curl.slist_append(headers, ("X-ClickHouse-Key: " + login.password).c_str());
  left = body;
  answer.clear();
  most_answer = most;
  full = false;
  why[0] = 0;
  curl.easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl.easy_setopt(easy, CURLOPT_PROXY, "");
  curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(easy, CURLOPT_POST, 1L);
  curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl.easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl.easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
  curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 10L);
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 300L);
  if (!login.ca.empty()) curl.easy_setopt(easy, CURLOPT_CAINFO, login.ca.c_str());
  if (!login.certificate.empty()) curl.easy_setopt(easy, CURLOPT_SSLCERT, login.certificate.c_str());
  if (!login.key.empty()) curl.easy_setopt(easy, CURLOPT_SSLKEY, login.key.c_str());
  curl.easy_setopt(easy, CURLOPT_READDATA, this);
  curl.easy_setopt(easy, CURLOPT_READFUNCTION, send);
  curl.easy_setopt(easy, CURLOPT_WRITEDATA, this);
  curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
  curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
}

void Server::Way::stop_when(const std::function<bool()>& over) {
  curl.easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl.easy_setopt(easy, CURLOPT_XFERINFODATA, &over);
  curl.easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, +[](void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
    const auto& is_over = *static_cast<const std::function<bool()>*>(stop);
    return is_over && is_over() ? 1 : 0;
  });
}

Server::Server(const Address& address, const Login& login, std::function<bool()> stop, Time time)
    : address_(address), login_(login), stop_(std::move(stop)), time_(std::move(time)) {}
Server::~Server() = default;

result<std::unique_ptr<Server>> Server::open(const Address& address, const Login& login, std::function<bool()> stop,
                                             Time time) {
  const Curl* const curl = RS_TRY(Curl::load());
  std::unique_ptr<Server> server(new Server(address, login, std::move(stop), std::move(time)));
  server->way_.reset(new Way{*curl});
  if (server->way_->easy == nullptr) return fail(ENOMEM, "cannot prepare the way to " + address.show());
  return server;
}

// once: the body is sent at most once, on its own connection, because libcurl sends it again if a kept connection is dead.
result<std::string> Server::post(const std::string& parameters, std::string_view body, bool once) {
  code_ = 0;
  Way& way = *way_;
  way.prepare(fmt::format("{}://{}:{}/?{}", login_.tls ? "https" : "http", address_.host, address_.port, parameters), login_,
              body, most_answer_);
  way.stop_when(stop_);
  if (once) way.use_once();
  const CURLcode done = way.curl.easy_perform(way.easy);
  const std::string where = who();
  if (way.full)
    return refuse(std::errc::message_size,
                  where + fmt::format(" answers with more than {} MiB; ask for less", most_answer_ >> 20));
  if (done == CURLE_ABORTED_BY_CALLBACK) return refuse(std::errc::operation_canceled, "the way to " + where + " was left");
  const std::string reason = way.why[0] != 0 ? way.why : way.curl.easy_strerror(done);
  if (done == CURLE_PEER_FAILED_VERIFICATION)
    return refuse(std::errc::not_connected, where + " is not trusted (" + reason +
                                                "): `ca` in the --config file names the authority that signed its certificate, "
                                                "HOST is a name in it, and it has not expired");
  if (done == CURLE_SSL_CACERT_BADFILE) return refuse(std::errc::not_connected, "`ca` in the --config file: " + reason);
  const auto came_to = [&](CURLINFO time) {
    curl_off_t us = 0;
    return way.curl.easy_getinfo(way.easy, time, &us) == CURLE_OK && us != 0;
  };
  const bool silent =
      done == CURLE_OPERATION_TIMEDOUT && came_to(CURLINFO_CONNECT_TIME_T) && !came_to(CURLINFO_APPCONNECT_TIME_T);
  if (login_.tls && (done == CURLE_SSL_CONNECT_ERROR || silent))
    return refuse(
        std::errc::not_connected,
        where + " speaks no TLS there (" + reason +
            "): name the port of https, as clickhouse://HOST:8443/DATABASE, or leave `tls = yes` out of the --config file");
  const bool closed = done == CURLE_GOT_NOTHING || done == CURLE_RECV_ERROR || done == CURLE_SEND_ERROR;
  if (done != CURLE_OK)
    return refuse(
        std::errc::not_connected,
        where + " does not answer: " + way.curl.easy_strerror(done) +
            (closed && !login_.tls ? "; if that is its port of https, write `tls = yes` into the --config file" : ""));
  long status = 0;
  way.curl.easy_getinfo(way.easy, CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) return std::move(way.answer);
  code_ = code_of(way.answer);
  return refuse(kind_of_error(way.answer),
                where + " refuses" + (code_ != 0 ? fmt::format(" (code {})", code_) : fmt::format(" (HTTP {})", status)) +
                    ": " + short_text(way.answer));
}

// Also of an error without a code at the begin of the answer. A proxy's error page is none of the server's.
std::errc Server::kind_of_error(std::string_view answer) const {
  const auto says = [&](std::string_view words) { return answer.find(words) != std::string_view::npos; };
  const bool passes = std::find(std::begin(passing), std::end(passing), code_) != std::end(passing);
  return passes || !says("Code: ") || says("No space left") || says("Too many open files") ? std::errc::io_error
                                                                                           : std::errc::protocol_error;
}

// The server answers once it knows how the statement ended, so the answer's status is the outcome.
result<std::string> Server::ask(const std::string& sql) {
  return post("wait_end_of_query=1&database=" + escaped(address_.database), sql, false);
}

result<std::vector<BlockIn>> Server::select(const std::string& sql, std::string& answer) {
  answer = RS_TRY(ask(sql + " FORMAT Native"));
  return read_blocks(answer);
}

result<u64> Server::count(const std::string& sql) {
  std::string answer;
  const auto blocks = RS_TRY(select(sql, answer));
  for (const BlockIn& block : blocks) {
    if (block.rows == 1 && block.columns.size() == 1 && block.columns[0].kind == ColumnIn::Kind::whole &&
        !block.columns[0].is_array)
      return static_cast<u64>(block.columns[0].whole(0));
  }
  return refuse(std::errc::bad_message, "the server's answer to " + sql.substr(0, 200) + " is no number");
}

result<void> Server::begin_session(const std::string& name) {
  const std::string known =
      RS_TRY(post(fmt::format("session_id={}&session_timeout={}", escaped(name), session_seconds),
                  "SELECT count() FROM system.settings WHERE name = 'async_insert' FORMAT TabSeparated", false));
  if (known != "0\n" && known != "1\n")
    return refuse(std::errc::bad_message, who() + " begins no session: it answers \"" + short_text(known) +
                                              "\", not 0 or 1; is it a ClickHouse server?");
  may_defer_ = known == "1\n";
  return {};
}

result<void> Server::insert(const std::string& sql, std::string_view block, const std::string& session) {
  const std::string answer = RS_TRY(
      post(fmt::format("database={}&session_id={}&session_check=1&session_timeout={}{}&query={}", escaped(address_.database),
                       escaped(session), session_seconds, may_defer_ ? "&async_insert=0" : "", escaped(sql)),
           block, true));
  if (!answer.empty()) {  // the status went out before
    code_ = code_of(answer);
    return refuse(kind_of_error(answer), "an insert failed late: " + short_text(answer));
  }
  return {};
}

result<void> Server::fence(const std::string& session) {
  const u64 began = time_.now();
  for (;;) {
    // It ends some seconds after a question with a timeout of 0, if no other comes meanwhile.
    const auto asked = post(fmt::format("session_id={}&session_check=1&session_timeout=0", escaped(session)), "SELECT 1", true);
    if (!asked && code_ == no_session) return {};
    if (!asked && code_ != session_in_use) return tl::unexpected<Error>(asked.error());
    if (time_.now() - began > longest_fence_ns)
      return refuse(std::errc::timed_out, who() + " does not end the session of an insert in " +
                                              std::to_string(longest_fence_ns / 1'000'000'000) +
                                              " s, so it is not known whether it has the rows (is a proxy in between?)");
    for (int n = 0; n < 30; ++n) {
      if (stop_ && stop_()) return refuse(std::errc::operation_canceled, "it was not waited for the end of an insert");
      time_.sleep(100'000'000);
    }
  }
}

}  // namespace ringside::clickhouse
