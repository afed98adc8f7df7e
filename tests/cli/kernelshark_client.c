// usage: kernelshark_client FILE: what KernelShark's own library reads of a trace.dat, a line an event: TIME CPU TASK-PID EVENT
// INFO. It knows nothing of us. The first line says how many streams (buffers) and events there are.
#include <libkshark-tepdata.h>
#include <libkshark.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  struct kshark_context* context = NULL;
  if (argc != 2 || !kshark_instance(&context)) return 2;
  const int first = kshark_open(context, argv[1]);
  if (first < 0) return fprintf(stderr, "kshark_open: %d\n", first), 1;
  const int buffers = kshark_tep_init_all_buffers(context, first);
  if (buffers < 0) return fprintf(stderr, "kshark_tep_init_all_buffers: %d\n", buffers), 1;
  struct kshark_entry** rows = NULL;
  const ssize_t n = kshark_load_all_entries(context, &rows);
  if (n < 0) return fprintf(stderr, "kshark_load_all_entries: %zd\n", n), 1;
  printf("streams=%d events=%zd\n", context->n_streams, n);
  for (ssize_t i = 0; i < n; ++i) {
    char *task = kshark_get_task(rows[i]), *name = kshark_get_event_name(rows[i]), *info = kshark_get_info(rows[i]);
    printf("%lld %d %s-%d %s %s\n", (long long)rows[i]->ts, rows[i]->cpu, task ? task : "?", rows[i]->pid, name ? name : "?",
           info ? info : "?");
    free(task), free(name), free(info), free(rows[i]);
  }
  free(rows);
  kshark_free(context);
  return 0;
}
