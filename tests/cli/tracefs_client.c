// What a program does with libtracefs, on a directory that it takes for tracefs: an instance, an event, markers, raw events.
//   tracefs_client DIR INSTANCE [SYSTEM EVENT]
#include <stdio.h>
#include <string.h>
#include <tracefs.h>

static int print_event(struct tep_event* event, struct tep_record* record, int cpu, void* context) {
  struct trace_seq line;
  (void)cpu;
  trace_seq_init(&line);
  tep_print_event(event->tep, &line, record, "%s: %s", TEP_PRINT_NAME, TEP_PRINT_INFO);
  trace_seq_terminate(&line);
  printf("%s\n", line.buffer);
  trace_seq_destroy(&line);
  ++*(int*)context;
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3 || tracefs_set_tracing_dir(argv[1]) != 0) return 1;
  struct tracefs_instance* instance = tracefs_instance_create(argv[2]);
  if (instance == NULL) return 2;
  if (tracefs_trace_off(instance) != 0 || tracefs_trace_is_on(instance) != 0) return 3;
  if (tracefs_trace_on(instance) != 0 || tracefs_trace_is_on(instance) != 1) return 4;
  if (argc > 4 && tracefs_event_disable(instance, argv[3], argv[4]) != 0) return 5;
  if (argc > 4 && tracefs_event_enable(instance, argv[3], argv[4]) != 0) return 6;
  if (tracefs_print_init(instance) != 0) return 7;
  for (int i = 0; i < 3; ++i)
    if (tracefs_printf(instance, "marker %d", i) != 0) return 8;
  tracefs_print_close(instance);
  struct tep_handle* tep = tracefs_local_events(argv[1]);
  if (tep == NULL) return 9;
  int events = 0;
  char* id = tracefs_instance_file_read(instance, "events/ftrace/print/format", NULL);
  if (id == NULL || strstr(id, "name: print") == NULL) return 10;
  // Here the formats belong to the instance.
  if (tep_parse_event(tep, id, strlen(id), "ftrace") != 0) return 11;
  if (tracefs_iterate_raw_events(tep, instance, NULL, 0, print_event, &events) != 0) return 12;
  if (tracefs_instance_is_new(instance) && tracefs_instance_destroy(instance) != 0) return 13;
  return events == 3 ? 0 : 20 + events;
}
