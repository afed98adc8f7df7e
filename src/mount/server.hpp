// The mount's answers, request by request, however requests come (session.hpp): inodes, open files, waiting requests.
//
//   auto server = must(Server::create(options, backing));
//   ... lookup, open, read, ... as the kernel asks ...
//   server->turn();                    // when wake_fd() is readable, and after each request: answers those who have waited
//
// Clients are not trusted. Only two things wait: a request that says so (read, GET_READER), which holds only its place in a
// bounded queue, and a task of an external writer, one for each open file. Each user has a share of places and open files, and
// leaves room for others. Every size and number in a request is checked before use. One thread at a time.
#pragma once
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "mount/tree.hpp"

namespace ringside::mount {

inline constexpr u64 root_inode = 1;

// Answers a request, once.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void error(int errno_value) = 0;
  virtual void data(std::string_view bytes) = 0;
  virtual void done() = 0;  // for a command
  virtual void waits() {}   // from now on interrupt() may come
};

// A client that is notified when a file becomes ready.
class Poller {
 public:
  virtual ~Poller() = default;
  virtual void notify() = 0;
};

// The owner, the group and the mode of a file; those that are not given have their defaults.
struct Owner {
  std::optional<u32> uid{}, gid{}, mode{};
};

struct ServerOptions {
  std::vector<std::string> instances;  // see Tree::create
  std::vector<std::string> remotes;    // NAME=SOCKET
  u32 cpus = 0;                        // see Tree::create; 0: as many as the machine may have processors
  std::chrono::nanoseconds patience = std::chrono::seconds(1);  // how long an external writer may take to answer
  bool others = false;                 // modes let other users read (never write)
  Owner owner{};                       // uid and gid of all files, and the mode of the top directory
  u32 most_files = 4096, most_files_of_a_user = 512;
  u32 most_waiting = 1024, most_waiting_of_a_user = 256;
};

// Lets the kernel map the file of `fd` when a client maps a file: a number above 0, or a negative errno.
struct Backing {
  std::function<int(int fd)> add;
  std::function<void(int id)> remove;
};

struct Stat {
  u64 inode = 0;
  u32 mode = 0;  // with the type
  u32 uid = 0, gid = 0;
  u32 links = 1;
  u64 size = 0;
  bool lasting = false;  // its name is valid as long as its directory is there
};

struct Opened {
  u64 handle = 0;
  int backing = 0;  // above 0: mapped through this
  bool stream = false;  // no offsets
};

class Server {
 public:
  static result<std::unique_ptr<Server>> create(const ServerOptions& options, Backing backing);
  ~Server();

  // Each returns an errno in its error's code. The entry that lookup or make_directory returns counts until it is forgotten.
  result<Stat> lookup(u64 parent, const std::string& name);
  void forget(u64 inode, u64 times);
  result<Stat> attributes(u64 inode) const;
  // chown and chmod: root and the mount's user may. They last as long as the mount does; what mkdir makes below instances/ gets
  // the owner and the group of that directory.
  result<Stat> change(u64 inode, const Owner& to, const Client& client);
  result<std::vector<Listed>> list(u64 inode);
  result<Stat> make_directory(u64 parent, const std::string& name, const Client& client);
  result<void> remove_directory(u64 parent, const std::string& name);
  // Each file's row of the table says what open(.., O_TRUNC) means to it; truncate() alone has no effect. If job() then names a
  // running job, finish() finishes the open, or closes the file if the job failed.
  result<Opened> open(u64 inode, int flags, const Client& client);
  result<Opened> finish(u64 handle, int error);
  // A directory's listing takes a place among the open files.
  result<void> count_directory(const Client& client);
  void uncount_directory(const Client& client);

