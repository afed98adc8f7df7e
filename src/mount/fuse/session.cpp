#define FUSE_USE_VERSION 314
#include "mount/fuse/session.hpp"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "instance/instance.hpp"
#include "mount/fuse/rights.hpp"
#include "sys/beneath.hpp"
#include "sys/text.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::mount {
namespace {

// From linux/fuse.h 7.40, which is newer than Debian's.
struct BackingMap {
  i32 fd;
  u32 flags;
  u64 padding;
};
constexpr unsigned long backing_open = _IOW(229, 1, BackingMap), backing_close = _IOW(229, 2, u32);
constexpr u32 init_ext = u32{1} << 30, passthrough_flags2 = u32{1} << 5, open_passthrough = u32{1} << 7;
constexpr size_t header_size = 16, init_flags_at = 12, init_flags2_at = 32, init_depth_at = 36;
constexpr size_t open_flags_at = 8, open_backing_at = 12, open_size = 16, small_answer = 128;

constexpr u32 largest_write = 1 << 20;
constexpr size_t request_size = largest_write + 4096;  // with its headers

// The parts missing in the answer that libfuse is about to write. One session, one thread.
thread_local bool answering_init = false;
thread_local int answering_open = 0;

void patch(u8* at, u32 bits) {
  u32 word;
  std::memcpy(&word, at, sizeof word);
  word |= bits;
  std::memcpy(at, &word, sizeof word);
}

ssize_t write_answer(int fd, iovec* parts, int count, void*) {
  // A short answer goes out in one piece: the kernel pins the memory of each piece by itself.
  u8 all[small_answer];
  if (count != 2 || parts[0].iov_len != header_size || parts[1].iov_len > sizeof all - header_size)
    return writev(fd, parts, count);
  u8* const body = all + header_size;
  const size_t size = parts[1].iov_len;
  std::memcpy(all, parts[0].iov_base, header_size);
  std::memcpy(body, parts[1].iov_base, size);
  if (answering_init && size >= init_depth_at + 4) {
    patch(body + init_flags_at, init_ext);
    patch(body + init_flags2_at, passthrough_flags2);
    const u32 depth = 1;
    std::memcpy(body + init_depth_at, &depth, sizeof depth);
  } else if (answering_open > 0 && size == open_size) {
    patch(body + open_flags_at, open_passthrough);
    std::memcpy(body + open_backing_at, &answering_open, sizeof answering_open);
  }
  return ::write(fd, all, header_size + size);
}
ssize_t read_request(int fd, void* buffer, size_t size, void*) { return ::read(fd, buffer, size); }

Server& server_of(fuse_req_t request) { return *static_cast<std::unique_ptr<Server>*>(fuse_req_userdata(request))->get(); }
Client client_of(fuse_req_t request) {
  const fuse_ctx* const c = fuse_req_ctx(request);
  return {c->uid, c->pid};
}
u64 token_of(fuse_req_t request) { return reinterpret_cast<u64>(request); }

void interrupted(fuse_req_t request, void*) { server_of(request).interrupt(token_of(request)); }

class FuseReply final : public Reply {
 public:
  explicit FuseReply(fuse_req_t request, bool is_command = false) : request_(request), is_command_(is_command) {}
  ~FuseReply() override {
    if (request_ != nullptr) error(EIO);
  }
  void error(int number) override { fuse_reply_err(take(), number); }
  void data(std::string_view bytes) override { fuse_reply_buf(take(), bytes.data(), bytes.size()); }
  void done() override {
    if (is_command_)
      fuse_reply_ioctl(take(), 0, nullptr, 0);
    else
      fuse_reply_err(take(), 0);
  }
  void waits() override { fuse_req_interrupt_func(request_, interrupted, nullptr); }

 private:
  fuse_req_t take() { return std::exchange(request_, nullptr); }
  fuse_req_t request_;
  bool is_command_;
};

class FusePoller final : public Poller {
 public:
  explicit FusePoller(fuse_pollhandle* handle) : handle_(handle) {}
  ~FusePoller() override { fuse_pollhandle_destroy(handle_); }
  void notify() override { fuse_lowlevel_notify_poll(handle_); }

