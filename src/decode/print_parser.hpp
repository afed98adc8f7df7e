// Reads the expressions of a print fmt: those of C, and the calls that the kernel's macros leave.
#pragma once
#include <initializer_list>
#include <optional>
#include <utility>

#include "decode/c_tokens.hpp"
#include "decode/print_tree.hpp"

namespace ringside {

class PrintParser {
 public:
  PrintParser(std::string_view text, const PrintScope& scope, Nodes& nodes)
      : text_(text), tokens_(tokens_of(text)), scope_(scope), nodes_(nodes) {}
  // The whole text. Throws Wrong where it is no print fmt.
  void parse(std::string& format, std::vector<const Node*>& arguments);
  struct Wrong {
    size_t at;  // in the text
    std::string why;
  };

 private:
  using Local = std::pair<std::string_view, const Node*>;

  // print_parser.cpp: expressions.
  const Node* expression();  // with commas
  const Node* assignment() { return conditional(); }
  const Node* conditional();
  const Node* binary(u32 loosest);
  const Node* unary();
  const Node* prefix(std::string_view sign);
  const Node* postfix(const Node* of, size_t from);
  const Node* primary();
  const Node* parenthesised(size_t from);
  const Node* compound();
  const Node* constant(std::string_view digits);
  const Node* record_member(size_t from);
  const Node* name(std::string_view word);
  std::string texts();
  std::string raw_format();

  // print_types.cpp: names of types, and the statements of ({ ... }).
  bool at_type(size_t further = 0) const;
  CType type_name();
  CType specifiers();
  const Node* size_of();
  const Node* statements();
  void statement(const Node*& result);
  void declaration();
  void skip_statement();

  // print_calls.cpp: calls.
  const Node* call(std::string_view function, size_t from);
  const Node* kernel_call(std::string_view function);                                            // null: none of those
  const Node* value_call(std::string_view function, const std::vector<const Node*>& arguments);  // null: unknown
  const Node* names(bool flags, bool is_wide);
  const Node* located(bool text);
  const Node* memory_of(const Node* argument, CType type);
  const Node* print_array(bool dynamic);
  std::vector<const Node*> arguments();

  const Token& peek(size_t further = 0) const { return tokens_[std::min(at_ + further, tokens_.size() - 1)]; }
  bool is(std::string_view sign) const { return peek().kind == Token::Kind::sign && peek().text == sign; }
  bool is_word(std::string_view word) const { return peek().kind == Token::Kind::word && peek().text == word; }
  bool take(std::string_view sign) {
    const bool there = is(sign);
    if (there) ++at_;
    return there;
  }
  void expect(std::string_view sign) {
    if (!take(sign)) wrong("'" + std::string(sign) + "' is missing");
  }
  std::string_view take_word() {
    if (peek().kind != Token::Kind::word) wrong("a name is missing");
    return tokens_[at_++].text;
  }
  size_t here(size_t token) const { return static_cast<size_t>(tokens_[token].text.data() - text_.data()); }
  std::string source(size_t from) const;  // from a token to this one
  [[noreturn]] void wrong(std::string why) const { throw Wrong{here(std::min(at_, tokens_.size() - 1)), std::move(why)}; }
  const Node* field(u32 index);
  const Node* memory(u32 index, CType of);
  const Node* spelled(std::string text);
  u32 field_index(std::string_view name);
  void skip_balanced();  // past the bracket that closes this one

  struct Nested {
    explicit Nested(PrintParser& parser) : of(parser) {
      if (++of.depth_ > deepest) of.wrong("the expression is nested too deeply");
    }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --of.depth_; }
    PrintParser& of;
  };
  static constexpr u32 deepest = 300, most_locals = 64;

  const std::string_view text_;
  std::vector<Token> tokens_;
  const PrintScope& scope_;
  Nodes& nodes_;
  std::vector<Local> locals_;
  size_t at_ = 0;
  u32 depth_ = 0;
};

}  // namespace ringside
