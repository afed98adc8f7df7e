#include "clickhouse/curl.hpp"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "sys/sys.hpp"

namespace ringside::clickhouse {

result<const Curl*> Curl::load() {
  static const result<Curl> loaded = []() -> result<Curl> {
    const auto bad = [] {
      const char* const why = dlerror();
      return refuse(std::errc::not_supported,
                    std::string("cannot load libcurl, which is needed to ask a server (Debian's package is libcurl4): ") +
                        (why != nullptr ? why : "it does not start"));
    };
    void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return bad();
    Curl curl{};
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool whole = find(curl.global_init, "curl_global_init") && find(curl.easy_init, "curl_easy_init") &&
                       find(curl.easy_cleanup, "curl_easy_cleanup") && find(curl.easy_reset, "curl_easy_reset") &&
                       find(curl.easy_setopt, "curl_easy_setopt") && find(curl.easy_perform, "curl_easy_perform") &&
                       find(curl.easy_getinfo, "curl_easy_getinfo") && find(curl.easy_strerror, "curl_easy_strerror") &&
                       find(curl.slist_append, "curl_slist_append") && find(curl.slist_free_all, "curl_slist_free_all");
    if (!whole || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return bad();
    return curl;
  }();
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  return &*loaded;
}

}  // namespace ringside::clickhouse
