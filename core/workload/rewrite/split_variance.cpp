// Sums of squared distances from a mean, of values that are read once: each chunk has its own sum
// and its own squares, which are joined afterwards (Chan, Golub and LeVeque, Algorithms for
// computing the sample variance: analysis and recommendations, The American Statistician 37(3),
// 1983, equation 2.1).
//
//   s[c]   += x[r,c]                   s_part[ro,c] += x[256*ro+ri,c]
//   m[c]    = s[c] * (1/n)             m_part[ro,c]  = s_part[ro,c] * (1/256)
//   d[r,c]  = x[r,c] - m[c]       =>   v_part[ro,c] += square(x[256*ro+ri,c] - m_part[ro,c])
//   v[c]   += square(d[r,c])           s[c]         += s_part[ro,c]
//                                      v[c]         += v_part[ro,c] + 256 * square(m_part[ro,c] -
//                                      s[c] * (1/n))
//
// Squares are of distances from the chunk's mean, which is near the mean of all: nothing cancels
// that would not with the mean itself. Who else reads m and d finds them as they were. Where no
// length of 64 to 1,024 divides n, the last chunk has fewer points: it adds nothing for the others,
// and its count stands in place of 256.
#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/workload/rewrite/build.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

constexpr std::int64_t kLeastChunk = 64, kMostChunk = 1024;
constexpr double kChunk = 256;  // points of a chunk, about: with some columns a block's registers

using rewrite::make;
using rewrite::read;
using rewrite::value;

bool is_call(const Expr& e, const char* function) {
  return e.kind == Expr::Kind::call && e.function == function;
}

/// Whether both are the same expression of the same elements.
bool same(const Expr& a, const Operator& of_a, const Expr& b, const Operator& of_b) {
  if (a.kind != b.kind || a.args.size() != b.args.size()) return false;
  switch (a.kind) {
    case Expr::Kind::input: {
      const Access& x = of_a.inputs[static_cast<std::size_t>(a.input)];
      return !is_gather(x) && x == of_b.inputs[static_cast<std::size_t>(b.input)];
    }
    case Expr::Kind::constant:
      return a.constant == b.constant;
    case Expr::Kind::index:
      return a.loop == b.loop;
    case Expr::Kind::call:
      if (a.function != b.function) return false;
      break;
    default:
      return false;
  }
  for (std::size_t i = 0; i < a.args.size(); ++i)
    if (!same(a.args[i], of_a, b.args[i], of_b)) return false;
  return true;
}

/// A sum of squared distances from a mean.
struct Variance {
  OpId sum, squares;
  Operator op;       ///< the squares' operator, with the distance computed in it
  Expr point;        ///< what is summed, by op.inputs
  double scale = 0;  ///< the mean is this much of the sum
};

class VarianceMatcher {
 public:
  explicit VarianceMatcher(const Workload& w) : w_(w) {}

  Result<Variance> match(OpId id) const {
    const auto refuse = [&](const std::string& why) {
      return Reason{"operator " + w_.op(id).name + " " + why};
    };
    Variance v{.squares = id, .op = w_.op(id)};
    if (!is_sum(id)) return refuse("is not a sum of one output");
    const auto root = [&v]() -> Expr& { return v.op.outputs.front().value; };
    while (open_up(v.op, root())) {
    }
    const bool squared =
        is_call(root(), "square") || (is_call(root(), "mul") && root().args[0] == root().args[1]);
    if (!squared) return refuse("sums no squares");
    // One copy, so that what replaces a read in it is replaced once.
    root() = make("square", {root().args[0]});
    while (open_up(v.op, root().args[0])) {
    }
    if (!is_call(root().args[0], "sub")) return refuse("sums no squares of distances");
    for (std::size_t mean : {1, 0}) {
      const auto from = [&]() -> Expr& { return root().args[0].args[mean]; };
      Variance tried = v;
      if (!is_mean(from())) open_up(v.op, from());
      const Expr& scaled = from();
      const std::size_t by =
          is_call(scaled, "mul") && scaled.args[0].kind == Expr::Kind::constant ? 0 : 1;
      if (is_mean(scaled)) {
        const double k = scaled.args[by].constant;
        v.scale = scaled.function == "div" ? 1 / k : k;
        const Access& sum = v.op.inputs[static_cast<std::size_t>(scaled.args[1 - by].input)];
        v.sum = w_.producer(sum.tensor);
        v.point = root().args[0].args[1 - mean];
        if (v.sum.valid() && is_mean_of(v, sum)) return v;
      }
      v = std::move(tried);
    }
    return refuse("takes no distances from the mean of what it sums");
  }

