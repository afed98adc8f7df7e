#include "stacks/pprof.hpp"

#include <zlib.h>

#include <map>
#include <protozero/pbf_writer.hpp>

namespace ringside {
namespace {

using protozero::pbf_writer;

// Field numbers, by message.
namespace profile {
constexpr u32 sample_type = 1, sample = 2, mapping = 3, location = 4, function = 5, strings = 6, time = 9, duration = 10,
              comment = 13, default_type = 14;
}
namespace value_type {
constexpr u32 type = 1, unit = 2;
}
namespace in_sample {
constexpr u32 location = 1, value = 2, label = 3;
}
namespace in_label {
constexpr u32 key = 1, text = 2;
}
namespace in_mapping {
constexpr u32 id = 1, limit = 3, file = 5, build_id = 6, has_functions = 7, has_files = 8, has_lines = 9, has_inlined = 10;
}
namespace in_location {
constexpr u32 id = 1, mapping = 2, address = 3, line = 4;
}
namespace in_line {
constexpr u32 function = 1, line = 2;
}
namespace in_function {
constexpr u32 id = 1, name = 2, system_name = 3, file = 4;
}

bool is_library(const std::string& path) {
  return path.ends_with(".so") || path.find(".so.") != std::string::npos || path.starts_with("[");
}

class ProfileWriter {
 public:
  ProfileWriter(Stacks& stacks, const PprofFacts& facts) : stacks_(stacks), facts_(facts) { (void)text(""); }

  std::string write(const Fold& fold, const std::vector<std::string>& roots) {
    type(profile::sample_type, "events", "count");
    type(profile::sample_type, facts_.type, facts_.unit);
    fold.each([&](const Fold::Cell& cell) { sample(cell, roots); });
    for (const auto& [number, id] : functions_) function(number.first, number.second, id);
    for (const bool libraries : {false, true})  // readers take the first one for the program
      for (const auto& [path, id] : mappings_)
        if (is_library(path.first) == libraries) mapping(path.first, path.second, id);
    out_.add_int64(profile::time, 0);
    out_.add_int64(profile::duration,
                   static_cast<i64>(facts_.last_ns > facts_.first_ns ? facts_.last_ns - facts_.first_ns : 0));
    if (!facts_.comment.empty()) out_.add_int64(profile::comment, text(facts_.comment));
    out_.add_int64(profile::default_type, text(facts_.type));
    for (const std::string* s : texts_) out_.add_string(profile::strings, *s);
    return std::move(bytes_);
  }

 private:
  i64 text(const std::string& s) {
    const auto [at, fresh] = text_numbers_.try_emplace(s, texts_.size());
    if (fresh) texts_.push_back(&at->first);
    return static_cast<i64>(at->second);
  }
  void type(u32 field, const std::string& name, const std::string& unit) {
    pbf_writer m(out_, field);
    m.add_int64(value_type::type, text(name));
    m.add_int64(value_type::unit, text(unit));
  }

  void sample(const Fold::Cell& cell, const std::vector<std::string>& roots) {
    std::vector<u64> locations = locations_of(cell.stack);
    if (locations.empty()) locations.push_back(remark("[no stack]"));
    if (cell.above != 0) {  // the waker's stack is on top
      std::vector<u64> above = locations_of(cell.above);
      std::vector<u64> all(above.rbegin(), above.rend());
      all.push_back(remark(Fold::text_of(cell.how)));
      all.insert(all.end(), locations.begin(), locations.end());
      locations = std::move(all);
    }
    const u64 values[] = {cell.count, cell.weight};
    const i64 key = cell.root < roots.size() ? text(facts_.label) : 0,
              value = cell.root < roots.size() ? text(roots[cell.root]) : 0;
    pbf_writer m(out_, profile::sample);
    m.add_packed_uint64(in_sample::location, locations.begin(), locations.end());
    m.add_packed_int64(in_sample::value, values, values + 2);
    if (value == 0) return;
    pbf_writer label(m, in_sample::label);
    label.add_int64(in_label::key, key);
    label.add_int64(in_label::text, value);
  }

  u64 remark(const std::string& words) {
    Stacks::Frame frame;
    frame.place.function = stacks_.names().remark(words);
    return location({&frame, 1});
  }

