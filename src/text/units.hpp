// Sizes and times as people write and read them.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

#include "source/account.hpp"

namespace ringside {

// "4096", "64k", "8M", "1G", "1.5G"; also KiB, MB... (all powers of 1024). Nothing when the text is no size, or above 2^63.
std::optional<u64> parse_size(std::string_view text);

// "10s", "5ms", "3us", "100ns", "2m", "1h", "1.5s"; a bare number is seconds. In ns.
std::optional<u64> parse_time(std::string_view text);

std::string format_size(u64 bytes);                                 // "16.0 KiB"
// Of differences of a trace's times: a clock of unknown rate counts ticks, which are no seconds.
enum class TimeUnit : u8 { ns, ticks };
std::string format_time(double time, TimeUnit unit = TimeUnit::ns);  // "1.23 ms", "1,230 ticks"
std::string format_count(u64 count);                                // "1,234,567"
__extension__ using Whole = __int128;                               // a sum of 64-bit values
std::string digits_of(Whole value);                                 // "-1234567"
std::string format_whole(Whole value);                              // "-1,234,567"
std::string counted(u64 count, std::string_view one,
                    std::string_view many = "");                    // "1 event", "2,000 events"; many: not one + "s"
std::string format_rate(double per_second, std::string_view unit);  // "1.2M/s", "1.2 MB/s"

// "0", "12", "12 or more", "perhaps some": the only place that reports that nothing is lost.
std::string lost_count(const Account& account);
// Where they went, if not all are in gaps: " (while recording was off)", " (12 in gaps, 3 while recording was off)"; else "".
std::string lost_places(const Account& account);
// Both: "12 (while recording was off)".
inline std::string lost_summary(const Account& account) { return lost_count(account) + lost_places(account); }

// The line of a ring's counters: "written 12 = read 10 + in the ring 0 + overwritten 2; refused 0 = ring full 0 + nested 0". Of
// external writers "refused 3", "refused 3 or more" or "refused: not known".
std::string identity(const Counters& c);

}  // namespace ringside
