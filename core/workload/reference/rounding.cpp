#include "core/workload/reference/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "core/workload/expr.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/gather.h"
#include "core/workload/reference/operators.h"
#include "core/workload/reference/places.h"
#include "core/workload/reference/sweep.h"
#include "core/workload/reference/threads.h"

namespace tilewright {
namespace {

using reference::Arithmetic;
using reference::Domain;
using reference::Gathered;
using reference::Program;
using reference::Source;
using Give = Program::Give;

constexpr double kF32 = 0x1p-24, kF64 = 0x1p-53;  // unit roundoffs
constexpr double kDeviation = std::numbers::inv_sqrt3;

bool narrow(DType type) { return type == DType::f16 || type == DType::bf16; }

bool is_kept(const Rounding& rounding, TensorId t) {
  return !rounding.kept.empty() && rounding.kept[t.index()];
}

/// Of the type that values of `type` are stored in.
double unit_of(DType type) {
  switch (type) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f64:
      return kF64;
    default:
      return kF32;
  }
}

/// The most that a value is off by where the type's exponents end; subnormals may be zero.
double least_of(DType type) {
  switch (type) {
    case DType::f16:
      return 0x1p-25;
    case DType::f64:
      return 0x1p-1022;
    default:
      return 0x1p-126;
  }
}

/// From here on a number is stored as infinite.
double overflow_of(DType type) {
  switch (type) {
    case DType::f16:
      return 65520;
    case DType::f64:
      return std::numeric_limits<double>::infinity();
    default:
      return 0x1p128;  // f32, and about where bf16 ends
  }
}

/// Whether it is always a value that one of its inputs has, its negation or zero, where inputs in
/// `type` that a plan does not keep wider are read.
bool chooses(const Workload& w, const Operator& op, const Expr& e, DType type,
             const Rounding& rounding) {
  const auto of = [&](std::size_t arg) { return chooses(w, op, e.args[arg], type, rounding); };
  switch (e.kind) {
    case Expr::Kind::input: {
      const TensorId t = op.inputs[static_cast<std::size_t>(e.input)].tensor;
      return w.tensor(t).dtype == type && !is_kept(rounding, t);
    }
    case Expr::Kind::constant:
      return e.constant == 0;
    case Expr::Kind::call:
      if (e.function == "select") return of(1) && of(2);
      if (e.function == "max" || e.function == "min") return of(0) && of(1);
      return (e.function == "neg" || e.function == "abs" || e.function == "relu") && of(0);
    default:
      return false;
  }
}

/// Whether it is of f32 and made of what is of f64.
bool is_cut_off(const Workload& w, TensorId t) {
  if (w.tensor(t).dtype != DType::f32 || w.is_input(t)) return false;
  return std::ranges::any_of(w.op(w.producer(t)).inputs, [&](const Access& a) {
    return w.tensor(a.tensor).dtype == DType::f64;
  });
}

/// Whether storing the tensor rounds it: in 16 bits, or in f32 where it is made of f64, unless what
/// is stored had been stored in that type before.
bool rounds(const Workload& w, TensorId t, const Rounding& rounding) {
  const DType type = w.tensor(t).dtype;
  if ((!narrow(type) && !is_cut_off(w, t)) || is_kept(rounding, t)) return false;
  if (w.is_input(t)) return true;
  const Operator& op = w.op(w.producer(t));
  const auto o = std::find_if(op.outputs.begin(), op.outputs.end(),
                              [&](const Output& each) { return each.target.tensor == t; });
  // A row's maximum is rounded with what it is chosen from: every element of the row reads it, and
  // bounds that took its error for none were found to vary more between rows.
  return o->combine != Combine::assign || !chooses(w, op, o->value, type, rounding);
}

/// In which operators compute. The reference itself is in f64: of f64 kernels errors come twice.
Arithmetic arithmetic_of(DType type) {
  return {.unit = (type == DType::f64 ? 2 * kF64 : kF32) * kDeviation, .reach = kReach};
}

double* fill(std::vector<double>& to, std::size_t n, double value) {
  to.assign(n, value);
  return to.data();
}

/// The errors of every tensor, operator by operator, as evaluate comes to them.
class Errors {
 public:
  Errors(const Workload& w, const Rounding& rounding)
      : w_(w),
        rounding_(rounding),
        errors_(w.tensors().size()),
        bounds_(w.tensors().size()),
        doubtful_(w.tensors().size()),
        accepted_(w.tensors().size()) {
    for (std::size_t t = 0; t < w.tensors().size(); ++t)
      readers_.push_back(w.consumers(TensorId(t)).size());
  }

