// expects: ringside: the fields of an event take at most 4,000 bytes
#include <ringside/trace.hpp>

#ifdef WRONG
using Block = ringside::array<ringside::u64, 500>;
#else
using Block = ringside::array<ringside::u64, 499>;
#endif
RINGSIDE_EVENT(wrong, too_long, (Block, block));
void call(const Block& block) { wrong::too_long(block); }
