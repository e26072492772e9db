// What Workload::create demands of one operator.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "core/workload/expr.h"
#include "core/workload/workload_check.h"
#include "core/workload/workload_limits.h"

namespace tilewright::check_workload {
namespace {

/// One operator's canonical form, with everything about it alone checked.
class OperatorChecker {
 public:
  OperatorChecker(const WorkloadSpec& spec, Operator& op)
      : spec_(spec), op_(op), field_("operators." + op.name) {}

  void run() {
    if (op_.outputs.empty()) fail(field_, "", "writes nothing", "at least one output");
    canonical_inputs();
    collect_loops();
    check_indices();
    for (Output& out : op_.outputs) canonical(out.target);
    for (Access& in : op_.inputs) canonical(in);
    merge_equal_inputs();
    check_space();
    check_same_box();
    for (const Output& out : op_.outputs) check_output(out);
    for (const Access& in : op_.inputs) check_input(in);
  }

 private:
  const std::string& tensor_name(const Access& a) const {
    return spec_.tensors[a.tensor.index()].name;
  }
  const std::string& loop_name(LoopId l) const { return spec_.loops[l.index()].name; }

  void check_ids(const Access& a) const {
    if (!a.tensor.valid() || a.tensor.index() >= spec_.tensors.size())
      fail(field_, std::to_string(a.tensor.value), "is not a tensor of this workload");
    for (const Affine& index : a.index)
      for (const Term& t : index.terms)
        if (!t.loop.valid() || t.loop.index() >= spec_.loops.size())
          fail(field_, std::to_string(t.loop.value), "is not a loop of this workload");
    for (const Affine& index : a.index) check_gathered(a, index);
    const std::size_t rank = spec_.tensors[a.tensor.index()].shape.size();
    if (a.index.size() != rank)
      fail(field_, tensor_name(a),
           "is indexed by " + std::to_string(a.index.size()) + " indices but has " +
               std::to_string(rank) + " dimensions",
           std::to_string(rank) + " indices");
  }

  /// A gather's index: the value of an input that is an affine access to an integer tensor.
  void check_gathered(const Access& a, const Affine& index) const {
    if (index.gathered < 0) return;
    if (static_cast<std::size_t>(index.gathered) >= op_.inputs.size())
      fail(field_, std::to_string(index.gathered), "is not a position of an input");
    if (!index.terms.empty() || index.offset != 0)
      fail(field_, tensor_name(a), "is gathered by more than a value", "T[ids[b],d]");
    const Access& by = op_.inputs[static_cast<std::size_t>(index.gathered)];
    for (const Affine& inner : by.index)
      if (inner.gathered >= 0)
        fail(field_, tensor_name(by), "is an index that is itself gathered by a value",
             "an index tensor indexed by loops and integers");
    if (!by.tensor.valid() || by.tensor.index() >= spec_.tensors.size())
      fail(field_, std::to_string(by.tensor.value), "is not a tensor of this workload");
    const Tensor& ids = spec_.tensors[by.tensor.index()];
    if (ids.dtype != DType::i32 && ids.dtype != DType::i8)
      fail(field_, ids.name + " of type " + std::string(name_of(ids.dtype)), "is an index",
           "i32 or i8, by an entry in dtypes");
  }

  /// Inputs in the order in which the expressions mention them; all mentioned.
  void canonical_inputs() {
    for (const Access& in : op_.inputs) check_ids(in);
    std::vector<int> position(op_.inputs.size(), -1);
    std::vector<Access> ordered;
    const std::function<int(int)> take = [&](int input) {
      int& p = position[static_cast<std::size_t>(input)];
      if (p >= 0) return p;
      Access a = op_.inputs[static_cast<std::size_t>(input)];
      for (Affine& index : a.index)  // what a gather is indexed by comes before it
        if (index.gathered >= 0) index.gathered = take(index.gathered);
      ordered.push_back(std::move(a));
      return p = static_cast<int>(ordered.size()) - 1;
    };
    const std::function<void(Expr&, int)> visit = [&](Expr& e, int depth) {
      if (depth > kMaxExprDepth)
        fail(field_, "", "has an expression nested too deeply",
             "at most " + std::to_string(kMaxExprDepth) + " levels");
      check_node(e);
      if (e.kind == Expr::Kind::input) {
        e.input = take(e.input);
      }
      for (Expr& a : e.args) visit(a, depth + 1);
    };
    for (Output& out : op_.outputs) {
      check_ids(out.target);
      for (const Affine& index : out.target.index)
        if (index.gathered >= 0)
          fail(field_, tensor_name(out.target), "is written at an index that is a value",
               "a loop or a constant in each dimension of an output");
      visit(out.value, 1);
      if (out.rescale && !op_.running)
        fail(field_, tensor_name(out.target), "is rescaled but the operator is not running",
             "rescale in running operators only");
      if (out.rescale) visit(*out.rescale, 1);
    }
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (position[i] < 0)
        fail(field_, tensor_name(op_.inputs[i]), "is an input that no expression reads");
    op_.inputs = std::move(ordered);
  }

