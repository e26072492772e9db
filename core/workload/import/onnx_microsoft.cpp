// What onnxruntime's optimiser and its exporters make of several standard operators: attention with
// its projections, normalisation of sums, embeddings, products and convolutions with an activation
// (domain com.microsoft).
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

Attribute real(const char* name, double value) { return {.name = name, .number = value}; }

constexpr std::int64_t kMostKeys = 1 << 22;

/// ---- Masks -------------------------------------------------------------------------------------

/// What is added to scores of [batch, heads, rows, keys] by a mask of keys: of each sequence its
/// length, or its end and then its start; or for each key, or each row and key, whether it is seen.
Value mask_of_keys(NodeReader& n, const Value& mask, std::int64_t batch, std::int64_t rows,
                   std::int64_t keys) {
  Builder& b = n.b;
  const double hidden = n.real("mask_filter_value", -10000);
  const Shape& s = mask.shape;
  if (keys > kMostKeys) throw Unsupported{"too many keys"};
  if (s.size() == 1 && (s[0] == batch || s[0] == 2 * batch)) {
    std::vector<double> count(static_cast<std::size_t>(keys));
    for (std::size_t i = 0; i < count.size(); ++i) count[i] = static_cast<double>(i);
    const Value key = Builder::known(kFloat, {1, 1, 1, keys}, std::move(count));
    const bool starts = s[0] == 2 * batch;
    const auto part = [&](std::int64_t from) {
      return b.reshaped(n.name + "_ends", b.sliced(n.name + "_ends", mask, 0, from, 1, batch),
                        {batch, 1, 1, 1});
    };
    std::vector<Value> ins = {key, part(0)};
    if (starts) ins.push_back(part(batch));
    return b.map(n.name + "_mask", kFloat, ins, [&](const Args& a) {
      const Expr before = select(lt(a[0], a[1]), number(0), number(hidden));
      return starts ? select(lt(a[0], a[2]), number(hidden), before) : before;
    });
  }
  Shape to;
  if (s.size() == 2 && s[0] == batch && s[1] == keys) to = {batch, 1, 1, keys};
  if (s.size() == 3 && s[0] == batch && s[1] == rows && s[2] == keys) to = {batch, 1, rows, keys};
  if (to.empty()) throw Unsupported{"a mask of another shape"};
  return b.map(
      n.name + "_mask", kFloat, {b.reshaped(n.name + "_mask_keys", mask, to)},
      [&](const Args& a) { return select(lt(number(0), a[0]), number(0), number(hidden)); });
}

/// The mask of keys and what is added to scores besides, either of them where it is there.
void add_masks(NodeReader& n, Heads& h, std::size_t mask, std::size_t bias) {
  h.finite = true;
  if (n.has(mask)) h.mask = mask_of_keys(n, n.at(mask), h.q.shape[0], h.q.shape[2], h.k.shape[2]);
  if (!n.has(bias)) return;
  h.mask = h.mask ? sum_of(n.b, n.name + "_masks", n.at(bias), *h.mask) : n.at(bias);
}

/// ---- Attention ---------------------------------------------------------------------------------

/// One of the parts that a tensor has along a dimension.
Value part_of(NodeReader& n, const Value& v, std::size_t dim, std::int64_t which,
              std::int64_t parts) {
  if (v.shape.size() != 5 || v.shape[dim] != parts) throw Unsupported{"parts of another shape"};
  return squeezed(n.b, n.b.sliced(n.name + "_part", v, dim, which, 1, 1), dim);
}

/// Queries, keys and values with a bias of their own, of [batch, rows, heads * width].
Value with_bias(NodeReader& n, const char* what, const Value& v, std::size_t bias,
                std::int64_t from) {
  if (!n.has(bias)) return v;
  const std::int64_t width = v.shape.at(2);
  const Shape& all = n.at(bias).shape;
  if (all.size() != 1 || from + width > all[0]) throw Unsupported{"a bias of another shape"};
  return sum_of(n.b, n.name + what, v, n.b.sliced(n.name + what, n.at(bias), 0, from, 1, width));
}

