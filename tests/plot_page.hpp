// What stands in a page of `ringside plot`: its JSON, as a browser finds it.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "sys/json.hpp"

namespace ringside::test {

inline std::string page_data(const std::string& html) {
  const std::string before = "<script type=\"text/plain\" id=\"data\">", after = "</script>";
  const size_t at = html.find(before);
  if (at == std::string::npos) return "";
  const size_t end = html.find(after, at);
  return html.substr(at + before.size(), end - at - before.size());
}

inline nlohmann::json page_json(const std::string& html) {
  std::string compressed;
  u32 bits = 0, have = 0;
  for (const char c : page_data(html)) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                      : c == '='             ? -1
                                             : -2;
    EXPECT_NE(digit, -2) << "not base64: " << static_cast<int>(c);
    if (digit < 0) continue;
    bits = bits << 6 | static_cast<u32>(digit);
    if ((have += 6) >= 8) compressed += static_cast<char>(bits >> (have -= 8) & 255);
  }
  z_stream z{};
  inflateInit(&z);
  z.next_in = reinterpret_cast<Bytef*>(compressed.data());
  z.avail_in = static_cast<uInt>(compressed.size());
  std::string out;
  std::vector<char> piece(1 << 16);
  int status = Z_OK;
  while (status == Z_OK) {
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&z, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - z.avail_out);
  }
  inflateEnd(&z);
  EXPECT_EQ(status, Z_STREAM_END);
  return nlohmann::json::parse(out, nullptr, false);
}

}  // namespace ringside::test
