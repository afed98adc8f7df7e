// The numbers of rings that the recorder fills by itself: samples of CPUs, and what names their addresses. They lie after
// those of an instance's rings, so a CPU may have a ring of each kind in one recording.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

constexpr u32 first_sample_ring = 1u << 17;
constexpr u32 file_call_ring = first_sample_ring + (3u << 14);  // of the calls that say which files descriptors are
// After those: of the recording's external writer of this number, from 1 (RingName::apart).
constexpr u32 first_apart_ring(u8 writer) { return (3u + writer) << 16; }

}  // namespace ringside
