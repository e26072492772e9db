// Sums of products: MatMul, Gemm, Einsum.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

Expr product(const Args& a) { return call("mul", {a[0], a[1]}); }

/// A dimension of the result from those of two operands of which one may be 1.
Vars shared(Builder& b, View& x, std::size_t dx, View& y, std::size_t dy) {
  if (x.dims[dx].empty()) return y.dims[dy];
  if (!y.dims[dy].empty()) b.demand_unified(x, dx, y, dy);
  return x.dims[dx];
}

void say_matmul(NodeReader& n) { n.out[0] = matrix_product(n.b, n.name, n.at(0), n.at(1)); }

void say_gemm(NodeReader& n) {
  Value a = n.at(0), b = n.at(1);
  if (a.shape.size() != 2 || b.shape.size() != 2)
    throw Unsupported{"operands that are not matrices"};
  if (n.integer("transA", 0) != 0) a = n.b.transposed(a, {1, 0});
  if (n.integer("transB", 0) != 0) b = n.b.transposed(b, {1, 0});
  const double alpha = n.real("alpha", 1), beta = n.real("beta", 1);
  const bool plain = alpha == 1 && !n.has(2);
  const Value c = matrix_product(n.b, plain ? n.name : n.name + "_product", a, b);
  if (plain) {
    n.out[0] = c;
    return;
  }
  std::vector<Value> ins = {c};
  if (n.has(2)) ins.push_back(n.at(2));
  n.out[0] = n.b.map(n.name, c.type, ins, [&](const Args& of) {
    const auto times = [](double f, const Expr& x) {
      return f == 1 ? x : call("mul", {number(f), x});
    };
    Expr sum = times(alpha, of[0]);
    return of.size() == 1 ? sum : call("add", {std::move(sum), times(beta, of[1])});
  });
  if (n.out[0].shape != c.shape) throw Unsupported{"a bias of another shape"};
}

/// A small one of values that are known: tables of positions are made so.
std::optional<Value> einsum_of_constants(const NodeReader& n, const std::vector<std::string>& parts,
                                         const std::string& result) {
  constexpr std::int64_t kMost = 1 << 20;
  std::map<char, std::int64_t> extents;
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Value& v = n.at(i);
    if (!v.known() || v.shape.size() != parts[i].size() || elements_of(v.shape) > kMost)
      return std::nullopt;
    for (std::size_t d = 0; d < parts[i].size(); ++d)
      if (extents.emplace(parts[i][d], v.shape[d]).first->second != v.shape[d]) return std::nullopt;
    values.push_back(values_of(v));
  }
  std::string order = result;  // what is summed over, innermost
  for (const auto& [c, e] : extents)
    if (result.find(c) == result.npos) order += c;
  std::int64_t points = 1, summed = 1;
  Shape shape;
  for (std::size_t d = 0; d < order.size(); ++d) {
    const auto known = extents.find(order[d]);
    if (known == extents.end() || known->second < 1 || points > kMost / known->second)
      return std::nullopt;
    points *= known->second;
    if (d < result.size())
      shape.push_back(known->second);
    else
      summed *= known->second;
  }
  std::vector<double> out(static_cast<std::size_t>(points / summed), 0.0);
  std::map<char, std::int64_t> at;
  for (std::int64_t p = 0; p < points; ++p) {
    std::int64_t left = p;
    for (std::size_t d = order.size(); d-- > 0;)
      at[order[d]] = left % extents[order[d]], left /= extents[order[d]];
    double product = 1;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::int64_t flat = 0;
      for (const char c : parts[i]) flat = flat * extents[c] + at[c];
      product *= values[i][static_cast<std::size_t>(flat)];
    }
    out[static_cast<std::size_t>(p / summed)] += product;
  }
  if (n.at(0).type == kFloat)
    for (double& x : out) x = static_cast<float>(x);
  return Builder::known(n.at(0).type, shape, std::move(out));
}