  void after(OpId id, TensorValues& values) {
    const Operator& op = w_.op(id);
    sources_ = sources_of(id, values);
    domain_ = {op.loops, {}};
    for (LoopId l : op.loops) domain_.ranges.push_back({0, w_.loop(l).extent});
    for (const Output& o : op.outputs) {
      // A difference from the identity: nothing has been combined in before.
      if (!names_outputs(o.value)) of_output(id, o, values);
      store(o.target.tensor, values[o.target.tensor.index()]);
    }
    gathered_.clear(), gathered_errors_.clear();
    forget(op);
  }

  /// Of outputs: standard deviations before the last rounding, and what that adds at most.
  TensorValues take_errors() { return std::move(bounds_); }
  std::vector<reference::Accepted> take_accepted() { return std::move(accepted_); }

 private:
  std::vector<Source> sources_of(OpId id, TensorValues& values) {
    const Operator& op = w_.op(id);
    std::vector<Source> sources;
    for (const Access& a : op.inputs) {
      const std::vector<double>& e = errors_[a.tensor.index()];
      sources.push_back({&a, w_.tensor(a.tensor).shape, values[a.tensor.index()].data(),
                         e.empty() ? nullptr : e.data()});
    }
    if (!w_.gathers(id)) return sources;
    gathered_.resize(sources.size()), gathered_errors_.resize(sources.size());
    std::vector<Interval> whole;
    for (LoopId l : op.loops) whole.push_back({0, w_.loop(l).extent});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Access& a = op.inputs[i];
      if (!is_gather(a)) continue;
      const auto read = [&] {
        return reference::gather(w_, op, static_cast<int>(i), whole, values, 0);
      };
      gathered_[i] = read();
      std::vector<double>& errors = errors_[a.tensor.index()];
      if (!errors.empty()) {
        std::swap(errors, values[a.tensor.index()]);
        gathered_errors_[i] = read();
        std::swap(errors, values[a.tensor.index()]);
      }
      const Gathered& g = gathered_[i];
      sources[i] = {&g.access, g.shape, g.data.data(),
                    errors.empty() ? nullptr : gathered_errors_[i].data.data()};
    }
    return sources;
  }

