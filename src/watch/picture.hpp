// Pictures made of characters: bars, sparklines, heat maps, in Unicode's block elements or in ASCII.
//
//   put(bar(0.4, 20, Glyphs::unicode))                  "████████            "
//   put(sparkline({1, 5, 3}, Glyphs::unicode))          "▂█▅"
//   put(heat_map(heat, 80, glyphs(ascii)))              a line for each power of two of ns, the slowest on top
//
// Widths are columns of the terminal: for heat maps the largest width, for the others the exact one.
#pragma once
#include <functional>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

#include "analysis/heat_map.hpp"
#include <ringside/histogram.hpp>
#include "text/units.hpp"

namespace ringside {

enum class Glyphs : u8 { unicode, ascii };
// ASCII if requested, or if the locale (LC_ALL, LC_CTYPE, LANG; the first one that is set) does not use UTF-8.
Glyphs glyphs(bool ascii);

// The width of the terminal on stdout; 80 if stdout is none.
size_t terminal_width();
size_t terminal_height();

// `share` (clamped to 0 to 1) of `width` columns, to an eighth of one; any share above 0 is visible.
std::string bar(double share, size_t width, Glyphs glyphs);

// One column for each value, as high as its share of `top` (0: of the largest one). Zero and NaN are blank.
std::string sparkline(const std::vector<double>& values, Glyphs glyphs, double top = 0);

// One character for the logarithmic share of `count` in `most`; blank for 0 only.
std::string shade(u64 count, u64 most, Glyphs glyphs);

// A histogram of times in ns by powers of two, from the smallest that occurred to the largest:
//   4.1 us - 8.19 us  ██████████████        12,345
std::string time_bars(const Histogram& histogram, size_t width, Glyphs glyphs, TimeUnit unit = TimeUnit::ns);

// Times in ns (rows, powers of two or parts of them, the largest on top) over time (columns), shaded by count; below, the begin
// of the first column and the end of the last, in seconds. At most `height` rows: if there are more, the smallest are merged
// (marked "<"). `label` formats the sizes where they are no times; unit: of the columns' time.
std::string heat_map(const HeatMap& heat, size_t width, Glyphs glyphs, TimeUnit unit = TimeUnit::ns, size_t height = 24,
                     const std::function<std::string(double)>& label = {});

}  // namespace ringside
