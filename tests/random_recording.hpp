// Recordings of random events, for tests of what reads and writes whole files.
#pragma once
#include <random>

#include "cli/hand_made.hpp"
#include "source/recording.hpp"

namespace ringside::test {

constexpr u32 wide_fields = 33;  // more than Perfetto's events that describe themselves can have

// Fields of every type (libtraceevent knows no negative s8); ids from `first` on.
inline std::vector<EventInfo> random_events(u16 first, bool kernel) {
  const auto event = [&](u16 n, const std::string& name, const std::string& fields, const std::string& print) {
    const auto id = static_cast<u16>(first + n);
    return EventInfo{id, kernel ? "kern" : "app", name, format(id, name, fields, print), true, kernel};
  };
  std::string wide;
  for (u32 n = 0; n < wide_fields; ++n)
    wide += "\tfield:u8 f" + std::to_string(n) + ";\toffset:" + std::to_string(8 + n) + ";\tsize:1;\tsigned:0;\n";
  return {
      event(0, "numbers",
            "\tfield:u8 a;\toffset:8;\tsize:1;\tsigned:0;\n\tfield:s16 b;\toffset:10;\tsize:2;\tsigned:1;\n"
            "\tfield:u32 c;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:s64 d;\toffset:16;\tsize:8;\tsigned:1;\n",
            R"("a=%u b=%hd c=0x%x d=%lld", REC->a, REC->b, REC->c, REC->d)"),
      event(1, "texts",
            "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;\n"
            "\tfield:__data_loc char[] more;\toffset:16;\tsize:4;\tsigned:0;\n",
            R"("name=%s more=%s", REC->name, __get_str(more))"),
      event(2, "state", "\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n",
            R"("state=%s", __print_symbolic(REC->state, { 0, "idle" }, { 1, "busy" }))"),
      event(
          3, "arrays",
          "\tfield:u16 list[3];\toffset:8;\tsize:6;\tsigned:0;\n\tfield:u16 bits;\toffset:14;\tsize:2;\tsigned:0;\n"
          "\tfield:__data_loc u8[] raw;\toffset:16;\tsize:4;\tsigned:0;\n",
          R"("list=%s bits=%s raw=%s", __print_array(REC->list, 3, 2), __print_flags(REC->bits, "|", { 1, "A" }, { 4, "C" }), )"
          R"(__print_hex(__get_dynamic_array(raw), __get_dynamic_array_len(raw)))"),
      event(4, "others",
            "\tfield:s8 a;\toffset:8;\tsize:1;\tsigned:1;\n\tfield:bool b;\toffset:9;\tsize:1;\tsigned:0;\n"
            "\tfield:u16 c;\toffset:10;\tsize:2;\tsigned:0;\n\tfield:s32 d;\toffset:12;\tsize:4;\tsigned:1;\n"
            "\tfield:u64 e;\toffset:16;\tsize:8;\tsigned:0;\n",
            R"("a=%d b=%d c=%05u d=%-12d| e=%#llx", REC->a, REC->b, REC->c, REC->d, REC->e)"),
      event(5, "wide", wide, R"("f0=%u f32=%u", REC->f0, REC->f32)")};
}

inline Payload random_payload(std::mt19937_64& random, u16 first, i32 tid) {
  switch (random() % 6) {
    case 0:
      return Payload(first, tid)
          .put(static_cast<u8>(random()))
          .put(u8{0})
          .put(static_cast<int16_t>(random()))
          .put(static_cast<u32>(random()))
          .put(random());
    case 1:
      return Payload(static_cast<u16>(first + 1), tid).text({"short\0\0\0", 8}).put(u32{20 | 5 << 16}).text({"four\0", 5});
    case 2:
      return Payload(static_cast<u16>(first + 2), tid).put(static_cast<u32>(random() % 4));
    case 3:
      return Payload(static_cast<u16>(first + 3), tid)
          .put(static_cast<u32>(random()))
          .put(static_cast<u16>(random()))
          .put(static_cast<u16>(random() % 8))
          .put(u32{20 | 3 << 16})
          .put(static_cast<u16>(random()))
          .put(static_cast<u8>(random()));
    case 4: {
      Payload wide(static_cast<u16>(first + 5), tid);
      for (u32 n = 0; n < wide_fields; ++n) wide.put(static_cast<u8>(random()));
      return wide;
    }
    default:
      return Payload(static_cast<u16>(first + 4), tid).put(static_cast<u8>(random() % 128)).put(static_cast<u8>(random() % 2))
          .put(static_cast<u16>(random())).put(static_cast<u32>(random())).put(random());
  }
}

enum class Of { program, both };

// `rings` rings (every second one the kernel's, for both) of random events with gaps and long pauses in the new recording
// `dir`. Answers how many events.
inline u64 random_recording(const std::string& dir, const ClockInfo& clock, u32 rings, u32 subbuf_size, Of of = Of::program,
                            u32 events_per_page = 50, bool compress = false) {
  constexpr u16 firsts[2] = {0xF001, 1};
  std::mt19937_64 random(rings);
  auto w = must(RecordingWriter::create(dir, clock, 0, compress));
  for (const bool kernel : {false, true}) {
    if (kernel && of == Of::program) continue;
    for (EventInfo& e : random_events(firsts[kernel], kernel)) w.meta().events.push_back(std::move(e));
  }
  u64 events = 0;
  for (u32 ring = 0; ring < rings; ++ring) {
    const bool kernel = of == Of::both && ring % 2 == 1;
    const auto tid = static_cast<i32>(1000 + ring);
    must(w.add_ring({ring * 2, kernel ? 0 : tid, kernel ? 0 : tid, "task" + std::to_string(ring), "app", kernel}, subbuf_size));
    if (ring % 4 == 3)  // known by another thread of the same process
      w.meta().threads.push_back({0, tid, tid + 1'000'000, "other", "app" + std::to_string(ring)});
    else
      w.meta().threads.push_back({0, tid, tid, "task" + std::to_string(ring), "app"});
    u64 time = clock.base_ticks + 1'000'000'000 + ring;
    for (u32 page = 0; page < 4; ++page) {
      SubBuffer s(time, subbuf_size);
      for (u32 i = 0; i < events_per_page; ++i, ++events) {
        // As in rings, no long pause in front of the first: libtraceevent overlooks a gap there.
        time += random() % 100 == 0 && i != 0 ? 3'000'000'000 + random() % 1000 : 1 + random() % 100'000;
        s.event(time, random_payload(random, firsts[kernel], tid));
      }
      must(w.append(ring * 2 + (kernel ? RecordingWriter::kernel_rings : 0), s.view(page == 2 ? 77 : 0)));
      time += 10;
    }
  }
  must(w.finish(1));
  return events;
}

}  // namespace ringside::test
