// Tiling expressions: text, the whole set of them, and rules 1 and 2.
#include <algorithm>
#include <cctype>

#include "core/base/format.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {

using detail::bit;
using detail::has;

namespace detail {

Mask loops_of(const Expression& e) {
  Mask m = 0;
  for (LoopId l : e.nest) m |= bit(l);
  for (const Expression& p : e.parts) m |= loops_of(p);
  return m;
}

std::vector<LoopId> nesting(const Expression& e, Mask mask) {
  std::vector<LoopId> order;
  for (LoopId l : e.nest)
    if (has(mask, l)) order.push_back(l);
  for (const Expression& p : e.parts)
    for (LoopId l : nesting(p, mask)) order.push_back(l);
  return order;
}

}  // namespace detail

namespace {

/// The names that an expression is written with, by LoopId.
using Names = std::vector<std::string>;

Names own_names(const Chain& c) {
  Names names;
  for (const Loop& l : c.workload->loops()) names.push_back(l.name);
  return names;
}

bool single_letters(const Chain& c, const Names& names) {
  return std::ranges::all_of(c.dims, [&](LoopId l) { return names[l.index()].size() == 1; });
}

std::string text_of(const Expression& e, const Names& names, bool letters) {
  std::string out;
  const auto put = [&](const std::string& part) {
    if (!letters && !out.empty()) out += " ";
    out += part;
  };
  for (LoopId l : e.nest) put(names[l.index()]);
  if (e.parts.empty()) return out;
  std::string parts;
  for (const Expression& p : e.parts)
    parts += (parts.empty() ? "" : ",") + text_of(p, names, letters);
  put("(" + parts + ")");
  return out;
}

// ---- Parsing ------------------------------------------------------------------------------------

class Parser {
 public:
  Parser(const Chain& c, std::string_view text, std::string_view where)
      : c_(c), text_(text), where_(where), letters_(single_letters(c, own_names(c))) {}

  Expression parse() {
    Expression e = expression(0);
    skip();
    if (at_ != text_.size()) fail("has a part too many");
    return e;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    std::string loops;
    for (LoopId l : c_.dims) loops += (loops.empty() ? "" : " ") + c_.workload->loop(l).name;
    throw InputError(
        {.where = std::string(where_),
         .value = text_.empty() ? "an empty text" : std::string(text_),
         .problem = problem,
         .accepted = "loops from outer to inner, parts in sequence in parentheses, such "
                     "as " +
                     example() + "; each of " + loops + " once"});
  }

