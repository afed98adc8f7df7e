// A recording as one file: a tar (POSIX.1-1988, ustar; sizes from 8 GiB on as GNU tar has them), which every command reads as
// it reads the recording.
#pragma once
#include <functional>
#include <ringside/base/result.hpp>
#include <string>
#include <string_view>

namespace ringside {

// folder: the directory in the tar. write: gets the bytes in their order; its first error ends it.
result<void> recording_as_tar(const std::string& dir, std::string folder,
                              const std::function<result<void>(std::string_view)>& write);

}  // namespace ringside
