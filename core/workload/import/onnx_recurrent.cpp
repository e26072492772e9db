// LSTM, GRU and RNN, a step after another.
#include <algorithm>
#include <cmath>

#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

using Args = std::vector<Expr>;

constexpr std::int64_t kMostSteps = 4096;
constexpr std::int64_t kMostWide = std::int64_t{1} << 31;

/// One direction: values of rank 2 or 3 without the dimension of directions.
struct Direction {
  Value w, r, bias_w, bias_r, h, c;
  bool has_bias = false, has_peephole = false;
  Value p;
};

class Cells {
 public:
  /// `dynamic`: weights are quantised, and what they are multiplied with is quantised as well.
  Cells(NodeReader& n, std::int64_t gates, bool dynamic = false)
      : n_(n), b_(n.b), gates_(gates), dynamic_(dynamic) {
    if (n.at(0).shape.size() != 3) throw Unsupported{"an input of another rank"};
    batches_first_ = n.integer("layout", 0) != 0;
    if (batches_first_)
      for (const std::size_t i : {0, 5, 6})
        if (n.has(i) && n.at(i).shape.size() == 3) n.in[i] = b_.transposed(n.at(i), {1, 0, 2});
    const Value& x = n.at(0);
    clip_ = n.real("clip", 0);
    if (clip_ < 0) throw Unsupported{"a bound below zero"};
    steps_ = x.shape[0];
    batch_ = x.shape[1];
    if (n.has(4) && !all_whole(n.at(4), steps_)) {
      if (n.at(4).shape != Shape{batch_}) throw Unsupported{"lengths that are not one a sequence"};
      lengths_ = b_.reshaped(n.name + "_lengths", n.at(4), {batch_, 1});
    }
    if (steps_ > kMostSteps) throw Unsupported{"more than 4096 steps"};
    const std::string way = n.text("direction", "forward");
    directions_ = way == "bidirectional" ? 2 : 1;
    backward_ = way == "reverse";
    const std::int64_t wide = n.at(2).shape.size() == 3 ? n.at(2).shape[2] : 0;
    hidden_ = n.integer("hidden_size", wide);
    if (hidden_ != wide || wide > kMostWide ||
        n.at(1).shape != Shape{directions_, gates * hidden_, x.shape[2]} ||
        n.at(2).shape != Shape{directions_, gates * hidden_, hidden_})
      throw Unsupported{"weights of another shape"};
    activations_ = strings("activations");
    // Values are of the functions that take one, in their order.
    const auto alphas = n.reals("activation_alpha"), betas = n.reals("activation_beta");
    std::size_t alpha = 0, beta = 0;
    for (const std::string& name : activations_) {
      const bool both = name == "Affine" || name == "ScaledTanh" || name == "HardSigmoid";
      const bool one = both || name == "LeakyRelu" || name == "ThresholdedRelu" || name == "Elu";
      alphas_.push_back(one && alpha < alphas.size() ? alphas[alpha++]
                        : name == "HardSigmoid"      ? 0.2
                        : name == "LeakyRelu"        ? 0.01
                                                     : 1);
      betas_.push_back(both && beta < betas.size() ? betas[beta++] : 0.5);
    }
  }

