// A weakly ordered memory. Each word keeps the history of its messages (value, and the view it was released with); each context
// has a view: per word the oldest message that it may still read.
//
//   load     any message not older than the view; the view moves up to it (coherence); acquire joins the message's view
//   store    a new newest message; release attaches the context's view, relaxed none
//   rmw      reads the newest message and passes its view on (release chain); acq_rel joins it and adds its own
//   fences   light takes what heavy fences gave, heavy takes what all fences gave; each gives its own view. So a light fence
//            orders against a heavy one, not against another light one, and is neither acquire nor release.
//            release: every later store carries at least the view of now; acquire: joins what earlier relaxed loads met
//
// Limits: stores enter the history in the order of execution, so there is no load buffering and no reordering of two stores
// to one word; loads are executed in program order (what they see may be old); seq_cst exists as fences only; a failing
// compare-and-swap sees the newest value; dependencies order nothing.
// What is in the real memory at the first access is message 0, which everybody knows. The real memory always holds the
// newest value. A word is 4 or 8 bytes at any multiple of 4, and always accessed as a whole.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::model {

// Where a message stands in its word's history, below an execution's most accesses: of 16 bits with a sign, as every x86-64 has
// a vector maximum of those, and joining views is what an exploration does most.
using MessageNumber = std::int16_t;

// Words beyond the end are at message 0.
class View {
 public:
  u32 operator[](u32 word) const { return word < oldest_.size() ? u32(oldest_[word]) : 0; }
  void clear() { oldest_.clear(); }
  u32 size() const { return u32(oldest_.size()); }
  const MessageNumber* data() const { return oldest_.data(); }

  void raise(u32 word, u32 message) {
    if (word >= oldest_.size()) oldest_.resize(word + 1, 0);
    if (oldest_[word] < MessageNumber(message)) oldest_[word] = MessageNumber(message);
  }
  void join(const MessageNumber* other, u32 size) {
    if (size > oldest_.size()) oldest_.resize(size, 0);
    MessageNumber* mine = oldest_.data();
    for (u32 i = 0; i < size; ++i) mine[i] = std::max(mine[i], other[i]);
  }
  void join(const View& other) { join(other.data(), other.size()); }

 private:
  std::vector<MessageNumber> oldest_;
};

// What a context's release and acquire fences stand for.
struct Fenced {
  u32 view = 0, view_size = 0;  // of the last release fence, in the memory's views
  View met;                     // of the messages that relaxed loads have read

  void clear() {
    view = view_size = 0;
    met.clear();
  }
};

class WeakMemory {
 public:
  static constexpr u32 none = ~u32{0};

  void reset() {  // keeps what it has allocated
    ++generation_;
    used_ = 0;
    views_.clear();
    light_.clear();
    heavy_.clear();
  }

  // The word at this address, a new one if need be; none: it overlaps a word of another place or size.
  u32 word(const void* address, u32 size) {
    u32 found = find(u64(address));
    if (found != none) return words_[found].size == size ? found : none;
    if (inside_word(address) || (size == 8 && width(u64(address) + 4) != 0)) return none;
    return add(u64(address), size);
  }

  // How many bytes the word that starts here has; 0: nobody has accessed it yet.
  u32 width(u64 address) const {
    u32 found = find(address);
    return found == none ? 0 : words_[found].size;
  }
  bool inside_word(const void* address) const { return width(u64(address) - 4) == 8; }

  // Somebody stored past the model: the history is wrong from here on.
  bool bypassed(u32 word) const { return real(words_[word]) != words_[word].history.back().value; }

  const void* bypassed() const {  // the first such word
    for (u32 i = 0; i < used_; ++i)
      if (bypassed(i)) return reinterpret_cast<const void*>(words_[i].address);
    return nullptr;
  }

  u32 readable(u32 word, const View& view) const { return newest(word) - view[word] + 1; }
  u32 newest(u32 word) const { return u32(words_[word].history.size()) - 1; }
  bool newest_is_wild(u32 word) const { return words_[word].history.back().wild; }
  u64 value(u32 word) const { return words_[word].history.back().value; }

