#include "cli/writers.hpp"

#include <utility>

#include "cli/options.hpp"
#include "consumer/where.hpp"
#include "source/sample_rings.hpp"
#include "sys/try.hpp"

namespace ringside::cli {

result<void> find_writers(std::string& instance, std::vector<std::string>& remotes) {
  if (!instance.empty() && remotes.empty() && Where::now(instance).is_writer()) remotes.push_back(std::exchange(instance, ""));
  for (std::string& remote : remotes) {
    const Where where = Where::now(remote);
    if (!where.is_writer())
      return refuse(std::errc::no_such_file_or_directory,
                    "--remote " + remote + " is " + where.what() + ", and no external writer listens there");
    remote = where.socket;
  }
  if (remotes.size() > most_apart)
    throw UsageError{"--remote names " + std::to_string(remotes.size()) + " external writers; a recording takes " +
                     std::to_string(most_apart)};
  return {};
}

result<std::vector<std::unique_ptr<RemoteFeed>>> connect_writers(const std::vector<std::string>& sockets,
                                                                 const WriterOptions& options) {
  std::vector<std::unique_ptr<RemoteFeed>> all;
  for (const std::string& socket : sockets) {
    RemoteFeed::Options make;
    make.socket = socket;
    make.number = static_cast<u8>(1 + all.size());
    make.first_ring = first_apart_ring(make.number);
    make.events = options.events;
    make.attach.buffer.size = options.buffer_size;
    make.attach.buffer.rings = 0;  // as many as it has
    make.attach.buffer.subbuf_size = static_cast<u32>(options.subbuf_size);
    make.attach.buffer.clock = options.clock;
    make.notice = say;
    all.push_back(std::make_unique<RemoteFeed>(std::move(make)));
    RS_TRY(all.back()->connect());
  }
  return all;
}

}  // namespace ringside::cli