/// Every width of keys is another's where they share a past.
void with_past(NodeReader& n, Heads& h, const Value& keys, const Value& values) {
  if (keys.shape.size() != 4 || values.shape.size() != 4 || keys.shape[2] != values.shape[2])
    throw Unsupported{"a past of another shape"};
  h.past = keys.shape[2];
  h.k = joined(n.b, n.name + "_keys", {keys, h.k}, 2);
  h.v = joined(n.b, n.name + "_values", {values, h.v}, 2);
}

/// Queries of several heads; keys and values may come with them, or with one another, or as heads.
void say_multi_head(NodeReader& n) {
  const std::int64_t heads = n.integer("num_heads", 0);
  const Value& q = n.at(0);
  if (n.has(8) || n.has(9)) throw Unsupported{"a cache that is written in place"};
  Value query = q, key = n.has(1) ? n.at(1) : Value{}, value = n.has(2) ? n.at(2) : Value{};
  Heads h{.causal = n.integer("unidirectional", 0) != 0, .scale = n.real("scale", 0)};
  const auto flat = [&](const Value& v) {  // [batch, rows, heads, width]
    return n.b.reshaped(n.name + "_flat", v, {v.shape[0], v.shape[1], v.shape[2] * v.shape[3]});
  };
  if (q.shape.size() == 5) {  // [batch, rows, heads, 3, width]
    query = flat(part_of(n, q, 3, 0, 3)), key = flat(part_of(n, q, 3, 1, 3)),
    value = flat(part_of(n, q, 3, 2, 3));
  } else if (n.at(1).shape.size() == 5) {  // [batch, keys, heads, 2, width]
    key = flat(part_of(n, n.at(1), 3, 0, 2)), value = flat(part_of(n, n.at(1), 3, 1, 2));
  }
  if (query.shape.size() != 3) throw Unsupported{"an input of another rank"};
  const std::int64_t width = query.shape[2];
  h.q = split_heads(n, n.name + "_q", with_bias(n, "_q", query, 3, 0), heads);
  if (key.shape.size() == 4) {  // of another sequence, which has its heads already
    if (value.shape.size() != 4) throw Unsupported{"values of another rank"};
    h.k = key, h.v = value;
  } else {
    h.k = split_heads(n, n.name + "_k", with_bias(n, "_k", key, 3, width), heads);
    h.v = split_heads(n, n.name + "_v", with_bias(n, "_v", value, 3, 2 * width), heads);
  }
  if (n.has(6)) with_past(n, h, n.at(6), n.at(7));
  add_masks(n, h, 4, 5);
  if (n.wants(1)) n.out[1] = h.k;
  if (n.wants(2)) n.out[2] = h.v;
  h.shown = n.wants(3) ? 0 : -1;
  n.out[0] = joined_heads(n, n.name, attended(n, h));
  if (n.wants(3)) n.out[3] = h.scores;
}

/// The whole number that all elements are, known before the run.
std::int64_t one_known(const NodeReader& n, std::size_t i, const char* why) {
  const Value& v = n.at(i);
  if (!v.known()) throw Unsupported{why};
  const std::vector<double> all = values_of(v);
  if (all.empty() || std::ranges::adjacent_find(all, std::not_equal_to<>()) != all.end())
    throw Unsupported{why};
  return static_cast<std::int64_t>(all.front());
}