  void of_output(OpId id, const Output& o, const TensorValues& values) {
    const TensorId t = o.target.tensor;
    const std::vector<double>& value = values[t.index()];
    const Arithmetic in = arithmetic_in(t);
    std::vector<double>& error = errors_[t.index()];
    double* const to = fill(error, value.size(), 0.0);
    const auto sweep_giving = [&](Give give, double* target, Combine combine, double factor = 0) {
      const Program program =
          Program(o.value, static_cast<int>(sources_.size())).giving(give, in, factor);
      reference::sweep(domain_, program, sources_, {&o.target, w_.tensor(t).shape, target}, combine,
                       0);
    };
    const auto each = [&](auto f) {
      reference::for_each_range(
          static_cast<std::int64_t>(value.size()), 0, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
              to[i] = f(i);
          });
    };
    std::vector<double> other;
    switch (o.combine) {
      case Combine::assign:
        sweep_giving(Give::error, to, Combine::assign);
        doubtful_[t.index()] = reference::places_in_doubt(w_, id, o, domain_, sources_, in, error);
        return;
      case Combine::sum:
        return of_sum(id, o, value, to);
      case Combine::product: {
        fill(error, value.size(), 1.0);
        sweep_giving(Give::largest, to, Combine::product);
        const double roundings = terms(id) * in.unit;
        return each([&](std::size_t i) {
          const double size = std::abs(value[i]);
          return std::max(0.0, to[i] - size) / in.reach + roundings * size;
        });
      }
      case Combine::max:
      case Combine::min:
        fill(error, value.size(), identity_of(o.combine));
        sweep_giving(Give::highest, to, o.combine);
        sweep_giving(Give::lowest, fill(other, value.size(), identity_of(o.combine)), o.combine);
        if (o.value.kind == Expr::Kind::input && !w_.gathers(id)) {
          const Source& from = sources_[static_cast<std::size_t>(o.value.input)];
          const auto& doubtful = doubtful_[from.access->tensor.index()];
          if (!doubtful.empty())
            accepted_[t.index()] = reference::accepted_places(
                domain_, from, {&o.target, w_.tensor(t).shape, nullptr}, doubtful);
        }
        return each([&](std::size_t i) {
          return std::max({0.0, to[i] - value[i], value[i] - other[i]}) / in.reach;
        });
    }
  }

  Arithmetic arithmetic_in(TensorId t) const {
    Arithmetic in = arithmetic_of(w_.tensor(t).dtype);
    if (rounding_.other) in.absolute = in.unit;
    return in;
  }

  double terms(OpId id) const {
    double n = 1;
    for (LoopId l : w_.reduction_loops(id)) n *= static_cast<double>(w_.loop(l).extent);
    return n;
  }

  /// The variance of rounding partial sums, relative to the square of the largest of them.
  double of_partial_sums(OpId id, const Output& o) const {
    const TensorId t = o.target.tensor;
    const DType type = w_.tensor(t).dtype;
    const double n = terms(id), unit = arithmetic_of(type).unit;
    double variance = n * reference::repeats(w_, id, o.value) * unit * unit;
    if (narrow(type) && w_.is_contraction(id)) {
      const double additions = rounding_.additions.empty() ? 0 : rounding_.additions[t.index()];
      const double cut_off = std::max(n / kProductsAtOnce, additions) * 2 * kF32 / kReach;
      variance += cut_off * cut_off;
    }
    if (!rounding_.partial_stores.empty() && narrow(type)) {
      const double stored = unit_of(type) * kDeviation;
      variance += rounding_.partial_stores[t.index()] * stored * stored;
    }
    return variance;
  }

  /// Adds to variances of sums what terms add that are equal, the largest and the smallest of a
  /// sum: those that a clamp cut off. r of them are rounded alike, unless each of their multiples
  /// is a number of the type.
  void of_equal_terms(OpId id, const Output& o, const std::vector<double>& value, double* to) {
    const TensorId t = o.target.tensor;
    const double n = terms(id), unit = arithmetic_of(w_.tensor(t).dtype).unit;
    const std::vector<std::int64_t>& shape = w_.tensor(t).shape;
    std::vector<double> extreme, other;
    const int place = static_cast<int>(sources_.size());
    for (const Combine which : {Combine::max, Combine::min}) {
      reference::sweep(domain_, Program(o.value, place), sources_,
                       {&o.target, shape, fill(extreme, value.size(), identity_of(which))}, which,
                       0);
      const Expr found{.kind = Expr::Kind::input, .input = place};
      const Expr differs{.kind = Expr::Kind::call,
                         .function = "lt",
                         .args = which == Combine::max ? std::vector{o.value, found}
                                                       : std::vector{found, o.value}};
      std::vector<Source> with = sources_;
      with.push_back({&o.target, shape, extreme.data()});
      reference::sweep(domain_, Program(differs, place + 1), with,
                       {&o.target, shape, fill(other, value.size(), 0.0)}, Combine::sum, 0);
      for (std::size_t i = 0; i < value.size(); ++i) {
        const double equal = n - other[i],
                     size = std::max(std::abs(value[i]), equal * std::abs(extreme[i]));
        if (equal * equal <= n || !std::isfinite(size) || size == 0) continue;
        const double last =
            std::ldexp(unit_of(w_.tensor(t).dtype == DType::f64 ? DType::f64 : DType::f32),
                       std::ilogb(size) + 1);
        if (std::fmod(extreme[i], last) != 0) to[i] += equal * equal * unit * unit * size * size;
      }
    }
  }

  void of_sum(OpId id, const Output& o, const std::vector<double>& value, double* to) {
    const Operator& op = w_.op(id);
    const TensorId t = o.target.tensor;
    const double partial = of_partial_sums(id, o);
    std::vector<double> together;  // errors that all terms share
    const bool products = of_products(id, partial, to);
    if (!products) {
      std::vector<LoopId> loops;
      std::ranges::copy_if(w_.reduction_loops(id), std::back_inserter(loops),
                           [&](LoopId l) { return w_.loop(l).extent > 1; });
      const Program program(o.value, static_cast<int>(sources_.size()), &op, loops);
      const Arithmetic in = arithmetic_in(t), exact = {.unit = 0, .reach = in.reach};
      std::vector<Source> own = sources_, shared = sources_;
      bool any = program.has_alike();
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        const bool is_own = std::ranges::all_of(
            loops, [&](LoopId l) { return reference::indexed_along(op, op.inputs[i], l); });
        (is_own ? shared : own)[i].errors = nullptr;
        any = any || (!is_own && sources_[i].errors != nullptr);
      }
      reference::sweep(domain_, program.giving(Give::squares, in, partial).with_alike(exact), own,
                       {&o.target, w_.tensor(t).shape, to}, Combine::sum, 0);
      if (any)
        reference::sweep(domain_, program.giving(Give::error, exact).with_alike(in), shared,
                         {&o.target, w_.tensor(t).shape, fill(together, value.size(), 0.0)},
                         Combine::sum, 0);
    }
    if (!products && terms(id) > kReach * kReach) of_equal_terms(id, o, value, to);
    reference::for_each_range(
        static_cast<std::int64_t>(value.size()), 0, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
            to[i] = std::sqrt(to[i] + partial * value[i] * value[i]) +
                    (together.empty() ? 0 : together[i]);
        });
  }

  /// Of a sum of products a b: sum (e_a^2 + partial a^2) b^2 + a^2 e_b^2, by matrix products.
  bool of_products(OpId id, double partial, double* to) {
    const auto pair = reference::factors_of(w_, id);
    if (!pair) return false;
    const Source &a = sources_[static_cast<std::size_t>((*pair)[0])],
                 &b = sources_[static_cast<std::size_t>((*pair)[1])];
    const auto squares = [this](const Source& s, double values, double errors) {
      const auto n = w_.tensor(s.access->tensor).elements().value;
      std::vector<double> all(static_cast<std::size_t>(n));
      reference::for_each_range(n, 0, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const double e = s.errors == nullptr ? 0 : s.errors[i];
          all[static_cast<std::size_t>(i)] = values * s.data[i] * s.data[i] + errors * e * e;
        }
      });
      return all;
    };
    const auto multiply = [&](const std::vector<double>& x, const std::vector<double>& y) {
      return reference::multiply(w_, id, domain_.ranges, x.data(), y.data(), to, 0);
    };
    if (!multiply(squares(a, partial, 1), squares(b, 1, 0))) return false;
    return b.errors == nullptr || multiply(squares(a, 1, 0), squares(b, 0, 1));
  }

  /// Rounds a result to its tensor's type; keeps what its bound is made from.
  void store(TensorId t, const std::vector<double>& value) {
    std::vector<double>& error = errors_[t.index()];
    if (error.empty()) error.assign(value.size(), 0.0);
    const DType type = w_.tensor(t).dtype;
    if (is_integer(type)) round_to_whole(value, error);
    if (w_.is_output(t)) {
      bounds_[t.index()] = error;
      for (const auto& [element, places] : accepted_[t.index()]) bounds_[t.index()][element] = 0;
    }
    if (is_integer(type)) return;
    constexpr double kSmallest = 0x1p-126;  // below it numbers are denormal in f32 and bf16
    const bool is_rounded = rounds(w_, t, rounding_);
    const double unit = is_rounded ? unit_of(type) * kDeviation : 0;
    const double least = is_rounded ? least_of(type) : least_of(DType::f32);
    const double overflow = is_rounded ? overflow_of(type) : overflow_of(DType::f64);
    reference::for_each_range(
        static_cast<std::int64_t>(value.size()), 0, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
            const double rounded = unit * value[i];
            // What nothing has rounded, an extreme of exact values, equals what a kernel makes:
            // only small numbers may be lost.
            const bool exact = error[i] == 0 && round_to(type, value[i]) == value[i] &&
                               (value[i] == 0 || std::abs(value[i]) > kSmallest);
            if (!std::isfinite(value[i]) || exact)
              error[i] = 0;
            else if (std::abs(value[i]) + kReach * error[i] >= overflow)
              error[i] =
                  std::numeric_limits<double>::infinity();  // a kernel may read it as infinite
            else
              error[i] = std::sqrt(error[i] * error[i] + rounded * rounded) + least * kDeviation;
          }
        });
  }

  /// A whole number is off by none where rounding cannot fall the other way, else by one more.
  static void round_to_whole(const std::vector<double>& value, std::vector<double>& error) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double gap = 0.5 - std::abs(value[i] - std::nearbyint(value[i]));
      const bool may_differ = std::isfinite(value[i]) && kReach * error[i] > gap;
      error[i] = may_differ ? error[i] + 1 / kReach : 0;
    }
  }

  void forget(const Operator& op) {
    std::vector<TensorId> read;
    for (const Access& a : op.inputs)
      if (std::find(read.begin(), read.end(), a.tensor) == read.end()) read.push_back(a.tensor);
    for (TensorId t : read)
      if (--readers_[t.index()] == 0) errors_[t.index()] = {};
  }

  const Workload& w_;
  const Rounding& rounding_;
  TensorValues errors_, bounds_;
  std::vector<std::map<std::size_t, double>> doubtful_;  // by TensorId, as places_in_doubt has them
  std::vector<reference::Accepted> accepted_;
  std::vector<std::size_t> readers_;
  Domain domain_;                // of the operator at hand, and
  std::vector<Source> sources_;  // what it reads
  std::vector<Gathered> gathered_, gathered_errors_;
};

