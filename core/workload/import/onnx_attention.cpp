// Attention of opsets 23 and 24: masks, windows, lengths, a past, grouped heads.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

/// Which keys a row of queries sees.
struct Masks {
  std::optional<Value> mask;              ///< added, or true where a key is seen
  bool finite = false;                    ///< the mask hides no key altogether
  bool causal = false;                    ///< none behind the query's own place
  std::int64_t before = -1, behind = -1;  ///< a window around it; -1: without an end
  std::optional<Value> lengths;           ///< of each sequence's keys
  std::int64_t rows = 0, cols = 0, past = 0;
  bool by_index() const { return causal || before >= 0 || behind >= 0 || lengths; }
};

/// Scores with -inf where a key is not seen.
Value masked(NodeReader& n, const std::string& name, Value s, const Masks& m,
             const std::function<Expr(const Expr&)>& weighted) {
  Builder& b = n.b;
  std::vector<Value> ins = {s};
  if (m.mask) ins.push_back(*m.mask);
  s = b.map(name + "_scaled", s.type, ins, [&](const Args& a) {
    Expr x = weighted(a[0]);
    if (a.size() == 1) return x;
    return m.mask->type == kBool ? call("select", {a[1], x, number(-INFINITY)})
                                 : call("add", {x, a[1]});
  });
  if (!m.by_index()) return s;
  // By indices: kernels see which blocks of scores are empty.
  std::vector<View> reads;
  std::vector<Vars> dims;
  Expr x = b.operand(s, reads), length;
  if (reads.empty())
    for (const std::int64_t e : s.shape) dims.push_back(b.vars(e));
  if (m.lengths) {
    Shape each(s.shape.size(), 1);
    each[0] = s.shape[0];
    const std::size_t own = reads.size();
    length = b.operand(b.reshaped(n.name + "_lengths", *m.lengths, each), reads);
    if (reads.size() > own && each[0] > 1) {
      if (own > 0) b.demand_unified(reads[0], 0, reads[1], 0);
      if (own == 0) dims[0] = reads[0].dims[0];
    }
  }
  if (dims.empty()) dims = reads.front().dims;
  // The key that stands where the query does: behind the past, or queries are the last of theirs.
  const auto moved = [](const Expr& of, std::int64_t by) {
    return by == 0 ? of : call("add", {of, number(static_cast<double>(by))});
  };
  Expr last = b.index_of(dims[dims.size() - 2]);
  last = m.lengths ? call("add", {moved(last, -m.rows), length}) : moved(last, m.past);
  const Expr key = b.index_of(dims.back()), none = number(-INFINITY);
  if (m.causal) x = call("select", {call("lt", {last, key}), none, std::move(x)});
  if (m.behind >= 0)
    x = call("select", {call("lt", {moved(last, m.behind), key}), none, std::move(x)});
  if (m.before >= 0)
    x = call("select", {call("lt", {key, moved(last, -m.before)}), none, std::move(x)});
  if (m.lengths) x = call("select", {call("lt", {key, length}), std::move(x), none});
  return b.emit(name + "_causal", s.type, s.shape, dims, reads, std::move(x), Combine::assign);
}

/// Whether a known mask, or none, leaves every row a key.
bool every_row_has_a_key(const Masks& m) {
  if (m.lengths) return false;
  if (m.finite) return m.before < 0 && m.behind < 0;  // causal: the first key, at least
  std::vector<double> values;
  std::int64_t mask_rows = 1;
  if (m.mask) {
    if (!m.mask->known() || elements_of(m.mask->shape) > (1 << 20)) return false;
    values = values_of(*m.mask);
    if (m.mask->shape.size() > 1) mask_rows = m.mask->shape[m.mask->shape.size() - 2];
  }
  const auto all = static_cast<std::int64_t>(values.size()) / m.cols;
  for (std::int64_t r = 0; r < std::max<std::int64_t>(1, all); ++r) {
    const std::int64_t first = mask_rows > 1 ? r % mask_rows : 0,
                       end = mask_rows > 1 || !m.by_index() ? first + 1 : m.rows;
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t last = row + m.past;
      std::int64_t low = 0, high = m.cols - 1;
      if (m.causal) high = std::min(high, last);
      if (m.behind >= 0) high = std::min(high, last + m.behind);
      if (m.before >= 0) low = std::max(low, last - m.before);
      const auto sees = [&](std::int64_t k) {
        if (!m.mask) return true;
        const double v = values[static_cast<std::size_t>(r * m.cols + k)];
        return m.mask->type == kBool ? v != 0 : v > -INFINITY;
      };
      while (low <= high && !sees(low)) ++low;
      if (low > high) return false;
    }
  }
  return true;
}

