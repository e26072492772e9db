// Affine composition: an element-wise operator's value is computed where it is read, at the index
// that it is read at, instead of being written and read back. A loop tree cannot say that: it
// computes an operator in its own loops, and a slice is read in others.
//
//   pre[b,g] = xw[b,g] + hw[b,g]        i[b,j] = sigmoid(xw[b,j] + hw[b,j])
//   i[b,j]   = sigmoid(pre[b,j])   =>   f[b,j] = sigmoid(xw[b,j+H] + hw[b,j+H])
//   f[b,j]   = sigmoid(pre[b,j+H])
//
// Compilers of tensor graphs do so where they fuse loops (XLA's instruction fusion duplicates cheap
// operators into each reader; TVM's compute_inline). Values stay the same to the bit in float64,
// since each is the same expression of the same elements; substitute() refuses what would change
// one.
#include <algorithm>

#include "core/workload/expr.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

/// Which reads are replaced.
enum class Which : std::uint8_t { elsewhere, gathers, all };

bool multiplies_inputs(const Expr& e) {
  if (e.kind == Expr::Kind::input) return true;
  return e.kind == Expr::Kind::call && e.function == "mul" &&
         std::ranges::all_of(e.args, multiplies_inputs);
}

bool sums_products(const Operator& op) {
  return std::ranges::none_of(op.inputs, is_gather) &&
         std::ranges::any_of(op.outputs, [](const Output& o) {
           return o.combine == Combine::sum && o.value.kind == Expr::Kind::call &&
                  multiplies_inputs(o.value);
         });
}

class Composer {
 public:
  Composer(const Workload& w, Which which)
      : w_(w), which_(which), spec_(w.spec()), gone_(spec_.operators.size()) {
    reason_ = which == Which::elsewhere
                  ? "no operator reads an element-wise operator's value at another index than it "
                    "is written at"
              : which == Which::gathers ? "no operator only looks up a table"
                                        : "no operator reads an element-wise operator's value";
  }

  Result<Workload> run() {
    // Consumers first: what a reader takes over from its producer may be composed in turn.
    const std::span<const OpId> order = w_.topological_order();
    for (auto op = order.rbegin(); op != order.rend(); ++op) visit(*op);
    if (!changed_) return Reason{reason_};
    rewrite::drop(spec_, gone_);
    return Workload::create(std::move(spec_));
  }

 private:
  Operator& op(OpId id) { return spec_.operators[id.index()]; }
  const Operator& op(OpId id) const { return spec_.operators[id.index()]; }

  double points(const Operator& op) const {
    double n = 1;
    for (LoopId l : op.loops) n *= static_cast<double>(spec_.loops[l.index()].extent);
    return n;
  }

  /// What kernels of matrix products are made for: a sum of products with more points than any of
  /// its tensors has elements.
  bool is_product(const Operator& op) const {
    const auto fewer = [&](const Access& a) {
      return static_cast<double>(spec_.tensors[a.tensor.index()].elements().value) < points(op);
    };
    return sums_products(op) && std::ranges::all_of(op.inputs, fewer) &&
           std::ranges::all_of(op.outputs, fewer, &Output::target);
  }

  void note(const std::string& why) {
    if (!noted_) reason_ = why;
    noted_ = true;
  }

  void visit(OpId producer) {
    std::vector<Output> kept;
    for (const Output& o : op(producer).outputs)
      if (!compose(producer, o)) kept.push_back(o);
    gone_[producer.index()] = kept.empty();
    if (kept.empty() || kept.size() == op(producer).outputs.size()) return;
    op(producer).outputs = std::move(kept);
    rewrite::drop_unread(op(producer));
  }