  void check_node(const Expr& e) const {
    switch (e.kind) {
      case Expr::Kind::input:
        if (e.input < 0 || static_cast<std::size_t>(e.input) >= op_.inputs.size())
          fail(field_, std::to_string(e.input), "is not a position of an input");
        if (!e.args.empty()) fail(field_, "", "has an input with arguments");
        return;
      case Expr::Kind::constant:
        if (std::isnan(e.constant)) fail(field_, "nan", "is not a constant", "numbers and inf");
        if (!e.args.empty()) fail(field_, "", "has a constant with arguments");
        return;
      case Expr::Kind::index:
        if (!e.args.empty()) fail(field_, "", "has an index with arguments");
        return;
      case Expr::Kind::before:
      case Expr::Kind::after:
        if (e.input < 0 || static_cast<std::size_t>(e.input) >= op_.outputs.size())
          fail(field_, std::to_string(e.input), "is not a position of an output");
        if (!e.args.empty()) fail(field_, "", "has an output with arguments");
        return;
      case Expr::Kind::call: break;
    }
    const ExprFunction* f = find_expr_function(e.function);
    if (f == nullptr) fail(field_, e.function, "is not a function");
    if (static_cast<int>(e.args.size()) != f->arity)
      fail(field_, e.function, "is called with " + std::to_string(e.args.size()) + " arguments",
           std::to_string(f->arity));
  }

  /// Loops in order of first appearance: outputs, then inputs.
  void collect_loops() {
    std::vector<LoopId> found;
    const auto add = [&](const Access& a) {
      for (const Affine& index : a.index)
        for (const Term& t : index.terms)
          if (t.coefficient != 0 && std::find(found.begin(), found.end(), t.loop) == found.end())
            found.push_back(t.loop);
    };
    for (const Output& out : op_.outputs) add(out.target);
    for (const Access& in : op_.inputs) add(in);
    for (LoopId l : op_.loops) {
      if (!l.valid() || l.index() >= spec_.loops.size())
        fail(field_, std::to_string(l.value), "is not a loop of this workload");
      if (std::find(found.begin(), found.end(), l) == found.end())
        fail(field_, loop_name(l), "is a loop that indexes none of its tensors",
             "loops that index a tensor of the operator");
    }
    if (found.size() > static_cast<std::size_t>(kMaxLoops))
      fail(field_, std::to_string(found.size()), "loops are too many",
           "at most " + std::to_string(kMaxLoops) + " an operator");
    op_.loops = std::move(found);
  }

  /// Loops whose indices are values.
  void check_indices() const {
    const auto check = [&](LoopId l) {
      if (!l.valid() || l.index() >= spec_.loops.size())
        fail(field_, std::to_string(l.value), "is not a loop of this workload");
      const Loop& loop = spec_.loops[l.index()];
      if (std::find(op_.loops.begin(), op_.loops.end(), l) == op_.loops.end())
        fail(field_, loop.name,
             "is a loop whose index is read and that indexes none of its tensors",
             "loops that index a tensor of the operator");
      if (const auto why = why_no_value(spec_, l))
        fail(field_, loop.name, "is a loop whose index is read and " + *why,
             "a loop with a name of its own and at most " + std::to_string(kMaxIndexed) +
                 " iterations");
    };
    for (const Output& out : op_.outputs) {
      each_index(out.value, check);
      if (out.rescale) each_index(*out.rescale, check);
    }
  }

  std::size_t position(LoopId l) const {
    return static_cast<std::size_t>(std::find(op_.loops.begin(), op_.loops.end(), l) -
                                    op_.loops.begin());
  }

