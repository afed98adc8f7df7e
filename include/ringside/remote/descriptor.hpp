// What an external writer learns about its rings: one blob, which says where in the shared region each sub-buffer lies. It
// holds only offsets, so it means the same wherever either side maps the region. The reader's side, which allocates the region,
// packs it; the writer parses it. Native endianness. The checksum covers all of it, so a blob is recognised anywhere, also in a
// memory dump.
//
//   offset  size  field
//   0       8     magic "RSREMOTE"
//   8       4     version, 1
//   12      4     bytes of the whole blob
//   16      4     layout: 1 page footers (abi/page_footer.hpp), 2 meta-page kept by the writer (abi/meta_page.hpp)
//   20      4     clock: 0 raw time stamp counter, 1 CLOCK_MONOTONIC in ns, 2 whatever the writer counts
//   24      4     subbuf_size
//   28      4     nr_rings
//   32      8     bytes of the shared region
//   40      8     checksum over the blob with this field 0: FNV-1a over its 8-byte words
//   48            for each ring:
//   +0      4       id; ids ascend
//   +4      4       nr_pages: sub-buffers, the reader page included; at least 3
//   +8      8       offset of the meta-page (subbuf_size long; layout 1: the place for one, which nobody writes)
//   +16     8 * n   offsets of the sub-buffers by id; the first one is the reader's
//
// Offsets are multiples of subbuf_size, in any order, as an allocator hands pages out; no two are equal. Where they ascend, one
// pass checks that without memory; otherwise each is compared with all before it, so there are most_unordered of them at most.
// Ids ascend. A blob from a peer is a WildDescriptor; only check() makes a Descriptor of it, from a copy that the peer cannot
// change.
#pragma once
#include <ringside/abi/page_footer.hpp>
#include <ringside/base/ticks.hpp>
#include <ringside/ring/geometry.hpp>

namespace ringside::remote {

enum class Layout : u32 { footers = 1, meta_page = 2 };

struct DescriptorHeader {
  u64 magic;
  u32 version, bytes;
  u32 layout, clock;
  u32 subbuf_size, nr_rings;
  u64 region_bytes;
  u64 checksum;
};
struct RingHeader {
  u32 id, nr_pages;
  u64 meta;
};
static_assert(sizeof(DescriptorHeader) == 48 && sizeof(RingHeader) == 16);

inline constexpr u64 descriptor_magic = 0x45544F4D45525352;  // "RSREMOTE"
inline constexpr u32 descriptor_version = 1;
inline constexpr u32 most_unordered = 4096;  // words of a descriptor whose offsets do not ascend

// One ring of a checked descriptor. Points into the blob.
struct RingLayout {
  u32 id = 0, nr_pages = 0;
  u64 meta = 0;
  const u64* pages = nullptr;
};

class Descriptor {
 public:
  Descriptor() = default;  // describes nothing
  Layout layout() const noexcept { return static_cast<Layout>(header().layout); }
  u32 clock() const noexcept { return header().clock; }
  u32 subbuf_size() const noexcept { return header().subbuf_size; }
  u32 nr_rings() const noexcept { return nr_rings_; }
  u64 region_bytes() const noexcept { return header().region_bytes; }
  u32 bytes() const noexcept { return header().bytes; }
  // index: below nr_rings, in the blob's order. Walks over the rings before it.
  RingLayout ring(u32 index) const noexcept {
    const u8* at = blob_ + sizeof(DescriptorHeader);
    for (;; --index) {
      const auto* const r = reinterpret_cast<const RingHeader*>(at);
      if (index == 0) return {r->id, r->nr_pages, r->meta, reinterpret_cast<const u64*>(r + 1)};
      at += sizeof(RingHeader) + u64{r->nr_pages} * 8;
    }
  }
  Geometry geometry(u32 nr_pages) const noexcept {
    return {subbuf_size(), nr_pages, 0, layout() == Layout::footers ? abi::footer_size : 0};
  }