 private:
  fuse_pollhandle* handle_;
};

void fill(struct stat& to, const Stat& from) {
  to = {};
  to.st_ino = from.inode;
  to.st_mode = from.mode;
  to.st_nlink = from.links;
  to.st_uid = from.uid;
  to.st_gid = from.gid;
  to.st_size = static_cast<off_t>(from.size);
  to.st_blksize = 4096;
  static const time_t since = time(nullptr);
  to.st_atime = to.st_mtime = to.st_ctime = since;
}

// Instances come and go; the content of one stays while it is there.
constexpr double lasting = 60;
void reply_entry(fuse_req_t request, const result<Stat>& found) {
  if (!found) {
    fuse_reply_err(request, errno_of(found.error()));
    return;
  }
  fuse_entry_param entry{};
  entry.ino = found->inode;
  fill(entry.attr, *found);
  entry.entry_timeout = found->lasting ? lasting : 0;
  entry.attr_timeout = lasting;
  fuse_reply_entry(request, &entry);
}

void on_init(void*, fuse_conn_info* connection) {
  connection->want |= connection->capable & FUSE_CAP_ATOMIC_O_TRUNC;
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                                             FUSE_CAP_ASYNC_READ | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_READDIRPLUS);
  connection->max_readahead = 0;
  connection->max_write = largest_write;
  answering_init = true;
}
void on_lookup(fuse_req_t r, fuse_ino_t parent, const char* name) { reply_entry(r, server_of(r).lookup(parent, name)); }
void on_forget(fuse_req_t r, fuse_ino_t inode, u64 times) {
  server_of(r).forget(inode, times);
  fuse_reply_none(r);
}
void on_getattr(fuse_req_t r, fuse_ino_t inode, fuse_file_info*) {
  auto found = server_of(r).attributes(inode);
  if (!found) {
    fuse_reply_err(r, errno_of(found.error()));
    return;
  }
  struct stat st {};
  fill(st, *found);
  fuse_reply_attr(r, &st, lasting);
}
// Truncating and touching have no effect.
void on_setattr(fuse_req_t r, fuse_ino_t inode, struct stat* wanted, int what, fuse_file_info* file) {
  Owner to;
  if ((what & FUSE_SET_ATTR_UID) != 0) to.uid = wanted->st_uid;
  if ((what & FUSE_SET_ATTR_GID) != 0) to.gid = wanted->st_gid;
  if ((what & FUSE_SET_ATTR_MODE) != 0) to.mode = wanted->st_mode;
  if (to.uid || to.gid || to.mode)
    if (auto changed = server_of(r).change(inode, to, client_of(r)); !changed) {
      fuse_reply_err(r, errno_of(changed.error()));
      return;
    }
  on_getattr(r, inode, file);
}
void on_mkdir(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t) {
  reply_entry(r, server_of(r).make_directory(parent, name, client_of(r)));
}
void on_rmdir(fuse_req_t r, fuse_ino_t parent, const char* name) {
  auto done = server_of(r).remove_directory(parent, name);
  fuse_reply_err(r, done ? 0 : errno_of(done.error()));
}

struct Listing {
  std::vector<Listed> all;
  Client client;
};
void on_opendir(fuse_req_t r, fuse_ino_t inode, fuse_file_info* file) {
  Server& server = server_of(r);
  auto counted = server.count_directory(client_of(r));
  if (!counted) {
    fuse_reply_err(r, errno_of(counted.error()));
    return;
  }
  auto all = server.list(inode);
  if (!all) {
    server.uncount_directory(client_of(r));
    fuse_reply_err(r, errno_of(all.error()));
    return;
  }
  auto* const listing = new Listing{std::move(*all), client_of(r)};
  listing->all.insert(listing->all.begin(), {{".", true}, {"..", true}});
  file->fh = reinterpret_cast<u64>(listing);
  if (fuse_reply_open(r, file) != 0) {  // the client is gone
    server.uncount_directory(listing->client);
    delete listing;
  }
}
void on_readdir(fuse_req_t r, fuse_ino_t, size_t size, off_t offset, fuse_file_info* file) {
  const auto& all = reinterpret_cast<const Listing*>(file->fh)->all;
  std::vector<char> out(std::min<size_t>(size, 1 << 16));
  size_t used = 0;
  for (auto i = static_cast<size_t>(std::max<off_t>(offset, 0)); i < all.size(); ++i) {
    struct stat st {};
    st.st_ino = 0xFFFFFFFF;  // libfuse's value for "not known"
    st.st_mode = all[i].directory ? S_IFDIR : S_IFREG;
    const size_t n =
        fuse_add_direntry(r, out.data() + used, out.size() - used, all[i].name.c_str(), &st, static_cast<off_t>(i + 1));
    if (n > out.size() - used) break;
    used += n;
  }
  fuse_reply_buf(r, out.data(), used);
}
void on_releasedir(fuse_req_t r, fuse_ino_t, fuse_file_info* file) {
  auto* const listing = reinterpret_cast<Listing*>(file->fh);
  server_of(r).uncount_directory(listing->client);
  delete listing;
  fuse_reply_err(r, 0);
}

