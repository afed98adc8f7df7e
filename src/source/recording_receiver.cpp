#include "source/recording_receiver.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "source/recording.hpp"
#include "sys/beneath.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {

namespace {

constexpr size_t most_open = 256;
constexpr const char* half = "meta.json.new";  // a text that is not whole yet

tl::unexpected<Error> nonsense(const std::string& what) {
  return refuse(std::errc::bad_message, "this is no recording of ringside record --to: " + what);
}

bool is_text(const std::string& name) {
  return name == "meta.json" || name == "kallsyms" || name == "printk_formats" || name == kept_names;
}

std::string text_of(const u8* from, size_t size) { return {reinterpret_cast<const char*>(from), size}; }

}  // namespace

std::string RecordingReceiver::safe_host(std::string_view host) {
  std::string name(host.substr(0, messages::longest_host));
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'))
      c = '_';
  if (name.starts_with('.')) name[0] = '_';
  return name;
}

result<void> RecordingReceiver::take(const u8* bytes, size_t size) {
  // Whole messages are obeyed where they are; the rest waits for more.
  const auto obey_all = [this](const u8* from, size_t have, size_t& done) -> result<void> {
    for (done = 0; have - done >= sizeof(messages::Head);) {
      messages::Head head{};
      std::memcpy(&head, from + done, sizeof head);
      RS_TRY(check(head));
      if (have - done - sizeof head < head.size) break;
      RS_TRY(obey(head, from + done + sizeof head));
      done += sizeof head + head.size;
    }
    return {};
  };
  if (ended_ && !asked_ && size != 0) return nonsense("bytes follow its end");
  size_t done = 0;
  if (pending_.empty()) {
    RS_TRY(obey_all(bytes, size, done));
    pending_.assign(bytes + done, bytes + size);
  } else {
    pending_.insert(pending_.end(), bytes, bytes + size);
    RS_TRY(obey_all(pending_.data(), pending_.size(), done));
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
  }
  if (ended_ && !asked_ && !pending_.empty()) return nonsense("bytes follow its end");
  return {};
}

// Before the bytes after the head are waited for.
result<void> RecordingReceiver::check(const messages::Head& head) const {
  const auto kind = static_cast<messages::Kind>(head.kind);
  if (ended_ && !(asked_ && kind == messages::Kind::text)) return nonsense("bytes follow its end");
  if ((kind == messages::Kind::hello) == greeted()) return nonsense("it does not begin with a hello");
  if (head.reserved != 0) return nonsense("a message has an unknown head");
  const bool of_ring = kind == messages::Kind::bytes || kind == messages::Kind::size;
  if (of_ring && head.file >= rings_.size()) return nonsense("a message is about a ring that was not named");
  u32 most = 0;
  switch (kind) {
    case messages::Kind::hello:
      most = sizeof messages::magic + messages::longest_host;
      if (head.size < sizeof messages::magic) return nonsense("it does not begin with a hello");
      break;
    case messages::Kind::ring:
      most = messages::longest_name;
      if (head.file != rings_.size() || head.file >= messages::most_rings) return nonsense("a ring has a wrong number");
      break;
    case messages::Kind::bytes:
    case messages::Kind::size:
      most = kind == messages::Kind::size ? 0 : messages::most_bytes;
      // It grows by one sub-buffer at a time.
      if (head.offset > rings_[head.file].size + messages::most_bytes) return nonsense("a ring has a gap");
      break;
    case messages::Kind::text:
      most = messages::largest_text;
      if (head.offset > std::min(messages::longest_name, head.size)) return nonsense("a text has no name");
      break;
    case messages::Kind::end:
      break;
    default:
      return nonsense("there is no message of kind " + std::to_string(head.kind));
  }
  if (head.size > most) return nonsense("a message is too long");
  return {};
}

