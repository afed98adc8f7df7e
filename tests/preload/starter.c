// Starts PROGRAM (or replaces itself by it) in one of many ways; its exit code is PROGRAM's. starter WAY PROGRAM
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static int code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* way = argv[1];
  char* const arguments[] = {argv[2], NULL};
  int code = 101;
  if (strcmp(way, "vfork") == 0) {
    const pid_t child = vfork();
    if (child == 0) {
      close(60);  // the first event of this thread, if only io is recorded
      execv(arguments[0], arguments);
      _exit(102);
    }
    code = code_of(child);
  } else if (strcmp(way, "fork") == 0 || strcmp(way, "_Fork") == 0 || strcmp(way, "raw") == 0) {
    const pid_t child = way[0] == 'f' ? fork() : way[0] == '_' ? _Fork() : (pid_t)syscall(SYS_fork);
    if (child == 0) {
      close(61);
      execv(arguments[0], arguments);
      _exit(102);
    }
    code = code_of(child);
  } else if (strcmp(way, "spawn") == 0) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    pid_t child;
    if (posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ) == 0) code = code_of(child);
  } else if (strcmp(way, "system") == 0) {
    code = WEXITSTATUS(system(argv[2]));
  } else if (strcmp(way, "popen") == 0) {
    char line[256];
    FILE* from = popen(argv[2], "r");
    while (from != NULL && fgets(line, sizeof line, from) != NULL) fputs(line, stdout);
    code = WEXITSTATUS(pclose(from));
  } else if (strcmp(way, "exec") == 0) {
    execv(arguments[0], arguments);
  } else if (strcmp(way, "clean") == 0) {
    clearenv();
    execv(arguments[0], arguments);
  } else if (strcmp(way, "preload") == 0) {
    setenv("LD_PRELOAD", "libm.so.6", 1);
    execv(arguments[0], arguments);
  }
  for (int i = 0; i < 25; ++i) close(62);
  return code;
}