  std::vector<u64> locations_of(u32 stack) {
    const std::vector<Stacks::Frame> frames = stacks_.frames(stack);
    std::vector<u64> out;
    for (size_t i = 0; i < frames.size();) {
      size_t n = 1;
      while (i + n < frames.size() && frames[i + n - 1].place.inlined) ++n;  // they end with the function that has them
      out.push_back(location({&frames[i], n}));
      i += n;
    }
    return out;
  }

  // One address in one file.
  u64 location(std::span<const Stacks::Frame> frames) {
    const Stacks::Frame& last = frames.back();
    const auto [path, build_id, address] = stacks_.in_file(last);
    const u64 in = path.empty()
                       ? 0
                       : mappings_.try_emplace({std::string(path), std::string(build_id)}, mappings_.size() + 1).first->second;
    const auto [at, fresh] = locations_.try_emplace(
        {in, address == 0 ? u64{last.place.function} << 1 | 1 : address << 1, last.place.function}, locations_.size() + 1);
    if (!fresh) return at->second;
    std::vector<std::pair<u64, u32>> lines;
    for (const Stacks::Frame& frame : frames) {
      const auto number = std::pair(frame.place.function, frame.place.file);
      lines.emplace_back(functions_.try_emplace(number, functions_.size() + 1).first->second, frame.place.line);
    }
    pbf_writer m(out_, profile::location);
    m.add_uint64(in_location::id, at->second);
    if (in != 0) m.add_uint64(in_location::mapping, in);
    m.add_uint64(in_location::address, address);
    for (const auto& [id, line] : lines) {
      pbf_writer l(m, in_location::line);
      l.add_uint64(in_line::function, id);
      if (line != 0) l.add_int64(in_line::line, line);
    }
    return at->second;
  }

  void function(u32 number, u32 source, u64 id) {
    const CodeFunction& f = stacks_.names().function(number);
    const i64 name = text(f.name), file = text(stacks_.names().source(source));
    pbf_writer m(out_, profile::function);
    m.add_uint64(in_function::id, id);
    m.add_int64(in_function::name, name);
    m.add_int64(in_function::system_name, name);
    if (file != 0) m.add_int64(in_function::file, file);
  }

  void mapping(const std::string& path, const std::string& build_id, u64 id) {
    const i64 file = text(path), build = text(build_id);
    pbf_writer m(out_, profile::mapping);
    m.add_uint64(in_mapping::id, id);
    m.add_uint64(in_mapping::limit, ~u64{0});
    m.add_int64(in_mapping::file, file);
    if (build != 0) m.add_int64(in_mapping::build_id, build);
    for (const u32 has : {in_mapping::has_functions, in_mapping::has_files, in_mapping::has_lines, in_mapping::has_inlined})
      m.add_bool(has, true);  // nothing is left to look up
  }

  Stacks& stacks_;
  const PprofFacts& facts_;
  std::string bytes_;
  pbf_writer out_{bytes_};
  std::map<std::string, size_t> text_numbers_;
  std::vector<const std::string*> texts_;
  std::map<std::pair<u32, u32>, u64> functions_;                   // by function and source file
  std::map<std::pair<std::string, std::string>, u64> mappings_;    // by path and build id
  std::map<std::tuple<u64, u64, u32>, u64> locations_;             // by mapping, address, function
};

result<std::string> gzip(const std::string& bytes) {
  z_stream stream{};
  constexpr int gzip_window = 15 + 16;
  const auto failed = [] { return refuse(std::errc::not_enough_memory, "the profile cannot be compressed: memory is short"); };
  if (deflateInit2(&stream, 6, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK) return failed();
  std::string out(deflateBound(&stream, bytes.size()), 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) return failed();
  return out;
}

}  // namespace

result<std::string> pprof(const Fold& fold, Stacks& stacks, const std::vector<std::string>& roots, const PprofFacts& facts) {
  const std::string bytes = ProfileWriter(stacks, facts).write(fold, roots);
  if (bytes.size() >= u64{4} << 30)
    return refuse(std::errc::file_too_large, "the profile has over 4 GiB; take a part of the trace with --time");
  return gzip(bytes);
}

}  // namespace ringside
