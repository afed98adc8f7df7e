#include "stacks/flame_page.hpp"

#include "text/packed_page.hpp"
#include "sys/json.hpp"

asm(R"(
.section .rodata
.globl ringside_flame_page, ringside_flame_page_end
ringside_flame_page:
.incbin ")" RINGSIDE_FLAME_PAGE R"("
ringside_flame_page_end:
.text
)");
extern "C" const char ringside_flame_page[], ringside_flame_page_end[];

namespace ringside {

result<std::string> flame_page(const FlameTree& tree, const FlameFacts& facts) {
  using Json = nlohmann::ordered_json;
  Json names = Json::array(), modules = Json::array(), kinds = Json::array(), inlined = Json::array();
  for (const FlameTree::Name& name : tree.names()) {
    names.push_back(name.text);
    modules.push_back(name.module);
    kinds.push_back(static_cast<int>(name.kind));
    inlined.push_back(static_cast<int>(name.inlined));
  }
  Json name = Json::array(), depth = Json::array(), own = Json::array(), other = Json::array();
  for (const u32 n : tree.in_order()) {
    const FlameTree::Node& node = tree.nodes()[n];
    name.push_back(node.name);
    depth.push_back(node.depth);
    own.push_back(node.own[0]);
    other.push_back(node.own[1]);
  }
  const Json all{
      {"title", facts.title},
      {"unit", facts.unit},
      {"against", facts.against.empty() ? Json() : Json(facts.against)},
      {"absolute", facts.absolute},
      {"names", std::move(names)},
      {"modules", std::move(modules)},
      {"kinds", std::move(kinds)},
      {"inlined", std::move(inlined)},
      {"nodes", {{"name", std::move(name)}, {"depth", std::move(depth)}, {"own", {std::move(own), std::move(other)}}}}};
  return packed_page({ringside_flame_page, static_cast<size_t>(ringside_flame_page_end - ringside_flame_page)},
                     all.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace ringside
