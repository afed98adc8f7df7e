// Which stack belongs to an event.
//
//   kernel    the events kernel_stack and user_stack after an event on its CPU's ring are its stack
//   program   a field of the C type ringside_stack is the id of an event ringside:stack, which may be in any ring of the
//             trace, before or after it; ringside:code_map has the file at its addresses
//
//   Stacks stacks(formats, tasks);
//   stacks.see(record, ring);                       // every record, in order: it learns
//   u32 n = stacks.number(record, ring, after);     // the same number for the same stack; 0: it has none
//   stacks.frames(n)                                // functions, innermost first, named when they are asked for
//
// An id that no event explains is counted (`missing`), and its stack has one frame that says so. A stack event is looked for in
// the whole trace (`find_missing`) before that, once. All frames of kernel_stack are the
// kernel's; of a program's stack, those in the upper half of the addresses.
#pragma once
#include <functional>
#include <ringside/base/types.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/id_table.hpp"
#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "stacks/names.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class Stacks final : public StackTexts {
 public:
  static constexpr size_t most_stacks = 16'000'000;     // different ones; later ones are refused and counted
  static constexpr size_t most_addresses = 1u << 30;

  Stacks(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks), names_(formats.symbols(), maps_) {
    stacks_.emplace_back();
  }

  // The addresses of the kernel's events after a record: `ours` says which event it is.
  struct Behind {
    Bytes kernel{}, user{};  // payloads; empty: there is none
  };

  // What an event type is here.
  enum class Part : u8 { unknown, none, stack, code_map, kernel_stack, user_stack, files, refers, sample };
  Part part(u32 id) {
    Kind& kind = kinds_.at(id, formats_.version());
    if (kind.part == Part::unknown) [[unlikely]] find(id, kind);
    return kind.part;
  }
  // The events that give the stacks, or the files, of others.
  static bool tells(Part p) {
    return p == Part::stack || p == Part::code_map || p == Part::kernel_stack || p == Part::user_stack ||
           p == Part::files;
  }
  // Whether a stack event belongs to an event: they have one thread and one context.
  static bool together(Bytes event, Bytes stack);

  void see(const TraceRecord& record, const RingName& ring) {
    const Part p = part(record.number());
    if (p == Part::stack) learn(record.payload, *kinds_.at(record.number(), formats_.version()).type);
    if (p == Part::code_map) learn_map(record, ring);
  }
  // A stack event that may come a second time: of find_missing.
  void learn(Bytes payload, const EventType& type);

  u32 number(const TraceRecord& record, const RingName& ring, const Behind& behind);
  // How many periods of its timer a ringside:sample covers.
  u64 sample_count(const TraceRecord& record);

  struct Frame {
    u64 address = 0;  // as recorded
    CodePlace place;
    u32 space = 0;
    bool exact = false;  // not a return address
    bool kernel = false;
  };
  // Innermost first, with inlined functions. Valid until the next call.
  const std::vector<Frame>& frames(u32 stack);
  // Where a frame's code is: a file and the address in it; without a map the address as recorded, and what is known of its
  // function's file. Valid until the maps change.
  struct InFile {
    std::string_view path, build_id;  // build_id: in hex
    u64 address = 0;
  };
  InFile in_file(const Frame& frame) const;

  // StackTexts
  const std::vector<std::string>& functions(u32 stack) override;
  std::string_view text(u32 stack) override;
  u32 same_names(u32 stack) override;
  void append_lines(u32 stack, fmt::memory_buffer& out) override;

  // Reads all stack events of the trace, wherever they are, and passes them to learn().
  void on_missing(std::function<void(Stacks&)> find) { find_missing_ = std::move(find); }

  Names& names() { return names_; }
  size_t size() const { return stacks_.size() - 1; }
  u64 missing() const { return missing_; }  // different stacks whose event is nowhere
  u64 refused() const { return refused_; }  // events whose stack had no room
  // A sentence for everything that stacks lack.
  std::vector<std::string> remarks() const;

 private:
  struct Kind {
    Part part;
    const EventType* type;
    const Field* field;  // refers: the id
  };
  struct Addresses {
    u32 begin = 0, size = 0;
    bool cut = false;  // its outermost calls are missing
  };
  struct Stack {
    u64 id = 0;              // of a program's; 0: none
    Addresses kernel, user;  // of the kernel's events
    u32 space = 0;
    bool exact = false;      // the innermost address of `id` is no return address
    u32 machine = 0;         // Tasks::machine
  };
  struct Key {
    u64 id = 0, other = 0;
    bool operator==(const Key& o) const { return id == o.id && other == o.other; }
  };
  struct Entry {
    Key key;
    u32 number = 0;  // 0: free
  };

  void find(u32 id, Kind& kind) const;
  void learn_map(const TraceRecord& record, const RingName& ring);
  CodeMaps::Process process_of(const TraceRecord& record, const RingName& ring, const EventType* type) const;
  Addresses add(const u8* words, size_t count);
  u32 keep(const Key& key, const Stack& stack);
  size_t entry_of(const Key& key) const;
  const Addresses* program_stack(u64 id);

  const Formats& formats_;
  const Tasks& tasks_;
  CodeMaps maps_;
  Names names_;
  IdTable<Kind> kinds_;
  std::vector<u64> words_;                       // the addresses of all stacks
  std::unordered_map<u64, Addresses> by_id_;
  std::vector<Stack> stacks_;                    // 0: none
  std::vector<Entry> numbers_ = std::vector<Entry>(1024);  // at most half full
  Key last_key_;
  u32 last_number_ = 0;
  std::vector<Frame> frames_;
  std::vector<std::string> functions_;
  std::unordered_map<u32, u32> text_of_;          // stack to its text
  std::vector<std::pair<std::string, u32>> texts_;  // and the first stack that has it
  std::unordered_map<std::string, u32> text_numbers_;
  std::unordered_map<u64, bool> missed_;
  std::function<void(Stacks&)> find_missing_;
  bool looked_ = false;
  u64 missing_ = 0, refused_ = 0, conflicts_ = 0, cut_ = 0;
};

}  // namespace ringside
