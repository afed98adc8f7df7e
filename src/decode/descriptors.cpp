#include "decode/descriptors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sys/text.hpp"

namespace ringside {
namespace {

using Does = CallFiles::Does;

constexpr u64 most_bytes = u64{64} << 20;  // of texts
constexpr u64 most_entries = 1'000'000;    // descriptors of all processes; and threads
constexpr u64 clone_fs = 0x200, clone_files = 0x400, clone_thread = 0x10000, clone_newns = 0x20000;
constexpr u64 range_unshare = 2, range_cloexec = 4;
constexpr u32 list_step = 256;

// Without // and /./.
std::string clean(std::string_view path) {
  std::string out;
  out.reserve(path.size());
  for (const char c : path) {
    if (c == '/' && out.ends_with("/.")) out.pop_back();
    if (c != '/' || !out.ends_with('/')) out += c;
  }
  return out;
}

std::string socket_kind(u64 family, u64 type) {
  const bool stream = (type & 15) == SOCK_STREAM, datagram = (type & 15) == SOCK_DGRAM;
  if ((family == AF_INET || family == AF_INET6) && (stream || datagram))
    return std::string(stream ? "TCP" : "UDP") + (family == AF_INET6 ? "v6" : "");
  return family == AF_UNIX ? "UNIX" : family == AF_NETLINK ? "NETLINK" : "socket";
}

std::string kind_of(const std::string& file) { return file.substr(0, file.find(':')); }

std::string bracketed(std::string_view file) { return "<" + sys::printable(std::string(file)) + ">"; }
std::string quoted(std::string_view text) { return '"' + sys::printable(std::string(text)) + '"'; }

bool makes_copy(const CallFiles& about, const u64 (&args)[6]) {
  const bool by_fcntl = about.does == Does::fcntl && (args[1] == F_DUPFD || args[1] == F_DUPFD_CLOEXEC);
  return by_fcntl || about.does == Does::dup || about.does == Does::dup2 || about.does == Does::dup3;
}

}  // namespace

void Descriptors::forget() {
  threads_.clear();
  entries_ = 0;
}

void Descriptors::lose(u32 ids, bool of_files) {
  const u64 source = ids / Formats::most_ids;
  if (of_files) std::erase_if(threads_, [&](const auto& thread) { return thread.first >> 32 == source; });
  ++losses_;  // what ends now may have begun later
}

const Descriptors::Known& Descriptors::known(const EventType& type) {
  const auto [at, fresh] = known_.try_emplace(&type);
  Known& known = at->second;
  if (!fresh) return known;
  known.notes = type.full == file_call_event;
  if (known.notes) return known;
  known.fields = syscall_fields(type);
  if (!known.fields || known.fields->returned != nullptr) return known;
  if (const Field* const args = type.field("args"); known.fields->raw && args != nullptr && args->size >= 48) {
    for (u32 i = 0; i < 6; ++i) known.arguments[i] = args->offset + 8 * i;
    return known;
  }
  u32 n = 0;
  for (const Field& field : type.fields())
    if (field.offset > known.fields->number->offset && field.size == 8 && field.kind == FieldKind::integer && n < 6)
      known.arguments[n++] = field.offset;
  return known;
}

Descriptors::Thread& Descriptors::thread(Key key, i32 pid) {
  const auto [at, fresh] = threads_.try_emplace(key);
  Thread& thread = at->second;
  if (!fresh) return thread;
  ++entries_;
  thread.pid = pid;
  // After a loss a process's first thread may be known by its others alone: all have one table.
  if (const Key first = key >> 32 << 32 | static_cast<u32>(pid); first != key) {
    const Thread& process = this->thread(first, pid);
    thread.table = process.table;
    thread.directory = process.directory;
  } else {
    thread.table = std::make_shared<Table>();
    thread.directory = std::make_shared<Directory>();
  }
  return thread;
}

const Descriptors::Entry* Descriptors::entry(const Thread& thread, u64 descriptor) const {
  if (thread.table->never) return nullptr;
  const auto at = thread.table->entries.find(static_cast<i32>(descriptor));
  return at == thread.table->entries.end() ? nullptr : &at->second;
}

// "": it is not known.
std::string Descriptors::descriptor_file(const Thread& thread, u64 descriptor) const {
  if (static_cast<i32>(descriptor) == AT_FDCWD) return thread.directory->path;
  const Entry* const known = entry(thread, descriptor);
  return known == nullptr ? "" : known->file;
}

void Descriptors::set(Thread& thread, i64 descriptor, std::string file, OnExec on_exec, u64 time) {
  if (descriptor < 0 || descriptor > INT32_MAX) return;
  const auto [at, fresh] = thread.table->entries.try_emplace(static_cast<i32>(descriptor));
  entries_ += fresh ? 1 : 0;
  at->second = {std::move(file), on_exec, ++serial_, time};
}

u32 Descriptors::see(const EventType& type, Bytes payload, u64 time) {
  if (!type.of_syscalls && type.full != file_call_event) [[likely]]
    return 0;
  const Known& known = this->known(type);
  if (known.notes) return note(type, payload, time), 0;
  if (!known.fields) return 0;
  const Key key = u64{type.id / Formats::most_ids} << 32 | static_cast<u32>(read_common(payload).tid);
  const auto at = threads_.find(key);
  if (at == threads_.end()) return 0;
  Thread& thread = at->second;
  const i64 nr = read_integer(payload, *known.fields->number);
  Call& call = thread.seen;
  if (known.fields->returned != nullptr) {
    if (call.number != nr || call.losses != losses_) return 0;
    // A path that was not in memory when the call began is reported at its end.
    if (call.about != nullptr && thread.noted.number == nr && thread.noted.texts.size() > call.texts.size() &&
        std::memcmp(thread.noted.args, call.args, 8 * 3) == 0) {
      call.texts = thread.noted.texts;
      call.shown = show(thread, call);
    }
    const u32 shown = show_result(thread, call, read_integer(payload, *known.fields->returned));
    call.number = -1;
    return shown;
  }
  call = {};
  call.number = nr;
  call.losses = losses_;
  call.about = call_files(nr, type.world.architecture);
  for (u32 i = 0; i < 6; ++i) {
    const u32 from = known.arguments[i];
    if (from != 0 && from + 8 <= payload.size) std::memcpy(&call.args[i], payload.data + from, 8);
  }
  if (call.about == nullptr) return 0;
  if (thread.noted.number == nr && std::memcmp(thread.noted.args, call.args, 8 * 3) == 0) {
    call.texts = thread.noted.texts;
    call.shown = thread.noted.shown != 0 ? thread.noted.shown : show(thread, call);
  } else {
    call.shown = show(thread, call);
  }
  return call.shown;
}

// ---- What ringside:file_call says.

void Descriptors::note(const EventType& type, Bytes payload, u64 time) {
  FileCall told;
  if (payload.size < sizeof told) return;
  std::memcpy(&told, payload.data, sizeof told);
  const u32 begin_text = told.text & 0xFFFF, size = told.text >> 16;
  std::string_view text;
  if (size != 0 && begin_text >= sizeof told && begin_text + size <= payload.size) {
    const auto* const from = reinterpret_cast<const char*>(payload.data) + begin_text;
    text = {from, strnlen(from, size)};
  }
  if (entries_ > most_entries) forget();
  const u64 source = u64{type.id / Formats::most_ids} << 32;
  const Key key = source | static_cast<u32>(told.tid());
  Thread& thread = this->thread(key, told.pid);
  const CallFiles* const about = call_files(told.number, type.world.architecture);
  using Step = FileCall::Step;
  switch (told.step) {
    case Step::begin:
      thread.noted = {};
      thread.noted.number = told.number;
      thread.noted.about = about;
      std::memcpy(thread.noted.args, told.args, sizeof told.args);
      thread.noted.serial = serial_;
      if (about != nullptr) begin(thread, told, time);
      break;
    case Step::text:
      if (thread.noted.number == told.number && thread.noted.texts.size() < 32) thread.noted.texts[told.value] = text;
      break;
    case Step::end:
      if (about != nullptr) end(thread, *about, told.value, time);
      break;
    case Step::fork:
      fork(key, told);
      break;
    case Step::gone:
      threads_.erase(key);
      break;
    case Step::descriptor:
    case Step::directory:
      take(thread, told, text, time);
      break;
  }
}

// What /proc said, unless a call has changed it since the question.
void Descriptors::take(Thread& thread, const FileCall& told, std::string_view text, u64 time) {
  if (told.step == FileCall::Step::directory) {
    Directory& directory = *thread.directory;
    if (directory.path.empty() && (directory.time == 0 || directory.time < told.args[1])) directory = {std::string(text), time};
    return;
  }
  const Entry* const before = entry(thread, static_cast<u64>(told.value));
  if (before != nullptr && before->time >= told.args[1]) return;
  set(thread, told.value, std::string(text), told.args[0] != 0 ? OnExec::closes : OnExec::stays, time);
}

// What a call takes away is gone from its beginning: another thread may get the number before this call has returned.
void Descriptors::begin(Thread& thread, const FileCall& call, u64 time) {
  Call& noted = thread.noted;
  const auto& args = call.args;
  // The descriptors are those before the call.
  if (noted.about->paths == 0) noted.shown = show(thread, noted);
  if (makes_copy(*noted.about, args))
    if (const Entry* const from = entry(thread, args[0])) noted.from = *from;
  switch (noted.about->does) {
    case Does::close:
      set(thread, static_cast<i32>(args[0]), "", OnExec::unknown, time);
      break;
    case Does::dup2:
    case Does::dup3:
      if (static_cast<i32>(args[0]) != static_cast<i32>(args[1]))
        set(thread, static_cast<i32>(args[1]), "", OnExec::unknown, time);
      break;
    case Does::close_range:
      if ((args[2] & range_unshare) != 0) thread.table = std::make_shared<Table>(*thread.table);
      for (auto& [descriptor, known] : thread.table->entries) {
        if (static_cast<u32>(descriptor) < static_cast<u32>(args[0]) ||
            static_cast<u32>(descriptor) > static_cast<u32>(args[1]))
          continue;
        if ((args[2] & range_cloexec) != 0)
          known.on_exec = OnExec::unknown;
        else
          known = {"", OnExec::unknown, ++serial_, time};
      }
      break;
    default:
      break;
  }
}

void Descriptors::end(Thread& thread, const CallFiles& about, i64 returned, u64 time) {
  Call& noted = thread.noted;
  if (about.does == Does::exec && returned == 0) {  // perhaps of another thread: this one has its number now
    thread.table = std::make_shared<Table>(*thread.table);
    for (auto& [descriptor, known] : thread.table->entries)
      if (known.on_exec != OnExec::stays) known = {"", OnExec::unknown, ++serial_, time};
    return;
  }
  // A call of which only the end is known: a new descriptor may be anything.
  const bool whole = noted.about == &about;
  const auto& args = noted.args;
  const u64 flag = about.close_on_exec;
  const OnExec on_exec = about.flags < 0                                                           ? OnExec::stays
                         : flag == ~u64{0} || (args[static_cast<size_t>(about.flags)] & flag) != 0 ? OnExec::closes
                                                                                                   : OnExec::stays;
  const auto open = [&](std::string file, OnExec then) {
    if (returned >= 0) set(thread, returned, whole ? std::move(file) : "", then, time);
  };
  if (whole && makes_copy(about, args)) {
    const Entry* const now = entry(thread, args[0]);
    const bool same = now != nullptr && now->serial == noted.from.serial;
    const bool onto_itself = about.does == Does::dup2 && static_cast<i32>(args[0]) == static_cast<i32>(args[1]);
    if (!onto_itself)
      open(same ? noted.from.file : "",
           about.does == Does::fcntl ? (args[1] == F_DUPFD ? OnExec::stays : OnExec::closes) : on_exec);
    return;
  }
  switch (about.does) {
    case Does::open:
      open(full(thread, noted, about.descriptors != 0 ? 1 : 0), on_exec);
      break;
    case Does::opens_by_structure:
      open(full(thread, noted, 1), OnExec::unknown);
      break;
    case Does::creat:
      open(full(thread, noted, 0), OnExec::stays);
      break;
    case Does::makes_file: {
      const auto name = noted.texts.find(0);
      open(about.file + (name == noted.texts.end() ? "" : name->second + " (deleted)"), on_exec);
      break;
    }
    case Does::socket:
      open(socket_kind(args[0], args[1]), on_exec);
      break;
    case Does::accept:
      open(kind_of(descriptor_file(thread, args[0])), on_exec);
      break;
    case Does::dup:
    case Does::dup2:
    case Does::dup3:
      open("", OnExec::unknown);
      break;
    case Does::fcntl:
      if (whole && returned == 0 && args[1] == F_SETFD) {
        const auto at = thread.table->entries.find(static_cast<i32>(args[0]));
        if (at != thread.table->entries.end())
          at->second.on_exec = (args[2] & FD_CLOEXEC) != 0 ? OnExec::closes : OnExec::stays;
      }
      break;
    case Does::connect: {
      const Entry* const socket = entry(thread, args[0]);
      const auto peer = noted.texts.find(1);
      if (!whole || (returned != 0 && returned != -EINPROGRESS) || socket == nullptr || socket->file.empty() ||
          socket->serial > noted.serial)
        break;
      const std::string kind = kind_of(socket->file);
      set(thread, static_cast<i32>(args[0]), peer == noted.texts.end() ? kind : kind + ":[->" + peer->second + "]",
          socket->on_exec, time);
      break;
    }
    case Does::unshare:
      if (!whole || returned != 0) break;
      if ((args[0] & clone_files) != 0) thread.table = std::make_shared<Table>(*thread.table);
      if ((args[0] & (clone_fs | clone_newns)) != 0) thread.directory = std::make_shared<Directory>(*thread.directory);
      break;
    case Does::chdir:
    case Does::fchdir:
      if (returned == 0) {
        std::string to = !whole ? "" : about.does == Does::chdir ? full(thread, noted, 0) : descriptor_file(thread, args[0]);
        *thread.directory = {to.starts_with('/') ? std::move(to) : "", time};
      }
      break;
    case Does::setns:
      if (returned == 0) *thread.directory = {"", time};
      break;
    case Does::pair: {
      const auto both = noted.texts.find(0);
      int two[2] = {-1, -1};
      if (!whole || returned != 0 || both == noted.texts.end() ||
          std::sscanf(both->second.c_str(), "%d %d", &two[0], &two[1]) != 2)
        break;
      for (const int descriptor : two) set(thread, descriptor, about.file, on_exec, time);
      break;
    }
    case Does::uring:
      thread.table->never = true;
      break;
    case Does::nothing:
    case Does::close:
    case Does::close_range:
    case Does::exec:
    case Does::clone:
      break;
  }
}

void Descriptors::fork(Key maker, const FileCall& call) {
  const u64 flags = call.args[0];
  const Thread by = thread(maker, call.pid);
  Thread child;
  child.pid = (flags & clone_thread) != 0 ? call.pid : static_cast<i32>(call.value);
  child.table = by.table;
  child.directory = by.directory;
  if ((flags & clone_files) == 0) {
    // Another thread may have changed these since the call began: which of both the child has is not known.
    const u64 since = by.noted.about != nullptr && by.noted.about->does == Does::clone ? by.noted.serial : serial_;
    child.table = std::make_shared<Table>(*by.table);
    std::erase_if(child.table->entries, [&](const auto& known) { return known.second.serial > since; });
    entries_ += child.table->entries.size();
  }
  if ((flags & clone_fs) == 0) child.directory = std::make_shared<Directory>(*by.directory);
  ++entries_;
  threads_[maker >> 32 << 32 | static_cast<u32>(call.value)] = std::move(child);
}

// ---- Texts.

// "": the path is not known; else as it was named, absolute if its directory is known.
std::string Descriptors::full(const Thread& thread, const Call& call, u32 argument) const {
  const auto at = call.texts.find(argument);
  if (at == call.texts.end()) return "";
  const std::string& path = at->second;
  if (path.starts_with('/')) return clean(path);
  const bool beneath = argument > 0 && (call.about->descriptors >> (argument - 1) & 1) != 0;
  const std::string directory = beneath ? descriptor_file(thread, call.args[argument - 1]) : thread.directory->path;
  if (path.empty()) return beneath ? directory : "";
  if (!directory.starts_with('/')) return path;
  return clean(directory + "/" + (path.starts_with("./") ? path.substr(2) : path));
}

u32 Descriptors::show(const Thread& thread, const Call& call) {
  std::string text, file, of_descriptor;
  for (u32 i = 0; i < 6; ++i) {
    std::string part;
    if ((call.about->descriptors >> i & 1) != 0) {
      const auto descriptor = static_cast<i32>(call.args[i]);
      const std::string known = descriptor_file(thread, call.args[i]);
      if (descriptor < 0 && descriptor != AT_FDCWD) continue;
      part = (descriptor == AT_FDCWD ? "AT_FDCWD" : std::to_string(descriptor)) + (known.empty() ? "" : bracketed(known));
      if (of_descriptor.empty() && descriptor != AT_FDCWD) of_descriptor = known;
    } else if (const auto at = call.texts.find(i); (call.about->paths >> i & 1) != 0 && at != call.texts.end()) {
      part = quoted(at->second);
      if (file.empty()) file = full(thread, call, i);
    } else if (at != call.texts.end() && call.about->does == Does::exec) {
      for (auto one = at; one != call.texts.end(); one = call.texts.find(one->first + list_step))
        part += (part.empty() ? "[" : ", ") + quoted(one->second);
      part += "]";
    }
    if (!part.empty()) text += (text.empty() ? "" : " ") + part;
  }
  if (file.empty()) file = of_descriptor;
  const bool knows = !file.empty() || text.find('<') != std::string::npos || text.find('"') != std::string::npos;
  return knows ? number(std::move(text), std::move(file)) : 0;
}

u32 Descriptors::show_result(const Thread& thread, const Call& call, i64 returned) {
  if (call.about == nullptr) return 0;
  const std::string file(this->file(call.shown));
  std::string text;
  switch (call.about->does) {
    case Does::open:
    case Does::opens_by_structure:
    case Does::creat:
    case Does::makes_file:
    case Does::dup:
    case Does::dup2:
    case Does::dup3:
    case Does::socket:
    case Does::accept:
      if (const std::string known = returned >= 0 ? descriptor_file(thread, static_cast<u64>(returned)) : ""; !known.empty()) {
        text = std::to_string(returned) + bracketed(known);
        if (file.empty()) return number(std::move(text), known);
      }
      break;
    default:
      break;
  }
  return file.empty() && text.empty() ? 0 : number(std::move(text), file);
}

u32 Descriptors::number(std::string text, std::string file) {
  std::string key = text + '\0' + file;
  if (bytes_ > most_bytes) {
    const auto at = numbers_.find(key);
    return at == numbers_.end() ? 0 : at->second;
  }
  const auto [at, fresh] = numbers_.try_emplace(std::move(key), static_cast<u32>(shown_.size() + 1));
  if (fresh) {
    bytes_ += 2 * at->first.size() + 200;
    shown_.push_back(std::make_unique<Text>(Text{std::move(text), std::move(file)}));
  }
  return at->second;
}

}  // namespace ringside
