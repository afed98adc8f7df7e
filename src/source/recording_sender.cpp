#include "source/recording_sender.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {

RecordingSender::RecordingSender(sys::Fd line, Options options) : line_(std::move(line)), options_(std::move(options)) {
  struct stat st {};
  socket_ = fstat(line_.get(), &st) == 0 && S_ISSOCK(st.st_mode);
  // Another process may have the same pipe open, and expect that it blocks.
  if (socket_) (void)fcntl(line_.get(), F_SETFL, fcntl(line_.get(), F_GETFL) | O_NONBLOCK);
}

result<std::shared_ptr<RecordingSender>> RecordingSender::begin(sys::Fd line, Options options) {
  std::shared_ptr<RecordingSender> sender(new RecordingSender(std::move(line), std::move(options)));
  const std::string host = sender->options_.host.substr(0, messages::longest_host);
  const iovec parts[] = {{const_cast<char*>(messages::magic), sizeof messages::magic},
                         {const_cast<char*>(host.data()), host.size()}};
  RS_TRY(sender->send({static_cast<u32>(messages::Kind::hello), messages::version, 0, 0, 0}, parts, 2));
  RS_TRY(sender->take_answer());
  return sender;
}

result<u32> RecordingSender::add_ring(const std::string& file) {
  const std::lock_guard held(mutex_);
  const iovec name{const_cast<char*>(file.data()), file.size()};
  RS_TRY(send({static_cast<u32>(messages::Kind::ring), rings_, 0, 0, 0}, &name, 1));
  return rings_++;
}

result<void> RecordingSender::write(u32 file, u64 offset, const iovec* parts, int count) {
  const std::lock_guard held(mutex_);
  return send({static_cast<u32>(messages::Kind::bytes), file, offset, 0, 0}, parts, count);
}

result<void> RecordingSender::set_size(u32 file, u64 size) {
  const std::lock_guard held(mutex_);
  return send({static_cast<u32>(messages::Kind::size), file, size, 0, 0}, nullptr, 0);
}

result<void> RecordingSender::replace(const std::string& name, std::string_view text) {
  const std::lock_guard held(mutex_);
  if (text.size() + name.size() > messages::largest_text)
    return refuse(std::errc::file_too_large, "cannot send " + name + " to " + options_.to + ": it is too large");
  const iovec parts[] = {{const_cast<char*>(name.data()), name.size()}, {const_cast<char*>(text.data()), text.size()}};
  return send({static_cast<u32>(messages::Kind::text), 0, name.size(), 0, 0}, parts, 2);
}

result<void> RecordingSender::end(bool offers_names) {
  const std::lock_guard held(mutex_);
  RS_TRY(send({static_cast<u32>(messages::Kind::end), offers_names && options_.answers, 0, 0, 0}, nullptr, 0));
  RS_TRY(take_answer());
  return offers_names && options_.answers ? take_asked() : result<void>();
}

tl::unexpected<Error> RecordingSender::broken(const std::string& why) {
  if (!broken_) broken_ = Error{std::make_error_code(std::errc::connection_aborted), why};
  return tl::unexpected<Error>(*broken_);
}

result<void> RecordingSender::send(messages::Head head, const iovec* parts, int count) {
  if (broken_) return tl::unexpected<Error>(*broken_);
  iovec all[5] = {{&head, sizeof head}};
  for (int n = 0; n < count; ++n) {
    all[n + 1] = parts[n];
    head.size += static_cast<u32>(parts[n].iov_len);
  }
  return send_all(all, count + 1);
}

// Why the receiver has closed the line, if it has said so.
std::string RecordingSender::heard_last() {
  char bytes[messages::longest_answer];
  const ssize_t n = options_.answers ? recv(line_.get(), bytes, sizeof bytes, MSG_DONTWAIT) : 0;
  std::string said(bytes, n > 0 ? static_cast<size_t>(n) : 0);
  said.resize(std::min(said.find('\n'), said.size()));
  return sys::printable(said);
}

result<void> RecordingSender::send_all(iovec* parts, int count) {
  while (count > 0) {
    ssize_t n = 0;
    if (socket_) {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<size_t>(count);
      n = sendmsg(line_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
      RS_TRY(wait_for(POLLOUT, "takes nothing"));
      iovec some = parts[0];
      some.iov_len =
          std::min<size_t>(some.iov_len, PIPE_BUF);  // as much as a pipe takes at once when poll says that it takes some
      n = some.iov_len == 0 ? 0 : ::write(line_.get(), some.iov_base, some.iov_len);
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      RS_TRY(wait_for(POLLOUT, "takes nothing"));
      continue;
    }
    if (n < 0) {
      const int error = errno;
      const std::string said = heard_last();
      return broken("cannot send to " + options_.to + ": " +
                    (!said.empty() ? said
                                   : std::strerror(error) +
                                         std::string(options_.answers ? "; the collector has ended, or the connection is cut"
                                                                      : "; its reader has ended")));
    }
    auto sent = static_cast<size_t>(n);
    while (count > 0 && sent >= parts->iov_len) {
      sent -= parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + sent;
      parts->iov_len -= sent;
    }
  }
  return {};
}

result<void> RecordingSender::wait_for(short events, const char* what) {
  constexpr u64 look_ns = 50'000'000;
  for (u64 waited = 0;; waited += look_ns) {
    pollfd p{line_.get(), events, 0};
    const int n = poll(&p, 1, static_cast<int>(look_ns / 1'000'000));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return broken("cannot wait for " + options_.to + ": " + std::strerror(errno));
    const bool hurried = options_.hurried && options_.hurried();
    if (waited >= (hurried ? options_.hurried_ns : options_.patience_ns))
      return broken(options_.to + " " + what + ": gave it up after " + std::to_string(waited / 1'000'000'000) + " seconds");
  }
}

result<void> RecordingSender::hear() {
  RS_TRY(wait_for(POLLIN, "does not answer"));
  char bytes[1 << 16];
  const ssize_t n = ::read(line_.get(), bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  if (n <= 0)
    return broken(options_.to + " closed the connection" + (n < 0 ? std::string(": ") + std::strerror(errno) : "") +
                  ": is it a ringside collect? It says why");
  heard_.append(bytes, static_cast<size_t>(n));
  return {};
}

result<std::string> RecordingSender::take_line() {
  while (heard_.find('\n') == std::string::npos && heard_.size() < messages::longest_answer) RS_TRY(hear());
  const size_t end = std::min(heard_.find('\n'), size_t{messages::longest_answer});
  std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  return line;
}

result<void> RecordingSender::take_answer() {
  if (!options_.answers) return {};
  const std::string line = RS_TRY(take_line());
  return line == "ok" ? result<void>() : broken(options_.to + " refuses: " + sys::printable(line));
}

result<void> RecordingSender::take_asked() {
  const std::string line = RS_TRY(take_line()), start = "names ";
  u64 size = 0;
  const char* const end = line.data() + line.size();
  const bool known = line.starts_with(start);
  const auto [at, error] = std::from_chars(known ? line.data() + start.size() : end, end, size);
  if (!known || error != std::errc() || at != end || size > messages::most_asked)
    return broken(options_.to + " asks for no names, but says: " + sys::printable(line));
  while (heard_.size() < size) RS_TRY(hear());
  asked_ = heard_.substr(0, size);
  return {};
}

}  // namespace ringside