/// Causal attention of a decoder whose heads share keys. The sequences are as long as one another,
/// which is known before the run: then the past has as many keys as is said.
void say_grouped(NodeReader& n) {
  Builder& b = n.b;
  const std::int64_t heads = n.integer("num_heads", 0), shared = n.integer("kv_num_heads", 0);
  if (heads < 1 || shared < 1) throw Unsupported{"no heads"};
  if (n.integer("smooth_softmax", 0) > 0 || n.has(11)) throw Unsupported{"a smooth softmax"};
  for (const char* quantised : {"k_quant_type", "v_quant_type"})
    if (n.text(quantised, "NONE") != "NONE") throw Unsupported{"a quantised cache"};
  Value q = n.at(0), k, v;
  if (n.has(1)) {
    k = n.at(1), v = n.at(2);
  } else {
    if (q.shape.size() != 3 || std::max(heads, shared) > kMostKeys ||
        q.shape[2] % (heads + 2 * shared) != 0)
      throw Unsupported{"heads that do not share its width"};
    const std::int64_t width = q.shape[2] / (heads + 2 * shared);
    const auto part = [&](std::int64_t from, std::int64_t count) {
      return b.sliced(n.name + "_part", n.at(0), 2, from * width, 1, count * width);
    };
    q = part(0, heads), k = part(heads, shared), v = part(heads + shared, shared);
  }
  const std::int64_t rows = q.shape.at(1);
  constexpr const char* kBind = "lengths that are not known before the run; bind the mask or them";
  const std::int64_t total = one_known(n, 5, kBind) + 1, past = total - rows;
  if (past < 0 || one_known(n, 6, kBind) != total) throw Unsupported{"lengths that differ"};
  const std::int64_t pairs = n.integer("rotary_interleaved", 0);
  if (n.integer("do_rotary", 0) != 0) {
    if (n.at(7).shape.size() != 2 || n.at(8).shape != n.at(7).shape || n.at(7).shape[0] < total)
      throw Unsupported{"a table of another shape"};
    if (elements_of({q.shape[0], rows}) > kMostKeys) throw Unsupported{"too many rows"};
    std::vector<double> at(static_cast<std::size_t>(q.shape[0] * rows));
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] = static_cast<double>(past + static_cast<std::int64_t>(i) % rows);
    const Value ids =
        n.has(9) ? n.at(9) : Builder::known(kInt64, {q.shape[0], rows}, std::move(at));
    const auto turned = [&](const char* what, const Value& x, std::int64_t of) {
      return said_as(n, n.name + what, "RotaryEmbedding", {x, n.at(7), n.at(8), ids},
                     {{.name = "interleaved", .integer = pairs},
                      {.name = "rotary_embedding_dim", .integer = 2 * n.at(7).shape.back()},
                      {.name = "num_heads", .integer = of}})
          .front();
    };
    q = turned("_q_turned", q, heads);
    k = turned("_k_turned", k, shared);
  }
  Heads h{.q = split_heads(n, n.name + "_q", q, heads),
          .k = split_heads(n, n.name + "_k", k, shared),
          .v = split_heads(n, n.name + "_v", v, shared),
          .finite = true,
          .causal = true,
          .scale = n.real("scale", 0),
          .cap = n.real("softcap", 0)};
  std::int64_t stored = 0;
  if (n.has(3) || n.has(4)) {
    if (n.at(3).shape.size() != 4 || n.at(4).shape.size() != 4 ||
        n.at(3).shape[2] != n.at(4).shape[2])
      throw Unsupported{"a past of another shape"};
    stored = n.at(3).shape[2];
  }
  if (past > 0) {
    if (stored < past) throw Unsupported{"a past that is shorter than is said"};
    const auto kept = [&](std::size_t i) {
      return stored == past ? n.at(i) : b.sliced(n.name + "_past", n.at(i), 2, 0, 1, past);
    };
    with_past(n, h, kept(3), kept(4));
  }
  // A window has as many keys as is said, the query's own among them.
  if (const std::int64_t window = n.integer("local_window_size", -1); window > 0)
    h.before = window - 1, h.finite = false;
  if (n.has(10)) h.mask = n.at(10);
  const auto present = [&](std::size_t i, const Value& all) {
    if (stored <= total) return all;  // what lies behind is left as it is
    return joined(b, n.name + "_present",
                  {all, b.sliced(n.name + "_rest", n.at(i), 2, total, 1, stored - total)}, 2);
  };
  if (n.wants(1)) n.out[1] = present(3, h.k);
  if (n.wants(2)) n.out[2] = present(4, h.v);
  n.out[0] = joined_heads(n, n.name, attended(n, h));
}

/// ---- Normalisation -----------------------------------------------------------------------------