  void run(bool has_cell) {
    if (!has_cell && n_.wants(2)) throw Unsupported{"a third output"};
    std::vector<Value> all, last, last_cell;
    for (std::int64_t d = 0; d < directions_; ++d) {
      const bool back = d == 1 || backward_;
      const Direction of = direction(d, has_cell);
      std::vector<Value> steps(static_cast<std::size_t>(steps_));
      Value h = of.h, c = of.c;
      const std::string name = n_.name + (d == 1 ? "_back" : "");
      // What is made from the input is one product for all steps: [T, B, gates, H].
      const Value from_x = product(name + "_x", n_.at(0), of.w);
      for (std::int64_t i = 0; i < steps_; ++i) {
        const std::int64_t t = back ? steps_ - 1 - i : i;
        const std::string step = name + "_t" + std::to_string(t);
        const Value x = squeezed(b_, b_.sliced(step, from_x, 0, t, 1, 1), 0);
        const Value h_before = h, c_before = c;
        if (has_cell)
          std::tie(h, c) = lstm(step, of, d, x, h, c);
        else
          h = gates_ == 3 ? gru(step, of, d, x, h) : rnn(step, of, d, x, h);
        Value& y = steps[static_cast<std::size_t>(t)];
        y = h;
        if (!lengths_) continue;
        // Behind a sequence's end states stay, whichever way it is walked, and there is no output.
        y = within(step + "_y_within", t, h, Builder::uniform(h.type, {batch_, hidden_}, 0));
        h = within(step + "_h_within", t, h, h_before);
        if (has_cell) c = within(step + "_c_within", t, c, c_before);
      }
      if (n_.wants(0)) {
        for (Value& v : steps) v = b_.reshaped(name, v, {1, 1, batch_, hidden_});
        all.push_back(joined(b_, name + "_steps", steps, 0));
      }
      last.push_back(b_.reshaped(name, h, {1, batch_, hidden_}));
      if (has_cell) last_cell.push_back(b_.reshaped(name, c, {1, batch_, hidden_}));
    }
    if (n_.wants(0)) n_.out[0] = joined(b_, n_.name, all, 1);
    if (n_.wants(1)) n_.out[1] = joined(b_, n_.name + "_h", last, 0);
    if (n_.wants(2)) n_.out[2] = joined(b_, n_.name + "_c", last_cell, 0);
    if (!batches_first_) return;
    if (n_.wants(0)) n_.out[0] = b_.transposed(n_.out[0], {2, 0, 1, 3});
    for (const std::size_t i : {1, 2})
      if (n_.wants(i)) n_.out[i] = b_.transposed(n_.out[i], {1, 0, 2});
  }

 private:
  /// Where step t is one of the sequence's, else the other.
  Value within(const std::string& name, std::int64_t t, const Value& v, const Value& other) {
    return b_.map(name, v.type, {v, other, *lengths_}, [&](const Args& a) {
      return call("select", {call("lt", {number(static_cast<double>(t)), a[2]}), a[0], a[1]});
    });
  }
  static bool all_whole(const Value& lengths, std::int64_t steps) {
    return lengths.known() && std::ranges::all_of(values_of(lengths), [&](double l) {
             return l == static_cast<double>(steps);
           });
  }
  std::vector<std::string> strings(const char* attribute) const {
    const Attribute* a = n_.find(attribute);
    return a == nullptr ? std::vector<std::string>{} : a->texts;
  }

  Value of_direction(std::size_t input, std::int64_t d) {
    return squeezed(b_, b_.sliced(n_.name, n_.at(input), 0, d, 1, 1), 0);
  }

  Direction direction(std::int64_t d, bool has_cell) {
    Direction of;
    const std::int64_t in = n_.at(0).shape[2];
    of.w = b_.reshaped(n_.name, of_direction(1, d), {gates_, hidden_, in});
    of.r = b_.reshaped(n_.name, of_direction(2, d), {gates_, hidden_, hidden_});
    of.has_bias = n_.has(3);
    if (of.has_bias) {
      if (n_.at(3).shape != Shape{directions_, 2 * gates_ * hidden_})
        throw Unsupported{"biases of another shape"};
      const Value both = b_.reshaped(n_.name, of_direction(3, d), {2, gates_, hidden_});
      of.bias_w = squeezed(b_, b_.sliced(n_.name, both, 0, 0, 1, 1), 0);
      of.bias_r = squeezed(b_, b_.sliced(n_.name, both, 0, 1, 1, 1), 0);
    } else {
      of.bias_w = of.bias_r = Builder::uniform(n_.at(0).type, {gates_, hidden_}, 0);
    }
    const Value zero = Builder::uniform(n_.at(0).type, {batch_, hidden_}, 0);
    of.h = n_.has(5) ? of_direction(5, d) : zero;
    of.c = has_cell && n_.has(6) ? of_direction(6, d) : zero;
    of.has_peephole = has_cell && n_.has(7);
    if (of.has_peephole) of.p = b_.reshaped(n_.name, of_direction(7, d), {3, hidden_});
    return of;
  }

  /// [..., K] times [gates, H, K]: [..., gates, H]
  Value product(const std::string& name, const Value& x, const Value& w) {
    if (x.uniform == 0.0) {
      Shape to(x.shape.begin(), x.shape.end() - 1);
      to.insert(to.end(), {w.shape[0], w.shape[1]});
      return Builder::uniform(x.type, to, 0);
    }
    const std::int64_t width = w.shape[0] * w.shape[1];
    const Value flat = b_.reshaped(name + "_w", w, {width, w.shape[2]});
    const Value made =
        matrix_product(b_, name, dynamic_ ? quantised_there_and_back(n_, name, x) : x,
                       b_.transposed(flat, {1, 0}));
    Shape to(x.shape.begin(), x.shape.end() - 1);
    to.insert(to.end(), {w.shape[0], w.shape[1]});
    return b_.reshaped(name, made, to);
  }