  /// Each loop once, in the operator's order, without zero coefficients.
  void canonical(Access& a) const {
    for (Affine& index : a.index) {
      std::vector<Term> terms;
      for (const Term& t : index.terms) {
        if (t.coefficient == 0) continue;
        const auto same = std::find_if(terms.begin(), terms.end(),
                                       [&](const Term& u) { return u.loop == t.loop; });
        if (same == terms.end()) {
          terms.push_back(t);
          continue;
        }
        const auto sum = checked_add(same->coefficient, t.coefficient);
        if (!sum) fail(field_, tensor_name(a), "has an index past 64 bits");
        same->coefficient = *sum;
      }
      std::erase_if(terms, [](const Term& t) { return t.coefficient == 0; });
      std::stable_sort(terms.begin(), terms.end(), [&](const Term& x, const Term& y) {
        return position(x.loop) < position(y.loop);
      });
      index.terms = std::move(terms);
    }
  }

  /// Accesses that are the same only in canonical form become one input.
  void merge_equal_inputs() {
    std::vector<int> position(op_.inputs.size());
    std::vector<Access> unique;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      for (Affine& index : op_.inputs[i].index)
        if (index.gathered >= 0)
          index.gathered = position[static_cast<std::size_t>(index.gathered)];
      const auto it = std::find(unique.begin(), unique.end(), op_.inputs[i]);
      position[i] = static_cast<int>(it - unique.begin());
      if (it == unique.end()) unique.push_back(op_.inputs[i]);
    }
    if (unique.size() == op_.inputs.size()) return;
    const std::function<void(Expr&)> visit = [&](Expr& e) {
      if (e.kind == Expr::Kind::input) e.input = position[static_cast<std::size_t>(e.input)];
      for (Expr& a : e.args) visit(a);
    };
    for (Output& out : op_.outputs) {
      visit(out.value);
      if (out.rescale) visit(*out.rescale);
    }
    op_.inputs = std::move(unique);
  }

  void check_space() const {
    const auto extent = [&](LoopId l) { return spec_.loops[l.index()].extent; };
    if (!checked_product(op_.loops, extent))
      fail(field_, "", "has an iteration space of more than 2^63 points", "less than 2^63 points");
  }

  /// Least and largest value of an index over the whole loops.
  Interval span_of(const Access& a, const Affine& index) const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
    const auto within = [&](std::optional<std::int64_t> v) {
      if (!v || *v > kMost || *v < -kMost)
        fail(field_, tensor_name(a), "has an index past 64 bits", "indices within 2^62");
      return *v;
    };
    std::int64_t lo = within(index.offset);
    std::int64_t hi = lo;
    for (const Term& t : index.terms) {
      const std::int64_t last = spec_.loops[t.loop.index()].extent - 1;
      const std::int64_t reach = within(checked_mul(within(t.coefficient), last));
      std::int64_t& side = reach < 0 ? lo : hi;
      side = within(checked_add(side, reach));
    }
    return {lo, hi + 1};
  }

  /// Whether nobody reads the tensor from `end` on in a dimension.
  bool read_within(TensorId t, std::size_t d, std::int64_t end) const {
    for (const Operator& op : spec_.operators)
      for (const Access& a : op.inputs) {
        if (a.tensor != t || d >= a.index.size()) continue;
        const Interval span = span_of(a, a.index[d]);
        if (span.lo < 0 || span.hi > end || is_gather(a)) return false;
      }
    return true;
  }

  void check_output(const Output& out) const {
    const Tensor& tensor = spec_.tensors[out.target.tensor.index()];
    std::vector<LoopId> seen;
    for (std::size_t d = 0; d < out.target.index.size(); ++d) {
      const Affine& index = out.target.index[d];
      const auto loop = index.plain_loop();
      if (!loop && !index.terms.empty())
        fail(field_, tensor.name, "is written at an index that is not a plain loop",
             "a loop or a constant in each dimension of an output");
      if (loop && std::find(seen.begin(), seen.end(), *loop) != seen.end())
        fail(field_, tensor.name, "is written at " + loop_name(*loop) + " in two dimensions",
             "each loop at most once in an output");
      if (loop) seen.push_back(*loop);
      // Consumers may ask for any part of a tensor, so its writer writes all of it, or all that
      // they ask for: rows may be longer.
      const Interval written = span_of(out.target, index);
      if (written != Interval{0, tensor.shape[d]} &&
          (written.lo != 0 || written.hi > tensor.shape[d] ||
           !read_within(out.target.tensor, d, written.hi)))
        fail(field_, tensor.name,
             "is written over [" + std::to_string(written.lo) + "," + std::to_string(written.hi) +
                 ") in dimension " + std::to_string(d) + " of extent " +
                 std::to_string(tensor.shape[d]),
             "a writer that covers its tensor");
    }
    if (out.rescale) check_rescale(out, seen);
    if (names_outputs(out.value)) return check_looking_back(out);
    if (out.combine == Combine::assign) check_assigned(out, seen);
  }

