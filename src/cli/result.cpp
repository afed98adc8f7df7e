#include "cli/result.hpp"

namespace ringside::cli {
namespace {

void describe(Members members, const std::string& path, std::string& out) {
  for (const Member& m : members) {
    const std::string name = path + m.key;
    if (*m.about != '\0') out += fmt::format("| `{}` | {} | {} |\n", name, type_of(m.kind), m.about);
    describe(m.inner, *m.key == '\0' ? path : name + (m.kind == Kind::array ? "[]." : "."), out);
  }
}

}  // namespace

std::string Result::print(bool json) const {
  std::string text;
  Json document = Json::object();
  for (const Part& part : parts_) {
    if (!json) {
      text += part.table ? part.table->render(colours()) : part.text;
    } else if (part.table) {
      if (!part.key.empty()) document[part.key] = part.table->objects();
    } else if (part.members.is_object()) {
      document.update(part.members);
    }
  }
  return json ? line_of(std::move(document)) : text;
}

std::string documented(std::string page) {
  const std::string head = "\n\n| key | type | meaning |\n| --- | --- | --- |\n", schema = head + "| `schema` | number | 1 |\n",
                    picture = "The output is one object for each picture." + schema;
  const struct {
    const char* command;
    std::string output;
    Members members;
  } sections[] = {{"top", picture, top_members()},
                  {"hist", picture, hist_members()},
                  {"latency", picture, latency_members()},
                  {"syscalls", picture, syscalls_members()},
                  {"states", picture, states_members()},
                  {"stat", "The output is one object." + schema, stat_members()},
                  {"list", "The output is an array." + head, list_members()}};
  for (const auto& [command, output, members] : sections) {
    std::string section = fmt::format("## {}\n{}", command, output);
    describe(members, "", section);
    const size_t at = page.find(fmt::format("## {}\n", command));
    if (at != page.npos) page.replace(at, std::min(page.find("\n## ", at), page.size()) - at, section);
  }
  return page;
}

}  // namespace ringside::cli
