#include "core/lowering/symbolic.h"

#include <algorithm>
#include <numeric>

namespace tilewright::lowering {

Linear number(std::int64_t value) { return {.terms = {}, .constant = value}; }

Linear operator+(const Linear& a, const Linear& b) {
  Linear r = a;
  r.constant += b.constant;
  for (const auto& [v, c] : b.terms)
    if ((r.terms[v] += c) == 0) r.terms.erase(v);
  return r;
}

Linear operator*(std::int64_t factor, const Linear& a) {
  if (factor == 0) return {};
  Linear r = a;
  r.constant *= factor;
  for (auto& [v, c] : r.terms) c *= factor;
  return r;
}

Linear operator-(const Linear& a, const Linear& b) { return a + (-1) * b; }

SymRange whole_range(std::int64_t extent) {
  return {.lo = number(0), .hi = number(extent), .most = extent, .nonempty = extent > 0};
}

Linear Variables::add(std::string text, std::int64_t min, std::int64_t max, std::int64_t multiple) {
  all_.push_back({.text = std::move(text), .min = min, .max = max, .multiple = multiple});
  return {.terms = {{static_cast<int>(all_.size()) - 1, 1}}, .constant = 0};
}

SymRange Variables::add_range(std::string lo, std::string hi, Interval bounds, std::int64_t most,
                              bool nonempty, std::int64_t multiple) {
  SymRange r{.most = most, .nonempty = nonempty};
  r.lo = add(std::move(lo), bounds.lo, bounds.hi, multiple);
  r.hi = add(std::move(hi), bounds.lo, bounds.hi);
  all_.back().low = r.lo.terms.begin()->first;
  all_.back().most = most;
  return r;
}

std::int64_t Variables::multiple(const Linear& x) const {
  std::int64_t of = std::abs(x.constant);
  for (const auto& [v, c] : x.terms)
    of = std::gcd(of, c * all_[static_cast<std::size_t>(v)].multiple);
  return of;
}

std::int64_t Variables::upper(const Linear& x) const {
  Linear rest = x;
  std::int64_t bound = 0;
  // c*hi - c*lo of one range is at most c times its size: tighter than the two bounds apart.
  for (const auto& [v, c] : x.terms) {
    const Variable& variable = all_[static_cast<std::size_t>(v)];
    if (c <= 0 || variable.low < 0) continue;
    const auto low = rest.terms.find(variable.low);
    if (low == rest.terms.end() || low->second >= 0) continue;
    const std::int64_t both = std::min(c, -low->second);
    bound += both * variable.most;
    rest.terms[v] -= both;
    low->second += both;
  }
  bound += rest.constant;
  for (const auto& [v, c] : rest.terms) {
    const Variable& variable = all_[static_cast<std::size_t>(v)];
    bound += c * (c > 0 ? variable.max : variable.min);
  }
  return bound;
}

std::int64_t Variables::lower(const Linear& x) const { return -upper((-1) * x); }

void Variables::forget(std::size_t from) {
  for (std::size_t i = from; i < all_.size(); ++i) all_[i].gone = true;
}

std::string Variables::text(const Linear& x, bool nested) const {
  std::string out;
  for (const bool positive : {true, false})  // "hi - lo", not "-lo + hi"
    for (const auto& [v, c] : x.terms) {
      if ((c > 0) != positive) continue;
      if (all_[static_cast<std::size_t>(v)].gone)
        throw Refused{"a tile of the first block alone is used again after work of all blocks"};
      const std::int64_t size = c < 0 ? -c : c;
      out += out.empty() ? (c < 0 ? "-" : "") : (c < 0 ? " - " : " + ");
      if (size != 1) out += std::to_string(size) + " * ";
      out += all_[static_cast<std::size_t>(v)].text;
    }
  if (out.empty()) return std::to_string(x.constant);
  if (x.constant != 0)
    out += (x.constant < 0 ? " - " : " + ") + std::to_string(std::abs(x.constant));
  const bool several = x.terms.size() > 1 || x.constant != 0;
  return nested && several ? "(" + out + ")" : out;
}

std::string Variables::text(const SymRange& r) const {
  return "{" + text(r.lo) + ", " + text(r.hi) + "}";
}

std::string identifier(const std::string& prefix, const std::string& name) {
  std::string text = prefix;
  for (char c : name)
    text += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return text;
}

std::string times(std::int64_t factor, const std::string& text) {
  return factor == 1 ? text : std::to_string(factor) + " * " + text;
}

std::string Names::fresh(const std::string& base) {
  const auto [at, first] = used_.try_emplace(base, 1);
  if (first) return base;
  std::string name;
  do name = base + "_" + std::to_string(++at->second);
  while (!used_.try_emplace(name, 1).second);
  return name;
}

}  // namespace tilewright::lowering