/// A tensor that is rounded to 16 bits and read again.
bool is_rounded_and_read(const Workload& w, TensorId t, const Rounding& rounding) {
  return narrow(w.tensor(t).dtype) && !w.is_input(t) && !w.consumers(t).empty() &&
         rounds(w, t, rounding);
}

/// Whether a result in 16 bits is read along a loop that it has not, by an operator whose own
/// result is summed later.
bool errors_meet_again(const Workload& w, const Rounding& rounding) {
  std::vector<bool> spread(w.tensors().size());  // made from what was read so
  for (OpId id : w.topological_order()) {
    const Operator& op = w.op(id);
    bool from = false;
    for (const Access& a : op.inputs) {
      if (spread[a.tensor.index()] && !w.reduction_loops(id).empty()) return true;
      from = from || spread[a.tensor.index()];
      if (!is_rounded_and_read(w, a.tensor, rounding)) continue;
      from = from || std::any_of(op.loops.begin(), op.loops.end(), [&](LoopId l) {
               return !w.is_reduction(id, l) && !reference::indexed_along(op, a, l);
             });
    }
    for (const Output& o : op.outputs) spread[o.target.tensor.index()] = from;
  }
  return false;
}

/// The outputs that something in 16 bits is read for, so that moving it moves them.
std::vector<TensorId> moved_outputs(const Workload& w, const Rounding& rounding) {
  std::vector<bool> moved(w.tensors().size());
  for (OpId id : w.topological_order()) {
    const Operator& op = w.op(id);
    const bool any = std::ranges::any_of(
        op.inputs, [&](const Access& a) { return bool(moved[a.tensor.index()]); });
    for (const Output& o : op.outputs)
      moved[o.target.tensor.index()] = any || is_rounded_and_read(w, o.target.tensor, rounding);
  }
  std::vector<TensorId> outputs;
  for (TensorId t : w.outputs())
    if (moved[t.index()]) outputs.push_back(t);
  return outputs;
}

