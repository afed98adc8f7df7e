// Reads a Perfetto trace by the rules of its importer (trace_processor 58), which drops without a word: an ftrace event without
// a pid, a message that is neither typed nor described, an event of a CPU from 1024 on, a field whose wire type is not the
// described one, a track event before its names are cleared or on a track that nothing describes, a slice in 512 others, a
// stack that calls a frame, a mapping or a name by a number that its sequence does not know. slices() are those that it would
// find.
#pragma once
#include <zlib.h>

#include <algorithm>
#include <map>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

namespace ringside::test {

struct PerfettoEvent {
  u64 time = 0;
  u32 cpu = 0;
  i32 pid = -1;
  u32 message = 0;   // its number in FtraceEvent
  std::string name;  // described or generic events
  std::map<std::string, std::string> fields;  // described: by name; typed: by number
};
struct PerfettoTrackEvent {
  u64 time = 0, track = 0;
  u32 type = 0;
  std::string name, category;
  i64 counter = 0;
  double real_counter = 0;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> stack;  // names, innermost first
  double weight = -1;
  std::vector<u64> flows;
};
struct PerfettoSample {
  u64 time = 0;
  i32 cpu = -1, pid = 0, tid = 0;
  u64 count = 0;            // of its session and CPU, so far
  std::string session;      // the name of its timebase
  std::vector<std::string> stack;
};
struct PerfettoFrame {
  std::string function, path, build_id, source;
  u64 address = 0;
  u32 line = 0, kind = 0;
};
struct PerfettoTrack {
  u64 parent = 0;
  std::string name;
  i32 pid = 0, tid = 0;
  bool counter = false;
  bool apart = false;  // else it is a thread's track of system calls, too, and its slices are cut where those overlap
};

struct PerfettoSlice {
  u64 time = 0, track = 0;
  i64 duration = -1;  // -1: it did not end
  std::string name, category;
  std::map<std::string, std::string> annotations;
};

struct PerfettoFile {
  std::vector<PerfettoEvent> events;
  std::vector<PerfettoTrackEvent> track_events;
  std::vector<PerfettoSample> samples;
  std::vector<PerfettoFrame> frames;  // all of them
  std::map<u64, PerfettoTrack> tracks;
  std::map<u32, u32> bundles_with_loss;         // by CPU
  std::map<u32, std::pair<u64, u64>> stats;     // by CPU: read, lost; from the end's FtraceStats
  std::map<i32, std::string> threads;           // names
  u64 boottime = 0;
  u64 realtime = 0;
  std::string machine, release;  // of the system's information; empty: there is none
  u32 dropped = 0;  // what an importer would drop

  explicit PerfettoFile(const std::string& bytes) { packets(bytes); }

  // Without the packet that the end of the bytes cuts: a reader of a file may see a write() up to the end of any page.
  static std::string whole_packets(const std::string& bytes) {
    size_t whole = 0;
    try {
      for (protozero::pbf_reader file(bytes); file.next(1); whole = bytes.size() - file.data().size()) file.skip();
    } catch (const protozero::end_of_buffer_exception&) {
    }
    return bytes.substr(0, whole);
  }

