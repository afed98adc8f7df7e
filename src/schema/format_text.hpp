// The texts of tracefs that describe bytes: events/header_page, events/header_event and an event's format file. A reader
// of the kernel's texts can read these.
#pragma once
#include <ringside/event.hpp>
#include <string>
#include <string_view>

namespace ringside {

using detail::plain;

// An event's texts: its own, or made from its fields. fields: the lines of a format file, each with its newline; print: what
// follows "print fmt: ". As libtraceevent 1.7 understands it: it extends no sign by itself, knows no %c, but takes a char for a
// string of one, and knows no floating point: float and double print as their bits in hexadecimal, arrays as unsigned numbers;
// a reader that knows the type's name can do better.
struct EventTexts {
  std::string fields, print;
};
EventTexts texts_of(const ringside_event& event);

// An event's format file; id: 1 to 65,535.
std::string format_text(std::string_view name, u32 id, std::string_view fields, std::string_view print);
std::string format_text(const ringside_event& event, u32 id);

// The layout of a sub-buffer; subbuf_size in bytes with its 16-byte header. As printed by x86-64 kernels up to 6.18.
std::string header_page_text(u32 subbuf_size);

// The layout of an event's header.
std::string_view header_event_text();

}  // namespace ringside
