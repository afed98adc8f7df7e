// Every memory order of the ring by name. No other header of ring/ and remote/ spells one; tools/check_pairs sees to it.
//
// An edge orders what one side did before its publishing access before what the other side does after its observing access. The
// orders of `Orders` are a template argument, so the explorer runs the real code with one of them weakened (tests/model): an
// order whose mutant survives is a guess, and says so here.
//
// clang-format off
//   edge      publishes                                       observes                                  breaks without
//   COMMIT    commit_publish: committed bytes and count,      commit_observe: the reader's load         torn events
//             after payload and headers
//   ADVANCE   advance_publish: the commit position moves,     advance_observe: the reader's load        final count, base and
//             after the old sub-buffer's last commit and                                                data seen too early
//             the new one's base
//   SWAP      the reader's CAS of the slot (acq_rel): its     slot_observe: the writer's load when      the writer overwrites
//             last reads of the page that it gives back       it enters the position; all other loads   bytes still being read
//                                                             of a slot have the name, too
//   ENTER     enter_publish: the writer's release fence       enter_observe: the iterator's acquire     an iterator takes a mix
//             between the slot and its first store into       fence between its copy and its second     of old and new bytes
//             the sub-buffer; flag_missed: the same,          look at the slot                          for good
//             before it writes over the padding
//   STATE     state_publish: a release fence before the       state_observe: load of the generation,    a state of two moments
//             reader's state is written, its generation       acquire fence before the second one
//             after it
//   INTENT    intent_publish: what the reader is about to     intent_observe: load of the intent by     a guess: both mutants
//             put into a slot, or has (intent, exchange,      code that finishes a dead reader's swap,  survive, since the CAS
//             spare)                                          and by iterators                          of the slot orders it
//   LOCK      lock_publish: reader_lock = 0, after all that   the next reader's CAS of reader_lock      an event is read twice
//             the reader has stored
//   QUIET     quiet_publish: the writer's store of nest = 0,  quiet_observe: the controller's load      a reset ring is
//             after all that it has published                 of nest, after fence_heavy                written to
//   GATE      gate_publish: a controller closes the gate      gate_observe: the writer's load of the    a writer and a controller
//             before fence_heavy and its look at nest, and    gate, after its store of nest and         both take the ring; a
//             opens it after all that it has cleared          fence_light                               writer goes on with words
//                                                                                                       from before a reset
//   PLACE     place_publish: which page is the reader's       the reader's load of it, out of the       a new page with the
//             (meta-page, footer), after what was lost        meta-page or the footers                  old one's loss
//             before it
//   MAP       the CAS that puts a CPU's ring into the         map_observe: the writer's load of the     addresses of a ring that
//             process's table, after its addresses            table's entry                             are not there yet
//   SESSION   session_publish: the rings of an external       session_observe: the writing thread's     a writer that is not
//             writer's reader, after they are made            load                                      made yet
//   WAKE      fence_light after the nest / commit store       fence_heavy on the other side             a sleeper misses the
//                                                                                                       last event
// clang-format on
#pragma once
#include <ringside/base/memory.hpp>

namespace ringside {

// Faults that the model tests plant, to show that they would be found. Outside tests/model always `none`.
enum class Bug : u8 {
  none,
  commit_before_payload,  // publishes at reserve
  no_second_look,         // after nest = 0 nothing looks for what a handler left
  lost_overrun,           // overwrites without counting
  lap_not_advanced,       // the overwritten slot keeps its lap
  missed_moved,           // goes on when the reader has taken the sub-buffer that it was to overwrite
  inferred_reader_page,   // enters a position without asking the slot
  overwrite_commit_page,  // lets nested writers run over what is not committed
  handler_stays,          // a handler reserves where its outer may be about to store
  void_store_stays,       // a store that a handler has made void is taken for a reservation
  reset_without_check,    // readies a sub-buffer although a handler has moved on
  no_second_gate,         // goes on for what a handler left without a check of the gate
  moved_keeps_out,        // does not publish what a handler left on a ring that is given up
  swap_before_intent,     // the reader takes a page and notes it afterwards
  cut_off_counts,         // takes `committed` of a CPU's ring without a check of commit
};

// The order of an access that orders nothing: to a word that only this side writes; a store that a named one after it
// publishes; a load that comes after a named one, or has a check after it; a number that is only shown.
inline constexpr Order unordered = Order::relaxed;

struct Orders {
  Order commit_publish = Order::release;   // pairs: COMMIT
  Order commit_observe = Order::acquire;   // pairs: COMMIT
  Order advance_publish = Order::release;  // pairs: ADVANCE
  Order advance_observe = Order::acquire;  // pairs: ADVANCE
  Order slot_observe = Order::acquire;     // pairs: SWAP
  Order enter_publish = Order::release;    // pairs: ENTER
  Order enter_observe = Order::acquire;    // pairs: ENTER
  Order state_publish = Order::release;    // pairs: STATE
  Order state_observe = Order::acquire;    // pairs: STATE
  Order intent_publish = Order::release;   // pairs: INTENT
  Order intent_observe = Order::acquire;   // pairs: INTENT
  Order lock_publish = Order::release;     // pairs: LOCK
  Order quiet_publish = Order::release;    // pairs: QUIET
  Order quiet_observe = Order::acquire;    // pairs: QUIET
  Order place_publish = Order::release;    // pairs: PLACE
  Order gate_observe = Order::acquire;     // pairs: GATE
  Bug bug = Bug::none;
  bool rings_of_cpus = true;  // false: only rings of threads, and no code for others
};

// Edges outside the explorer's models.
inline constexpr int gate_publish = __ATOMIC_SEQ_CST;      // pairs: GATE
inline constexpr int map_observe = __ATOMIC_ACQUIRE;       // pairs: MAP
inline constexpr Order session_publish = Order::release;   // pairs: SESSION
inline constexpr Order session_observe = Order::acquire;   // pairs: SESSION

// The fence of an edge. A mutant's order is relaxed: it has none.
template <class M, Order o>
RINGSIDE_INLINE void fence_of() noexcept {
  if constexpr (o == Order::release) M::fence_release();
  if constexpr (o == Order::acquire) M::fence_acquire();
}

}  // namespace ringside