  /// An assignment has one value a point of its output.
  void check_assigned(const Output& out, const std::vector<LoopId>& indexed) const {
    for (LoopId l : op_.loops)
      if (std::find(indexed.begin(), indexed.end(), l) == indexed.end())
        fail(field_, loop_name(l), "is reduced over by an assignment to " + tensor_name(out.target),
             "+=, *=, max= or min= where a loop does not index the output");
  }

  /// One factor a point of the output and block of the reduction.
  void check_rescale(const Output& out, const std::vector<LoopId>& indexed) const {
    const std::string& name = tensor_name(out.target);
    if (names_outputs(*out.rescale))
      fail(field_, name, "is rescaled by the operator's own outputs", "inputs in a rescale");
    std::vector<LoopId> loops;
    loops_read(*out.rescale, loops);
    for (LoopId l : loops)
      if (std::find(indexed.begin(), indexed.end(), l) == indexed.end())
        fail(field_, name, "is rescaled by what " + loop_name(l) + " indexes",
             "inputs that only the output's loops index");
  }

  /// Expr::Kind::before and after: an assignment from accumulated outputs, and from nothing else,
  /// since it is made once a block, at no point of the reduction.
  void check_looking_back(const Output& out) const {
    const std::string& name = tensor_name(out.target);
    if (!op_.running)
      fail(field_, name, "looks back at an output but the operator is not running",
           "before and after in running operators only");
    if (out.combine != Combine::assign)
      fail(field_, name, "looks back at an output but is not an assignment", "=");
    const std::function<void(const Expr&)> visit = [&](const Expr& e) {
      if (e.kind == Expr::Kind::input || e.kind == Expr::Kind::index)
        fail(field_, name,
             "looks back at an output and reads " +
                 std::string(e.kind == Expr::Kind::input ? "an input" : "a loop's index"),
             "one or the other");
      if (e.kind == Expr::Kind::before || e.kind == Expr::Kind::after) {
        const Output& of = op_.outputs[static_cast<std::size_t>(e.input)];
        if (of.combine == Combine::assign || of.target.index != out.target.index)
          fail(field_, name, "looks back at " + tensor_name(of.target) +
                   ", which is not accumulated at the same index",
               "an output of the same operator and index with +=, *=, max= or min=");
      }
      for (const Expr& a : e.args) visit(a);
    };
    visit(out.value);
  }

  void loops_read(const Expr& e, std::vector<LoopId>& loops) const {
    if (e.kind == Expr::Kind::input)
      for (const Affine& index : op_.inputs[static_cast<std::size_t>(e.input)].index)
        for (const Term& t : index.terms) loops.push_back(t.loop);
    if (e.kind == Expr::Kind::index) loops.push_back(e.loop);
    for (const Expr& a : e.args) loops_read(a, loops);
  }

  void check_input(const Access& in) const {
    const Tensor& tensor = spec_.tensors[in.tensor.index()];
    for (std::size_t d = 0; d < in.index.size(); ++d) {
      if (in.index[d].gathered >= 0) continue;
      const Interval reach = span_of(in, in.index[d]);
      if (!intersect(reach, Interval{0, tensor.shape[d]}).empty()) continue;
      fail(field_, tensor.name,
           "is read over [" + std::to_string(reach.lo) + "," + std::to_string(reach.hi) +
               "), all of it outside dimension " + std::to_string(d) + " of extent " +
               std::to_string(tensor.shape[d]),
           "indices that meet the tensor");
    }
  }

  void check_same_box() const {
    const auto loops_of = [](const Output& out) {
      std::vector<LoopId> loops;
      for (const Affine& index : out.target.index)
        for (const Term& t : index.terms) loops.push_back(t.loop);
      std::sort(loops.begin(), loops.end());
      return loops;
    };
    const std::vector<LoopId> first = loops_of(op_.outputs.front());
    for (const Output& out : op_.outputs)
      if (loops_of(out) != first)
        fail(field_, tensor_name(out.target),
             "is indexed by other loops than " + tensor_name(op_.outputs.front().target),
             "outputs of one operator over the same loops");
  }

  const WorkloadSpec& spec_;
  Operator& op_;
  std::string field_;
};

}  // namespace

void check_operator(const WorkloadSpec& spec, Operator& op) { OperatorChecker(spec, op).run(); }

}  // namespace tilewright::check_workload