/// 1 for each row that sees a key; nothing where all do. A softmax of a row without is no number,
/// and the standard has zeros.
std::optional<Value> rows_with_keys(NodeReader& n, const Value& s, const Masks& m) {
  if (every_row_has_a_key(m)) return std::nullopt;
  Shape shape(s.shape.size(), 1);
  if (m.lengths) shape[0] = s.shape[0];
  shape[shape.size() - 2] = m.rows;
  shape.back() = m.cols;
  const Value seen = masked(n, n.name + "_seen", Builder::uniform(s.type, shape, 0), m,
                            [](const Expr& x) { return x; });
  const Value most = n.b.reduce(n.name + "_seen_most", seen, {shape.size() - 1}, Combine::max,
                                [](const Args& a) { return a[0]; });
  return n.b.map(n.name + "_any", kBool, {most}, [](const Args& a) {
    return call("lt", {number(-INFINITY), a[0]});
  });
}

}  // namespace

Value split_heads(NodeReader& n, const std::string& name, const Value& v, std::int64_t heads) {
  if (v.shape.size() != 3 || heads < 1 || v.shape[2] % heads != 0)
    throw Unsupported{"heads that do not share its width"};
  const Value cut = n.b.reshaped(name, v, {v.shape[0], v.shape[1], heads, v.shape[2] / heads});
  return n.b.transposed(cut, {0, 2, 1, 3});
}

Value joined_heads(NodeReader& n, const std::string& name, const Value& y) {
  return n.b.reshaped(name, n.b.transposed(y, {0, 2, 1, 3}),
                      {y.shape[0], y.shape[2], y.shape[1] * y.shape[3]});
}