 private:
  friend class WildDescriptor;
  const DescriptorHeader& header() const noexcept { return *reinterpret_cast<const DescriptorHeader*>(blob_); }
  const u8* blob_ = nullptr;
  u32 nr_rings_ = 0;
};

inline u64 checksum_of(const u8* blob, u64 bytes) noexcept {
  u64 sum = 0xCBF29CE484222325;
  for (u64 at = 0; at + 8 <= bytes; at += 8)
    sum = (sum ^ (at == offsetof(DescriptorHeader, checksum) ? 0 : *reinterpret_cast<const u64*>(blob + at))) * 0x100000001B3;
  return sum;
}

// What is wrong with a blob. A Verdict adds in which of its rings, in the blob's order.
enum class Wrong : u8 {
  no,
  too_short,
  magic,
  version,
  length,
  checksum,
  layout,
  clock,
  subbuf_size,
  region,
  no_rings,
  cut,
  same_id,
  id_order,
  few_pages,
  many_pages,
  large_id,
  unaligned,
  overlap,
  unordered,
  beyond,
  trailing,
};

constexpr const char* to_string(Wrong w) noexcept {
  switch (w) {
    case Wrong::no: return "nothing is wrong";
    case Wrong::too_short: return "it is shorter than its header";
    case Wrong::magic: return "its magic number is not RSREMOTE";
    case Wrong::version: return "its version is not 1";
    case Wrong::length: return "its length is not that of the blob";
    case Wrong::checksum: return "its checksum does not match";
    case Wrong::layout: return "its layout is neither page footers nor a meta-page";
    case Wrong::clock: return "its clock is unknown";
    case Wrong::subbuf_size: return "its sub-buffer size is no power of two from 4096 to 262144";
    case Wrong::region: return "it describes more memory than there is";
    case Wrong::no_rings: return "it has no rings";
    case Wrong::cut: return "it ends within a ring";
    case Wrong::same_id: return "two rings have the same id";
    case Wrong::id_order: return "the rings' ids do not ascend";
    case Wrong::few_pages: return "a ring has fewer than 3 sub-buffers";
    case Wrong::many_pages: return "a ring has too many sub-buffers";
    case Wrong::large_id: return "a ring's id is not below 2^24";
    case Wrong::unaligned: return "an offset is no multiple of the sub-buffer size";
    case Wrong::overlap:
      return "two sub-buffers are one";
    case Wrong::unordered:
      return "more than 4,096 sub-buffers do not ascend";
    case Wrong::beyond: return "a sub-buffer reaches beyond the region";
    case Wrong::trailing: return "something follows its last ring";
  }
  return "?";
}

struct Verdict {
  Wrong wrong = Wrong::no;
  u32 index = 0;
  constexpr bool good() const noexcept { return wrong == Wrong::no; }
};

class WildDescriptor {
 public:
  // blob: 8-byte aligned. Nobody else can change it from now on.
  WildDescriptor(const void* blob, u64 bytes) noexcept : blob_(static_cast<const u8*>(blob)), bytes_(bytes) {}

  // region_bytes: the size of the region as this side sees it; the descriptor may use less. Bounded by the blob's size.
  Verdict check(u64 region_bytes, Descriptor& out) const noexcept {
    out = {};
    if (bytes_ < sizeof(DescriptorHeader)) return {Wrong::too_short, 0};
    const auto& h = *reinterpret_cast<const DescriptorHeader*>(blob_);
    if (h.magic != descriptor_magic) return {Wrong::magic, 0};
    if (h.version != descriptor_version) return {Wrong::version, 0};
    if (h.bytes > bytes_ || h.bytes < sizeof h || h.bytes % 8 != 0) return {Wrong::length, 0};
    if (h.checksum != checksum_of(blob_, h.bytes)) return {Wrong::checksum, 0};
    if (h.layout != static_cast<u32>(Layout::footers) && h.layout != static_cast<u32>(Layout::meta_page))
      return {Wrong::layout, 0};
    if (h.clock > last_clock_kind) return {Wrong::clock, 0};
    if (!Geometry(h.subbuf_size, fewest_subbufs).valid()) return {Wrong::subbuf_size, 0};
    if (h.region_bytes > region_bytes) return {Wrong::region, 0};
    if (h.nr_rings == 0) return {Wrong::no_rings, 0};
    const auto* word = reinterpret_cast<const u64*>(&h + 1);
    const auto* const end = reinterpret_cast<const u64*>(blob_ + h.bytes);
    u64 free = 0;
    u32 last = 0;
    for (u32 index = 0; index < h.nr_rings; ++index) {
      if (end - word < 2) return {Wrong::cut, index};
      const auto& r = *reinterpret_cast<const RingHeader*>(word);
      if (index != 0 && r.id == last) return {Wrong::same_id, index};
      if (index != 0 && r.id < last) return {Wrong::id_order, index};
      last = r.id;
      if (r.nr_pages < fewest_subbufs) return {Wrong::few_pages, index};
      if (r.nr_pages > most_subbufs) return {Wrong::many_pages, index};
      if (r.id >= abi::footer_rings) return {Wrong::large_id, index};
      if (end - word - 2 < r.nr_pages) return {Wrong::cut, index};
      ++word;  // the offsets: of the meta-page, then of the sub-buffers
      for (const auto* const next = word + r.nr_pages + 1; word != next; ++word) {
        if ((*word & (h.subbuf_size - 1)) != 0) return {Wrong::unaligned, index};
        if (*word > h.region_bytes || h.region_bytes - *word < h.subbuf_size) return {Wrong::beyond, index};
        if (*word >= free) {
          free = *word + h.subbuf_size;
          continue;
        }
        free = ~u64{0};  // from here on they are in no order
        if (h.bytes > sizeof h + 8 * most_unordered) return {Wrong::unordered, index};
        if (is_earlier(word)) return {Wrong::overlap, index};
      }
    }
    if (word != end) return {Wrong::trailing, 0};
    out.blob_ = blob_;
    out.nr_rings_ = h.nr_rings;
    return {};
  }