/// Digits for the dimensions of an ellipsis, the last ones of its operand's; how many there are.
std::size_t without_ellipsis(std::string& part, std::size_t rank) {
  const std::size_t at = part.find("...");
  if (at == part.npos) return 0;
  const std::size_t named = part.size() - 3;
  if (named > rank || rank - named > 10 || part.find('.', at + 3) != part.npos)
    throw Unsupported{"an equation of other ranks"};
  std::string digits;
  for (std::size_t i = rank - named; i-- > 0;) digits += static_cast<char>('0' + i);
  part.replace(at, 3, digits);
  return digits.size();
}

/// Whether a dimension repeats what is stored: no index has all its variables.
bool repeats(Builder& b, const Value& v, std::size_t d) {
  const View view = b.read(v);
  return std::ranges::any_of(view.dims[d], [&](Var u) { return !b.reads_var(view, u); });
}

/// A sum over a dimension that every operand repeats would be no loop: one of them stores it.
void store_repeated_sums(NodeReader& n, const std::vector<std::string>& parts,
                         const std::string& result) {
  std::map<char, std::size_t> repeated, stored;  // the first operand
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Value& v = n.at(i);
    if (v.uniform || v.shape.size() != parts[i].size()) continue;
    for (std::size_t d = 0; d < parts[i].size(); ++d)
      if (v.shape[d] != 1 && result.find(parts[i][d]) == result.npos)
        (repeats(n.b, v, d) ? repeated : stored).emplace(parts[i][d], i);
  }
  for (const auto& [c, i] : repeated)
    if (!stored.contains(c)) n.in[i] = n.b.copied(n.name + "_operand", n.at(i));
}

/// "bij,bjk->bik", with an ellipsis or without a result.
void say_einsum(NodeReader& n) {
  std::string equation = n.text("equation", "");
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  std::vector<std::string> parts(1);
  for (const char c : equation.substr(0, arrow))
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  if (parts.size() != n.in.size()) throw Unsupported{"an equation of other operands"};
  std::size_t dotted = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    dotted = std::max(dotted, without_ellipsis(parts[i], n.at(i).shape.size()));
  std::string result;
  if (arrow != equation.npos) {
    result = equation.substr(arrow + 2);
    if (const std::size_t at = result.find("..."); at != result.npos)
      without_ellipsis(result, result.size() - 3 + dotted);
  } else {
    for (std::size_t i = dotted; i-- > 0;) result += static_cast<char>('0' + i);
    std::map<char, int> count;
    for (const std::string& p : parts)
      for (const char c : p) ++count[c];
    for (const auto& [c, times] : count)
      if (times == 1 && (c < '0' || c > '9')) result += c;
  }
  if (const auto known = einsum_of_constants(n, parts, result)) {
    n.out[0] = *known;
    return;
  }
  store_repeated_sums(n, parts, result);
  std::vector<View> reads;
  std::map<char, std::int64_t> extents;
  std::map<char, std::pair<std::size_t, std::size_t>> first;  // operand, dimension
  Expr value = number(1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Value v = n.at(i);
    if (v.shape.size() != parts[i].size()) throw Unsupported{"an equation of other ranks"};
    if (v.uniform) v = n.b.copied(n.name + "_operand", v);
    Expr read = n.b.operand(v, reads);
    value = i == 0 ? std::move(read) : call("mul", {std::move(value), std::move(read)});
    for (std::size_t d = 0; d < parts[i].size(); ++d) {
      const char c = parts[i][d];
      const auto [it, added] = extents.emplace(c, v.shape[d]);
      if (it->second == 1) it->second = v.shape[d];  // it broadcasts
      if (it->second != v.shape[d] && v.shape[d] != 1)
        throw Unsupported{"shapes that do not fit together"};
      if (v.shape[d] == 1) continue;
      const auto [at, fresh] = first.emplace(c, std::pair(i, d));
      if (!fresh) n.b.demand_unified(reads[at->second.first], at->second.second, reads[i], d);
    }
  }
  Shape shape;
  std::vector<Vars> dims;
  bool reduces = false;
  for (const auto& [c, e] : extents) reduces = reduces || (e != 1 && result.find(c) == result.npos);
  for (const char c : result) {
    if (!extents.contains(c)) throw Unsupported{"a result that no operand has"};
    if (std::ranges::count(result, c) > 1) throw Unsupported{"a result that repeats an index"};
    shape.push_back(extents[c]);
    dims.emplace_back();
    if (const auto at = first.find(c); at != first.end())
      dims.back() = reads[at->second.first].dims[at->second.second];
  }
  n.out[0] = n.b.emit(n.name, n.at(0).type, shape, dims, reads, value,
                      reduces ? Combine::sum : Combine::assign);
}

}  // namespace