/// Of a sum of two, and of a bias.
void say_skip_norm(NodeReader& n) {
  const bool simplified = n.node.op == "SkipSimplifiedLayerNormalization";
  const std::size_t bias = simplified ? 3 : 4;
  std::vector<Value> ins = {n.at(0), n.at(1)};
  if (n.has(bias)) ins.push_back(n.at(bias));
  const Value sum = n.b.map(n.name + "_in", n.at(0).type, ins, [](const Args& a) {
    const Expr both = add(a[0], a[1]);
    return a.size() > 2 ? add(both, a[2]) : both;
  });
  std::vector<Value> in = {sum, n.at(2)};
  if (!simplified && n.has(3)) in.push_back(n.at(3));
  const bool both = !simplified && (n.wants(1) || n.wants(2));
  const std::vector<Value> made =
      said_as(n, n.name, simplified ? "RMSNormalization" : "LayerNormalization", std::move(in),
              {real("epsilon", n.real("epsilon", 1e-12))}, both ? 3 : 1);
  for (std::size_t i = 0; i < made.size() && i < n.out.size(); ++i) n.out[i] = made[i];
  if (n.wants(3)) n.out[3] = sum;
}

/// Words, places and segments, looked up, added and normalised.
void say_embed(NodeReader& n) {
  Builder& b = n.b;
  const Value& words = n.at(0);
  if (words.shape.size() != 2) throw Unsupported{"words of another rank"};
  const std::int64_t batch = words.shape[0], rows = words.shape[1];
  const auto looked_up = [&](const char* what, std::size_t table, const Value& ids) {
    return said_as(n, n.name + what, "Gather", {n.at(table), ids}).front();
  };
  Value sum = looked_up("_words", 2, words);
  if (n.has(8)) {
    sum = sum_of(b, n.name + "_places", sum, looked_up("_places", 3, n.at(8)));
  } else {
    if (n.at(3).shape.size() != 2 || n.at(3).shape[0] < rows)
      throw Unsupported{"more rows than places"};
    sum = sum_of(b, n.name + "_places", sum, b.sliced(n.name + "_places", n.at(3), 0, 0, 1, rows));
  }
  if (n.has(1) && n.has(4))
    sum = sum_of(b, n.name + "_segments", sum, looked_up("_segments", 4, n.at(1)));
  n.out[0] = said_as(n, n.name, "LayerNormalization", {sum, n.at(5), n.at(6)},
                     {real("epsilon", n.real("epsilon", 1e-12))})
                 .front();
  n.integer("mask_index_type", 0);
  if (n.wants(1)) {
    if (n.has(7)) {
      if (n.at(7).shape != Shape{batch, rows}) throw Unsupported{"a mask of another shape"};
      const Value count = b.reduce(n.name + "_mask", n.at(7), {1}, Combine::sum,
                                   [](const Args& a) { return a[0]; });
      n.out[1] = cast(b.reshaped(n.name + "_mask", count, {batch}), kInt32);
    } else {
      n.out[1] = Builder::uniform(kInt32, {batch}, 0);
    }
  }
  if (n.wants(2)) n.out[2] = sum;
}

/// ---- With an activation ------------------------------------------------------------------------

Value activated(NodeReader& n, const Value& v, const std::string& name,
                const std::vector<double>& with) {
  if (name.empty()) return v;
  const auto at = [&](std::size_t i, double otherwise) {
    return i < with.size() ? with[i] : otherwise;
  };
  return n.b.map(n.name, v.type, {v}, [&](const Args& a) -> Expr {
    if (name == "Clip")
      return call("min", {call("max", {a[0], number(at(0, -INFINITY))}), number(at(1, INFINITY))});
    const double alpha = name == "LeakyRelu" ? 0.01 : name == "HardSigmoid" ? 0.2 : 1;
    if (const auto known = activation(name, a[0], at(0, alpha), at(1, 0.5))) return *known;
    throw Unsupported{"an activation " + name};
  });
}

std::vector<Attribute> without_activation(const NodeReader& n) {
  std::vector<Attribute> out;
  for (const Attribute& a : n.node.attributes)
    if (n.find(a.name); !a.name.starts_with("activation")) out.push_back(a);
  return out;
}

