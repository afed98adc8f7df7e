// Directories and files that another user may have made, or may change meanwhile.
//
// The content of a directory is trusted if only its owner can have put it there, and the owner is trusted:
//
//   where instances live    this user's
//   an instance             this user's; root works on another user's, too, when it is named by its path
//   a file in an instance   the instance's owner's
//   all three               group and others may not write
//
// Directories above are not checked (/dev/shm is everybody's): a user who can rename there can replace the directory, but the
// new one is judged by the same rules, and after a descriptor is judged, nothing is looked up by its full path. A
// symlink on the way counts only if root or this user made it, so that no other user can lead to a directory of this user's.
//
// Below a directory no symlink, no ".." and no other file system is entered; only regular files and directories are opened; no
// open waits, as a FIFO's would.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include <optional>

#include "sys/sys.hpp"

namespace ringside::sys {

// The use of a directory. root: where instances live, or an instance that the environment names: of this user's own. instance:
// root may use another user's. other: anything, made by any user.
enum class Role { root, instance, other };

// Opens by the rules above; the descriptor is for lookups only (O_PATH).
result<Fd> open_trusted(const std::string& path, Role role);
// The same for an open directory. `path` is for the error's sentence.
result<void> judge(int dir, const std::string& path, Role role);

// A name in an open directory: to make, to replace, to remove.
struct Entry {
  Fd dir;
  std::string name;
};
result<Entry> open_parent(const std::string& path);

// Opens `path` below `dir`: a regular file, or with O_DIRECTORY a directory. Empty: errno has the reason. Signal-safe.
Fd open_beneath(int dir, const char* path, int flags, mode_t mode = 0600) noexcept;
// The same in an instance: refuses (EPERM) a file that does not belong to the owner of `dir` or that others may write to; a new
// file (O_CREAT, mode 0600) gets that owner. Signal-safe.
Fd open_owned(int dir, const char* path, int flags) noexcept;
// The directory; an existing one is fine. Empty: errno has the reason. Signal-safe; a path of at most 255 bytes.
Fd make_owned_directory(int dir, const char* path) noexcept;

// The error of a failed open, as a sentence.
tl::unexpected<Error> fail_beneath(int error, const std::string& what);

result<std::string> read_beneath(int dir, const std::string& path);
result<std::string> read_owned(int dir, const std::string& path);
result<void> write_owned(int dir, const std::string& path, const std::string& text, bool append = false);
// Copies the written pages of a file; holes stay holes. The copy is new.
result<void> copy_owned(int from, const char* file, int to, const char* copy);

// Where a file that the user names goes: past the symlinks at the end of its path, which must belong to root or this user.
struct Output {
  Entry entry;                   // past the symlinks
  std::string path;
  std::optional<mode_t> mode{};  // of this user's file that is there, and is replaced
  // A device, a FIFO, a socket, or an open file that a link on procfs leads to: it is never replaced, but may be written into.
  bool special = false;
  bool linked = false;           // by procfs
  int descriptor = -1;           // the one of this process that it leads to
  struct stat found {};          // a special one
  static result<Output> at(std::string path);
  // A special one, as it was found; a file is not cut. Empty: a FIFO that nobody reads yet, without `wait`. From now on a write
  // into a broken pipe fails.
  result<Fd> open(bool wait = true) const;
  tl::unexpected<Error> refused() const;  // of a special one, by a format that needs a file
};

// A file that gets its name when it is complete. Until then it is NAME.new, which is removed if the file is never completed.
class NewFile {
 public:
  static result<NewFile> create(const std::string& path, mode_t mode = 0600);
  static result<NewFile> create(int dir, const std::string& name, const std::string& path);  // `path`: for the error
  // In the place of an Output's file, whose mode it keeps. Until then it is NAME.partPID: several processes may write one. An
  // error where that is special.
  static result<NewFile> replace(const std::string& path, mode_t mode = 0600);
  // The same, or a special one, opened, which has its name. fd() < 0: see Output::open.
  static result<NewFile> into(const std::string& path, mode_t mode, bool wait = true);
  NewFile(NewFile&&) = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();
  int fd() const noexcept { return fd_.get(); }
  result<void> take_name();     // before it is complete
  result<void> put_in_place();  // and close it

 private:
  NewFile() = default;
  static result<NewFile> create(Fd own, int dir, const std::string& name, const std::string& path, mode_t mode,
                                const std::string& ending = ".new");
  static result<NewFile> replace(Output to, mode_t mode);
  Fd own_, fd_;  // the directory, if this object closes it
  int dir_ = -1;
  bool named_ = false;
  std::string name_, fresh_, path_;
};

// The names in a directory, except "." and "..".
result<std::vector<std::string>> names_in(int dir);
// Removes this name in `dir`, with everything below it. False: errno has the reason; a part may be gone.
bool remove_beneath(int dir, const char* name) noexcept;
// Removes the content of the directory `dir`, which was `name` in `parent` when it was opened, then the name if its directory
// is empty.
bool remove_opened(int parent, const char* name, int dir) noexcept;

}  // namespace ringside::sys