 private:
  std::string example() const { return to_text(c_, all_expressions(c_).back()); }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  LoopId name() {
    std::size_t end = at_ + 1;
    const auto part_of_name = [](char ch) {
      return std::isalnum(static_cast<unsigned char>(ch)) || ch == '_';
    };
    if (!part_of_name(text_[at_])) fail(formatted("has '{}' in it", text_[at_]));
    while (!letters_ && end < text_.size() && part_of_name(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    for (LoopId l : c_.dims)
      if (c_.workload->loop(l).name == word) {
        if (has(seen_, l)) fail(formatted("has {} twice", word));
        seen_ |= bit(l);
        return l;
      }
    fail(formatted("names {}, which is not a loop to order", word));
  }

  Expression expression(std::size_t depth) {
    if (depth > kMostLoops) fail("is nested too deeply");
    Expression e;
    for (char ch = peek(); ch != '\0' && ch != '(' && ch != ')' && ch != ','; ch = peek())
      e.nest.push_back(name());
    if (peek() != '(') return e;
    do {
      ++at_;
      e.parts.push_back(expression(depth + 1));
      if (e.parts.back().nest.empty()) fail("has an empty part");
    } while (peek() == ',');
    if (peek() != ')') fail("lacks a closing parenthesis");
    ++at_;
    if (e.parts.size() == 1) {  // m(nk) is mnk
      Expression only = std::move(e.parts.front());
      e.nest.insert(e.nest.end(), only.nest.begin(), only.nest.end());
      e.parts = std::move(only.parts);
    }
    return e;
  }

  const Chain& c_;
  std::string_view text_, where_;
  bool letters_;
  std::size_t at_ = 0;
  Mask seen_ = 0;
};

// ---- All of them --------------------------------------------------------------------------------

/// The first product that has a loop of `loops`: parts stand in that order.
std::size_t first_product(const Chain& c, Mask loops) {
  std::size_t i = 0;
  while (i < c.products.size() && (c.op_loops[c.products[i].index()] & loops) == 0) ++i;
  return i;
}

/// Groups of `loops` of which no product has loops in two, in the chain's order.
std::vector<Mask> components(const Chain& c, Mask loops) {
  std::vector<Mask> groups;
  for (LoopId l : c.dims)
    if (has(loops, l)) groups.push_back(bit(l));
  for (OpId p : c.products) {
    Mask joined = 0;
    std::erase_if(groups, [&](Mask g) {
      const bool shared = (g & c.op_loops[p.index()]) != 0;
      if (shared) joined |= g;
      return shared;
    });
    if (joined != 0) groups.push_back(joined);
  }
  std::ranges::sort(groups, {}, [&](Mask g) { return first_product(c, g); });
  return groups;
}

class Enumerator {
 public:
  explicit Enumerator(const Chain& c) : c_(c) {}

  std::vector<Expression> of(Mask loops) {
    if (loops == 0) return {Expression{}};
    std::vector<Expression> all = starting_with_loop(loops);
    std::vector<Mask> parts;
    split(components(c_, loops), 0, parts, all);
    return all;
  }

 private:
  std::vector<Expression> starting_with_loop(Mask loops) {
    std::vector<Expression> all;
    for (LoopId l : c_.dims) {
      if (!has(loops, l)) continue;
      for (Expression& e : of(loops & ~bit(l))) {
        e.nest.insert(e.nest.begin(), l);
        all.push_back(std::move(e));
      }
    }
    return all;
  }

  /// Every way to put the components into two parts and more; a part starts with a loop.
  void split(const std::vector<Mask>& groups, std::size_t next, std::vector<Mask>& parts,
             std::vector<Expression>& all) {
    if (next == groups.size()) {
      if (parts.size() >= 2) sequences(parts, all);
      return;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] |= groups[next];
      split(groups, next + 1, parts, all);
      parts[i] &= ~groups[next];
    }
    parts.push_back(groups[next]);
    split(groups, next + 1, parts, all);
    parts.pop_back();
  }

  void sequences(const std::vector<Mask>& parts, std::vector<Expression>& all) {
    std::vector<Expression> made{Expression{}};
    for (Mask part : parts) {
      std::vector<Expression> longer;
      const std::vector<Expression> choices = starting_with_loop(part);
      for (const Expression& so_far : made)
        for (const Expression& choice : choices) {
          longer.push_back(so_far);
          longer.back().parts.push_back(choice);
        }
      made = std::move(longer);
    }
    std::ranges::move(made, std::back_inserter(all));
  }

  const Chain& c_;
};

// ---- Rule 1 -------------------------------------------------------------------------------------

bool every_product_has(const Chain& c, LoopId l) {
  return std::ranges::all_of(c.products, [&](OpId p) { return has(c.op_loops[p.index()], l); });
}

Expression without(const Expression& e, Mask loops) {
  Expression out;
  for (LoopId l : e.nest)
    if (!has(loops, l)) out.nest.push_back(l);
  for (const Expression& p : e.parts) {
    Expression part = without(p, loops);
    if (detail::loops_of(part) != 0) out.parts.push_back(std::move(part));
  }
  if (out.parts.size() == 1) {
    Expression only = std::move(out.parts.front());
    out.nest.insert(out.nest.end(), only.nest.begin(), only.nest.end());
    out.parts = std::move(only.parts);
  }
  return out;
}

}  // namespace

std::string to_text(const Chain& c, const Expression& e) {
  const Names names = own_names(c);
  return text_of(e, names, single_letters(c, names));
}

std::string paper_text(const Chain& c, const Expression& e) {
  // m: what every product's output has; k: what the first reduces; then what each product adds to
  // its output.
  Names names(c.workload->loops().size());
  Mask common = ~Mask{0};
  for (OpId p : c.products) common &= c.op_loops[p.index()] & ~c.op_reduced[p.index()];
  std::size_t m = 0, k = 0, next = 0;
  constexpr std::string_view kNext = "nhpqrst";
  const auto name = [&](LoopId l, const char* letter, std::size_t& count) {
    names[l.index()] = letter + (count == 0 ? std::string() : std::to_string(count));
    ++count;
  };
  // A single product has m and n in common.
  if (c.products.size() > 1)
    for (LoopId l : c.dims)
      if (has(common, l)) name(l, "m", m);
  for (OpId p : c.products)
    for (LoopId l : c.dims) {
      if (!names[l.index()].empty() || !has(c.op_loops[p.index()], l)) continue;
      if (p == c.products.front() && has(c.op_reduced[p.index()], l))
        name(l, "k", k);
      else if (c.products.size() == 1 && m == 0)
        name(l, "m", m);
      else
        names[l.index()] = std::string(1, kNext[std::min(next++, kNext.size() - 1)]);
    }
  return text_of(e, names, single_letters(c, names));
}

std::vector<Expression> all_expressions(const Chain& c) {
  Mask loops = 0;
  for (LoopId l : c.dims) loops |= bit(l);
  std::vector<Expression> all = Enumerator(c).of(loops);
  std::stable_partition(all.begin(), all.end(), [](const Expression& e) { return e.deep(); });
  return all;
}

Expression parse_expression(const Chain& c, std::string_view text, std::string_view where) {
  Parser parser(c, text, where);
  const Expression e = parser.parse();
  for (LoopId l : c.dims)
    if (!has(detail::loops_of(e), l)) parser.fail("lacks " + c.workload->loop(l).name);
  const std::vector<Expression> all = all_expressions(c);
  if (std::ranges::find(all, e) == all.end())
    parser.fail(
        "puts loops of one operator in two parts, or parts in another order than their "
        "operators");
  return e;
}

SubExpression sub_expression(const Chain& c, const Expression& e, Blocks reading) {
  SubExpression s;
  Mask bound = 0, outside = 0;
  const Mask inner = detail::loops_of(e) & ~c.spatial;  // the loops that stay whatever happens
  for (LoopId l : e.nest) {
    if (has(c.spatial, l)) {
      // Loops in parts lie inside, too.
      const bool between = outside != 0 && (inner & ~outside) != 0;
      if (every_product_has(c, l) || reading == Blocks::always || !between) {
        s.bound.push_back(l);
        bound |= bit(l);
      }
    } else {
      outside |= bit(l);
    }
  }
  s.rest = without(e, bound);
  return s;
}

std::optional<std::string> overwhelms(const Chain& c, const SubExpression& s) {
  for (std::size_t i = 0; i + 1 < c.products.size(); ++i) {
    const std::size_t p = c.products[i].index();
    LoopId reduced;
    for (LoopId l : detail::nesting(s.rest, c.op_loops[p])) {
      if (has(c.op_reduced[p], l)) {
        if (!reduced.valid()) reduced = l;
      } else if (reduced.valid()) {
        const Workload& w = *c.workload;
        return formatted("{}, which {} reduces, lies outside {}: a partial tile of {} for every {}",
                         w.loop(reduced).name, w.op(c.products[i]).name, w.loop(l).name,
                         w.tensor(w.op(c.products[i]).outputs.front().target.tensor).name,
                         w.loop(l).name);
      }
    }
  }
  return std::nullopt;
}

}  // namespace tilewright::mcfuser
