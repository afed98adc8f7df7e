// Takes each block that a process allocates or frees, in the order of the events. Fed by Unfreed.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

class HeapChanges {
 public:
  virtual ~HeapChanges() = default;
  // process: as Unfreed has it; time: ns; stack: of the allocation, 0: it has none. A realloc is a free and an add of one time.
  virtual void add(i64 process, u64 time, u32 root, u32 stack, u64 bytes) = 0;
  virtual void free(i64 process, u64 time, u32 root, u32 stack, u64 bytes) = 0;
};

}  // namespace ringside