result<void> RecordingReceiver::obey(const messages::Head& head, const u8* payload) {
  switch (static_cast<messages::Kind>(head.kind)) {
    case messages::Kind::hello:
      if (head.file != messages::version)
        return refuse(std::errc::protocol_not_supported,
                      "the recorder speaks version " + std::to_string(head.file) + ", and this collector version " +
                          std::to_string(messages::version) + ": take the same ringside on both machines");
      return greet(payload, head.size);
    case messages::Kind::ring:
      return add_ring(text_of(payload, head.size));
    case messages::Kind::bytes:
      return write(rings_[head.file], head.offset, payload, head.size);
    case messages::Kind::size: {
      Ring& ring = rings_[head.file];
      RS_TRY(open(ring));
      if (ftruncate(ring.fd.get(), static_cast<off_t>(head.offset)) != 0)
        return fail(errno, "cannot set the size of " + dir_ + "/" + ring.file);
      ring.size = head.offset;
      return {};
    }
    case messages::Kind::text: {
      const std::string name = text_of(payload, head.offset);
      if (ended_ && name != kept_names) return nonsense("bytes follow its end");
      asked_ = false;
      return replace(name, payload + head.offset, head.size - head.offset);
    }
    case messages::Kind::end:
      if (!has_meta_) return nonsense("it has no meta.json");
      ended_ = true;
      offers_names_ = head.file == 1;
      return {};
  }
  return {};
}

result<void> RecordingReceiver::greet(const u8* payload, u32 size) {
  if (std::memcmp(payload, messages::magic, sizeof messages::magic) != 0) return nonsense("it does not begin with a hello");
  host_ = safe_host(text_of(payload, size).substr(sizeof messages::magic));
  const std::string dir = RS_TRY(place_(host_));
  folder_ = RS_TRY(make_recording_directory(dir));
  dir_ = dir;
  return {};
}

// The only names that a ring can have: those that ring_of_file knows, as ring_file makes them.
result<void> RecordingReceiver::add_ring(std::string name) {
  const auto ring = ring_of_file(name);
  if (!ring || ring_file(*ring) != name) return nonsense("a ring has the name " + sys::shown_name(name));
  if (!numbers_.emplace(name, rings_.size()).second) return nonsense(name + " comes twice");
  rings_.push_back({std::move(name)});
  return open(rings_.back());
}

result<void> RecordingReceiver::open(Ring& ring) {
  if (ring.fd) return {};
  if (open_ == most_open) {
    for (Ring& other : rings_) other.fd = {};
    open_ = 0;
  }
  // Made anew the first time; it is this receiver's own, and is opened through no link.
  const int flags = ring.size == 0 ? O_WRONLY | O_CREAT : O_WRONLY;
  ring.fd = sys::open_beneath(folder_.get(), ring.file.c_str(), flags);
  if (!ring.fd) return sys::fail_beneath(errno, "cannot open " + dir_ + "/" + ring.file);
  ++open_;
  return {};
}

result<void> RecordingReceiver::write(Ring& ring, u64 offset, const u8* bytes, u32 size) {
  RS_TRY(open(ring));
  if (!sys::write_at(ring.fd.get(), bytes, size, offset)) return fail(errno, "cannot write to " + dir_ + "/" + ring.file);
  ring.size = std::max(ring.size, offset + size);
  return {};
}

result<void> RecordingReceiver::replace(const std::string& name, const u8* text, u64 size) {
  if (!is_text(name)) return nonsense("a text has the name " + sys::shown_name(name));
  const std::string path = dir_ + "/" + name;
  if (unlinkat(folder_.get(), half, 0) != 0 && errno != ENOENT) return fail(errno, "cannot replace " + path);
  const sys::Fd fd = sys::open_beneath(folder_.get(), half, O_WRONLY | O_CREAT | O_EXCL);
  if (!fd || !sys::write_at(fd.get(), text, size, 0) || renameat(folder_.get(), half, folder_.get(), name.c_str()) != 0) {
    const int error = errno;
    unlinkat(folder_.get(), half, 0);
    return fail(error, "cannot write " + path);
  }
  has_meta_ = has_meta_ || name == "meta.json";
  return {};
}

}  // namespace ringside
