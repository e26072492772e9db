// Loop-invariant code motion: parts of an expression that fewer loops move than the operator has
// become operators of their own, and are computed once for each of their points.
//
//   y[i,j] = x[i,j] * exp(a[j])     =>     y_part[j] = exp(a[j])
//                                          y[i,j]    = x[i,j] * y_part[j]
//
// Compilers move such parts out of the innermost loop alone, and only where what is stored cannot
// be what is read. `inline` is the way back.
#include <algorithm>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// A part is worth a tensor where it has a function longer than an addition, and this many points
/// of the operator share each of its own.
constexpr double kShared = 4;

bool is_long(const Expr& e) {
  return (e.kind == Expr::Kind::call && find_expr_function(e.function)->light == 0) ||
         std::ranges::any_of(e.args, is_long);
}

bool moves(const Operator& op, const Expr& e, LoopId l) {
  if (e.kind == Expr::Kind::index) return e.loop == l;
  if (e.kind == Expr::Kind::input) {
    const Access& a = op.inputs[static_cast<std::size_t>(e.input)];
    return indexes(a, l) || std::ranges::any_of(a.index, [&](const Affine& i) {
             return i.gathered >= 0 && indexes(op.inputs[static_cast<std::size_t>(i.gathered)], l);
           });
  }
  return std::ranges::any_of(e.args, [&](const Expr& x) { return moves(op, x, l); });
}

/// The loops of such a part; none where it is no such part.
std::vector<LoopId> loops_of_part(const Workload& w, const Operator& op, const Expr& e) {
  std::vector<LoopId> loops;
  if (e.kind != Expr::Kind::call || names_outputs(e) || !is_long(e)) return loops;
  double shared = 1;
  for (const LoopId l : op.loops) {
    if (moves(op, e, l))
      loops.push_back(l);
    else
      shared *= static_cast<double>(w.loop(l).extent);
  }
  if (shared < kShared) loops.clear();
  return loops;
}

/// Calls f(part, loops) for the largest such parts of the expression; `e` may be const.
template <class E, class F>
void each_part(const Workload& w, const Operator& op, E& e, const F& f) {
  if (const std::vector<LoopId> loops = loops_of_part(w, op, e); !loops.empty()) return f(e, loops);
  for (auto& a : e.args) each_part(w, op, a, f);
}

bool has_parts(const Workload& w, const Operator& op, bool along = false) {
  bool any = false;
  if (!op.running)
    for (const Output& out : op.outputs)
      each_part(w, op, out.value, [&](const Expr&, const std::vector<LoopId>& loops) {
        any = any || !along || loops.back() == op.loops.back();
      });
  return any;
}

class Hoister {
 public:
  explicit Hoister(const Workload& w) : w_(w), spec_(w.spec()) {}

  Result<Workload> run(const std::vector<std::string_view>& names) {
    for (const Operator& op : w_.operators()) {
      if (std::ranges::find(names, op.name) != names.end())
        take(op);
      else
        all_.push_back(op);
    }
    spec_.operators = std::move(all_);
    return Workload::create(std::move(spec_));
  }

 private:
  /// The operator behind those of its parts, and of theirs.
  void take(const Operator& given) {
    Operator op = given;
    std::vector<std::pair<Expr, int>> known;  // a part and the input that it is now
    for (Output& out : op.outputs)
      each_part(w_, given, out.value, [&](Expr& part, const std::vector<LoopId>& loops) {
        auto at = std::ranges::find(known, part, &std::pair<Expr, int>::first);
        if (at == known.end()) {
          known.emplace_back(part, static_cast<int>(op.inputs.size()));
          op.inputs.push_back(written_first(given, out, part, loops));
          at = std::prev(known.end());
        }
        part = {.kind = Expr::Kind::input, .input = at->second};
      });
    rewrite::drop_unread(op);
    all_.push_back(std::move(op));
  }

  /// Computes the part, of that output, in an operator of its own; how it is read.
  Access written_first(const Operator& given, const Output& out, const Expr& part,
                       const std::vector<LoopId>& loops) {
    const DType type = spec_.tensors[out.target.tensor.index()].dtype;
    // Numbers of 16 bits would be rounded.
    Tensor tensor{.name = rewrite::unused(spec_.tensors, given.name + "_part"),
                  .dtype = type == DType::f64 ? type : DType::f32};
    Operator first{.name = rewrite::unused(spec_.operators, tensor.name),
                   .loops = loops,
                   .inputs = given.inputs};
    Access access{.tensor = TensorId(spec_.tensors.size())};
    for (const LoopId l : loops) {
      access.index.push_back({.terms = {{.loop = l}}});
      tensor.shape.push_back(w_.loop(l).extent);
    }
    spec_.tensors.push_back(std::move(tensor));
    first.outputs.push_back({.target = access, .value = part});
    rewrite::drop_unread(first);
    spec_.operators.push_back(first);  // its name is taken
    take(first);
    return access;
  }

  const Workload& w_;
  WorkloadSpec spec_;
  std::vector<Operator> all_;
};

Result<Workload> hoisted(const Workload& w, std::string_view text) {
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!has_parts(w, w.op(rewrite::operator_named(w, name, "hoist:OP;OP"))))
      return Reason{formatted(
          "operator {} computes no function of elements that fewer loops move than it has", name)};
  return Hoister(w).run(names);
}

}  // namespace

std::vector<OpId> operators_to_hoist(const Workload& w, bool along) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (has_parts(w, w.operators()[i], along)) found.emplace_back(i);
  return found;
}

Rewrite hoist() {
  return {.name = "hoist",
          .summary =
              "functions of elements that fewer loops move than these operators have are "
              "computed by operators of their own, once for each of their points",
          .source = "loop-invariant code motion, as compilers have it",
          .argument = "OP;OP",
          .with = hoisted};
}

}  // namespace tilewright