 private:
  bool is_sum(OpId id) const {
    const Operator& op = w_.op(id);
    return op.outputs.size() == 1 && op.outputs.front().combine == Combine::sum && !op.running &&
           !w_.reduction_loops(id).empty() &&
           std::ranges::all_of(op.outputs.front().target.index,
                               [](const Affine& i) { return i.plain_loop().has_value(); });
  }

  /// An element-wise operator's value that is read as it is: its expression in place of it.
  bool open_up(Operator& op, Expr& e) const {
    if (e.kind != Expr::Kind::input) return false;
    const TensorId t = op.inputs[static_cast<std::size_t>(e.input)].tensor;
    const OpId p = w_.producer(t);
    if (!p.valid() || w_.op(p).running) return false;
    for (const Output& o : w_.op(p).outputs)
      if (o.target.tensor == t && o.combine == Combine::assign)
        if (auto done = rewrite::substitute(w_.spec(), op, e.input, w_.op(p), o)) {
          op = *std::move(done);
          return true;
        }
    return false;
  }

  /// An input by a constant.
  static bool is_mean(const Expr& e) {
    const auto by = [&](std::size_t constant) {
      return e.args[constant].kind == Expr::Kind::constant &&
             e.args[1 - constant].kind == Expr::Kind::input;
    };
    return (is_call(e, "mul") && (by(0) || by(1))) || (is_call(e, "div") && by(1));
  }

  bool is_mean_of(const Variance& v, const Access& read) const {
    if (!is_sum(v.sum)) return false;
    const Operator& sum = w_.op(v.sum);
    const auto over = w_.reduction_loops(v.sum), squares = w_.reduction_loops(v.squares);
    double points = 1;
    for (LoopId l : over) points *= static_cast<double>(w_.loop(l).extent);
    return sum.outputs.front().target.index == read.index &&
           w_.op(v.squares).outputs.front().target.index == read.index &&
           std::ranges::is_permutation(over, squares) &&
           same(v.point, v.op, sum.outputs.front().value, sum) &&
           std::abs(points * v.scale - 1) < 1e-6;
  }

  const Workload& w_;
};

/// Writes the chunks of one variance.
class VarianceSplitter {
 public:
  VarianceSplitter(const Workload& w, Variance v) : w_(w), v_(std::move(v)), spec_(w.spec()) {}

  Result<Workload> run() {
    const Output& sum = w_.op(v_.sum).outputs.front();
    const Tensor &sums = w_.tensor(sum.target.tensor),
                 &squares = w_.tensor(w_.op(v_.squares).outputs.front().target.tensor);
    if (size_of(sums.dtype) < 4 || size_of(squares.dtype) < 4)
      return Reason{"operator " + w_.op(v_.sum).name + " stores its sum in 16 bits"};
    if (auto why = choose_chunks()) return *why;
    index_ = sum.target.index;
    index_.insert(index_.begin(), Affine{.terms = {{loop_.chunk, 1}}});

    Operator point = v_.op;
    Expr summed = v_.point;
    loop_.cut(summed);
    point.outputs = {{.target = part(sums, "_part"), .value = summed, .combine = Combine::sum}};
    rewrite::drop_unread(point);
    for (Access& a : point.inputs)
      std::ranges::for_each(a.index, [this](Affine& i) { loop_.cut(i); });
    Operator mean{.inputs = {point.outputs.front().target}};
    mean.outputs = {{.target = part(sums, "_mean"),
                     .value = ragged_ ? make("div", {read(0), points()})
                                      : make("mul", {read(0), value(1 / points_)})}};
    Operator apart{.inputs = point.inputs};
    apart.inputs.push_back(mean.outputs.front().target);
    const Expr distance = make("sub", {point.outputs.front().value, read(point.inputs.size())});
    apart.outputs = {{.target = part(squares, "_part"),
                      .value = present(make("square", {distance})),
                      .combine = Combine::sum}};
    point.outputs.front().value = present(point.outputs.front().value);

    Operator& all = spec_.operators[v_.sum.index()];
    all.inputs = {point.outputs.front().target};
    all.outputs.front().value = read(0);
    Operator& joined = spec_.operators[v_.squares.index()];
    joined.inputs = {apart.outputs.front().target, mean.outputs.front().target, sum.target};
    const Expr off = make("sub", {read(1), make("mul", {read(2), value(v_.scale)})});
    joined.outputs.front().value =
        make("add", {read(0), make("mul", {points(), make("square", {off})})});
    for (Operator* op : {&all, &joined}) rewrite::name_loops(*op);
    const std::string of_sum = all.name, of_squares = joined.name;
    add(std::move(point), of_sum + "_part");
    add(std::move(mean), of_sum + "_mean");
    add(std::move(apart), of_squares + "_part");
    rewrite::drop_unneeded(spec_);
    return Workload::create(std::move(spec_));
  }