 private:
  // Does a place before this one have its offset? Those are checked. A ring's offsets follow its first eight bytes.
  bool is_earlier(const u64* place) const noexcept {
    for (auto* word = reinterpret_cast<const u64*>(blob_ + sizeof(DescriptorHeader));;) {
      u32 left = reinterpret_cast<const RingHeader*>(word)->nr_pages + 1;
      for (++word; left != 0; --left, ++word) {
        if (word == place) return false;
        if (*word == *place) return true;
      }
    }
  }
  const u8* blob_;
  u64 bytes_;
};

// What to pack: nr_rings rings of nr_pages sub-buffers each, one after the other from the start of the region, with ids from
// 0.
struct Plan {
  Layout layout = Layout::meta_page;
  u32 clock = 0;
  u32 subbuf_size = 4096;
  u32 nr_rings = 1, nr_pages = 0;

  constexpr bool valid() const noexcept {
    return Geometry(subbuf_size, nr_pages).valid() && nr_rings != 0 && nr_rings <= 65536 && descriptor_bytes() <= 1u << 30;
  }
  constexpr u64 ring_bytes() const noexcept {
    return u64{subbuf_size} * (u64{nr_pages} + 1);
  }  // as a mapping: meta-page, sub-buffers
  constexpr u64 region_bytes() const noexcept { return ring_bytes() * nr_rings; }
  constexpr u64 descriptor_bytes() const noexcept {
    return sizeof(DescriptorHeader) + u64{nr_rings} * (sizeof(RingHeader) + u64{nr_pages} * 8);
  }
};

// to: plan.descriptor_bytes(), 8-byte aligned; the plan is valid.
inline void pack(const Plan& plan, void* to) noexcept {
  auto* const blob = static_cast<u8*>(to);
  auto& h = *reinterpret_cast<DescriptorHeader*>(blob);
  h = {descriptor_magic,
       descriptor_version,
       static_cast<u32>(plan.descriptor_bytes()),
       static_cast<u32>(plan.layout),
       plan.clock,
       plan.subbuf_size,
       plan.nr_rings,
       plan.region_bytes(),
       0};
  u8* at = blob + sizeof h;
  for (u32 ring = 0; ring < plan.nr_rings; ++ring) {
    auto& r = *reinterpret_cast<RingHeader*>(at);
    r = {ring, plan.nr_pages, ring * plan.ring_bytes()};
    auto* const pages = reinterpret_cast<u64*>(at + sizeof r);
    for (u32 id = 0; id < plan.nr_pages; ++id) pages[id] = r.meta + u64{plan.subbuf_size} * (u64{id} + 1);
    at += sizeof r + u64{plan.nr_pages} * 8;
  }
  h.checksum = checksum_of(blob, h.bytes);
}

}  // namespace ringside::remote