void say_fused_conv(NodeReader& n) {
  const std::string name = n.text("activation", "");
  std::vector<Value> in = {n.at(0), n.at(1)};
  if (n.has(2)) in.push_back(n.at(2));
  const bool alone = name.empty() && !n.has(3);
  Value y =
      said_as(n, alone ? n.name : n.name + "_conv", "Conv", std::move(in), without_activation(n))
          .front();
  if (n.has(3)) y = sum_of(n.b, n.name + "_sum", y, n.at(3));
  n.out[0] = activated(n, y, name, n.reals("activation_params"));
}

void say_fused_gemm(NodeReader& n) {
  const std::string name = n.text("activation", "");
  std::vector<double> with;
  for (const char* each : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (n.has_attribute(each)) with.push_back(n.real(each, 0));
  const Value y =
      said_as(n, name.empty() ? n.name : n.name + "_gemm", "Gemm", n.in, without_activation(n))
          .front();
  n.out[0] = activated(n, y, name, with);
}

void say_expand_dims(NodeReader& n) {
  n.out[0] = said_as(n, n.name, "Unsqueeze", {n.at(0), n.at(1)}).front();
}

}  // namespace

void say_packed_attention(NodeReader& n) {
  Builder& b = n.b;
  const std::int64_t heads = n.integer("num_heads", 0);
  const Value& x = n.at(0);
  const Value& w = n.at(1);
  if (n.integer("do_rotary", 0) != 0) throw Unsupported{"positions that are turned"};
  if (n.integer("past_present_share_buffer", 0) != 0)
    throw Unsupported{"a cache that is written in place"};
  if (x.shape.size() != 3 || w.shape.size() != 2) throw Unsupported{"an input of another rank"};
  std::vector<std::int64_t> widths = n.integers("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, w.shape[1] / 3);
  for (const std::int64_t each : widths)
    if (each < 1 || each > w.shape[1]) throw Unsupported{"parts that are not the whole"};
  if (widths.size() != 3 || widths[0] + widths[1] + widths[2] != w.shape[1])
    throw Unsupported{"parts that are not the whole"};
  Value all = matrix_product(b, n.name + "_qkv", x, w);
  if (n.has(2)) all = sum_of(b, n.name + "_qkv_bias", all, n.at(2));
  const auto part = [&](const char* what, std::int64_t from, std::int64_t width) {
    return split_heads(n, n.name + what, b.sliced(n.name + what, all, 2, from, 1, width), heads);
  };
  Heads h{.q = part("_q", 0, widths[0]),
          .k = part("_k", widths[0], widths[1]),
          .v = part("_v", widths[0] + widths[1], widths[2]),
          .causal = n.integer("unidirectional", 0) != 0,
          .scale = n.real("scale", 0)};
  if (n.has(4)) with_past(n, h, part_of(n, n.at(4), 0, 0, 2), part_of(n, n.at(4), 0, 1, 2));
  add_masks(n, h, 3, 5);
  if (n.wants(1)) {
    Shape one = h.k.shape;
    one.insert(one.begin(), 1);
    if (h.v.shape != h.k.shape) throw Unsupported{"values of another width than keys"};
    n.out[1] =
        joined(b, n.name + "_present",
               {b.reshaped(n.name + "_k", h.k, one), b.reshaped(n.name + "_v", h.v, one)}, 0);
  }
  n.out[0] = joined_heads(n, n.name, attended(n, h));
}

std::vector<Said> microsoft_operators() {
  return {{"MultiHeadAttention", say_multi_head},
          {"GroupQueryAttention", say_grouped},
          {"SkipLayerNormalization", say_skip_norm},
          {"SkipSimplifiedLayerNormalization", say_skip_norm},
          {"EmbedLayerNormalization", say_embed},
          {"FusedConv", say_fused_conv},
          {"FusedGemm", say_fused_gemm},
          {"ExpandDims", say_expand_dims}};
}

}  // namespace tilewright::onnx