void reply_open(fuse_req_t r, Server& server, fuse_file_info* file, const result<Opened>& opened) {
  if (!opened) {
    fuse_reply_err(r, errno_of(opened.error()));
    return;
  }
  file->fh = opened->handle;
  file->direct_io = 1;
  file->nonseekable = opened->stream && opened->backing <= 0 ? 1 : 0;  // the kernel refuses this flag with passthrough
  answering_open = opened->backing;
  const int gone = fuse_reply_open(r, file);
  answering_open = 0;
  if (gone != 0) server.release(opened->handle);
}
void on_open(fuse_req_t r, fuse_ino_t inode, fuse_file_info* file) {
  Server& server = server_of(r);
  auto opened = server.open(inode, file->flags, client_of(r));
  const auto job = opened ? server.job(opened->handle) : nullptr;
  if (job == nullptr) return reply_open(r, server, file, opened);
  server.when(job, [r, &server, copy = *file, handle = opened->handle](int error) mutable {
    reply_open(r, server, &copy, server.finish(handle, error));
  });
}
void on_read(fuse_req_t r, fuse_ino_t, size_t size, off_t offset, fuse_file_info* file) {
  // A read of the page cache has no owner, a program's read has one.
  server_of(r).read(file->fh, static_cast<u64>(offset), size, (file->flags & O_NONBLOCK) != 0, file->lock_owner == 0,
                    client_of(r), token_of(r), std::make_unique<FuseReply>(r));
}
void on_write(fuse_req_t r, fuse_ino_t, const char* bytes, size_t size, off_t, fuse_file_info* file) {
  auto done = server_of(r).write(file->fh, {bytes, size}, client_of(r));
  if (auto job = done ? server_of(r).job(file->fh) : nullptr)
    server_of(r).when(std::move(job),
                      [r, n = *done](int error) { error != 0 ? fuse_reply_err(r, error) : fuse_reply_write(r, n); });
  else if (done)
    fuse_reply_write(r, *done);
  else
    fuse_reply_err(r, errno_of(done.error()));
}
void on_ioctl(fuse_req_t r, fuse_ino_t, unsigned command, void*, fuse_file_info* file, unsigned, const void*, size_t, size_t) {
  server_of(r).command(file->fh, command, client_of(r), token_of(r),
                       std::make_unique<FuseReply>(r, true));
}
void on_poll(fuse_req_t r, fuse_ino_t, fuse_file_info* file, fuse_pollhandle* handle) {
  fuse_reply_poll(r, server_of(r).poll(file->fh, handle != nullptr ? std::make_unique<FusePoller>(handle) : nullptr));
}
void on_flush(fuse_req_t r, fuse_ino_t, fuse_file_info* file) {
  server_of(r).flush(file->fh);
  fuse_reply_err(r, 0);
}
void on_release(fuse_req_t r, fuse_ino_t, fuse_file_info* file) {
  server_of(r).release(file->fh);
  fuse_reply_err(r, 0);
}
void on_statfs(fuse_req_t r, fuse_ino_t) {
  struct statvfs st {};
  st.f_bsize = 4096;
  st.f_namemax = 255;
  fuse_reply_statfs(r, &st);
}

const fuse_lowlevel_ops operations = [] {
  fuse_lowlevel_ops o{};
  o.init = on_init;
  o.lookup = on_lookup;
  o.forget = on_forget;
  o.getattr = on_getattr;
  o.setattr = on_setattr;
  // The kernel's answers to attempts to change the tree.
  o.unlink = [](fuse_req_t r, fuse_ino_t, const char*) { fuse_reply_err(r, EPERM); };
  o.symlink = [](fuse_req_t r, const char*, fuse_ino_t, const char*) { fuse_reply_err(r, EPERM); };
  o.rename = [](fuse_req_t r, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned) { fuse_reply_err(r, EPERM); };
  o.mknod = [](fuse_req_t r, fuse_ino_t, const char*, mode_t, dev_t) { fuse_reply_err(r, EACCES); };  // and open(.., O_CREAT)
  o.mkdir = on_mkdir;
  o.rmdir = on_rmdir;
  o.opendir = on_opendir;
  o.readdir = on_readdir;
  o.releasedir = on_releasedir;
  o.open = on_open;
  o.read = on_read;
  o.write = on_write;
  o.ioctl = on_ioctl;
  o.poll = on_poll;
  o.flush = on_flush;
  o.release = on_release;
  o.statfs = on_statfs;
  return o;
}();