  // Begins and ends in order of time, those of equal times in order of the file: an end closes the slice that began last, is
  // open and has its name and its category, as far as the end has them. Without ends that close nothing.
  std::vector<PerfettoSlice> slices() const {
    std::vector<const PerfettoTrackEvent*> sorted;
    for (const PerfettoTrackEvent& e : track_events)
      if (e.type == 1 || e.type == 2) sorted.push_back(&e);
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->time < b->time; });
    std::vector<PerfettoSlice> all;
    std::map<u64, std::vector<size_t>> open;  // by track
    for (const PerfettoTrackEvent* const e : sorted) {
      std::vector<size_t>& on = open[e->track];
      if (e->type == 1) {
        on.push_back(all.size());
        all.push_back({e->time, e->track, -1, e->name, e->category, e->annotations});
        continue;
      }
      const auto closes = std::find_if(on.rbegin(), on.rend(), [&](size_t i) {
        return (e->category.empty() || e->category == all[i].category) &&
               (e->name.empty() || all[i].name.empty() || e->name == all[i].name);
      });
      if (closes == on.rend()) continue;
      all[*closes].duration = static_cast<i64>(e->time - all[*closes].time);
      all[*closes].annotations.insert(e->annotations.begin(), e->annotations.end());
      on.erase(std::next(closes).base());
    }
    return all;
  }

 private:
  struct Described {
    std::string name;
    std::map<u32, std::pair<std::string, u32>> fields;  // name, type
  };
  // What the packets of a sequence call by numbers.
  struct Sequence {
    bool cleared = false;
    std::string session = "cpu-clock";
    std::map<u32, std::map<u64, std::string>> texts;  // by field of InternedData
    struct Mapping {
      std::string path, build_id;
    };
    std::map<u64, Mapping> mappings;
    std::map<u64, PerfettoFrame> frames;
    std::map<u64, std::vector<std::string>> stacks;
  };
  std::map<u32, Described> described_;
  std::map<u32, Sequence> sequences_;
  std::map<u64, u32> depths_;  // open slices, by track

  static std::string inflated(const protozero::data_view& packed) {
    std::string out;
    z_stream z{};
    if (inflateInit(&z) != Z_OK) return out;
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    z.avail_in = static_cast<uInt>(packed.size());
    char some[65536];
    int code = Z_OK;
    while (code == Z_OK) {
      z.next_out = reinterpret_cast<Bytef*>(some);
      z.avail_out = sizeof some;
      code = inflate(&z, Z_NO_FLUSH);
      out.append(some, sizeof some - z.avail_out);
    }
    inflateEnd(&z);
    return out;
  }
  static std::string value(protozero::pbf_reader& r, u32 type) {
    const bool length = r.wire_type() == protozero::pbf_wire_type::length_delimited,
               fixed = r.wire_type() == protozero::pbf_wire_type::fixed64;
    if (type == 9 && length) return r.get_string();
    if (type == 1 && fixed) return std::to_string(r.get_double());
    if (type == 3 && !length && !fixed) return std::to_string(r.get_int64());
    if (type == 4 && !length && !fixed) return std::to_string(r.get_uint64());
    r.skip();
    return "WRONG WIRE TYPE";
  }
  void packets(const std::string& bytes) {
    protozero::pbf_reader file(bytes);
    while (file.next(1)) packet(file.get_message());
  }
  void system(protozero::pbf_reader p) {
    while (p.next(1))
      for (protozero::pbf_reader kernel = p.get_message(); kernel.next();)
        kernel.tag() == 4   ? void(machine = kernel.get_string())
        : kernel.tag() == 3 ? void(release = kernel.get_string())
                            : kernel.skip();
  }
  void packet(protozero::pbf_reader p) {
    u64 time = 0;
    u32 sequence = 0, flags = 0;
    std::optional<protozero::pbf_reader> event, sample, interned, defaults;
    while (p.next()) switch (p.tag()) {
        case 8: time = p.get_uint64(); break;
        case 10: sequence = p.get_uint32(); break;
        case 13: flags = p.get_uint32(); break;
        case 11: event = p.get_message(); break;
        case 66: sample = p.get_message(); break;
        case 12: interned = p.get_message(); break;
        case 59: defaults = p.get_message(); break;
        case 50: packets(inflated(p.get_view())); break;
        case 1: bundle(p.get_message()); break;
        case 6: clocks(p.get_message()); break;
        case 45: system(p.get_message()); break;
        case 60: track(p.get_message()); break;
        case 2: tree(p.get_message()); break;
        case 34: counts(p.get_message()); break;
        default: p.skip();
      }
    Sequence& s = sequences_[sequence];
    if ((flags & 1) != 0) {
      s = {};
      s.cleared = true;
    }
    if (defaults) s.session = session(*defaults);
    if (interned) intern(*interned, s);
    const bool known = sequence != 0 && s.cleared && (flags & 2) != 0;
    if ((event || sample) && !known) ++dropped;
    if (event && known) track_event(*event, time, s);
    if (sample && known) perf_sample(*sample, time, s);
  }
  // The texts of a message's field and of the messages in it, by the path of the fields' numbers.
  static std::string text_at(protozero::pbf_reader m, std::initializer_list<u32> path) {
    for (auto field = path.begin(); field != path.end(); ++field) {
      if (!m.next(*field)) return "";
      if (field + 1 == path.end()) return m.get_string();
      m = m.get_message();
    }
    return "";
  }
  static std::string session(protozero::pbf_reader defaults) { return text_at(defaults, {12, 1, 10}); }
  void clocks(protozero::pbf_reader s) {
    while (s.next(1)) {
      auto clock = s.get_message();
      u32 id = 0;
      u64 time = 0;
      while (clock.next())
        clock.tag() == 1 ? void(id = clock.get_uint32()) : clock.tag() == 2 ? void(time = clock.get_uint64()) : clock.skip();
      if (id == 6) boottime = time;
      if (id == 1) realtime = time;
    }
  }
  const std::string& named(const std::map<u64, std::string>& texts, u64 id) {
    static const std::string none;
    const auto at = texts.find(id);
    if (at == texts.end()) ++dropped;
    return at == texts.end() ? none : at->second;
  }
  // Messages of one packet may refer to each other in any order.
  void intern(protozero::pbf_reader in, Sequence& s) {
    std::vector<protozero::pbf_reader> mappings, all_frames, stacks;
    while (in.next()) {
      const u32 kind = in.tag();
      auto one = in.get_message();
      if (kind == 19) mappings.push_back(one);
      if (kind == 6) all_frames.push_back(one);
      if (kind == 7) stacks.push_back(one);
      if (kind == 6 || kind == 7 || kind == 19) continue;
      u64 id = 0;
      std::string text;
      while (one.next())
        one.tag() == 1 ? void(id = one.get_uint64()) : one.tag() == 2 ? void(text = one.get_string()) : one.skip();
      s.texts[kind].try_emplace(id, text);
    }
    for (auto& m : mappings) {
      u64 id = 0;
      Sequence::Mapping made;
      while (m.next()) switch (m.tag()) {
          case 1: id = m.get_uint64(); break;
          case 2: made.build_id = named(s.texts[16], m.get_uint64()); break;
          case 7: made.path += "/" + named(s.texts[17], m.get_uint64()); break;
          default: m.skip();
        }
      s.mappings[id] = made;
    }
    for (auto& f : all_frames) {
      u64 id = 0;
      PerfettoFrame made;
      while (f.next()) switch (f.tag()) {
          case 1: id = f.get_uint64(); break;
          case 2: made.function = named(s.texts[5], f.get_uint64()); break;
          case 3: {
            const auto m = s.mappings.find(f.get_uint64());
            if (m == s.mappings.end())
              ++dropped;
            else
              made.path = m->second.path, made.build_id = m->second.build_id;
            break;
          }
          case 4: made.address = f.get_uint64(); break;
          case 5: made.source = named(s.texts[18], f.get_uint64()); break;
          case 6: made.line = f.get_uint32(); break;
          case 7: made.kind = f.get_uint32(); break;
          default: f.skip();
        }
      s.frames[id] = made;
      frames.push_back(made);
    }
    for (auto& c : stacks) {
      u64 id = 0;
      std::vector<std::string> made;
      while (c.next()) {
        if (c.tag() == 1) {
          id = c.get_uint64();
        } else if (c.tag() == 2) {
          const auto f = s.frames.find(c.get_uint64());
          if (f == s.frames.end())
            ++dropped;
          else
            made.insert(made.begin(), f->second.function);
        } else {
          c.skip();
        }
      }
      s.stacks[id] = made;
    }
  }
  const std::vector<std::string>& stack(const Sequence& s, u64 id) {
    static const std::vector<std::string> none;
    const auto at = s.stacks.find(id);
    if (at == s.stacks.end() || at->second.empty()) {
      ++dropped;
      return none;
    }
    return at->second;
  }
  void perf_sample(protozero::pbf_reader p, u64 time, const Sequence& s) {
    PerfettoSample out;
    out.time = time;
    out.session = s.session;
    while (p.next()) switch (p.tag()) {
        case 1: out.cpu = static_cast<i32>(p.get_uint32()); break;
        case 2: out.pid = static_cast<i32>(p.get_uint32()); break;
        case 3: out.tid = static_cast<i32>(p.get_uint32()); break;
        case 4: out.stack = stack(s, p.get_uint64()); break;
        case 6: out.count = p.get_uint64(); break;
        default: p.skip();
      }
    samples.push_back(std::move(out));
  }
  void track(protozero::pbf_reader d) {
    PerfettoTrack t;
    u64 uuid = 0;
    while (d.next()) switch (d.tag()) {
        case 1: uuid = d.get_uint64(); break;
        case 2: t.name = d.get_string(); break;
        case 5: t.parent = d.get_uint64(); break;
        case 8: t.counter = true, d.skip(); break;
        case 9: t.apart = d.get_bool(); break;
        case 3: {
          auto process = d.get_message();
          while (process.next()) process.tag() == 1 ? t.pid = process.get_int32() : (process.skip(), 0);
          break;
        }
        case 4: {
          auto thread = d.get_message();
          while (thread.next()) switch (thread.tag()) {
              case 1: t.pid = thread.get_int32(); break;
              case 2: t.tid = static_cast<i32>(thread.get_int64()); break;
              case 5: t.name = thread.get_string(); break;
              default: thread.skip();
            }
          break;
        }
        default: d.skip();
      }
    tracks[uuid] = t;
  }
  void tree(protozero::pbf_reader all) {
    while (all.next()) {
      if (all.tag() != 2) {
        all.skip();
        continue;
      }
      auto thread = all.get_message();
      i32 tid = 0;
      std::string name;
      while (thread.next())
        thread.tag() == 1   ? void(tid = thread.get_int32())
        : thread.tag() == 2 ? void(name = thread.get_string())
                            : thread.skip();
      threads[tid] = name;
    }
  }
  void counts(protozero::pbf_reader all) {
    u32 phase = 0;
    while (all.next()) {
      if (all.tag() == 1) {
        phase = all.get_uint32();
        continue;
      }
      auto one = all.get_message();
      u32 cpu = 0;
      u64 read = 0, lost = 0;
      while (one.next()) switch (one.tag()) {
          case 1: cpu = one.get_uint32(); break;
          case 3: lost = one.get_uint64(); break;
          case 9: read = one.get_uint64(); break;
          default: one.skip();
        }
      if (phase == 2) stats[cpu] = {read, lost};
    }
  }
  void track_event(protozero::pbf_reader e, u64 time, Sequence& s) {
    PerfettoTrackEvent t;
    t.time = time;
    while (e.next()) switch (e.tag()) {
        case 3: t.category = named(s.texts[1], e.get_uint64()); break;
        case 9: t.type = e.get_uint32(); break;
        case 10: t.name = named(s.texts[2], e.get_uint64()); break;
        case 11: t.track = e.get_uint64(); break;
        case 30: t.counter = e.get_int64(); break;
        case 44:
          t.real_counter = e.get_double();
          break;
        case 47: t.flows.push_back(e.get_fixed64()); break;
        case 56: t.stack = stack(s, e.get_uint64()); break;
        case 57: t.weight = e.get_double(); break;
        case 4: {
          auto a = e.get_message();
          std::string name, text;
          while (a.next()) switch (a.tag()) {
              case 1: name = named(s.texts[3], a.get_uint64()); break;
              case 2: text = a.get_bool() ? "true" : "false"; break;
              case 3: text = std::to_string(a.get_uint64()); break;
              case 4: text = std::to_string(a.get_int64()); break;
              case 5: text = std::to_string(a.get_double()); break;
              case 6: text = a.get_string(); break;
              default: a.skip();
            }
          t.annotations[name] = text;
          break;
        }
        default: e.skip();
      }
    // Here the packets of a track are in the order of their times, nearly.
    u32& depth = depths_[t.track];
    const bool too_deep = (t.type == 1 || t.type == 3) && depth >= 512;
    if (t.type == 1) ++depth;
    if (t.type == 2 && depth > 0) --depth;
    if (tracks.count(t.track) == 0 || too_deep || (t.type == 4 && !t.stack.empty()))  // a counter keeps no stack
      ++dropped;
    else
      track_events.push_back(std::move(t));
  }
  void bundle(protozero::pbf_reader b) {
    u32 cpu = ~0u;
    bool lost = false;
    std::vector<protozero::pbf_reader> waiting;
    while (b.next()) switch (b.tag()) {
        case 1: cpu = b.get_uint32(); break;
        case 2: waiting.push_back(b.get_message()); break;
        case 3: lost = b.get_bool(); break;
        case 11: describe(b.get_message()); break;
        default: b.skip();
      }
    if (lost) ++bundles_with_loss[cpu];
    for (auto& e : waiting) ftrace(e, cpu);
  }
  void describe(protozero::pbf_reader d) {
    u32 id = 0;
    Described made;
    while (d.next()) {
      if (d.tag() == 1) {
        id = static_cast<u32>(d.get_int32());
      } else if (d.tag() == 2) {
        auto m = d.get_message();
        while (m.next()) {
          if (m.tag() == 1) {
            made.name = m.get_string();
          } else if (m.tag() == 2) {
            auto f = m.get_message();
            std::string name;
            u32 number = 0, type = 0;
            while (f.next()) switch (f.tag()) {
                case 1: name = f.get_string(); break;
                case 3: number = f.get_uint32(); break;
                case 5: type = f.get_uint32(); break;
                default: f.skip();
              }
            made.fields[number] = {name, type};
          } else {
            m.skip();
          }
        }
      } else {
        d.skip();
      }
    }
    if (made.fields.size() <= 31) described_.try_emplace(id, made);  // the first one holds
  }
  void ftrace(protozero::pbf_reader e, u32 cpu) {
    PerfettoEvent out;
    out.cpu = cpu;
    bool has_pid = false, known = false;
    while (e.next()) {
      if (e.tag() == 1) {
        out.time = e.get_uint64();
      } else if (e.tag() == 2) {
        out.pid = static_cast<i32>(e.get_uint32());
        has_pid = true;
      } else {
        out.message = e.tag();
        auto m = e.get_message();
        known = true;
        if (out.message == 327) {
          while (m.next()) {
            if (m.tag() == 1) {
              out.name = m.get_string();
            } else {
              auto f = m.get_message();
              std::string name, text;
              while (f.next()) switch (f.tag()) {
                  case 1: name = f.get_string(); break;
                  case 3: text = f.get_string(); break;
                  case 4: text = std::to_string(f.get_int64()); break;
                  case 5: text = std::to_string(f.get_uint64()); break;
                  default: f.skip();
                }
              out.fields[name] = text;
            }
          }
        } else if (out.message >= 65536) {
          const auto d = described_.find(out.message);
          known = d != described_.end();
          while (known && m.next()) {
            const auto f = d->second.fields.find(m.tag());
            if (f == d->second.fields.end())
              m.skip();
            else
              out.fields[f->second.first] = value(m, f->second.second);
          }
          if (known) out.name = d->second.name;
        } else {
          while (m.next()) {
            const std::string number = std::to_string(m.tag());
            out.fields[number] =
                m.wire_type() == protozero::pbf_wire_type::length_delimited ? m.get_string() : std::to_string(m.get_int64());
          }
        }
      }
    }
    if (!has_pid || !known || cpu >= 1024 || out.time >= u64{1} << 63)
      ++dropped;
    else
      events.push_back(std::move(out));
  }
};

}  // namespace ringside::test
