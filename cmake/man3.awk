# A man page of section 3 from a header: the comment at its top, then each documented declaration.
#   awk -v page=ringside -v out=DIR -v version=0.1.0 -f man3.awk HEADER
# writes DIR/page.3, and for each function and macro a page that leads there. A comment stands directly above what it describes.
function roff(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  if (text ~ /^[.']/) text = "\\&" text
  return text
}
# A comment's lines: indented ones stand as they are.
function prose(n, lines,    i, t, code, text) {
  code = 0
  for (i = 1; i <= n; i++) {
    t = lines[i]
    if (t ~ /^  /) {
      if (!code) print ".PP\n.nf" > file
      code = 1
    } else if (code && t != "") {
      print ".fi\n.PP" > file
      code = 0
    }
    if (t == "") print(code ? "" : ".PP") > file
    else print roff(t) > file
  }
  if (code) print ".fi" > file
}
function is_type(line) { return line ~ /^(class|struct)[^(;]*\{/ }
function link(name) {
  if (page == "ringside-trace" || name == "" || name == page || (name in linked)) return
  linked[name] = 1
  print ".so man3/" page ".3" > (out "/" name ".3")
  close(out "/" name ".3")
}
# The documented declarations in `code`: functions, macros that people call, types; not what the headers need for themselves.
function wanted(line) {
  if (line ~ /^#define RINGSIDE_(EVENT|EVENT_AS|TRACE|MARKER)\(/) return 1
  if (line ~ /^(static|extern|template|typedef|inline const|#|using|namespace|RINGSIDE_SHARED|\[\[gnu::tls|constexpr|inline constexpr)/) return line ~ /^static inline void ringside_(span|instant|counter)/
  if (detail > 0) return 0
  if (is_type(line)) return page ~ /consumer|trace/
  return line ~ /^[A-Za-z\[].*\(/
}
function declaration(    i, line, text, name) {
  # What the consumers' headers declare is for callers, with or without a comment of its own.
  if (n_comment == 0 && page !~ /consumer/) return
  first = code[1] ~ /^template/ ? 2 : 1
  if (!wanted(code[first])) return
  print ".SS " title(code[first]) > file
  print ".nf" > file
  if (is_type(code[first])) {
    type()
  } else {
    for (i = 1; i <= n_code; i++) {
      line = code[i]
      if (line ~ /^#define/) {
        match(line, /\)/)
        print roff(substr(line, 9, RSTART - 8)) > file
        name = line; sub(/^#define /, "", name); sub(/\(.*/, "", name)
        link(name)
        break
      }
      if (line !~ /^[A-Za-z\[ ]/) continue
      if (i > 1 && code[i - 1] ~ /\{$/) { while (i < n_code && code[i] !~ /^\}/) i++; continue }
      text = line
      sub(/ *\{.*$/, ";", text)
      sub(/^(\[\[[^]]*\]\] |RINGSIDE_INLINE |static inline |inline )+/, "", text)
      print roff(text) > file
      name = text
      if (name ~ /\(/) {
        sub(/\(.*/, "", name); sub(/^.*[ *&]/, "", name)
        if (name ~ /^ringside_/) link(name)
      }
    }
  }
  print ".fi" > file
  if (n_comment > 0) { print ".PP" > file; prose(n_comment, comment) }
}
# The public part of a type: functions without their bodies.
function type(    i, line, depth, hidden) {
  hidden = 0
  for (i = 1; i <= n_code; i++) {
    line = code[i]
    if (line ~ /^ *private:/) { match(line, /[^ ]/); hidden = RSTART }
    # The end of the type whose private part this is: its brace stands one column to the left of `private:`.
    if (hidden > 0 && line ~ /^ *\};/) { match(line, /[^ ]/); if (RSTART < hidden) hidden = 0 }
    if (hidden > 0) continue
    if (line ~ /[)a-z] \{$/ && line ~ /\(/) {
      match(line, /[^ ]/); column = RSTART
      sub(/ *\{$/, ";", line)
      while (i < n_code) { i++; match(code[i], /[^ ]/); if (RSTART == column && code[i] ~ /^ *\}/) break }
    } else if (line ~ /\(/) sub(/ \{ .*\}$/, ";", line)
    sub(/ : [a-z_]+\(.*$/, ";", line)
    gsub(/RINGSIDE_INLINE /, "", line)
    print roff(line) > file
  }
}
function title(line,    t) {
  t = line
  if (t ~ /^#define /) { sub(/^#define /, "", t); sub(/\(.*/, "", t); return roff(t) }
  if (t ~ /^RINGSIDE_EVENT/) return "Events that are there"
  if (is_type(t)) { sub(/ *\{.*/, "", t); sub(/\[\[[^]]*\]\] /, "", t); return roff(t) }
  sub(/^\[\[[^]]*\]\] /, "", t)
  sub(/\(.*/, "", t); sub(/^.*[ *&]/, "", t)
  return roff(t)
}
BEGIN { file = out "/" page ".3"; state = "top"; n_comment = n_code = 0 }
state == "top" {
  if ($0 ~ /^\/\//) { t = $0; sub(/^\/\/ ?/, "", t); top[++n_top] = t; next }
  header = FILENAME; sub(/^.*\//, "", header)
  upper = toupper(page)
  about = top[1]
  sub(/[.:] .*$/, "", about); sub(/[.:]$/, "", about)
  print ".TH " roff(upper) " 3 \"\" \"ringside " version "\" \"Library functions\"" > file
  print ".SH NAME\n" roff(page) " \\- " roff(about) > file
  print ".SH SYNOPSIS\n.nf\n#include <ringside/" header ">\n.fi\n.PP\nLink with" > file
  print ".B pkg\\-config \\-\\-cflags \\-\\-libs " (page ~ /consumer/ ? "ringside\\-consumer" : "ringside") > file
  print ".SH DESCRIPTION" > file
  prose(n_top, top)
  print ".SH DECLARATIONS" > file
  state = "body"
}
state == "body" {
  if ($0 ~ /^namespace detail/) detail = 1
  if ($0 ~ /^}  \/\/ namespace detail/) detail = 0
  if ($0 ~ /^\/\/ -----/) { n_comment = 0; next }
  if (depth == 0 && $0 ~ /^\/\//) {
    if (n_code > 0) { declaration(); n_code = 0; n_comment = 0 }
    t = $0; sub(/^\/\/ ?/, "", t); comment[++n_comment] = t
    next
  }
  if (depth == 0 && $0 == "") {
    if (n_code > 0) declaration()
    n_code = n_comment = 0
    next
  }
  code[++n_code] = $0
  # The inside of a type belongs to it, blank lines too.
  if (is_type(code[1]) || (code[1] ~ /^template/ && n_code > 1 && is_type(code[2])) || depth > 0) {
    t = $0
    depth += gsub(/\{/, "", t)
    depth -= gsub(/\}/, "", t)
  }
}
END {
  if (n_code > 0) declaration()
  print ".SH SEE ALSO\n.BR ringside (7)" > file
}