/// Moves what an operator has made, where it is of 16 bits and read, by up to one unit at random.
void move(const Workload& w, OpId id, const Rounding& rounding, std::uint64_t seed,
          TensorValues& values) {
  for (const Output& o : w.op(id).outputs) {
    const TensorId t = o.target.tensor;
    const DType type = w.tensor(t).dtype;
    if (!is_rounded_and_read(w, t, rounding)) continue;
    std::vector<double>& v = values[t.index()];
    reference::for_each_range(
        static_cast<std::int64_t>(v.size()), 0, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::uint64_t>(begin); i < static_cast<std::uint64_t>(end);
               ++i) {
            std::uint64_t x =
                (i + 1) * 0x9e3779b97f4a7c15U + (t.index() + 1) * 0xd1b54a32d192ed03U + seed;
            x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
            x = (x ^ x >> 27) * 0x94d049bb133111ebU;
            const double random = static_cast<double>(x >> 11) * 0x1p-52 - 1;
            v[i] *= 1 + random * unit_of(type);
          }
        });
  }
}

/// How large errors are beside those propagated, by stretches of neighbouring elements.
class Scale {
 public:
  static constexpr std::size_t kStretch = 64;
  static constexpr std::size_t kEnough = 4000;  ///< values to learn from that errors cancel
  static constexpr std::size_t kFewest = 4, kMost = 16;