pid_t start(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  return child;
}
// Runs a program; returns its exit code.
int run(const std::vector<std::string>& words) {
  const pid_t child = start(words);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

// What unmount_at_once() unmounts; "": nothing.
char mounted_at[PATH_MAX];
void remember_mount(const std::string& dir) {
  if (dir.size() >= sizeof mounted_at) return;
  std::copy(dir.begin() + 1, dir.end(), mounted_at + 1);
  std::atomic_signal_fence(std::memory_order_release);
  mounted_at[0] = dir[0];
}
void forget_mount() { mounted_at[0] = '\0'; }

bool unmount_lazily(const std::string& dir) {
  return umount2(dir.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || run({"fusermount3", "-uz", dir}) == 0;
}

// Is the last thing mounted at `dir` a file system of this program? By the kernel's list: the directory itself may not answer.
bool is_ours(const std::string& dir) {
  std::ifstream list("/proc/self/mountinfo");
  std::string line, last;
  while (std::getline(list, line)) {
    std::istringstream words(line);
    std::string word, at;
    for (int i = 0; i < 5 && words >> word; ++i) at = word;
    if (at == dir) last = line;
  }
  return last.find(" - fuse.ringside ") != std::string::npos;
}

// The absolute path of `dir`, also if its last component is a dead mount.
std::string absolute(const std::string& dir) {
  char path[PATH_MAX];
  if (realpath(dir.c_str(), path) != nullptr) return path;
  std::string clean = dir;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  const size_t slash = clean.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : clean.substr(0, slash);
  if (realpath(parent.c_str(), path) == nullptr) return clean;
  const std::string name = slash == std::string::npos ? clean : clean.substr(slash + 1);
  return (std::strcmp(path, "/") == 0 ? "" : std::string(path)) + "/" + name;
}

result<void> make_way(const std::string& dir) {
  for (int i = 0; i < 16 && is_ours(dir); ++i) {
    struct statvfs st {};  // the kernel may remember a file's status without its server, but not this
    if (statvfs(dir.c_str(), &st) == 0)
      return refuse(std::errc::device_or_resource_busy, dir + " is mounted already, and its server is there");
    if (errno != ENOTCONN) break;
    if (!unmount_lazily(dir)) return fail(errno, "cannot unmount " + dir + ", whose server is gone");
  }
  // A server that searches for instances at its own mount point would wait for itself; not even SIGKILL ends that.
  const std::string root = absolute(instances_root());
  if (dir == root || dir.rfind(root + "/", 0) == 0)
    return refuse(std::errc::invalid_argument,
                  "cannot mount at " + dir + ": " + root + " is where instances live; choose a directory outside");
  struct stat st {};
  if (stat(dir.c_str(), &st) != 0) return fail(errno, "cannot mount at " + dir);
  if (!S_ISDIR(st.st_mode)) return fail(ENOTDIR, "cannot mount at " + dir);
  const auto opened = RS_TRY(sys::open_trusted(dir, sys::Role::other));
  const auto names = RS_TRY(sys::names_in(opened.get()));
  if (!names.empty())
    return refuse(std::errc::directory_not_empty, "cannot mount at " + dir + ": it holds \"" + sys::printable(names.front()) +
                                                      "\", which the mount would hide; choose an empty directory");
  return {};
}

}  // namespace

// The connection is cut first: this process answers nothing more. Nor does it wait for the program that may unmount for a user,
// or call fork(), which takes locks that the interrupted code may hold.
void unmount_at_once() {
  if (mounted_at[0] == '\0' || umount2(mounted_at, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0) return;
  if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0) return;
  execlp("fusermount3", "fusermount3", "-uz", mounted_at, nullptr);
  _exit(127);
}

result<std::unique_ptr<Session>> Session::mount(const std::string& wanted, const SessionOptions& options) {
  const std::string dir = absolute(wanted);
  RS_TRY(make_way(dir));
  if (access("/dev/fuse", F_OK) != 0) return fail(errno, "/dev/fuse is missing (modprobe fuse)");
  if (access("/dev/fuse", R_OK | W_OK) != 0)
    return fail(errno, "/dev/fuse is not open to this user (its mode is 0666 elsewhere)");
  std::unique_ptr<Session> session(new Session);
  session->dir_ = dir;
  session->automatic_ = options.automatic;
  Session* const s = session.get();
  Backing backing;
  backing.add = [s](int fd) {
    const WithRights rights;
    BackingMap map{fd, 0, 0};
    const int id = ioctl(fuse_session_fd(s->session_), backing_open, &map);
    return id > 0 ? id : id < 0 ? -errno : -EINVAL;
  };
  backing.remove = [s](int id) {
    const WithRights rights;
    const u32 number = static_cast<u32>(id);
    ioctl(fuse_session_fd(s->session_), backing_close, &number);
  };
  session->server_ = RS_TRY(Server::create(options.server, std::move(backing)));
  std::vector<std::string> words{
      "ringside", "-o",
      std::string("fsname=ringside,subtype=ringside,default_permissions") + (options.others ? ",allow_other" : "")};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  fuse_args args = FUSE_ARGS_INIT(static_cast<int>(argv.size()), argv.data());
  session->session_ = fuse_session_new(&args, &operations, sizeof operations, &session->server_);
  fuse_opt_free_args(&args);
  if (session->session_ == nullptr) return refuse(std::errc::invalid_argument, "libfuse does not make a session");
  if (fuse_session_mount(session->session_, dir.c_str()) != 0)
    return refuse(std::errc::operation_not_permitted,
                  "cannot mount at " + dir +
                      (options.others && geteuid() != 0 ? " (--allow-other wants user_allow_other in /etc/fuse.conf)" : "") +
                      "; without root it takes fusermount3, of the package fuse3");
  session->mounted_ = true;
  remember_mount(dir);
  fuse_custom_io io{};
  io.writev = write_answer;
  io.read = read_request;
  const int fd = fuse_session_fd(session->session_);
  if (const int done = fuse_session_custom_io(session->session_, &io, fd); done != 0)
    return fail(-done, "libfuse takes no hook");
  session->requests_ = RS_TRY(sys::quiet_thread("that answers", [s] { s->answer(); }));
  return session;
}

Session::~Session() {
  if (requests_.joinable()) {
    pthread_cancel(requests_.native_handle());
    requests_.join();
  }
  if (session_ != nullptr) {
    server_.reset();  // answers all that wait, while the connection is there
    if (mounted_) {
      if (unmounting_ > 0) waitpid(unmounting_, nullptr, 0);
      forget_mount();  // soon another file system may be the last one there
      fuse_session_unmount(session_);
      if (is_ours(dir_)) unmount_lazily(dir_);
    }
    fuse_session_destroy(session_);
  }
}

// There was a client once, and for a second none has opened anything or has anything open.
bool Session::unused() {
  const u64 now = sys::now_ns(), opened = server_->opened();
  if (server_->open_files() != 0 || opened != opened_) unused_since_ns_ = now;
  opened_ = opened;
  if (opened == 0 || now - unused_since_ns_ < 1'000'000'000) return false;
  unused_since_ns_ = now;  // a process that is merely in it is found by umount, which is tried once a second
  return true;
}

// Waits in read() and for nothing else: a poll() before it would cost a client that asks continuously a tenth of its time.
void Session::answer() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  const int fd = fuse_session_fd(session_);
  std::vector<char> request(request_size);
  for (;;) {
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);  // by the destructor, here alone
    const ssize_t n = ::read(fd, request.data(), request.size());
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    const int why = n < 0 ? errno : 0;
    if (why == EINTR || why == EAGAIN || why == ENOENT) continue;  // ENOENT: the process that asked has gone
    const std::lock_guard lock(mutex_);
    if (n > 0) {
      fuse_buf buffer{};
      buffer.mem = request.data();
      buffer.size = static_cast<size_t>(n);
      fuse_session_process_buf(session_, &buffer);
      answering_init = false;
    }
    if (n <= 0 || fuse_session_exited(session_) != 0) {
      over_ = true;
      mounted_ = n > 0;  // else another process has unmounted it
      if (!mounted_) forget_mount();
      eventfd_write(server_->wake_fd(), 1);
      return;
    }
    // One request, then the waiting ones: neither starves the other.
    server_->turn(false);
  }
}

std::string Session::unmapped() {
  const std::lock_guard lock(mutex_);
  return server_->unmapped();
}

result<bool> Session::turn(int timeout_ms) {
  pollfd ready{server_->wake_fd(), POLLIN, 0};
  if (poll(&ready, 1, automatic_ ? std::min(timeout_ms, 200) : timeout_ms) < 0 && errno != EINTR)
    return fail(errno, "cannot wait for requests");
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  server_->turn(ready.revents != 0);
  // Another process unmounts, without a wait for it: the kernel may ask this one something on its behalf.
  if (unmounting_ > 0 && waitpid(unmounting_, nullptr, WNOHANG) != 0) unmounting_ = -1;
  if (automatic_ && unmounting_ <= 0 && unused())
    unmounting_ = geteuid() == 0 ? start({"umount", "-i", dir_}) : start({"fusermount3", "-u", dir_});
  return true;
}

}  // namespace ringside::mount
