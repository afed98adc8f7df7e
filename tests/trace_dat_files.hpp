// trace.dat files of tests: made small, and packed as trace-cmd packs them.
#pragma once
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

#include "source/trace_dat_format.hpp"

namespace ringside::test {

inline std::string packed(const std::string& by, const std::string& bytes) {
  std::string out(by == "zlib" ? compressBound(bytes.size()) : ZSTD_compressBound(bytes.size()), '\0');
  if (by == "zlib") {
    uLongf size = out.size();
    compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    out.resize(size);
  } else {
    out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  }
  return out;
}

template <class T>
T number_at(const std::string& bytes, u64 at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Where a file is another one than `dat`.
struct Instead {
  u16 section = 0;  // it is `packed`, and claims to be `size` bytes
  std::string packed{};
  u32 size = 0;
  std::string chunks{};  // of the first ring that has events
  u32 count = 0;
};

// `dat`: of version 7, as `ringside export` writes it (one section of options, at the end). Each ring in chunks of two pages.
inline std::string compressed(const std::string& dat, const std::string& by, Instead instead = {}) {
  using namespace trace_dat;
  const auto sized = [&](const std::string& bytes) {
    const std::string p = packed(by, bytes);
    std::string out;
    put(out, static_cast<u32>(p.size()));
    put(out, static_cast<u32>(bytes.size()));
    return out + p;
  };
  const auto section = [](u16 id, const std::string& bytes) {
    std::string out;
    put(out, id);
    put(out, section_compressed);
    put(out, u32{0});
    put(out, u64{bytes.size()});
    return out + bytes;
  };
  u64 at = magic_size + 2 + 6 + std::strlen("none") + 2;
  std::string out = dat.substr(0, magic_size + 2 + 6) + by + '\0' + "1.0" + '\0';
  const u64 place_of_options = out.size();
  put(out, u64{0});
  std::string options;
  const u64 theirs = number_at<u64>(dat, at);
  const u64 size = number_at<u64>(dat, theirs + 8);
  for (u64 o = theirs + section_header_size; o < theirs + section_header_size + size;) {
    const auto id = number_at<u16>(dat, o);
    std::string data = dat.substr(o + 6, number_at<u32>(dat, o + 2));
    o += 6 + data.size();
    if (id >= section_headers && id <= section_cmdlines) {
      const u64 from = number_at<u64>(data, 0);
      data.clear();
      put(data, u64{out.size()});
      std::string bytes = sized(dat.substr(from + section_header_size, number_at<u64>(dat, from + 8)));
      if (id == instead.section) {
        bytes.clear();
        put(bytes, static_cast<u32>(instead.packed.size()));
        put(bytes, instead.size);
        bytes += instead.packed;
      }
      out += section(id, bytes);
    } else if (id == option_buffer) {
      u64 in = 8;
      for (int names = 0; names < 2; ++names) in = data.find('\0', in) + 1;
      const auto page = number_at<u32>(data, in), cpus = number_at<u32>(data, in + 4);
      const u64 begin = out.size();
      out += section(section_data, "");
      std::memcpy(data.data(), &begin, 8);
      for (u32 cpu = 0; cpu < cpus; ++cpu) {
        char* entry = data.data() + in + 8 + cpu * 20 + 4;
        const std::string ring = dat.substr(number_at<u64>(data, static_cast<u64>(entry - data.data())),
                                            number_at<u64>(data, static_cast<u64>(entry - data.data()) + 8));
        const u64 chunk = u64{page} * 2;
        u64 chunks = (ring.size() + chunk - 1) / chunk;
        std::string bytes;
        for (u64 i = 0; i < chunks; ++i) bytes += sized(ring.substr(i * chunk, chunk));
        if (chunks != 0 && instead.count != 0) {
          bytes = std::exchange(instead.chunks, {});
          chunks = std::exchange(instead.count, 0);
        }
        const u64 place[2] = {out.size(), bytes.size()};  // the number of chunks in front is not counted
        std::memcpy(entry, place, sizeof place);
        put(out, static_cast<u32>(chunks));
        out += bytes;
      }
      const u64 length = out.size() - begin - section_header_size;
      std::memcpy(out.data() + begin + 8, &length, 8);
    }
    put(options, id);
    put(options, static_cast<u32>(data.size()));
    options += data;
  }
  const u64 here = out.size();
  std::memcpy(out.data() + place_of_options, &here, 8);
  return out + section(section_options, sized(options));
}

// `dat`: of version 6, with one buffer. Its pages stay aligned.
inline std::string with_option(std::string dat, u16 id, std::string data) {
  using namespace trace_dat;
  const u64 options = dat.find("options  ") + sizeof "options  ", more = align_up(6 + data.size(), u64{65536});
  const u64 table = dat.find("flyrecord", options) + sizeof "flyrecord";
  for (u32 cpu = 0; cpu < number_at<u32>(dat, options - sizeof "options  " - 4); ++cpu) {
    const u64 moved = number_at<u64>(dat, table + u64{16} * cpu) + more;
    std::memcpy(dat.data() + table + u64{16} * cpu, &moved, sizeof moved);
  }
  std::string option;
  put(option, id);
  put(option, static_cast<u32>(more - 6));
  return dat.insert(options, (option + data).append(more - option.size() - data.size(), '\0'));
}

struct ShiftSample {
  u64 time;
  i64 offset;
  u64 scaling = 1, fraction = 0;
};
// Of an option_time_shift.
inline std::string time_shift(const std::vector<std::vector<ShiftSample>>& cpus, u32 flags = 0) {
  std::string out;
  put(out, u64{0x1234});
  put(out, flags);
  put(out, static_cast<u32>(cpus.size()));
  for (const auto& samples : cpus) {
    put(out, static_cast<u32>(samples.size()));
    for (const ShiftSample& s : samples) put(out, s.time);
    for (const ShiftSample& s : samples) put(out, s.offset);
    for (const ShiftSample& s : samples) put(out, s.scaling);
  }
  for (const auto& samples : cpus)
    for (const ShiftSample& s : samples) put(out, s.fraction);
  return out;
}

}  // namespace ringside::test
