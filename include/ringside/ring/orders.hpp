// Every memory order of the ring by name: the only place where one is spelled. Each is a template argument, so the explorer
// runs the real code with one of them weakened (tests/model/mutants_test.cpp): an order whose mutant survives is a guess.
//
// clang-format off
//   edge      releases                                        acquires                                  breaks without
//   COMMIT    commit_publish: committed bytes and count,      commit_observe: the reader's load         torn events
//             after payload and headers
//   ADVANCE   advance_publish: the commit place moves on,     advance_observe: the reader's load        final count, base and
//             after the old sub-buffer's last commit and                                                data seen too early
//             the new one's base
//   SWAP      the reader's CAS of the slot (acq_rel): its     slot_observe: the writer's load when      the writer overwrites
//             last reads of the page that it gives back       it enters the position                    bytes still being read
//   ENTER     the writer's release fence between the slot     enter_observe: the iterator's acquire     an iterator takes a mix
//             and its first store into the sub-buffer;        fence between its copy and the slot       of old and new bytes
//             flag_missed: the same, before the padding                                                 for good
//   STATE     a release fence before the reader's state is    state_observe: load of the generation,    a state of two moments
//             written, its generation after it                acquire fence before the second one
//   QUIET     the writer's store of nest = 0, after all       the controller's acquire load of nest,    a reset ring is
//             that it has published                           behind fence_heavy                        written to
//   PLACE     place_publish: which page is the reader's       the reader's load of it, out of the       a new page with the
//             (meta-page, footer), after what was lost        meta-page or the footers                  old one's loss
//             before it
//   WAKE      fence_light after the nest / commit store       fence_heavy on the other side             a sleeper misses the
//                                                                                                       last event
// clang-format on
#pragma once
#include <ringside/base/memory.hpp>

namespace ringside {

// Faults that the model tests plant, to show that they would be found. Never anything but `none` outside tests/model.
enum class Bug : u8 {
  none,
  commit_before_payload,  // publishes at reserve
  no_second_look,         // after nest = 0 nobody looks for what a handler left
  lost_overrun,           // overwrites without counting
  lap_not_advanced,       // the overwritten slot keeps its lap
  missed_moved,           // goes on when the reader has taken the sub-buffer that it was to overwrite
  inferred_reader_page,   // enters a position without asking the slot
  overwrite_commit_page,  // lets nested writers run over what is not committed
  handler_stays,          // a handler reserves where its outer may be about to store
  void_store_stays,       // a store that a handler overtook is taken for a reservation
  reset_without_check,    // readies a sub-buffer although a handler has moved on
  no_second_gate,         // goes on for what a handler left without a look at the gate
  moved_keeps_out,        // leaves what a handler left on a ring that is given up
  swap_before_intent,     // the reader takes a page and notes it afterwards
  cut_off_counts,         // takes `committed` of a CPU's ring for that of commit
};

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
  Order quiet_publish = Order::release;    // pairs: QUIET
  Order place_publish = Order::release;    // pairs: PLACE
  Bug bug = Bug::none;
  bool rings_of_cpus = true;  // false: there are only those of threads, and no code for others
};

}  // namespace ringside