  /// One gate of [B, gates, H] or [gates, H] or [3, H].
  Value gate(const Value& v, std::int64_t g) {
    const std::size_t dim = v.shape.size() - 2;
    return squeezed(b_, b_.sliced(n_.name, v, dim, g, 1, 1), dim);
  }

  /// What goes into a gate is clipped, where that is asked for: as in onnxruntime, the cell is not.
  Expr activated(std::int64_t d, std::size_t which, std::size_t functions, const char* usual,
                 const Expr& in, bool clipped = true) {
    const Expr x =
        clip_ > 0 && clipped ? call("max", {call("min", {in, number(clip_)}), number(-clip_)}) : in;
    const std::size_t at = static_cast<std::size_t>(d) * functions + which;
    const bool given = at < activations_.size();
    const std::string name = given ? activations_[at] : usual;
    const double alpha = given ? alphas_[at] : 1, beta = given ? betas_[at] : 0.5;
    if (const auto known = activation(name, x, alpha, beta)) return *known;
    throw Unsupported{"an activation " + name};
  }

  static Expr sum(const Args& a, std::size_t from, std::size_t count) {
    Expr s = a[from];
    for (std::size_t i = 1; i < count; ++i) s = call("add", {std::move(s), a[from + i]});
    return s;
  }

  /// What each of those gates is the sum of.
  void parts(std::vector<Value>& ins, const Direction& of, const Value& x, const Value& h,
             std::int64_t g) {
    ins.insert(ins.end(), {gate(x, g), gate(h, g), gate(of.bias_w, g), gate(of.bias_r, g)});
  }

  std::pair<Value, Value> lstm(const std::string& step, const Direction& of, std::int64_t d,
                               const Value& x, const Value& h, const Value& c) {
    const Value from_h = product(step + "_h", h, of.r);
    const Value none = Builder::uniform(x.type, {hidden_}, 0);
    const auto peep = [&](std::int64_t i) { return of.has_peephole ? gate(of.p, i) : none; };
    const bool coupled = n_.integer("input_forget", 0) != 0;
    std::vector<Value> ins;  // gates i, c, f
    for (const std::int64_t g : {0, 3}) parts(ins, of, x, from_h, g);
    ins.insert(ins.end(), {c, peep(0)});
    if (!coupled) {
      parts(ins, of, x, from_h, 2);
      ins.push_back(peep(2));
    }
    const Value state = b_.map(step + "_c", x.type, ins, [&](const Args& a) {
      const Expr& before = a[8];
      const auto with = [&](std::size_t from, std::size_t p) {
        return call("add", {sum(a, from, 4), call("mul", {a[p], before})});
      };
      const Expr i = activated(d, 0, 3, "Sigmoid", with(0, 9));
      const Expr f =
          coupled ? call("sub", {number(1), i}) : activated(d, 0, 3, "Sigmoid", with(10, 14));
      return call("add", {call("mul", {f, before}),
                          call("mul", {i, activated(d, 1, 3, "Tanh", sum(a, 4, 4))})});
    });
    ins.clear();
    parts(ins, of, x, from_h, 1);
    ins.insert(ins.end(), {state, peep(1)});
    const Value out = b_.map(step + "_y", x.type, ins, [&](const Args& a) {
      const Expr o =
          activated(d, 0, 3, "Sigmoid", call("add", {sum(a, 0, 4), call("mul", {a[5], a[4]})}));
      return call("mul", {o, activated(d, 2, 3, "Tanh", a[4], false)});
    });
    return {out, state};
  }

