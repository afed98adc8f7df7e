// The kernel's printf prints the memory at an address for %pU, %pM, %pI4 and their kin. In a trace the memory is a field.
#pragma once
#include <string_view>

#include "decode/append.hpp"

namespace ringside {

// The letters after %p at the beginning of `text` that name such a form; empty: none.
//   U[LlBb] · M[RF] m[R] · I4[hnlb] i4[hnlb] · I6[c] i6 · IS[pfsc][hnlb] iS · h[CDN] · b[l] · E[achnops] · a[dp] · 4cc
std::string_view memory_form(std::string_view text);

struct PrintedMemory {
  Bytes bytes;              // those that the payload has of the field, as they were there; the others count as 0
  size_t size = 0;          // of the field
  size_t bits = 0;          // of a bitmap, whose words are little-endian already
  bool big_endian = false;  // the machine was
};
void append_memory(std::string_view form, const PrintedMemory& of, fmt::memory_buffer& out);

// A bitmap's groups of 32 bits, the highest first, and its ranges: 00000005 and 0,2; of at most `most` bits.
void append_bitmap(Bytes bytes, size_t most, fmt::memory_buffer& out);
void append_bit_ranges(Bytes bytes, size_t most, fmt::memory_buffer& out);

}  // namespace ringside
