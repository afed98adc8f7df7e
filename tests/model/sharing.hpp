// Which contexts load and store which words, over all executions of a search. Two accesses commute unless they are of one word
// and one of them stores. A switch before an access that commutes with all that others do shows nothing that a switch before
// the next access does not show, so the search leaves it out: the result is the same, with a fraction of the executions.
//
// A search begins with no word known to be shared, and begins again when an execution shows a new one; what it proves, it proves
// with all words that its executions share. (A schedule left out that would share another word has a first such access. What
// stands before it commutes into an executed schedule, which then has that access, too.) The bound on preemptions stays exact:
// the switch moves to a later access of the same context, or to its end, and there is never a second one.
#pragma once
#include <bit>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::model {

enum class Access { load, store };  // store: also a compare-and-swap

class Sharing {
 public:
  static constexpr u32 most_contexts = 32;

  // Notes the access; true: it commutes with all accesses of other contexts that were known when the search began. Contexts
  // that cannot run beside each other have one number.
  bool commutes(const void* address, u32 context, Access access) {
    Word& word = find(u64(address));
    const Users me = access == Access::load ? Users{u32{1} << context, 0} : Users{0, u32{1} << context};
    word.seen.add(me);
    changed_ |= !word.known.has(me);
    if (word.known.conflict(me)) return false;
    word.relied.add(me);
    return true;
  }

  // What was noted is known from now on; true: an answer was wrong by what is known now.
  bool learn() {
    if (!changed_) return false;
    bool wrong = false;
    for (Word& word : words_) {
      wrong |= word.seen.conflict(word.relied);
      word.known = word.seen;
    }
    if (wrong)
      for (Word& word : words_) word.relied = {};
    changed_ = false;
    return wrong;
  }

 private:
  struct Users {  // a bit for each context
    u32 load = 0, store = 0;
    void add(Users o) { load |= o.load, store |= o.store; }
    bool has(Users o) const { return (o.load & ~load) == 0 && (o.store & ~store) == 0; }
    // Two contexts, of which one stores.
    bool conflict(Users o) const { return two(o.store, load | store) || two(o.load, store); }
    static bool two(u32 of, u32 and_of) { return of != 0 && and_of != 0 && std::popcount(of | and_of) > 1; }
  };
  struct Word {
    u64 address = 0;  // 0: empty
    Users seen;
    Users known;   // when the search began
    Users relied;  // whose accesses were said to commute
  };

  Word& find(u64 address) {
    size_t at = place(address);
    if (words_[at].address == address) return words_[at];
    if (++used_ * 2 > words_.size()) {
      std::vector<Word> old(words_.size() * 2);
      old.swap(words_);
      for (const Word& word : old)
        if (word.address != 0) words_[place(word.address)] = word;
      at = place(address);
    }
    words_[at].address = address;
    return words_[at];
  }

  size_t place(u64 address) const {
    size_t at = size_t((address >> 2) * 0x9E3779B97F4A7C15u >> 32) & (words_.size() - 1);
    while (words_[at].address != 0 && words_[at].address != address) at = (at + 1) & (words_.size() - 1);
    return at;
  }

  std::vector<Word> words_ = std::vector<Word>(256);
  size_t used_ = 0;
  bool changed_ = false;
};

}  // namespace ringside::model