  /// Evaluations that an output of so many elements needs: more of a small one, but of one that is
  /// too small to learn that from.
  static std::size_t evaluations(std::size_t elements) {
    const std::size_t wanted = (kEnough + elements - 1) / elements;
    return wanted > kMost ? kFewest : std::max(wanted, kFewest);
  }

  explicit Scale(std::size_t elements) : sums_((elements + kStretch - 1) / kStretch) {}

  /// The values once more, moved. `error`: deviations before what was moved by `unit` itself.
  void add(const std::vector<double>& moved, const std::vector<double>& value,
           const std::vector<double>& error, double unit) {
    reference::for_each_range(std::ssize(sums_), 0, [&](std::int64_t begin, std::int64_t end) {
      for (auto s = static_cast<std::size_t>(begin); s < static_cast<std::size_t>(end); ++s)
        for (std::size_t i = s * kStretch; i < std::min((s + 1) * kStretch, value.size()); ++i) {
          const double z = (moved[i] - value[i]) / std::hypot(error[i], unit * value[i]);
          if (!std::isfinite(z)) continue;
          sums_[s].squares += z * z;
          ++sums_[s].count;
        }
    });
  }
  /// Of each stretch. One may be small by chance in a few samples: never below a share of them all.
  std::vector<double> get() const {
    constexpr double kMargin = 1.5, kLeast = 0.1, kShare = 0.6;
    Sum all;
    for (const Sum& s : sums_) all.squares += s.squares, all.count += s.count;
    const double least = std::max(kShare * all.root_mean(),
                                  all.count < double(kEnough) ? 1 / kMargin : kLeast / kMargin);
    std::vector<double> scales;
    for (const Sum& s : sums_) scales.push_back(kMargin * std::max(s.root_mean(), least));
    return scales;
  }

