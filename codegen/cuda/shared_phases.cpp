#include "codegen/cuda/shared_phases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::cuda {
namespace {

constexpr std::size_t kRepeats = 4;     // a function pays from so many phases on
constexpr std::size_t kMostDigits = 9;  // of a number that may be an int argument

struct Token {
  enum class Kind : std::uint8_t { name, number, sign, space };
  Kind kind = Kind::sign;
  std::string text;
};
using Tokens = std::vector<Token>;

bool of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Comments are left out.
Tokens tokens_of(std::string_view text) {
  Tokens out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    Token::Kind kind = Token::Kind::sign;
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      kind = Token::Kind::space;
      while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) != 0) ++end;
    } else if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) {
      kind = Token::Kind::number;
      const auto exponent = [&] {
        return (text[end] == '+' || text[end] == '-') && (text[end - 1] == 'e') &&
               text.substr(i, 2) != "0x";
      };
      while (end < text.size() && (of_name(text[end]) || text[end] == '.' || exponent())) ++end;
    } else if (of_name(text[i])) {
      kind = Token::Kind::name;
      while (end < text.size() && of_name(text[end])) ++end;
    } else {
      static constexpr std::array<std::string_view, 9> kPairs = {"==", "<=", ">=", "!=", "->",
                                                                 "&&", "||", "+=", "::"};
      if (std::ranges::find(kPairs, text.substr(i, 2)) != kPairs.end()) end = i + 2;
    }
    out.push_back({kind, std::string(text.substr(i, end - i))});
    i = end;
  }
  return out;
}

/// The token before or after that is no space; a sign of no text where there is none.
const Token& beside(const Tokens& all, std::size_t at, int step) {
  static const Token none;
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(at) + step;
       i >= 0 && i < static_cast<std::ptrdiff_t>(all.size()); i += step)
    if (all[static_cast<std::size_t>(i)].kind != Token::Kind::space)
      return all[static_cast<std::size_t>(i)];
  return none;
}

/// What a name is declared as, where this token declares it.
enum class Declared : std::uint8_t { no, type, constant, variable };
Declared declared(const Tokens& all, std::size_t at) {
  if (all[at].kind != Token::Kind::name || at == 0) return Declared::no;
  const Token &before = beside(all, at, -1), &after = beside(all, at, 1);
  static const std::set<std::string, std::less<>> kEnds = {"=", "{", "[", ";", ",", ")", ":"};
  if (!kEnds.contains(after.text)) return Declared::no;
  if (before.text == "using") return after.text == "=" ? Declared::type : Declared::no;
  static const std::set<std::string, std::less<>> kNoTypes = {"return", "else", "case", "goto"};
  bool is = before.kind == Token::Kind::name && !kNoTypes.contains(before.text);
  // `float* a`, `Box<2> a`, `const At& a`: multiplied or compared, there would be a space before.
  std::size_t sign = at - 1;
  while (sign > 0 && all[sign].kind == Token::Kind::space) --sign;
  is = is || ((before.text == "*" || before.text == "&" || before.text == ">") && sign > 0 &&
              sign + 1 < at && all[sign - 1].kind != Token::Kind::space);
  is = is || (before.text == "," && after.text == "=");
  if (!is) return Declared::no;
  for (std::size_t i = at; i-- > 0;) {
    const std::string& t = all[i].text;
    if (t == ";" || t == "{" || t == "}" || t == "(") break;
    if (t == "const") return Declared::constant;
  }
  return Declared::variable;
}

/// One phase: lines [begin, end) of the body.
struct Phase {
  std::size_t begin = 0, end = 0;
  Tokens tokens;
  std::string key;  ///< equal where phases differ in names and numbers
  std::vector<std::pair<std::string, Declared>> used;  ///< of the kernel, in order of first use
  std::vector<std::size_t> numbers;                    ///< tokens that may differ
};

class Sharing {
 public:
  Sharing(const std::string& body, const std::string& parameters, std::string symbol)
      : symbol_(std::move(symbol)) {
    for (std::size_t i = 0; i < body.size();) {
      const std::size_t end = std::min(body.find('\n', i), body.size());
      lines_.push_back(body.substr(i, end - i));
      i = end + 1;
    }
    for (std::size_t l = 0; l < lines_.size(); ++l)
      for (const Token& t : tokens_of(lines_[l]))
        if (t.kind == Token::Kind::name && (uses_[t.text].empty() || uses_[t.text].back() != l))
          uses_[t.text].push_back(l);
    note(tokens_of("(" + parameters + ")"), true);
    note(tokens_of(body), false);
  }

