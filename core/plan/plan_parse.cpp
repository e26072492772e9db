// Reading the notation of loop trees (design/plan.md, "Nodes"): recursive descent over words and
// parentheses, and tile tables.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/plan/plan.h"

namespace tilewright {
namespace {

constexpr int kMaxDepth = 64;                  ///< loops and parentheses inside one another
constexpr std::size_t kMaxText = 4096 * 1024;  ///< characters of a tree or a tile table
constexpr int kMaxCopies = 8;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31;

constexpr std::array kOrderedBindings = {Binding::seq,    Binding::grid,  Binding::cluster,
                                         Binding::warp,   Binding::lane,  Binding::thread,
                                         Binding::vector, Binding::unroll};
constexpr std::array<std::string_view, 3> kScopes = {"warp", "block", "grid"};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_structure(char c) { return c == '(' || c == ')' || c == '|'; }

/// What an error shows of the input: short, and nothing that would break its one line.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 32;
  std::string r;
  for (char c : text.substr(0, kLongest)) {
    r += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  }
  return text.size() > kLongest ? r + "..." : r;
}

/// A positive integer of 64 bits, digits only.
std::optional<std::int64_t> positive(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  std::int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Node parse() {
    if (text_.size() > kMaxText) {
      throw InputError({.where = std::string(where_),
                        .field = "length",
                        .value = std::to_string(text_.size()) + " characters",
                        .problem = "is too long",
                        .accepted = "at most " + std::to_string(kMaxText)});
    }
    Node tree = parse_parts("a node");
    if (at_end()) return tree;
    if (text_[pos_] == '|') {
      fail(pos_, "|", "'|' only between the parts of a pack in parentheses: ( a | b )");
    }
    fail(pos_, text_.substr(pos_, 1), "a node or the end of the tree");
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string_view found, std::string expected) const {
    throw InputError({.where = std::string(where_),
                      .field = "column " + std::to_string(at + 1),
                      .value = found.empty() ? "end of text" : shown(found),
                      .problem = "is not accepted here",
                      .accepted = std::move(expected)});
  }

  bool at_end() {
    while (pos_ < text_.size() && is_space(text_[pos_])) ++pos_;
    return pos_ == text_.size();
  }
  bool at_close() { return at_end() || text_[pos_] == ')' || text_[pos_] == '|'; }
  std::string_view rest() const { return text_.substr(pos_, 1); }

  /// Nodes up to the end of the text, a ')' or a '|': one node, or a sequence.
  Node parse_parts(const char* expected) {
    if (at_close()) fail(pos_, rest(), expected);
    std::vector<Node> parts;
    while (!at_close()) parts.push_back(parse_node());
    return sequence(std::move(parts));
  }

  /// `64:` before a part of a pack: where its blocks begin.
  std::optional<std::int64_t> parse_first_block() {
    if (at_end() || !is_digit(text_[pos_])) return std::nullopt;
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_digit(text_[pos_])) ++pos_;
    const std::string_view digits = text_.substr(start, pos_ - start);
    std::int64_t first = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), first);
    if (error != std::errc() || first >= kMostBlocks)
      fail(start, digits, "a block, 0 to " + std::to_string(kMostBlocks - 1));
    if (at_end() || text_[pos_] != ':')
      fail(pos_, rest(), "':' after the first block of a part: ( 64: a )");
    ++pos_;
    return first;
  }

  /// After '(': a sequence, or the parts of a pack.
  Node parse_group(std::size_t open) {
    std::vector<Node> parts;
    while (true) {
      const auto first = parse_first_block();
      parts.push_back(parse_parts("at least one node within the parentheses"));
      parts.back().first_block = first;
      if (at_end()) {
        fail(pos_, {}, "')' that closes the '(' of column " + std::to_string(open + 1));
      }
      if (text_[pos_++] == ')') break;
    }
    if (parts.size() == 1 && !parts.front().first_block) return std::move(parts.front());
    Node pack;
    pack.kind = Node::Kind::pack;
    pack.children = std::move(parts);
    return pack;
  }

  Node parse_node() {
    if (++depth_ > kMaxDepth) {
      fail(pos_, rest(), "at most " + std::to_string(kMaxDepth) + " loops and parentheses deep");
    }
    Node node = parse_body();
    --depth_;
    return node;
  }

  /// A node whose depth is counted already. Parentheses right after a loop are no depth of their
  /// own, so that canonical text is never deeper than what it was read from.
  Node parse_body() {
    const std::size_t start = pos_;
    if (text_[pos_] != '(') return parse_word();
    ++pos_;
    return parse_group(start);
  }

  /// One word: a loop with the node after it, or L., C., S., Y., D.
  Node parse_word() {
    const std::size_t start = pos_;
    while (pos_ < text_.size() && !is_space(text_[pos_]) && !is_structure(text_[pos_])) ++pos_;
    const std::string_view word = text_.substr(start, pos_ - start);
    const std::size_t name_end = word.find_first_of("./@!");
    if (name_end == std::string_view::npos || word[name_end] != '.') {
      return parse_loop(word, start);
    }
    const std::string_view letter = word.substr(0, name_end);
    const std::string_view arguments = word.substr(name_end + 1);
    const std::size_t at = start + name_end + 1;
    if (letter == "L") return parse_load(arguments, at);
    if (letter == "C") return parse_compute(arguments, at);
    if (letter == "S") return parse_store(arguments, at);
    if (letter == "Y") return parse_sync(arguments, at);
    if (letter == "D") return parse_drop(arguments, at);
    fail(start, word, "L.TENSOR, C.OPERATOR, S.TENSOR, Y.SCOPE, D.TENSOR or a loop's name");
  }

  std::string name(std::string_view text, std::size_t at, const char* what) const {
    if (!is_identifier(text)) {
      fail(at, text,
           std::string(what) + ": letters, digits and _, not starting with a digit, at most 64");
    }
    return std::string(text);
  }

  Node parse_loop(std::string_view word, std::size_t start) {
    Node node;
    node.kind = Node::Kind::loop;
    const std::size_t end = std::min(word.find_first_of("/@!"), word.size());
    node.name = name(word.substr(0, end), start, "a node: the name of a loop");
    std::size_t at = end;
    if (at < word.size() && word[at] == '/') {
      const std::size_t digits = at + 1;
      at = std::min(word.find_first_of("/@!", digits), word.size());
      const std::string_view step = word.substr(digits, at - digits);
      const auto value = positive(step);
      if (!value) {
        fail(start + digits, step, "a step: a positive integer of 64 bits, as in m/64");
      }
      node.step = *value;
    }
    if (at < word.size() && word[at] == '@') {
      const std::string_view binding = word.substr(at + 1);
      const auto value = binding_from_name(binding);
      if (!value) fail(start + at + 1, binding, expected_binding(binding));
      node.binding = *value;
      at = word.size();
    }
    if (at != word.size()) {
      fail(start + at, word.substr(at),
           "a loop as NAME, NAME/STEP, NAME@BINDING or "
           "NAME/STEP@BINDING");
    }
    if (at_close()) fail(pos_, rest(), "a node as the body of loop " + node.name);
    node.children.push_back(text_[pos_] == '(' ? parse_body() : parse_node());
    return node;
  }

  static std::string expected_binding(std::string_view given) {
    std::vector<std::string> names;
    for (Binding binding : kOrderedBindings) names.emplace_back(name_of(binding));
    const std::string near = nearest(given, names);
    return "a binding: " + join(names) + (near.empty() ? "" : "; did you mean " + near + "?");
  }

  /// Cuts "!FLAG" off the end; true where it is there.
  bool take_flag(std::string_view& text, std::size_t at, std::string_view flag,
                 const char* expected) const {
    const std::size_t mark = text.find('!');
    if (mark == std::string_view::npos) return false;
    if (text.substr(mark + 1) != flag) fail(at + mark, text.substr(mark), expected);
    text = text.substr(0, mark);
    return true;
  }

  /// Splits "A@L1" into name and level, with their positions.
  struct Target {
    std::string tensor;
    std::string_view level;
    std::size_t level_at = 0;
    bool has_level = false;
  };
  Target target(std::string_view text, std::size_t at) const {
    const std::size_t mark = text.find('@');
    Target r;
    r.tensor = name(text.substr(0, mark), at, "a tensor's name");
    if (mark != std::string_view::npos) {
      r.has_level = true;
      r.level = text.substr(mark + 1);
      r.level_at = at + mark + 1;
    }
    return r;
  }

  /// Where the digits of a trailing "x2" begin; the text's size where there are none.
  static std::size_t copies_at(std::string_view text) {
    std::size_t digits = text.size();
    while (digits > 0 && is_digit(text[digits - 1])) --digits;
    return digits > 0 && text[digits - 1] == 'x' ? digits : text.size();
  }

  std::string level_name(std::string_view text, std::size_t at) const {
    if (const std::size_t digits = copies_at(text); digits < text.size()) {
      fail(at, text, "a level's name, with a number of copies only once and only at a load");
    }
    return name(text, at, "a level's name");
  }

  Node parse_load(std::string_view text, std::size_t at) const {
    const Target to = target(text, at);
    if (!to.has_level) return load(to.tensor);
    std::string_view level = to.level;
    int copies = 1;
    if (const std::size_t digits = copies_at(level); digits < level.size()) {
      const auto value = positive(level.substr(digits));
      if (!value || *value > kMaxCopies) {
        fail(to.level_at + digits, level.substr(digits),
             "a number of copies from 1 to " + std::to_string(kMaxCopies) + ", as in L.A@L1x2");
      }
      copies = static_cast<int>(*value);
      level = level.substr(0, digits - 1);
      if (level.empty()) return load(to.tensor, {}, copies);  // "@x2": the default level
    }
    return load(to.tensor, level_name(level, to.level_at), copies);
  }

  Node parse_compute(std::string_view text, std::size_t at) const {
    const bool once = take_flag(text, at, "once", "!once");
    return compute(name(text, at, "the name of an operator or tensor"), once);
  }

  Node parse_store(std::string_view text, std::size_t at) const {
    const bool atomic = take_flag(text, at, "atomic", "!atomic");
    const Target to = target(text, at);
    if (!to.has_level) return store(to.tensor, {}, atomic);
    return store(to.tensor, level_name(to.level, to.level_at), atomic);
  }

  Node parse_drop(std::string_view text, std::size_t at) const {
    const Target from = target(text, at);
    return drop(from.tensor, from.has_level ? level_name(from.level, from.level_at) : "");
  }

  Node parse_sync(std::string_view text, std::size_t at) const {
    for (std::string_view scope : kScopes) {
      if (text == scope) return sync(std::string(scope));
    }
    fail(at, text, "the scope of a barrier: warp, block or grid");
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t pos_ = 0;
  int depth_ = 0;
};

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