  /// Whether nothing reads the output any more that did.
  bool compose(OpId producer, const Output& written) {
    const TensorId t = written.target.tensor;
    if (!may_move(producer, written)) return false;
    bool left = w_.is_output(t), any = false;
    double evaluations = 0;
    std::vector<OpId> readers;
    for (std::size_t r = 0; r < spec_.operators.size(); ++r) {
      if (gone_[r]) continue;
      const Operator& reader = spec_.operators[r];
      for (std::size_t i = 0; i < reader.inputs.size(); ++i) {
        if (reader.inputs[i].tensor != t) continue;
        const bool takes = may_take(reader, static_cast<int>(i), producer, written);
        left = left || !takes;
        if (!takes) continue;
        any = true;
        if (readers.empty() || readers.back() != OpId(r)) readers.emplace_back(r);
        for (const Output& o : reader.outputs)
          evaluations += points(reader) * rewrite::uses_of(o.value, static_cast<int>(i));
      }
    }
    if (!any) return false;
    const bool more = left || evaluations > points(op(producer));
    if (which_ != Which::all && more && !is_light(written.value)) {
      note("operator " + op(producer).name + " is expensive and would be computed more often");
      return false;
    }
    for (OpId r : readers) left = !take(r, producer, written) || left;
    changed_ = true;
    return !left;
  }

  /// What is composed at all: element-wise, of a type without rounding to integers.
  bool may_move(OpId id, const Output& o) {
    if (op(id).running || o.combine != Combine::assign) return false;
    if (is_integer(spec_.tensors[o.target.tensor.index()].dtype)) return false;
    if (which_ != Which::gathers) return true;
    return o.value.kind == Expr::Kind::input &&
           is_gather(op(id).inputs[static_cast<std::size_t>(o.value.input)]);
  }

  bool may_take(const Operator& reader, int input, OpId producer, const Output& written) {
    const Access& read = reader.inputs[static_cast<std::size_t>(input)];
    if (which_ == Which::elsewhere && read.index == written.target.index) return false;
    const auto refuse = [&](const char* why) {
      note("operator " + reader.name + " " + why + ", so that " + op(producer).name +
           " is not computed there");
      return false;
    };
    if (reader.running) return refuse("is running");
    if (is_product(reader)) return refuse("is a product");
    if (std::ranges::any_of(reader.outputs, [&](const Output& o) {
          return is_integer(spec_.tensors[o.target.tensor.index()].dtype);
        }))
      return refuse("writes integers");
    const Result<Operator> changed =
        rewrite::substitute(spec_, reader, input, op(producer), written);
    if (!changed) {
      note("operator " + changed.reason());
      return false;
    }
    // The price of a product is no matter of fusing, and its kernels are others.
    if (is_product(*changed)) return refuse("would become a product");
    return true;
  }

  /// Replaces what may be replaced in one reader; whether that is all that it reads of the output.
  bool take(OpId id, OpId producer, const Output& written) {
    bool all = true;
    for (std::size_t i = 0; i < op(id).inputs.size();) {
      const Operator& reader = op(id);
      if (reader.inputs[i].tensor != written.target.tensor) {
        ++i;
      } else if (may_take(reader, static_cast<int>(i), producer, written)) {
        op(id) = *rewrite::substitute(spec_, reader, static_cast<int>(i), op(producer), written);
        i = 0;
      } else {
        all = false;
        ++i;
      }
    }
    return all;
  }

  const Workload& w_;
  Which which_;
  WorkloadSpec spec_;
  std::vector<bool> gone_;
  bool changed_ = false, noted_ = false;
  std::string reason_;  ///< the first read that would be replaced but is not
};

template <Which which>
Result<Workload> composed(const Workload& w) {
  return Composer(w, which).run();
}

constexpr const char* kSource =
    "producer-consumer fusion by inlining: Ragan-Kelley et al., Halide, PLDI 2013 (compute_inline)";

}  // namespace

Rewrite compose() {
  return {.name = "compose",
          .summary =
              "values read at another index than they are written at (slices, shifts, "
              "transposes) are computed by each such reader; expensive ones only where that "
              "is no more often",
          .source = kSource,
          .function = composed<Which::elsewhere>};
}

Rewrite compose_gathers() {
  return {.name = "compose-gathers",
          .summary = "a looked-up table's rows are looked up by each reader",
          .source = kSource,
          .function = composed<Which::gathers>};
}

Rewrite compose_all() {
  return {.name = "compose-all",
          .summary =
              "every element-wise operator is computed by each of its readers, expensive ones "
              "too; products keep theirs",
          .source = kSource,
          .function = composed<Which::all>};
}

}  // namespace tilewright