  SharedPhases run() {
    find_phases();
    std::map<std::string, std::vector<Phase*>> alike;
    for (Phase& p : phases_) alike[p.key].push_back(&p);
    std::map<std::size_t, std::pair<std::size_t, std::string>> calls;  // by first line
    SharedPhases out;
    for (const Phase& p : phases_) {
      const auto group = alike.find(p.key);
      if (group == alike.end()) continue;
      if (group->second.size() >= kRepeats) share(group->second, out.functions, calls);
      alike.erase(group);
    }
    for (std::size_t i = 0; i < lines_.size();) {
      const auto call = calls.find(i);
      out.body += (call == calls.end() ? lines_[i] : call->second.second) + "\n";
      i = call == calls.end() ? i + 1 : call->second.first;
    }
    return out;
  }

 private:
  static std::size_t depth(const std::string& line) {
    return std::min(line.find_first_not_of(' '), line.size());
  }

  /// Names that the kernel declares, anywhere: `memory`, which TW_SHARED declares, is none of them.
  void note(const Tokens& all, bool parameters) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (const Declared d = declared(all, i); d != Declared::no)
        kernel_.emplace(all[i].text, parameters ? Declared::constant : d);
  }

  void find_phases() {
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!lines_[i].substr(depth(lines_[i])).starts_with("grid_sync(")) continue;
      if (last && depth(lines_[*last]) == depth(lines_[i])) {
        bool one_block = i > *last + 1;
        for (std::size_t l = *last + 1; l < i; ++l)
          one_block = one_block && depth(lines_[l]) >= depth(lines_[i]);
        if (one_block) add_phase(*last + 1, i);
      }
      last = i;
    }
  }

  void add_phase(std::size_t begin, std::size_t end) {
    Phase p{.begin = begin, .end = end};
    std::string text;
    for (std::size_t l = begin; l < end; ++l) text += lines_[l] + "\n";
    p.tokens = tokens_of(text);
    std::set<std::string> own;
    for (std::size_t i = 0; i < p.tokens.size(); ++i)
      if (declared(p.tokens, i) != Declared::no) own.insert(p.tokens[i].text);
    std::map<std::string, std::string> names;  // for the key
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
      const Token& t = p.tokens[i];
      if (t.kind == Token::Kind::space) continue;
      const std::string& before = beside(p.tokens, i, -1).text;
      if (t.kind == Token::Kind::number && may_differ(p.tokens, i)) {
        p.key += "# ";
        p.numbers.push_back(i);
      } else if (t.kind == Token::Kind::name && before != "." && before != "->" && before != "::" &&
                 (own.contains(t.text) || kernel_.contains(t.text))) {
        const bool inside = own.contains(t.text);
        const auto [name, is_new] =
            names.try_emplace(t.text, (inside ? "own" : "given") + std::to_string(names.size()));
        if (is_new && !inside) {
          Declared how = kernel_.at(t.text);
          // What no other phase uses is a copy: behind a reference it would lie in local memory.
          if (how == Declared::variable && alone(t.text, begin, end)) how = Declared::constant;
          p.used.emplace_back(t.text, how);
          name->second += ":" + std::to_string(static_cast<int>(how));
        }
        p.key += "$" + name->second + " ";
      } else {
        p.key += t.text + " ";
      }
    }
    phases_.push_back(std::move(p));
  }

  /// Whether nothing after the variable's declaration but these lines uses it.
  bool alone(const std::string& name, std::size_t begin, std::size_t end) const {
    const auto& at = uses_.at(name);
    const auto first = std::ranges::lower_bound(at, begin),
               last = std::ranges::lower_bound(at, end);
    const auto declares = [&](std::size_t l) {
      const Tokens line = tokens_of(lines_[l]);
      for (std::size_t i = 0; i < line.size(); ++i)
        if (line[i].text == name && declared(line, i) != Declared::no) return true;
      return false;
    };
    return first != at.begin() && declares(*(first - 1)) && (last == at.end() || declares(*last));
  }

  /// A whole number that is no part of a type and no size of an array.
  static bool may_differ(const Tokens& all, std::size_t at) {
    const std::string& text = all[at].text;
    if (text.size() > kMostDigits ||
        !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
      return false;
    const std::string before = at > 0 ? all[at - 1].text : "",
                      after = at + 1 < all.size() ? all[at + 1].text : "";
    if (before == "<" || before == "[" || after == ">") return false;
    const bool called = before == "(" && at > 1 && all[at - 2].text.starts_with("TW_");
    if (called) return false;
    // <128, 8>: between a bracket without a space after it and one without a space before.
    for (std::size_t i = at; i-- > 0;) {
      const Token& t = all[i];
      if (t.text == "<") return i + 1 < all.size() && all[i + 1].kind == Token::Kind::space;
      if (t.kind == Token::Kind::number || t.text == "," || t.kind == Token::Kind::space) continue;
      break;
    }
    return true;
  }

  void share(const std::vector<Phase*>& group, std::string& functions,
             std::map<std::size_t, std::pair<std::size_t, std::string>>& calls) {
    const Phase& first = *group.front();
    // Numbers that differ, each list of values once.
    std::map<std::vector<std::string>, std::string> known;
    std::vector<std::pair<std::string, std::vector<std::string>>> given;
    std::map<std::size_t, std::string> in_place;  // by token of the first
    for (std::size_t n = 0; n < first.numbers.size(); ++n) {
      std::vector<std::string> values;
      for (const Phase* p : group) values.push_back(p->tokens[p->numbers[n]].text);
      if (std::ranges::all_of(values, [&](const std::string& v) { return v == values.front(); }))
        continue;
      const auto [at, is_new] = known.try_emplace(values, "given_" + std::to_string(known.size()));
      if (is_new) given.emplace_back(at->second, values);
      in_place[first.numbers[n]] = at->second;
    }
    const std::string name = symbol_ + "_phase" + std::to_string(functions_++);
    std::string types, list;
    const auto more = [](std::string& to, const std::string& what) {
      to += (to.empty() ? "" : ", ") + what;
    };
    for (const auto& [used, how] : first.used)
      if (how == Declared::type) more(types, "class " + used);
    for (std::size_t i = 0; i < first.used.size(); ++i) {
      const auto& [used, how] = first.used[i];
      if (how == Declared::type) continue;
      const std::string type = "Given" + std::to_string(i);
      more(types, "class " + type);
      more(list, type + (how == Declared::constant ? " " : "& ") + used);
    }
    for (const auto& [number, values] : given) more(list, "int " + number);
    functions += "/// " + std::to_string(group.size()) + " phases of " + symbol_ + ".\n";
    functions += "template <" + types + ">\nTW_CALLED void " + name + "(" + list + ") {\n";
    functions += "  TW_SHARED(memory);\n  (void)memory, (void)memory_begin;\n";
    std::string text;
    for (std::size_t i = 0; i < first.tokens.size(); ++i) {
      const auto number = in_place.find(i);
      const Token& t = first.tokens[i];
      // Where comments were, lines are empty.
      const std::size_t line =
          t.kind == Token::Kind::space ? t.text.rfind('\n') : std::string::npos;
      if (line != std::string::npos && (text.empty() || text.ends_with('\n'))) continue;
      text += number != in_place.end()    ? number->second
              : line != std::string::npos ? t.text.substr(line)
                                          : t.text;
    }
    functions += text + "}\n\n";
    for (std::size_t g = 0; g < group.size(); ++g) {
      const Phase& p = *group[g];
      std::string as, with;
      for (const auto& [used, how] : p.used) more(how == Declared::type ? as : with, used);
      for (const auto& [number, values] : given) more(with, values[g]);
      calls[p.begin] = {p.end, std::string(depth(lines_[p.begin]), ' ') + name +
                                   (as.empty() ? "" : "<" + as + ">") + "(" + with + ");"};
    }
  }

  std::string symbol_;
  std::vector<std::string> lines_;
  std::map<std::string, Declared, std::less<>> kernel_;
  std::map<std::string, std::vector<std::size_t>> uses_;  ///< lines, by name
  std::vector<Phase> phases_;
  int functions_ = 0;
};

}  // namespace

SharedPhases share_phases(const std::string& body, const std::string& parameters,
                          const std::string& symbol) {
  return Sharing(body, parameters, symbol).run();
}

}  // namespace tilewright::cuda
