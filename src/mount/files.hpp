// The tables of files: each file has a row, in files.cpp or, below remotes/, in remote_files.cpp.
#pragma once
#include <span>

#include "mount/tree.hpp"

namespace ringside::mount {

using Text = result<std::string>;
using WriteResult = result<Written>;
using Handle = result<std::unique_ptr<OpenFile>>;

// The answer to a write that makes no sense.
inline tl::unexpected<Error> invalid() { return fail(EINVAL, "this is not taken here"); }

// The files that are shown in a directory.
void for_each_file(const Node& in, const std::function<void(const FileType&)>& use);
const FileType* file_of(const Node& in, const std::string& name);
std::span<const FileType> remote_files();  // remote_files.cpp

// Files that belong to every kind of rings.
Text read_stats(const Node& at);
Text read_header_event(const Node& at);
Text read_enable_all(const Node& at);
Text read_enable_system(const Node& at);
Text read_enable(const Node& at);
Handle open_trace(const Node& at, const Opening& how);
Handle open_pipe(const Node& at, const Opening& how);
Handle open_raw(const Node& at, const Opening& how);

// Parsed like numbers that users write to the kernel's files: digits, one newline may follow.
std::optional<u64> number(std::string_view text);

}  // namespace ringside::mount