Node parse_tree(std::string_view text, std::string_view where) {
  return Parser(text, where).parse();
}

std::map<std::string, std::int64_t> parse_tiles(std::string_view text, std::string_view where) {
  const auto fail = [&](std::string field, std::string_view value, const char* problem) {
    throw InputError(
        {.where = std::string(where),
         .field = std::move(field),
         .value = value.empty() ? "an empty text" : shown(value),
         .problem = problem,
         .accepted = "NAME=SIZE,NAME=SIZE,... with positive integers, each name once"});
  };
  if (text.size() > kMaxText) fail("length", std::to_string(text.size()), "is too long");
  std::map<std::string, std::int64_t> tiles;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = without_spaces(text.substr(begin, end - begin));
    const std::string field = "column " + std::to_string(begin + 1);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) fail(field, entry, "is not a tile");
    const std::string_view name = without_spaces(entry.substr(0, equals));
    const std::string_view size = without_spaces(entry.substr(equals + 1));
    if (!is_identifier(name)) fail(field, name, "is not a loop's name");
    const auto value = positive(size);
    if (!value) fail(std::string(name), size, "is not a tile size");
    if (!tiles.emplace(name, *value).second) fail(field, name, "is given twice");
    begin = end + 1;
  }
  return tiles;
}

}  // namespace tilewright
