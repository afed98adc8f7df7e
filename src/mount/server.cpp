#include "mount/server.hpp"

#include <fcntl.h>
#include <ringside/abi/meta_page.hpp>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside::mount {
namespace {

constexpr size_t longest_name = 255;
constexpr size_t largest_read = 1 << 20;
constexpr u32 events_readable = EPOLLIN | EPOLLRDNORM;

// Splice reads the size before it asks: with size 0 it would assume the end of the file, and lose events silently.
constexpr u64 endless = u64{1} << 62;

// "/instances/NAME" before a path; else empty.
std::string instance_in(const std::string& path) {
  constexpr std::string_view above = "/instances/";
  return path.rfind(above, 0) == 0 ? path.substr(0, path.find('/', above.size())) : std::string();
}

// Does what the file does at its end; true: it is to be tried again.
bool is_busy(OpenFile& file) {
  const auto closed = file.closed();
  return !closed && closed.error().code == std::errc::device_or_resource_busy;
}

}  // namespace

result<std::unique_ptr<Server>> Server::create(const ServerOptions& options, Backing backing) {
  std::unique_ptr<Server> server(new Server(options, std::move(backing)));
  server->wake_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->wake_) return fail(errno, "cannot make an event descriptor");
  // Those that are offline or still to come have a ring, too: an external writer's rings stay as they are made.
  const u32 cpus = options.cpus != 0 ? options.cpus : std::min(possible_cpus(), 4096u);
  auto tree = RS_TRY(Tree::create(options.instances, options.remotes, cpus, options.patience, server->wake_.get()));
  server->tree_ = std::move(tree);
  server->root_ = server->tree_->root();
  server->inodes_[root_inode] = {server->root_, "", 1};
  return server;
}

Server::~Server() {
  for (auto& [job, answer] : jobs_) answer(ENODEV);
  jobs_.clear();
  for (Waiting& w : waiting_)
    if (!w.over) w.reply->error(ENODEV);
  waiting_.clear();
  files_.clear();
  for (const auto& [ring, mapped] : mapped_) backing_.remove(mapped.id);
  inodes_.clear();
  root_ = {};
}

result<const Node*> Server::node(u64 inode) const {
  const auto found = inodes_.find(inode);
  if (found == inodes_.end()) return fail(ENOENT, "no such file");
  return &found->second.node;
}

Stat Server::stat_of(u64 inode, const Node& at, const std::string& path) const {
  Stat s;
  s.inode = inode;
  s.lasting = (at.dir != Dir::instance && at.remote == nullptr) || at.file != nullptr;
  if (at.file == nullptr) {
    constexpr u32 below_events = in_events | in_system | in_event;
    const bool open_to_all = options_.others || (static_cast<u32>(at.dir) & below_events) != 0;
    s.mode = open_to_all ? 0755 : inode == root_inode ? 0700 : 0750;
    if (inode == root_inode) s.mode = options_.owner.mode.value_or(s.mode);
    s.links = 2;
  } else {
    s.mode = at.file->mode;
    if (options_.others && (s.mode & 0400) != 0) s.mode |= 0444;
    if (at.file->is_raw) s.size = endless;
  }
  s.uid = options_.owner.uid.value_or(geteuid());
  s.gid = options_.owner.gid.value_or(getegid());
  const auto apply = [&](const std::map<std::string, Owner>& owners, const std::string& name) {
    const auto found = owners.find(name);
    if (found == owners.end()) return;
    s.uid = found->second.uid.value_or(s.uid);
    s.gid = found->second.gid.value_or(s.gid);
    s.mode = found->second.mode.value_or(s.mode);
  };
  apply(inherited_, instance_in(path));
  apply(owners_, path);
  s.mode |= at.file == nullptr ? S_IFDIR : S_IFREG;
  return s;
}

Stat Server::enter(const Node& at, std::string path) {
  auto [known, fresh] = by_path_.try_emplace(std::move(path), next_inode_);
  if (!fresh) {
    Inode& inode = inodes_[known->second];
    // By now the name may belong to another instance.
    if (inode.node.on == at.on && inode.node.remote == at.remote) {
      ++inode.known;
      return stat_of(known->second, inode.node, inode.path);
    }
    known->second = next_inode_;
  }
  const u64 number = next_inode_++;
  inodes_[number] = {at, known->first, 1};
  return stat_of(number, at, known->first);
}

result<Stat> Server::lookup(u64 parent, const std::string& name) {
  auto in = RS_TRY(node(parent));
  if (name.size() > longest_name) return fail(ENAMETOOLONG, "name");
  auto at = RS_TRY(tree_->find(*in, name));
  return enter(at, inodes_[parent].path + "/" + name);
}

