// libcurl, loaded when a server is first asked: it brings 28 libraries along, and each command's start would wait for them.
#pragma once
#include <curl/curl.h>

#include <ringside/base/result.hpp>

namespace ringside::clickhouse {

struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;

  // The same one each time, for any thread; an error if libcurl is not installed.
  static result<const Curl*> load();
};

}  // namespace ringside::clickhouse