 private:
  /// Of several loops the first tells chunks apart; one is cut into two.
  std::optional<Reason> choose_chunks() {
    const auto over = w_.reduction_loops(v_.squares);
    points_ = 1;
    for (LoopId l : over) points_ *= static_cast<double>(w_.loop(l).extent);
    if (over.size() > 1) {
      loop_.chunk = over.front();
      points_ /= static_cast<double>(w_.loop(loop_.chunk).extent);
      return std::nullopt;
    }
    whole_ = w_.loop(over.front());
    std::int64_t best = 0;
    const auto off = [](std::int64_t n) {
      return std::abs(std::log(static_cast<double>(n) / kChunk));
    };
    for (std::int64_t n = kLeastChunk; n <= kMostChunk && 2 * n <= whole_.extent; ++n)
      if (whole_.extent % n == 0 && (best == 0 || off(n) < off(best))) best = n;
    if (whole_.extent < 2 * kLeastChunk)
      return Reason{formatted("loop {} of {} iterations has no two chunks of {} to {}", whole_.name,
                              whole_.extent, kLeastChunk, kMostChunk)};
    ragged_ = best == 0;
    if (ragged_) {
      if (whole_.extent > rewrite::kExactInF32)
        return Reason{
            formatted("loop {} of {} iterations has no equal chunks of {} to {}, and "
                      "indices past {} are not exact in f32",
                      whole_.name, whole_.extent, kLeastChunk, kMostChunk, rewrite::kExactInF32)};
      const double chunks = std::round(static_cast<double>(whole_.extent) / kChunk);
      best = ceil_div(whole_.extent, std::max<std::int64_t>(2, static_cast<std::int64_t>(chunks)));
    }
    loop_.whole = over.front(), loop_.length = best;
    loop_.chunk = rewrite::add_loop(spec_, whole_.name + "o", ceil_div(whole_.extent, best));
    loop_.within = rewrite::add_loop(spec_, whole_.name + "i", best);
    points_ = static_cast<double>(best);
    return std::nullopt;
  }

  /// How many points a chunk has.
  Expr points() const {
    if (!ragged_) return value(points_);
    const Expr left = make("sub", {value(static_cast<double>(whole_.extent)),
                                   make("mul", {value(points_), rewrite::index(loop_.chunk)})});
    return make("min", {value(points_), left});
  }

  /// The value, or zero behind the last point.
  Expr present(Expr e) const {
    if (!ragged_) return e;
    return loop_.until(whole_.extent, std::move(e), 0);
  }

  /// A tensor with a value for each chunk, as it is written and read.
  Access part(const Tensor& like, const char* suffix) {
    Tensor t = like;
    t.name = rewrite::unused(spec_.tensors, like.name + suffix);
    t.shape.insert(t.shape.begin(), spec_.loops[loop_.chunk.index()].extent);
    spec_.tensors.push_back(std::move(t));
    return {TensorId(spec_.tensors.size() - 1), index_};
  }

  void add(Operator op, const std::string& name) {
    op.name = rewrite::unused(spec_.operators, name);
    rewrite::name_loops(op);
    spec_.operators.push_back(std::move(op));
  }

  const Workload& w_;
  Variance v_;
  WorkloadSpec spec_;
  rewrite::CutLoop loop_;      ///< its chunk alone where several loops are summed over
  Loop whole_;                 ///< that is cut
  bool ragged_ = false;        ///< the last chunk has fewer points
  double points_ = 1;          ///< of a chunk, of the last one at most
  std::vector<Affine> index_;  ///< of a value for each chunk
};

Result<Workload> split_all(const Workload& given) {
  Workload w = given;
  bool any = false;
  Reason reason{"no operator sums squares of distances from the mean of what it sums"};
  // The given operators alone: a chunk's own squares are such a sum, too.
  for (const Operator& op : given.operators()) {
    const auto id = w.find_op(op.name);
    const Result<Variance> match =
        id ? VarianceMatcher(w).match(*id) : Result<Variance>(Reason{"it is gone"});
    if (!match) continue;
    Result<Workload> split = VarianceSplitter(w, *match).run();
    if (!split) {
      reason = {split.reason()};
      continue;
    }
    w = *std::move(split);
    any = true;
  }
  if (!any) return reason;
  return w;
}

}  // namespace

Rewrite split_variance() {
  return {.name = "split-variance",
          .summary =
              "squared distances from a mean are summed up in chunks, each from its own mean, so "
              "that values are read once",
          .source = "Chan, Golub and LeVeque, The American Statistician 37(3), 1983",
          .function = split_all};
}

}  // namespace tilewright