  u64 load(u32 word, u32 age, View& view, Fenced& fenced, bool acquire) {
    u32 index = newest(word) - age;
    Message message = words_[word].history[index];
    view.raise(word, index);
    join(acquire ? view : fenced.met, message);
    return message.value;
  }

  void store(u32 word, u64 value, View& view, const Fenced& fenced, bool release) {
    push(word, {value, fenced.view, fenced.view_size, false}, view);
    if (release) attach(word, view);
  }

  // A store by nobody: no context knows of it, and nothing is known through it.
  void store_wild(u32 word, u64 value) { push(word, {value, 0, 0, true}, no_one_); }

  void rmw(u32 word, u64 value, View& view, Fenced& fenced, bool acq_rel) {
    Message before = words_[word].history.back();
    join(acq_rel ? view : fenced.met, before);
    push(word, {value, before.view, before.view_size, false}, view);
    if (acq_rel)
      attach(word, view);
    else if (fenced.view_size != 0) {
      scratch_.clear();
      join(scratch_, before);
      join(scratch_, {0, fenced.view, fenced.view_size, false});
      attach(word, scratch_);
    }
  }

  void fence_release(const View& view, Fenced& fenced) {
    fenced.view = u32(views_.size());
    fenced.view_size = view.size();
    views_.insert(views_.end(), view.data(), view.data() + view.size());
  }

  void fence_acquire(View& view, const Fenced& fenced) { view.join(fenced.met); }

  void fence_light(View& view) {
    view.join(heavy_);
    light_.join(view);
  }

  void fence_heavy(View& view) {
    view.join(light_);
    view.join(heavy_);
    heavy_.join(view);
  }

 private:
  struct Message {
    u64 value;
    u32 view, view_size;  // in views_
    bool wild;
  };
  struct Word {
    u64 address;
    u32 size;
    std::vector<Message> history;
  };
  struct Slot {
    u64 address;
    u32 word, generation;  // of another generation: empty
  };

  static u64 real(const Word& word) {
    const void* at = reinterpret_cast<const void*>(word.address);
    u64 value = 0;
    word.size == 8 ? memcpy(&value, at, 8) : memcpy(&value, at, 4);  // of a size that the compiler knows
    return value;
  }

  size_t slot_of(u64 address) const {
    size_t at = size_t((address >> 2) * 0x9E3779B97F4A7C15u >> 32) & (slots_.size() - 1);
    while (slots_[at].generation == generation_ && slots_[at].address != address) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  u32 find(u64 address) const {
    const Slot& slot = slots_[slot_of(address)];
    return slot.generation == generation_ ? slot.word : none;
  }

  u32 add(u64 address, u32 size) {
    if (used_ * 2 >= slots_.size()) {
      slots_.assign(slots_.size() * 2, {});
      for (u32 i = 0; i < used_; ++i) slots_[slot_of(words_[i].address)] = {words_[i].address, i, generation_};
    }
    if (used_ == words_.size()) words_.emplace_back();
    Word& word = words_[used_];
    word.address = address;
    word.size = size;
    word.history.clear();
    word.history.push_back({real(word), 0, 0, false});
    slots_[slot_of(address)] = {address, used_, generation_};
    return used_++;
  }

  void push(u32 index, const Message& message, View& view) {
    Word& word = words_[index];
    word.history.push_back(message);
    void* at = reinterpret_cast<void*>(word.address);
    word.size == 8 ? memcpy(at, &message.value, 8) : memcpy(at, &message.value, 4);
    view.raise(index, u32(word.history.size()) - 1);
  }

  void attach(u32 word, const View& view) {
    Message& message = words_[word].history.back();
    message.view = u32(views_.size());
    message.view_size = view.size();
    views_.insert(views_.end(), view.data(), view.data() + view.size());
  }

  void join(View& view, const Message& message) { view.join(views_.data() + message.view, message.view_size); }

  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::vector<Word> words_;
  std::vector<MessageNumber> views_;
  View light_, heavy_, no_one_, scratch_;
  u32 used_ = 0;
  u32 generation_ = 1;
};

}  // namespace ringside::model
