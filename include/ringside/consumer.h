// ringside/consumer.hpp in C: read any ring, live or recorded, in one time order.
//
//   char error[512];
//   const char* const kernel[] = {"sched:sched_switch", NULL};
//   struct ringside_consumer_options options = {.kernel = kernel, .duration_ns = 1000000000};
//   struct ringside_consumer* consumer = ringside_consumer_open(&options, error, sizeof error);
//   int prio = ringside_consumer_column(consumer, "sched:sched_switch/prev_prio", error, sizeof error);
//   struct ringside_consumer_event event;
//   int64_t value;
//   do {
//     while (ringside_consumer_next(consumer, &event))
//       if (ringside_consumer_number(consumer, prio, &value)) ...
//   } while (ringside_consumer_wait(consumer));
//   ringside_consumer_close(consumer);
//
// Lifetimes: hists and latencies may be closed after their consumer; until they are, what it has opened stays open, and they
// add nothing more. A consumer, with all that was made of it, is for one thread at a time; ringside_consumer_stop may be called
// from any thread and from signal handlers. Texts that are handed out are valid until the next call for the same consumer.
// `error` gets a sentence, cut to fit; it may be NULL. It also gets one for an argument that is NULL and must not be.
#ifndef RINGSIDE_CONSUMER_H
#define RINGSIDE_CONSUMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ringside_consumer;
struct ringside_hist;
struct ringside_latency;

struct ringside_consumer_options {
  const char* const* where;   // recordings, trace.dat files, instances, sockets; NULL after the last; NULL: none
  const char* const* kernel;  // live events of the kernel, globs over SYSTEM:EVENT; NULL after the last; NULL: none
  const char* filter;         // as of `ringside report --filter`; NULL: everything
  uint64_t kernel_buffer_size;  // bytes for each CPU; 0: 4 MiB
  uint64_t look_ahead_ns;       // how long a stalled source may delay the others; 0: 100 ms
  uint64_t duration_ns;         // 0: until ringside_consumer_stop, or the end of the recordings
  const char* time;             // a part, as of `ringside report --time`; NULL: all
};

// One event, or a gap: ringside::Event in C++.
struct ringside_consumer_event {
  uint64_t time;        // ns
  uint64_t lost;        // not 0: no event: the number of those lost here
  const uint8_t* data;  // the event's bytes, the 8 common ones first; valid until the next one is asked for
  uint32_t size;
  uint32_t id;  // the consumer's number for the type of event
  int32_t cpu;  // where its thread ran; -1: unknown (a ring of a thread, and no sched events give it)
  int32_t tid;  // 0: it does not say
};

// NULL: error says why.
struct ringside_consumer* ringside_consumer_open(const struct ringside_consumer_options* options, char* error,
                                                 size_t error_size);
void ringside_consumer_close(struct ringside_consumer* consumer);  // NULL is fine

bool ringside_consumer_next(struct ringside_consumer* consumer, struct ringside_consumer_event* event);  // false: nothing now
bool ringside_consumer_wait(struct ringside_consumer* consumer);                                  // false: that was all
void ringside_consumer_stop(struct ringside_consumer* consumer);

// A column, as of `ringside hist`: "sched:sched_switch/prev_prio", "task", "size.log2". Its number, or -1. Lives with the
// consumer. One that asks for stacks ("stack[0]"), here, in a hist or in a latency, is to be made before the first event.
int ringside_consumer_column(struct ringside_consumer* consumer, const char* text, char* error, size_t error_size);
// These read the event that next() handed out last. False: it has no such value, or one of another kind, or there is no such
// event: next() was not called yet, or has returned false.
bool ringside_consumer_number(struct ringside_consumer* consumer, int column, int64_t* value);
bool ringside_consumer_real(struct ringside_consumer* consumer, int column, double* value);  // of whole numbers, too
const char* ringside_consumer_text(struct ringside_consumer* consumer, int column);          // NULL: none
// Its line, as `ringside report` prints it; NULL: there is no event.
const char* ringside_consumer_line(struct ringside_consumer* consumer);

uint64_t ringside_consumer_events(const struct ringside_consumer* consumer);  // handed out
uint64_t ringside_consumer_lost(const struct ringside_consumer* consumer);    // in gaps
// All that was lost: in gaps, refused by the rings, or not recorded. Complete once next() has ended. *proved (NULL is fine): no
// more can be missing; else the problems say why.
uint64_t ringside_consumer_missing(struct ringside_consumer* consumer, bool* proved);
// The n-th problem; NULL: there are fewer. Those that are known at a call with n = 0, which begins the list anew.
const char* ringside_consumer_problem(struct ringside_consumer* consumer, size_t n);

// Counts by one column or two ("task", or "task,event"), and quantiles of a value (NULL: none).
struct ringside_hist* ringside_hist_open(struct ringside_consumer* consumer, const char* keys, const char* value, char* error,
                                         size_t error_size);
void ringside_hist_close(struct ringside_hist* hist);
bool ringside_hist_add(struct ringside_hist* hist);      // the event that next() handed out last
size_t ringside_hist_sort(struct ringside_hist* hist);   // the largest counts first; answers how many rows there are
const char* ringside_hist_key(const struct ringside_hist* hist, size_t row, unsigned key);  // NULL beyond the end
uint64_t ringside_hist_count(const struct ringside_hist* hist, size_t row);
double ringside_hist_sum(const struct ringside_hist* hist, size_t row);
double ringside_hist_quantile(const struct ringside_hist* hist, size_t row, double q);  // 0 to 1
uint64_t ringside_hist_evicted(const struct ringside_hist* hist);                       // events of keys given up for others

// The time from a start to the end that belongs to it: `ringside latency`. start_key and end_key are columns; NULL both: the
// thread; end_key alone NULL: it is start_key.
struct ringside_latency* ringside_latency_open(struct ringside_consumer* consumer, const char* start, const char* end,
                                               const char* start_key, const char* end_key, char* error, size_t error_size);
void ringside_latency_close(struct ringside_latency* latency);
// The event that next() handed out last; every one, gaps too. True: it ended a pair, which took *ns.
bool ringside_latency_add(struct ringside_latency* latency, uint64_t* ns);
uint64_t ringside_latency_count(const struct ringside_latency* latency);
double ringside_latency_quantile(const struct ringside_latency* latency, double q);  // ns
uint64_t ringside_latency_unmatched(const struct ringside_latency* latency);         // ends without a start

#ifdef __cplusplus
}
#endif
#endif
