// What starter starts; also built statically.
#include <unistd.h>

int main(void) {
  char path[] = "/dev/null";
  return write(1, path, 9) == 9 && access(path, F_OK) == 0 ? 5 : 1;
}
