#include "export/perfetto/sequence.hpp"

#include <charconv>

namespace ringside::perfetto {
namespace {

using protozero::pbf_writer;

// Field numbers, by message.
namespace in_packet {
constexpr u32 timestamp = 8, id = 10, interned = 12, flags = 13, defaults = 59;
constexpr u32 cleared = 1, needs_interned = 2;
}
namespace in_interned {
constexpr u32 frames = 6, callstacks = 7, mappings = 19;
}
namespace in_mapping {
constexpr u32 build_id = 2, path = 7;
}
namespace in_frame {
constexpr u32 function = 2, mapping = 3, address = 4, source = 5, line = 6, kind = 7;
constexpr u32 native = 1, kernel = 2, jit = 4;
}
constexpr u32 number = 1;  // of all that is interned

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 2 <= hex.size(); i += 2) {
    u8 byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

}  // namespace

void Sequence::clear() {
  for (Texts& texts : texts_) texts.clear();
  mappings_.clear();
  frames_.clear();
  callstacks_.clear();
  interned_.clear();
  last_ = 0;
  ++round_;
  begun_ = false;
}

void Sequence::begin(pbf_writer& packet, u64 time) {
  packet.add_uint64(in_packet::timestamp, time);
  packet.add_uint32(in_packet::id, id_);
  packet.add_uint32(in_packet::flags, begun_ ? in_packet::needs_interned : in_packet::cleared | in_packet::needs_interned);
  if (!begun_ && !defaults_.empty()) packet.add_message(in_packet::defaults, defaults_);
  if (!interned_.empty()) packet.add_message(in_packet::interned, interned_);
  interned_.clear();
  begun_ = true;
}

u64 Sequence::text(Text kind, std::string_view words) {
  Texts& texts = texts_[kind];
  if (const auto found = texts.find(words); found != texts.end()) return found->second;
  texts.emplace(words, ++last_);
  pbf_writer interned(interned_);
  pbf_writer one(interned, kind);
  one.add_uint64(number, last_);
  one.add_string(2, words.data(), words.size());
  return last_;
}

u64 Sequence::mapping(std::string_view of, std::string_view its_build_id) {
  // The importer puts a / before each part of a path, and knows the kernel by this name.
  if (of == "[kernel]") of = "kernel";
  if (!of.empty() && of.front() == '/') of.remove_prefix(1);
  const u64 in = text(path, of), known_by = its_build_id.empty() ? 0 : text(build_id, from_hex(its_build_id));
  const auto [at, fresh] = mappings_.try_emplace({in, known_by}, last_ + 1);
  if (!fresh) return at->second;
  ++last_;
  pbf_writer interned(interned_);
  pbf_writer one(interned, in_interned::mappings);
  one.add_uint64(number, last_);
  if (known_by != 0) one.add_uint64(in_mapping::build_id, known_by);
  one.add_uint64(in_mapping::path, in);
  return last_;
}

u64 Sequence::frame(const Stacks::Frame& f, Stacks& stacks) {
  const Stacks::InFile file = stacks.in_file(f);
  const CodeFunction& called = stacks.names().function(f.place.function);
  const u64 in = file.path.empty() ? 0 : mapping(file.path, file.build_id);
  const auto [at, fresh] = frames_.try_emplace({in, file.address, f.place.function}, 0);
  if (!fresh) return at->second;
  const u64 its_name = text(function, called.name);
  const std::string& file_of_source = stacks.names().source(f.place.file);
  const u64 its_source = file_of_source.empty() ? 0 : text(source, file_of_source);
  at->second = ++last_;
  pbf_writer interned(interned_);
  pbf_writer one(interned, in_interned::frames);
  one.add_uint64(number, last_);
  one.add_uint64(in_frame::function, its_name);
  if (in != 0) one.add_uint64(in_frame::mapping, in);
  one.add_uint64(in_frame::address, file.address);
  if (its_source != 0) one.add_uint64(in_frame::source, its_source);
  if (f.place.line != 0) one.add_uint32(in_frame::line, f.place.line);
  using Kind = CodeFunction::Kind;
  if (called.kind != Kind::remark)
    one.add_uint32(in_frame::kind, called.kind == Kind::kernel || f.kernel ? in_frame::kernel
                                   : called.kind == Kind::jit              ? in_frame::jit
                                                                           : in_frame::native);
  return last_;
}

u64 Sequence::callstack(u32 stack, Stacks& stacks) {
  if (stack == 0) return 0;
  if (const auto known = callstacks_.find(stack); known != callstacks_.end()) return known->second;
  std::vector<u64> ids;
  const std::vector<Stacks::Frame>& frames = stacks.frames(stack);
  for (auto f = frames.rbegin(); f != frames.rend(); ++f) ids.push_back(frame(*f, stacks));
  if (ids.empty()) return callstacks_[stack] = 0;
  pbf_writer interned(interned_);
  pbf_writer one(interned, in_interned::callstacks);
  one.add_uint64(number, ++last_);
  for (const u64 id : ids) one.add_uint64(2, id);
  return callstacks_[stack] = last_;
}

}  // namespace ringside::perfetto
