// A ClickHouse server of the tests' own: on loopback, with all its files in a directory that goes with it. It may be killed and
// started again.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "clickhouse/server.hpp"

namespace ringside::test {

// Another one at each call.
inline u16 free_port() {
  static std::set<u16> given;
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    close(fd);
    const u16 port = bound ? ntohs(address.sin_port) : 0;
    if (!bound || given.insert(port).second) return port;
  }
}

// A process that dies with the test. Output goes to `out`.
inline pid_t spawn(const std::vector<std::string>& words, const std::string& out) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int fd = open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, 1);
  dup2(fd, 2);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

inline std::string in_path(const std::string& program) {
  for (const char* dir : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/"})
    if (access((dir + program).c_str(), X_OK) == 0) return dir + program;
  return "";
}

// Where thousands of files come and go, and each is synchronised: in memory. No test takes a machine's power away.
inline std::string in_memory(const std::string& name) { return (access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "/tmp/") + name; }

// A socket that listens, and its port.
inline std::pair<int, u16> listen_on_loopback() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd, 16), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return {fd, ntohs(address.sin_port)};
}

// Answers every request the same.
class FakeServer {
 public:
  explicit FakeServer(const std::string& status, const std::string& body)
      : answer_("HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                body) {
    std::tie(listen_, port_) = listen_on_loopback();
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    over_ = true;
    thread_.join();
    close(listen_);
  }
  std::string url() const { return "clickhouse://127.0.0.1:" + std::to_string(port_) + "/x"; }

 private:
  void serve() {
    while (!over_) {
      pollfd p{listen_, POLLIN, 0};
      if (poll(&p, 1, 20) != 1) continue;
      const int client = accept(listen_, nullptr, nullptr);
      read_request(client);
      EXPECT_EQ(write(client, answer_.data(), answer_.size()), static_cast<ssize_t>(answer_.size()));
      close(client);
    }
  }
  static void read_request(int client) {
    std::string got;
    for (size_t whole = ~size_t{0}; got.size() < whole;) {
      char bytes[65536];
      const ssize_t n = read(client, bytes, sizeof bytes);
      if (n <= 0) return;
      got.append(bytes, static_cast<size_t>(n));
      const size_t end = got.find("\r\n\r\n"), length = got.find("Content-Length: ");
      if (end != std::string::npos) whole = end + 4 + (length < end ? std::stoul(got.substr(length + 16)) : 0);
    }
  }

  const std::string answer_;
  int listen_ = -1;
  u16 port_ = 0;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class TestServer {
 public:
  TestServer() {
    std::string pattern = in_memory("ringside-server-XXXXXX");
    dir_ = mkdtemp(pattern.data());
    http_ = free_port();
    tcp_ = free_port();
    configure();
  }
  ~TestServer() {
    kill9();
    std::filesystem::remove_all(dir_);
  }
  static std::string missing() {
    return in_path("clickhouse-server").empty() ? "there is no clickhouse-server (Debian: apt install clickhouse-server)" : "";
  }

  // The addresses of a cluster's servers.
  void configure(const std::vector<u16>& cluster = {}) {
    std::ofstream out(dir_ + "/config.xml");
    out << "<yandex><logger><level>warning</level><log>" << dir_ << "/log</log><errorlog>" << dir_
        << "/errors</errorlog></logger>"
        << "<http_port>" << http_ << "</http_port><tcp_port>" << tcp_ << "</tcp_port><listen_host>127.0.0.1</listen_host>"
        << "<path>" << dir_ << "/data/</path><tmp_path>" << dir_ << "/tmp/</tmp_path><user_files_path>" << dir_
        << "/user/</user_files_path>"
        << "<format_schema_path>" << dir_ << "/schemas/</format_schema_path><users_config>users.xml</users_config>"
        << "<default_profile>default</default_profile><default_database>default</default_database><mark_cache_size>67108864</"
           "mark_cache_size>";
    if (https_ != 0) {
      out << "<https_port>" << https_ << "</https_port><openSSL><server><certificateFile>" << dir_
          << "/server.pem</certificateFile><privateKeyFile>" << dir_
          << "/server.key</privateKeyFile><verificationMode>none</verificationMode><cacheSessions>true</cacheSessions></"
             "server></openSSL>";
    }
    if (!cluster.empty()) {
      out << "<remote_servers><all>";
      for (const u16 port : cluster)
        out << "<shard><replica><host>127.0.0.1</host><port>" << port << "</port></replica></shard>";
      out << "</all></remote_servers>";
    }
    out << "</yandex>";
    // A second user has a password.
    std::ofstream(dir_ + "/users.xml")
        << "<yandex><profiles><default/></profiles><quotas><default/></quotas><users>"
        << "<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</"
           "quota></default>"
        << "<agent><password>secret "
           "word</password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></agent>"
        << "</users></yandex>";
  }
  // HTTPS beside HTTP, by a certificate for `localhost`, which ca.pem has signed; expired.pem is one of yesterday, and
  // other.pem another authority of that name. To be called before configure(). False: there is no openssl.
  bool use_tls() {
    std::ofstream(dir_ + "/names") << "subjectAltName=DNS:localhost\n";
    const std::string authority = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ringside-test -keyout ",
                      sign = "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names ";
    const std::string commands =
        "cd " + dir_ + " && " + authority + "ca.key -out ca.pem && " + authority +
        "other.key -out other.pem && "
        "openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost && " +
        sign + "-days 2 -out server.pem && " + sign + "-days -1 -out expired.pem";
    if (std::system(("{ " + commands + "; } >" + dir_ + "/openssl 2>&1").c_str()) == 0) https_ = free_port();
    return https_ != 0;
  }
  std::string file(const std::string& name) const { return dir_ + "/" + name; }
  u16 https() const { return https_; }  // 0: none
  void start() {
    pid_ = spawn({in_path("clickhouse-server"), "--config-file=" + dir_ + "/config.xml"}, dir_ + "/out");
    for (int n = 0; n < 6000; ++n) {
      if (client("default")->ask("SELECT 1")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (has_ended()) break;
    }
    FAIL() << "the server does not start: " << words();
  }
  // True once, if it ended and no test had killed it.
  bool has_ended() {
    if (pid_ <= 0 || waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
    pid_ = 0;
    return true;
  }
  std::string words() const {  // what it has logged and printed
    std::ostringstream all;
    all << std::ifstream(dir_ + "/errors").rdbuf() << std::ifstream(dir_ + "/out").rdbuf();
    return all.str();
  }
  void kill9() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  u16 http() const { return http_; }
  u16 tcp() const { return tcp_; }
  std::string url(const std::string& database) const {
    return "clickhouse://127.0.0.1:" + std::to_string(http_) + "/" + database;
  }
  std::unique_ptr<clickhouse::Server> client(const std::string& database) const {
    return must(clickhouse::Server::open(must(clickhouse::Address::parse(url(database))), {}));
  }

 private:
  std::string dir_;
  u16 http_ = 0, tcp_ = 0, https_ = 0;
  pid_t pid_ = 0;
};

}  // namespace ringside::test