Value matrix_product(Builder& b, const std::string& name, const Value& a, const Value& c) {
  if (const auto whole = whole_product(b, name, a, c)) return *whole;
  Value x = a, y = c;
  if (x.shape.empty() || y.shape.empty()) throw Unsupported{"a product of a scalar"};
  const bool row = x.shape.size() == 1, column = y.shape.size() == 1;
  Shape as = x.shape, bs = y.shape;
  if (row) as.insert(as.begin(), 1);
  if (column) bs.push_back(1);
  if (row) x = b.reshaped(name + "_row", x, as);
  if (column) y = b.reshaped(name + "_column", y, bs);
  if (as.back() != bs[bs.size() - 2]) throw Unsupported{"inner dimensions that differ"};
  // Numbers that are all the same are stored, so that the sum has something to run over.
  if (x.uniform && x.shape.back() != 1) x = b.copied(name + "_left", x);
  if (y.uniform && y.shape[y.shape.size() - 2] != 1) y = b.copied(name + "_right", y);
  std::vector<View> reads;
  View none;
  Args values;
  reads.push_back(b.read(x));
  reads.push_back(b.read(y));
  for (int i = 0; i < 2; ++i) values.push_back({.kind = Expr::Kind::input, .input = i});
  View &vx = reads[0], &vy = reads[1];
  // A sum over what neither operand has would be no loop.
  for (const Var v : vx.dims.back())
    if (!b.reads_var(vx, v)) return matrix_product(b, name, b.copied(name + "_left", a), c);
  const std::size_t ra = as.size(), rb = bs.size(), rank = std::max(ra, rb);
  Shape shape(rank, 1);
  std::vector<Vars> dims(rank);
  if (as.back() != 1) b.demand_unified(vx, ra - 1, vy, rb - 2);
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    const std::size_t da = d + ra - rank, db = d + rb - rank;  // wrap where missing
    const bool in_a = d + ra >= rank, in_b = d + rb >= rank;
    const std::int64_t na = in_a ? as[da] : 1, nb = in_b ? bs[db] : 1;
    if (na != 1 && nb != 1 && na != nb) throw Unsupported{"its shapes do not broadcast"};
    shape[d] = std::max(na, nb);
    dims[d] = in_a && in_b ? shared(b, vx, da, vy, db) : in_a ? vx.dims[da] : vy.dims[db];
  }
  shape[rank - 2] = as[ra - 2];
  shape[rank - 1] = bs.back();
  dims[rank - 2] = vx.dims[ra - 2];
  dims[rank - 1] = vy.dims[rb - 1];
  const std::int32_t type = a.type == kInt8 ? kFloat : a.type;  // sums of whole numbers
  Value out = b.emit(name, type, shape, dims, reads, product(values),
                     as.back() == 1 ? Combine::assign : Combine::sum);
  if (row) out = squeezed(b, out, rank - 2);
  if (column) out = squeezed(b, out, out.shape.size() - 1);
  return out;
}

Value squeezed(Builder& b, const Value& v, std::size_t dim) {
  Value out = v;
  out.shape.erase(out.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  if (v.uniform) return out;
  View view = b.read(v);
  view.dims.erase(view.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  out.literal.reset();
  out.view = std::move(view);
  return out;
}

std::vector<Said> product_operators() {
  return {{"MatMul", say_matmul}, {"Gemm", say_gemm}, {"Einsum", say_einsum}};
}

}  // namespace tilewright::onnx