  // cached: for the page cache (splice does that), which cannot be right here: EINVAL. token: for interrupt().
  void read(u64 handle, u64 offset, size_t size, bool nonblocking, bool cached, const Client& client, u64 token,
            std::unique_ptr<Reply> reply);
  result<size_t> write(u64 handle, std::string_view bytes, const Client& client);
  // The job of the last open or write: that is answered when the job is over. Null: at once.
  std::shared_ptr<Job> job(u64 handle);
  void when(std::shared_ptr<Job> job, std::function<void(int error)> answer);
  // Whether it may wait depends on how the file was opened, or on its last read: an ioctl does not carry its file's flags.
  void command(u64 handle, u32 command, const Client& client, u64 token, std::unique_ptr<Reply> reply);
  u32 poll(u64 handle, std::unique_ptr<Poller> poller);  // the present events
  void flush(u64 handle);
  void release(u64 handle);
  void interrupt(u64 token);

  // woken: wake_fd() may be readable.
  void turn(bool woken = true);
  int wake_fd() const { return wake_.get(); }
  size_t open_files() const { return files_.size() + directories_; }
  u64 opened() const { return opened_; }  // ever
  size_t waiting() const { return waiting_.size(); }
  const Node& root() const { return root_; }
  // Why the rings cannot be mapped, once, for the log; empty: they can.
  std::string unmapped() { return std::exchange(unmapped_, ""); }

 private:
  struct Inode {
    Node node;
    std::string path;
    u64 known = 0;  // how often the kernel has learned of it
  };
  struct File {
    std::unique_ptr<OpenFile> file;
    u32 uid = 0;
    int backing = 0;
    std::pair<const void*, u32> memory{};  // with a backing
    bool nonblocking = false;
    std::shared_ptr<Job> job;  // its running job, until a request asks for it
    std::weak_ptr<Job> last;   // the last write's job: one at a time
    std::unique_ptr<Poller> poller;
  };
  struct Waiting {
    u64 token = 0;
    u64 handle = 0;
    u32 uid = 0;
    std::unique_ptr<Reply> reply;
    bool get_reader = false, nonblocking = false;
    u64 offset = 0;
    size_t size = 0;
    u64 woken = 0;  // RingSet::woken when it came
    bool over = false;
  };
  struct Mapped {
    int id = 0;
    u32 users = 0;
  };
  Server(const ServerOptions& options, Backing backing) : options_(options), backing_(std::move(backing)) {}
  result<const Node*> node(u64 inode) const;
  result<u32*> room_for(const Client& client);  // the count of that user's open files, which may grow by one
  Stat stat_of(u64 inode, const Node& at, const std::string& path) const;
  Stat enter(const Node& at, std::string path);
  std::string path_of(u64 inode) const { return inodes_.at(inode).path; }  // of a known one
  void forget_owners(const std::string& path);
  result<int> map(RawFile& raw);
  void unmap(std::pair<const void*, u32> memory);
  bool serve(Waiting& who);  // true: answered
  void wait(Waiting who);
  File* file(u64 handle);

  ServerOptions options_;
  Backing backing_;
  sys::Fd wake_;  // outlives the tree, whose threads signal it
  std::unique_ptr<Tree> tree_;
  Node root_;
  std::unordered_map<u64, Inode> inodes_;
  std::unordered_map<std::string, u64> by_path_;
  std::map<std::string, Owner> owners_;     // by path: those that were changed
  std::map<std::string, Owner> inherited_;  // by the path of an instance, for all below it
  u64 next_inode_ = root_inode + 1, next_handle_ = 1;
  std::map<u64, File> files_;
  std::map<const RingSet*, std::unique_ptr<OpenFile>> closing_;  // what their end does is not possible yet: one is enough
  std::map<u32, u32> files_of_, waiting_of_;  // by user
  u32 directories_ = 0;
  std::shared_ptr<Streams> streams_ = std::make_shared<Streams>();
  u64 opened_ = 0;
  std::vector<Waiting> waiting_;
  std::vector<std::pair<std::shared_ptr<Job>, std::function<void(int error)>>> jobs_;
  std::map<std::pair<const void*, u32>, Mapped> mapped_;
  std::map<RingSet*, bool> late_;  // the last alarm helped no request
  std::string unmapped_;
  bool cannot_map_ = false;
  bool pollers_ = false;  // there may be some
};

}  // namespace ringside::mount