 private:
  struct Sum {
    double squares = 0, count = 0;
    double root_mean() const { return count == 0 ? 0 : std::sqrt(squares / count); }
  };
  std::vector<Sum> sums_;
};

}  // namespace

std::optional<std::vector<double>> with_places(const std::vector<double>& values,
                                               const AcceptedPlaces& accepted, TensorId output,
                                               DType type, const void* got) {
  if (accepted.empty() || accepted[output.index()].empty()) return std::nullopt;
  std::vector<double> with = values;
  const std::vector<double> has = decode_elements(type, got, values.size());
  for (const auto& [element, places] : accepted[output.index()])
    if (std::ranges::find(places, has[element]) != places.end()) with[element] = has[element];
  return with;
}

Bounded evaluate_bounded(const Workload& w, TensorValues inputs, const Rounding& rounding) {
  const bool meet = errors_meet_again(w, rounding);
  Errors errors(w, rounding);
  Bounded all;
  const auto follow = [&](OpId id, TensorValues& v) { errors.after(id, v); };
  all.values =
      evaluate(w, std::move(inputs), {.outputs_only = true, .inputs_kept = meet, .after = follow});
  all.bounds = errors.take_errors();
  all.accepted = errors.take_accepted();
  TensorValues again(w.tensors().size());  // inputs, then also the outputs of the last sample
  for (std::size_t t = 0; t < again.size(); ++t)
    if (w.is_input(TensorId(t))) again[t] = std::exchange(all.values[t], {});
  std::vector<std::vector<double>> scales(w.tensors().size());
  if (meet) {
    const std::vector<TensorId> outputs = moved_outputs(w, rounding);
    std::vector<Scale> scale;
    std::size_t samples = 0;
    for (TensorId t : outputs) {
      const std::size_t elements = all.values[t.index()].size();
      scale.emplace_back(elements);
      samples = std::max(samples, Scale::evaluations(elements));
    }
    for (std::size_t sample = 0; sample < samples; ++sample) {
      const auto by_chance = [&](OpId id, TensorValues& v) { move(w, id, rounding, sample, v); };
      again = evaluate(w, std::move(again),
                       {.outputs_only = true, .inputs_kept = true, .after = by_chance});
      for (std::size_t o = 0; o < scale.size(); ++o) {
        const TensorId t = outputs[o];
        const double unit =
            is_rounded_and_read(w, t, rounding) ? unit_of(w.tensor(t).dtype) * kDeviation : 0;
        scale[o].add(again[t.index()], all.values[t.index()], all.bounds[t.index()], unit);
      }
    }
    for (std::size_t o = 0; o < scale.size(); ++o) scales[outputs[o].index()] = scale[o].get();
  }
  for (TensorId t : w.outputs()) {
    const DType type = w.tensor(t).dtype;
    const double least = least_of(type), unit = rounds(w, t, rounding) ? unit_of(type) : 0;
    const double overflow = is_integer(type) ? overflow_of(DType::f64) : overflow_of(type);
    std::vector<double>& bound = all.bounds[t.index()];
    std::vector<double>& value = all.values[t.index()];
    const std::vector<double>& scale = scales[t.index()];
    reference::for_each_range(
        static_cast<std::int64_t>(value.size()), 0, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
            const double computed =
                kReach * bound[i] * (scale.empty() ? 1 : scale[i / Scale::kStretch]);
            // What is infinite, or too large for the type whatever is rounded, must be infinite.
            if (std::abs(value[i]) - computed >= overflow)
              value[i] = std::copysign(std::numeric_limits<double>::infinity(), value[i]);
            bound[i] = std::isinf(value[i]) ? 0.0
                       : std::abs(value[i]) + computed >= overflow
                           ? std::numeric_limits<double>::infinity()
                           : computed + unit * (std::abs(value[i]) + computed) + least;
          }
        });
  }
  return all;
}

}  // namespace tilewright