void Server::forget(u64 inode, u64 times) {
  const auto found = inodes_.find(inode);
  if (found == inodes_.end() || inode == root_inode) return;
  Inode& i = found->second;
  i.known -= std::min(i.known, times);
  if (i.known != 0) return;
  if (const auto named = by_path_.find(i.path); named != by_path_.end() && named->second == inode) by_path_.erase(named);
  inodes_.erase(found);
}

result<Stat> Server::attributes(u64 inode) const {
  auto at = RS_TRY(node(inode));
  return stat_of(inode, *at, path_of(inode));
}

result<Stat> Server::change(u64 inode, const Owner& to, const Client& client) {
  RS_TRY(node(inode));
  if (client.uid != 0 && client.uid != geteuid()) return fail(EPERM, "only root and the mount's user change files");
  Owner& owner = owners_[path_of(inode)];
  if (to.uid) owner.uid = to.uid;
  if (to.gid) owner.gid = to.gid;
  if (to.mode) owner.mode = *to.mode & 07777;
  return attributes(inode);
}

void Server::forget_owners(const std::string& path) {
  inherited_.erase(path);
  std::erase_if(owners_, [&](const auto& entry) { return entry.first == path || entry.first.rfind(path + "/", 0) == 0; });
}

result<std::vector<Listed>> Server::list(u64 inode) {
  auto at = RS_TRY(node(inode));
  if (at->file != nullptr) return fail(ENOTDIR, "a file");
  return tree_->list(*at);
}

result<Stat> Server::make_directory(u64 parent, const std::string& name, const Client& client) {
  auto in = RS_TRY(node(parent));
  if (client.uid != 0 && client.uid != geteuid()) return fail(EPERM, name);
  RS_TRY(tree_->make_directory(*in, name));
  const std::string above = path_of(parent), path = above + "/" + name;
  forget_owners(path);
  if (const auto changed = owners_.find(above); changed != owners_.end())
    inherited_[path] = {changed->second.uid, changed->second.gid, {}};
  return lookup(parent, name);
}

result<void> Server::remove_directory(u64 parent, const std::string& name) {
  auto in = RS_TRY(node(parent));
  return tree_->remove_directory(*in, name, [this](const Mounted& on) {
    return std::any_of(files_.begin(), files_.end(), [&](const auto& f) { return &f.second.file->on() == &on; });
  });
}

result<u32*> Server::room_for(const Client& client) {
  if (open_files() >= options_.most_files) return fail(ENFILE, "too many open files");
  u32& mine = files_of_[client.uid];
  if (mine >= options_.most_files_of_a_user) return fail(EMFILE, "too many open files of this user");
  return &mine;
}

result<void> Server::count_directory(const Client& client) {
  ++*RS_TRY(room_for(client));
  ++opened_;
  ++directories_;
  return {};
}

void Server::uncount_directory(const Client& client) {
  if (directories_ != 0) --directories_;
  if (u32& mine = files_of_[client.uid]; mine == 0 || --mine == 0) files_of_.erase(client.uid);
}

result<Opened> Server::open(u64 inode, int flags, const Client& client) {
  auto at = RS_TRY(node(inode));
  const Node where = *at;
  if (where.file == nullptr) return fail(EISDIR, "a directory");
  if (where.rings()->removed()) return fail(ENODEV, "the instance is gone");
  const bool writing = (flags & O_ACCMODE) != O_RDONLY;
  // The kernel would hand out writable mappings of the rings, seals or not: no client gets a writable file.
  if (where.file->is_raw && writing) return fail(EACCES, "rings are only read");
  u32& mine = *RS_TRY(room_for(client));
  auto file = RS_TRY(open_file(where, {writing, (flags & O_TRUNC) != 0, client.uid, streams_}));
  ++mine;
  ++opened_;
  const u64 handle = next_handle_++;
  File& kept = files_[handle];
  kept.job = file->job();
  kept.file = std::move(file);
  kept.uid = client.uid;
  kept.nonblocking = (flags & O_NONBLOCK) != 0;
  if (kept.job != nullptr) return Opened{handle, 0, kept.file->stream()};
  return finish(handle, 0);
}

result<Opened> Server::finish(u64 handle, int error) {
  File* const f = file(handle);
  if (f == nullptr) return fail(EBADF, "not open");
  Opened opened{handle, 0, f->file->stream()};
  if (error != 0) {
    release(handle);
    return fail(error, "it cannot be opened");
  }
  RawFile* const raw = f->file->raw();
  if (raw == nullptr) return opened;
  auto id = map(*raw);
  if (!id) {
    release(handle);
    return tl::unexpected<Error>(id.error());
  }
  opened.backing = f->backing = *id;
  f->memory = raw->memory();
  return opened;
}

