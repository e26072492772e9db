#include "core/lowering/gpu/product_epilogue.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/matrix_access.h"

namespace tilewright::lowering {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Refused{text}; }

class Epilogue {
 public:
  Epilogue(const Workload& w, const ScheduledKernel& k, const ProductLoops& loops)
      : w_(w), k_(k), loops_(loops) {}

  ProductEpilogue find(const std::vector<NodeId>& computes, std::size_t products) {
    for (std::size_t i = 0; i < products; ++i) made(k_.node(computes[i]).op);
    for (std::size_t i = products; i < computes.size(); ++i) {
      const OpId id = k_.node(computes[i]).op;
      const Operator& op = w_.op(id);
      if (op.running || !w_.reduction_loops(id).empty() || w_.gathers(id) ||
          std::ranges::any_of(op.outputs,
                              [](const Output& o) { return o.combine != Combine::assign; }))
        refuse("operator " + op.name + " after the product is not of its elements alone");
      std::vector<int> of;
      for (const Access& a : op.inputs) of.push_back(read(op, a));
      made(id);
      out_.operators.push_back(id);
      out_.read_of.push_back(std::move(of));
    }
    return std::move(out_);
  }

 private:
  std::string name(TensorId t) const { return w_.tensor(t).name; }

  /// Results have the product's loops, each of them once.
  void made(OpId id) {
    for (const Output& o : w_.op(id).outputs) {
      check_loops_within(w_, o.target);
      bool all = has_whole_loop(o.target, loops_.rows) &&
                 has_whole_loop(o.target, loops_.columns) &&
                 o.target.index.size() == 2 + loops_.products.size();
      for (const LoopId l : loops_.products) all = all && has_whole_loop(o.target, l);
      if (!all) refuse("tensor " + name(o.target.tensor) + " has other loops than the product");
      made_.push_back(&o.target);
    }
  }

  int read(const Operator& op, const Access& a) {
    for (const Access* m : made_)
      if (m->tensor == a.tensor) {
        if (m->index != a.index)
          refuse("tensor " + name(a.tensor) + " is read at other places than it is made");
        return -1;
      }
    EpilogueRead r = home_read(w_, op, a, loops_);
    if (r.chunk) refuse("tensor " + name(a.tensor) + " is read in chunks");
    if (r.diagonal) refuse("tensor " + name(a.tensor) + " is read along diagonals");
    for (std::size_t i = 0; i < out_.reads.size(); ++i)
      if (out_.reads[i].tensor == r.tensor) {
        if (!same_place(out_.reads[i], r))
          refuse("tensor " + name(a.tensor) + " is read at several places");
        return static_cast<int>(i);
      }
    out_.reads.push_back(std::move(r));
    return static_cast<int>(out_.reads.size()) - 1;
  }

  const Workload& w_;
  const ScheduledKernel& k_;
  const ProductLoops& loops_;
  ProductEpilogue out_;
  std::vector<const Access*> made_;
};

}  // namespace

EpilogueRead home_read(const Workload& w, const Operator& op, const Access& a,
                       const ProductLoops& loops) {
  const Tensor& t = w.tensor(a.tensor);
  if (t.dtype != DType::f16 && t.dtype != DType::bf16 && t.dtype != DType::f32)
    refuse("tensor " + t.name + " is not of f16, bf16 or f32");
  EpilogueRead r{.tensor = a.tensor};
  // chunk * columns + column is one place.
  Access inside = a;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& i = a.index[d];
    if (i.terms.size() != 2 || i.offset != 0) continue;
    const bool last = i.terms[0].loop == loops.columns;
    const Term &column = i.terms[last ? 0 : 1], &chunk = i.terms[last ? 1 : 0];
    const auto of = std::ranges::find(loops.products, chunk.loop);
    const std::int64_t each = w.loop(loops.columns).extent;
    if (column.loop != loops.columns || column.coefficient != 1 || of == loops.products.end() ||
        chunk.coefficient != each || r.chunk)
      continue;
    r.chunk = static_cast<std::size_t>(of - loops.products.begin());
    const std::int64_t chunks = w.loop(chunk.loop).extent;
    if (t.shape[d] < each * chunks && t.shape[d] > each * (chunks - 1)) {
      r.end = t.shape[d];
      inside.index[d] = {};
    }
  }
  if (can_leave(w, op, inside)) refuse("tensor " + t.name + " is read outside of its elements");
  const auto along = [&](LoopId loop) -> std::int64_t& {
    if (loop == loops.rows) return r.by_row;
    if (loop == loops.columns) return r.by_column;
    for (std::size_t i = 0; i < loops.products.size(); ++i)
      if (loops.products[i] == loop) return r.by_product[i];
    refuse("tensor " + t.name + " has loop " + w.loop(loop).name +
           ", which the product's results have not");
  };
  r.by_product.resize(loops.products.size());
  const std::vector<std::int64_t> strides = strides_of(t);
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& i = a.index[d];
    r.offset += i.offset * strides[d];
    const auto moves = [&](LoopId l, std::int64_t by) {
      return std::ranges::any_of(i.terms,
                                 [&](const Term& t) { return t.loop == l && t.coefficient == by; });
    };
    const bool diagonal = (moves(loops.rows, 1) && moves(loops.columns, -1)) ||
                          (moves(loops.rows, -1) && moves(loops.columns, 1));
    r.diagonal = r.diagonal || diagonal;
    for (const Term& term : i.terms) {
      std::int64_t& by = along(term.loop);
      const bool chunk =
          i.terms.size() == 2 && r.chunk && std::ranges::any_of(i.terms, [&](const Term& other) {
            return other.loop == loops.products[*r.chunk];
          });
      if ((!chunk && !diagonal && (i.terms.size() != 1 || term.coefficient != 1)) || by != 0)
        refuse("tensor " + t.name + " is indexed by more than loops");
      by = term.coefficient * strides[d];
    }
  }
  const auto even = [](std::int64_t n) { return n % 2 == 0; };
  r.pairs = r.by_column == 1 && even(r.offset) && even(r.by_row) && even(r.end) &&
            even(w.loop(loops.columns).extent) && std::ranges::all_of(r.by_product, even);
  return r;
}

bool same_place(const EpilogueRead& a, const EpilogueRead& b) {
  return a.offset == b.offset && a.by_row == b.by_row && a.by_column == b.by_column &&
         a.by_product == b.by_product && a.end == b.end && a.diagonal == b.diagonal;
}

ProductEpilogue product_epilogue(const Workload& w, const ScheduledKernel& k,
                                 const std::vector<NodeId>& computes, const ProductLoops& loops,
                                 std::size_t products) {
  return Epilogue(w, k, loops).find(computes, products);
}

}  // namespace tilewright::lowering