Value attended(NodeReader& n, Heads& h) {
  Builder& b = n.b;
  Value q = h.q, k = h.k, v = h.v;
  const std::int64_t hq = q.shape[1], hk = k.shape[1], rows = q.shape[2], cols = k.shape[2];
  if (hk < 1 || hq % hk != 0) throw Unsupported{"heads of queries that keys do not divide"};
  const std::int64_t group = hq / hk;
  if (group > 1) {  // heads in groups, which share keys
    q = b.reshaped(n.name + "_grouped", q, {q.shape[0], hk, group, rows, q.shape[3]});
    k = b.reshaped(n.name + "_k5", k, {k.shape[0], hk, 1, cols, k.shape[3]});
    v = b.reshaped(n.name + "_v5", v, {v.shape[0], hk, 1, cols, v.shape[3]});
  }
  std::vector<std::int64_t> order;
  for (std::size_t d = 0; d < k.shape.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  Value s = matrix_product(b, n.name + "_scores", q, b.transposed(k, order));
  const double scale = h.scale != 0 ? h.scale : 1 / std::sqrt(static_cast<double>(q.shape.back()));
  const auto weighted = [&](const Expr& score) {
    Expr x = call("mul", {score, number(scale)});
    return h.cap > 0
               ? call("mul", {number(h.cap), call("tanh", {call("mul", {x, number(1 / h.cap)})})})
               : x;
  };
  const auto show = [&](const Value& x) {
    h.scores = group > 1 ? b.reshaped(n.name + "_shown", x, {x.shape[0], hq, rows, cols}) : x;
  };
  if (h.shown == 0 || h.shown == 1)
    show(b.map(n.name + "_qk", s.type, {s}, [&](const Args& a) { return weighted(a[0]); }));
  Masks masks{.finite = h.finite,
              .causal = h.causal,
              .before = h.before,
              .behind = h.behind,
              .rows = rows,
              .cols = cols,
              .past = h.past};
  if (h.lengths) {
    if (h.lengths->shape != Shape{s.shape[0]})
      throw Unsupported{"lengths that are not one a sequence"};
    masks.lengths = *h.lengths;
  }
  if (h.mask) {
    Value mask = *h.mask;
    if (mask.shape.size() > 1 && group > 1) {
      Shape to = mask.shape;
      if (to.size() >= 3) {
        const std::int64_t heads = to[to.size() - 3];
        const auto at = to.end() - 3;
        if (heads == 1)
          to.insert(at, 1);
        else
          *at = group, to.insert(to.end() - 3, hk);
      }
      mask = b.reshaped(n.name + "_mask", mask, to);
    }
    if (mask.shape.empty()) throw Unsupported{"a mask without dimensions"};
    if (mask.shape.back() < cols) {  // keys that it does not name are masked
      Shape more = mask.shape;
      more.back() = cols - mask.shape.back();
      mask = joined(b, n.name + "_mask_all",
                    {mask, Builder::uniform(mask.type, more, mask.type == kBool ? 0 : -INFINITY)},
                    mask.shape.size() - 1);
    }
    if (mask.shape.back() != cols) throw Unsupported{"a mask that is longer than the keys"};
    masks.mask = mask;
  }
  s = masked(n, n.name, s, masks, weighted);
  const std::optional<Value> any = rows_with_keys(n, s, masks);
  if (h.shown == 2) show(s);
  const Value p = softmax_over(b, n.name + "_p", s, {s.shape.size() - 1}, false);
  const auto zero_without = [&](const char* what, const Value& x) {
    if (!any) return x;
    return b.map(n.name + what, x.type, {*any, x}, [](const Args& a) {
      return call("select", {a[0], a[1], number(0)});
    });
  };
  if (h.shown == 3) show(zero_without("_p_masked", p));
  Value y = zero_without("_y_masked", matrix_product(b, n.name + "_y", p, v));
  if (group > 1) y = b.reshaped(n.name + "_heads", y, {y.shape[0], hq, rows, y.shape.back()});
  return y;
}

namespace {

/// Opset 23: Q, K, V of rank 4, or of rank 3 with numbers of heads; masks, causal, grouped queries.
void say_standard(NodeReader& n) {
  Builder& b = n.b;
  const auto heads = [&](const Value& v, const char* attribute, const char* what) {
    if (v.shape.size() == 4) return v;
    return split_heads(n, n.name + what, v, n.integer(attribute, 0));
  };
  Heads h{.q = heads(n.at(0), "q_num_heads", "_q"),
          .k = heads(n.at(1), "kv_num_heads", "_k"),
          .v = heads(n.at(2), "kv_num_heads", "_v")};
  if (n.has(6) && (n.has(4) || n.has(5))) throw Unsupported{"lengths of keys beside a past"};
  if (n.has(4)) h.k = joined(b, n.name + "_keys", {n.at(4), h.k}, 2);
  if (n.has(5)) h.v = joined(b, n.name + "_values", {n.at(5), h.v}, 2);
  if (n.wants(1)) n.out[1] = h.k;
  if (n.wants(2)) n.out[2] = h.v;
  h.scale = n.real("scale", 0);
  h.cap = n.real("softcap", 0);
  h.causal = n.integer("is_causal", 0) != 0;
  h.before = n.integer("left_window_size", -1);
  h.behind = n.integer("right_window_size", -1);
  h.past = n.has(4) ? n.at(4).shape.at(2) : 0;
  // The scores as an output: before masks, after them, or as probabilities.
  h.shown = n.wants(3) ? n.integer("qk_matmul_output_mode", 0) : -1;
  if (h.shown > 3) throw Unsupported{"scores of mode " + std::to_string(h.shown)};
  if (n.has(6)) h.lengths = n.at(6);
  if (n.has(3)) h.mask = n.at(3);
  const Value y = attended(n, h);
  if (h.shown >= 0) n.out[3] = h.scores;
  n.out[0] = n.rank() == 3 ? joined_heads(n, n.name + "_rows", y) : y;
}

void say_attention(NodeReader& n) {
  if (n.node.domain == "com.microsoft")
    say_packed_attention(n);
  else
    say_standard(n);
}

}  // namespace

std::vector<Said> attention_operators() { return {{"Attention", say_attention}}; }

}  // namespace tilewright::onnx