std::shared_ptr<Job> Server::job(u64 handle) {
  File* const f = file(handle);
  return f == nullptr ? nullptr : std::exchange(f->job, nullptr);
}

void Server::when(std::shared_ptr<Job> job, std::function<void(int)> answer) {
  jobs_.emplace_back(std::move(job), std::move(answer));
}

// 0: not mapped. The kernel wants one number for all clients that have a file open.
result<int> Server::map(RawFile& raw) {
  const std::pair<const void*, u32> key = raw.memory();
  if (const auto known = mapped_.find(key); known != mapped_.end()) {
    RS_TRY(raw.map());
    ++known->second.users;
    return known->second.id;
  }
  if (cannot_map_ || !raw.can_be_mapped()) return 0;
  auto file = RS_TRY(raw.map());
  const int id = backing_.add(file.get());
  if (id <= 0) {
    cannot_map_ = true;
    unmapped_ =
        std::string("rings cannot be mapped through the mount, everything else works: ") +
        (id == -EPERM || id == 0 ? "FUSE passthrough wants CAP_SYS_ADMIN (root, or setcap cap_sys_admin+p)"
                                 : "this kernel has no FUSE passthrough for it (Linux 6.9 has): " + std::string(strerror(-id)));
    raw.unmap();
    return 0;
  }
  mapped_[key] = {id, 1};
  return id;
}

void Server::unmap(std::pair<const void*, u32> memory) {
  const auto found = mapped_.find(memory);
  if (found == mapped_.end() || --found->second.users != 0) return;
  backing_.remove(found->second.id);
  mapped_.erase(found);
}

Server::File* Server::file(u64 handle) {
  const auto found = files_.find(handle);
  return found == files_.end() ? nullptr : &found->second;
}

bool Server::serve(Waiting& who) {
  File* const f = file(who.handle);
  if (f == nullptr) {
    who.reply->error(EBADF);
    return true;
  }
  if (who.get_reader) {
    const RingSet& on = f->file->on();
    const bool must = on.woken != who.woken;
    if (!must && !f->file->undecided() && !f->file->ready(on.buffer_percent)) return false;
    auto done = f->file->raw()->get_reader(must);
    if (!done)
      who.reply->error(errno_of(done.error()));
    else if (*done)
      who.reply->done();
    return !done || *done;
  }
  auto got = f->file->read(who.offset, who.size);
  if (!got)
    who.reply->error(errno_of(got.error()));
  else if (*got)
    who.reply->data(**got);
  else if (who.nonblocking && !f->file->undecided())
    who.reply->error(EAGAIN);
  else
    return false;
  return true;
}

void Server::wait(Waiting who) {
  u32& mine = waiting_of_[who.uid];
  if (waiting_.size() >= options_.most_waiting || mine >= options_.most_waiting_of_a_user) {
    who.reply->error(EBUSY);
    return;
  }
  ++mine;
  waiting_.push_back(std::move(who));
  waiting_.back().reply->waits();
}

void Server::read(u64 handle, u64 offset, size_t size, bool nonblocking, bool cached, const Client& client, u64 token,
                  std::unique_ptr<Reply> reply) {
  File* const f = file(handle);
  if (f == nullptr) return reply->error(EBADF);
  if (cached || offset > u64{1} << 62) return reply->error(EINVAL);
  f->nonblocking = nonblocking;
  Waiting who{token, handle, client.uid, std::move(reply)};
  who.offset = offset;
  who.size = std::min(size, largest_read);
  who.nonblocking = nonblocking;
  if (!serve(who)) wait(std::move(who));
}

result<size_t> Server::write(u64 handle, std::string_view bytes, const Client& client) {
  File* const f = file(handle);
  if (f == nullptr) return fail(EBADF, "not open");
  if (bytes.size() > largest_read) return fail(EINVAL, "too much at a time");
  if (const auto last = f->last.lock(); last != nullptr && last->error.load(std::memory_order_acquire) < 0)
    return fail(EBUSY, "the write before it has not been answered yet");
  auto done = RS_TRY(f->file->write(bytes, client));
  f->last = f->job = done.job;
  return done.bytes;
}