  Value gru(const std::string& step, const Direction& of, std::int64_t d, const Value& x,
            const Value& h) {
    // Gates z, r, h.
    const bool after = n_.integer("linear_before_reset", 0) != 0;
    // Else the last gate's product is of what the second lets through.
    const Value from_h =
        product(step + "_h", h, after ? of.r : b_.sliced(n_.name, of.r, 0, 0, 1, 2));
    std::vector<Value> ins;
    if (after) {
      for (const std::int64_t g : {0, 1, 2}) parts(ins, of, x, from_h, g);
      ins.push_back(h);
      return b_.map(step + "_y", x.type, ins, [&](const Args& a) {
        const Expr z = activated(d, 0, 2, "Sigmoid", sum(a, 0, 4)),
                   r = activated(d, 0, 2, "Sigmoid", sum(a, 4, 4));
        const Expr made = activated(d, 1, 2, "Tanh",
                                    call("add", {call("add", {a[8], a[10]}),
                                                 call("mul", {r, call("add", {a[9], a[11]})})}));
        return mixed(z, made, a[12]);
      });
    }
    parts(ins, of, x, from_h, 1);
    ins.push_back(h);
    const Value kept = b_.map(step + "_r", x.type, ins, [&](const Args& a) {
      return call("mul", {activated(d, 0, 2, "Sigmoid", sum(a, 0, 4)), a[4]});
    });
    const Value last = squeezed(b_, b_.sliced(n_.name, of.r, 0, 2, 1, 1), 0);
    const Value from_r = kept.uniform == 0.0
                             ? kept
                             : matrix_product(b_, step + "_rh", kept, b_.transposed(last, {1, 0}));
    ins.clear();
    parts(ins, of, x, from_h, 0);
    ins.insert(ins.end(), {gate(x, 2), from_r, gate(of.bias_w, 2), gate(of.bias_r, 2), h});
    return b_.map(step + "_y", x.type, ins, [&](const Args& a) {
      return mixed(activated(d, 0, 2, "Sigmoid", sum(a, 0, 4)),
                   activated(d, 1, 2, "Tanh", sum(a, 4, 4)), a[8]);
    });
  }

  /// (1 - z) * made + z * before
  static Expr mixed(const Expr& z, Expr made, const Expr& before) {
    return call("add", {call("mul", {call("sub", {number(1), z}), std::move(made)}),
                        call("mul", {z, before})});
  }

  Value rnn(const std::string& step, const Direction& of, std::int64_t d, const Value& x,
            const Value& h) {
    const Value from_h = product(step + "_h", h, of.r);
    std::vector<Value> ins;
    parts(ins, of, x, from_h, 0);
    return b_.map(step + "_y", x.type, ins,
                  [&](const Args& a) { return activated(d, 0, 1, "Tanh", sum(a, 0, 4)); });
  }

  NodeReader& n_;
  Builder& b_;
  std::int64_t gates_, steps_ = 0, batch_ = 0, hidden_ = 0, directions_ = 1;
  bool dynamic_ = false;
  bool backward_ = false, batches_first_ = false;
  double clip_ = 0;               // 0: none
  std::optional<Value> lengths_;  ///< [B, 1], where they are not all steps
  std::vector<std::string> activations_;
  std::vector<double> alphas_, betas_;
};

constexpr const char* kUnrolled = "LSTM, GRU and RNN are unrolled over their steps";

void say_lstm(NodeReader& n) {
  Cells(n, 4).run(true);
  n.note = kUnrolled;
}
void say_gru(NodeReader& n) {
  Cells(n, 3).run(false);
  n.note = kUnrolled;
}
/// onnxruntime's: weights stand with their rows as columns, each direction with a scale, or each of
/// its columns.
void say_dynamic_lstm(NodeReader& n) {
  const std::size_t w_at = 1, scales = 8;
  for (const std::size_t i : {w_at, w_at + 1}) {
    const std::size_t s = scales + 2 * (i - w_at);
    if (n.at(i).shape.size() != 3) throw Unsupported{"weights of another shape"};
    const auto vector = [&](std::size_t k) {  // [directions, 1, 1 or columns]
      const Value& v = n.at(k);
      const std::int64_t d = n.at(i).shape[0];
      return as_shape(n.b, n.name + "_s", v, {d, 1, elements_of(v.shape) / d});
    };
    const Value real = n.b.map(n.name + "_w", kFloat, {n.at(i), vector(s), vector(s + 1)},
                               [](const Args& a) { return mul(sub(a[0], a[2]), a[1]); });
    n.in[i] = n.b.transposed(real, {0, 2, 1});
  }
  n.in.resize(scales);
  Cells(n, 4, true).run(true);
  n.note = kUnrolled;
}
void say_rnn(NodeReader& n) {
  Cells(n, 1).run(false);
  n.note = kUnrolled;
}

}  // namespace

std::vector<Said> recurrent_operators() {
  return {{"DynamicQuantizeLSTM", say_dynamic_lstm},
          {"LSTM", say_lstm},
          {"GRU", say_gru},
          {"RNN", say_rnn}};
}

}  // namespace tilewright::onnx
