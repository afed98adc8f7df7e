// Directories and files that another user may have made, or changes while we look.
//
// What is in a directory is believed if nobody but its owner can have put it there, and the owner may be believed:
//
//   where instances live    this user's
//   an instance             this user's; root works on another user's, too, when it is named by its path
//   what is in an instance  the same owner's as the instance
//   all three               group and others may not write
//
// What lies above is not asked (/dev/shm is everybody's): whoever can rename there can put another directory in the place, but that is judged
// by what it is, and from the descriptor that was judged on, nothing is found by its full path any more. On the way to it a symlink counts only
// if root or this user made it, so that nobody else leads us to a directory of our own.
//
// Below a directory no symlink, no ".." and no other file system is entered; only regular files and directories are opened; no open waits,
// as that of a FIFO would.
#pragma once
#include <fcntl.h>

#include "sys/sys.hpp"

namespace ringside::sys {

// What a directory is for. root: where instances live; other: anything, by whomever it was made.
enum class Role { root, instance, other };

// By the rules above; the descriptor finds things (O_PATH), and reads nothing.
result<Fd> open_trusted(const std::string& path, Role role);
// The same for a directory that is open. `path` for the sentence.
result<void> judge(int dir, const std::string& path, Role role);

// A name in a directory that is open: to make, to replace, to remove.
struct Entry {
  Fd dir;
  std::string name;
};
result<Entry> open_parent(const std::string& path);

// Opens `path` below `dir`: a regular file, or with O_DIRECTORY a directory. Empty: errno says why not. Signal-safe.
Fd open_beneath(int dir, const char* path, int flags, mode_t mode = 0600) noexcept;
// The same in an instance: what does not belong to the owner of `dir`, or others may write to, is refused (EPERM), and what is made here
// (O_CREAT, mode 0600) is the owner's. Signal-safe.
Fd open_owned(int dir, const char* path, int flags) noexcept;
// One that is there is fine. Signal-safe; of at most 255 bytes.
bool make_owned_directory(int dir, const char* path) noexcept;

// The error of an open that failed, in a sentence.
tl::unexpected<Error> fail_beneath(int error, const std::string& what);

result<std::string> read_beneath(int dir, const std::string& path);
result<std::string> read_owned(int dir, const std::string& path);
result<void> write_owned(int dir, const std::string& path, const std::string& text, bool append = false);
// Copies the written pages of a file; holes stay holes. The copy is new.
result<void> copy_owned(int from, const char* file, int to, const char* copy);

// A file that gets its name when it is whole. Until then it is NAME.new beside it, and is removed if it never comes to that.
class NewFile {
 public:
  static result<NewFile> create(const std::string& path, mode_t mode = 0600);
  static result<NewFile> create(int dir, const std::string& name, const std::string& path);  // `path` for the sentence
  NewFile(NewFile&&) = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();
  int fd() const noexcept { return fd_.get(); }
  result<void> put_in_place();

 private:
  NewFile() = default;
  static result<NewFile> create(Fd own, int dir, const std::string& name, const std::string& path, mode_t mode);
  Fd own_, fd_;  // the directory, if it is ours to close
  int dir_ = -1;
  std::string name_, path_;
};

// The names in a directory, but "." and "..".
result<std::vector<std::string>> names_in(int dir);
// Removes what has this name in `dir`, with all that is below it. False: errno says what stopped it; a part may be gone.
bool remove_beneath(int dir, const char* name) noexcept;
// Removes what is in the directory `dir`, which was called `name` in `parent` when it was opened, then the name if it is that of an empty one.
bool remove_opened(int parent, const char* name, int dir) noexcept;

}  // namespace ringside::sys