void Server::command(u64 handle, u32 command, const Client& client, u64 token, std::unique_ptr<Reply> reply) {
  File* const f = file(handle);
  if (f == nullptr) return reply->error(EBADF);
  if (f->file->raw() == nullptr) return reply->error(ENOTTY);
  if (command == 0) {
    ++f->file->on().woken;
    return reply->done();
  }
  if (command != abi::get_reader_ioctl) return reply->error(ENOTTY);
  Waiting who{token, handle, client.uid, std::move(reply)};
  who.get_reader = true;
  // With O_NONBLOCK a client waits for nothing, so nothing has to be ready.
  who.nonblocking = f->nonblocking;
  who.woken = f->file->on().woken - (f->nonblocking ? 1 : 0);
  if (!serve(who)) wait(std::move(who));
}

u32 Server::poll(u64 handle, std::unique_ptr<Poller> poller) {
  File* const f = file(handle);
  if (f == nullptr) return EPOLLERR;
  const u32 percent = f->file->stream() ? f->file->on().buffer_percent : 0;
  if (poller) {
    f->poller = std::move(poller);
    pollers_ = true;
  }
  if (!f->file->ready(percent)) return 0;
  f->poller.reset();
  return events_readable | (f->file->over() ? EPOLLHUP : 0u) | (f->file->raw() != nullptr ? 0 : EPOLLOUT | EPOLLWRNORM);
}

void Server::flush(u64 handle) {
  File* const f = file(handle);
  if (f == nullptr || f->file->raw() == nullptr) return;
  // A close wakes all waiters at the ring, and ends the reads of this file.
  ++f->file->on().woken;
  for (Waiting& w : waiting_)
    if (w.handle == handle && !w.over && !w.get_reader) {
      w.reply->data("");
      w.over = true;
    }
}

void Server::release(u64 handle) {
  const auto found = files_.find(handle);
  if (found == files_.end()) return;
  for (Waiting& w : waiting_)
    if (w.handle == handle && !w.over) {
      w.reply->error(EBADF);
      w.over = true;
    }
  File& f = found->second;
  const std::shared_ptr<RingSet> keep = f.file->shared();
  if (is_busy(*f.file)) closing_[keep.get()] = std::move(f.file);
  const int backing = f.backing;
  const std::pair<const void*, u32> memory = f.memory;
  if (u32& mine = files_of_[f.uid]; mine == 0 || --mine == 0) files_of_.erase(f.uid);
  files_.erase(found);
  if (backing > 0) unmap(memory);
}

void Server::interrupt(u64 token) {
  for (Waiting& w : waiting_)
    if (w.token == token && !w.over) {
      w.reply->error(EINTR);
      w.over = true;
      return;
    }
}

void Server::turn(bool woken) {
  u64 count = 0;
  if (woken) (void)!::read(wake_.get(), &count, sizeof count);
  std::erase_if(closing_, [](const auto& one) { return !is_busy(*one.second); });
  for (size_t k = 0; k < jobs_.size();) {
    const int error = jobs_[k].first->error.load(std::memory_order_acquire);
    if (error < 0) {
      ++k;
      continue;
    }
    const auto answer = std::move(jobs_[k].second);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(k));
    answer(error);
  }
  if (waiting_.empty() && !pollers_) return;
  // Lists what the waiting requests need: the writers are asked first, the rings are read afterwards.
  std::map<RingSet*, u32> wanted;
  const auto want = [&](RingSet& on, u32 percent) {
    const auto [known, fresh] = wanted.try_emplace(&on, percent);
    if (!fresh) known->second = std::min(known->second, percent);
  };
  for (const Waiting& w : waiting_)
    if (const File* f = w.over ? nullptr : file(w.handle)) want(f->file->on(), w.get_reader ? f->file->on().buffer_percent : 0);
  pollers_ = false;
  for (const auto& [handle, f] : files_)
    if (f.poller) {
      want(f.file->on(), f.file->on().buffer_percent);
      pollers_ = true;
    }
  for (const auto& [on, percent] : wanted) on->alarm(static_cast<int>(percent), late_[on]);
  // Serve non-blocking requests first.
  std::stable_partition(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.nonblocking; });
  std::set<RingSet*> helped;
  for (Waiting& w : waiting_) {
    const File* f = file(w.handle);
    if (w.over || !serve(w)) continue;
    w.over = true;
    if (f != nullptr) helped.insert(&f->file->on());
  }
  for (auto& [handle, f] : files_)
    if (f.poller && f.file->ready(f.file->on().buffer_percent)) {
      std::exchange(f.poller, nullptr)->notify();
      helped.insert(&f.file->on());
    }
  late_.clear();
  for (const auto& [on, percent] : wanted) late_[on] = count != 0 && helped.count(on) == 0;
  for (const Waiting& w : waiting_)
    if (w.over)
      if (u32& mine = waiting_of_[w.uid]; mine == 0 || --mine == 0) waiting_of_.erase(w.uid);
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.over; }), waiting_.end());
}

}  // namespace ringside::mount
