#include "core/lowering/gpu/warpgroup_pair.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/product_chain.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::lowering {
namespace {

using Place = PairValue::Place;

constexpr std::int64_t kStaged = 2 * 64 * 128;  // bytes of a warpgroup's boxes of results
constexpr int kMostPairStages = 4;
class PairFinder : KernelReader {
 public:
  using KernelReader::KernelReader;

  WarpgroupPair find(int warps, int stages) {
    walk(NodeId(0));
    check_nodes();
    find_products();
    name_loops();
    place_tensors();
    cut_tiles();
    place_values();
    if (!p_.joined.valid())
      p_.edges = mask_edges(w_, {p_.first_op, p_.second_op, between_, p_.rows_loop, p_.middle_loop,
                                 p_.depth, p_.operand});
    p_.find_guards(w_, between_), p_.find_factors(w_);
    arrange(warps > 0 ? warps : k_.launch.warps.value_or(0),
            stages > 0 ? stages : k_.launch.stages.value_or(0));
    make_maps();
    return p_;
  }

 private:
  /// Loops, computes, loads and stores in the order in which they run.
  void walk(NodeId id) {
    const ScheduleNode& n = k_.node(id);
    switch (n.kind) {
      case NodeKind::loop:
        if (n.binding != Binding::grid && n.binding != Binding::seq)
          refuse("loop " + loop_name(n.loop) + " is bound within the block");
        (n.binding == Binding::grid ? grid_ : serial_).push_back(id);
        break;
      case NodeKind::compute:
        if (n.once) refuse("it computes only once what it keeps");
        computes_.push_back(id);
        break;
      case NodeKind::load:
      case NodeKind::store:
        moves_.push_back(id);
        break;
      case NodeKind::sequence:
        break;
      default:
        refuse("it has barriers, packs or drops");
    }
    for (NodeId c : n.children) walk(c);
  }

  void check_nodes() const {
    check_kernel();
    for (NodeId g : grid_)
      for (NodeId c : computes_)
        if (!around(g, c)) refuse("its loops of blocks are not a chain around all operators");
    for (std::size_t i = 1; i < computes_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (k_.node(computes_[i]).op == k_.node(computes_[j]).op)
          refuse("it computes operator " + w_.op(k_.node(computes_[i]).op).name + " twice");
  }

  /// A sum of products of two tensors of the operands' type.
  bool is_product(OpId id) const {
    const Operator& op = w_.op(id);
    if (op.outputs.size() != 1 || w_.gathers(id)) return false;
    const Output& out = op.outputs.front();
    const Expr& e = out.value;
    return out.combine == Combine::sum && e.kind == Expr::Kind::call && e.function == "mul" &&
           e.args[0].kind == Expr::Kind::input && e.args[1].kind == Expr::Kind::input &&
           e.args[0].input != e.args[1].input && w_.reduction_loops(id).size() == 1;
  }

  void find_products() {
    for (std::size_t i = 0; i < computes_.size(); ++i) {
      const OpId op = k_.node(computes_[i]).op;
      if (!is_product(op)) continue;
      products_at_.push_back(i);
    }
    if (products_at_.size() != 2 || products_at_.front() != 0)
      refuse("it is not a pair of products, the first of them its first operator");
    p_.first_op = k_.node(computes_[0]).op, p_.second_op = k_.node(computes_[products_at_[1]]).op;
    const Operator &first = w_.op(p_.first_op), &second = w_.op(p_.second_op);
    if (first.running || first.outputs.front().rescale || first.inputs.size() != 2)
      refuse("its first product is rescaled");
    // Of the second one's factors, the left one is made here.
    const Expr& e = second.outputs.front().value;
    for (const auto& [l, r] : {std::pair(0, 1), std::pair(1, 0)}) {
      const auto at = [&](int i) { return e.args[static_cast<std::size_t>(i)].input; };
      const Access& a = second.inputs[static_cast<std::size_t>(at(l))];
      const OpId maker = w_.producer(a.tensor);
      if (!maker.valid() || std::ranges::find(k_.ops, maker) == k_.ops.end()) continue;
      inner_ = &a, second_ = &second.inputs[static_cast<std::size_t>(at(r))];
      second_left_ = at(l), second_right_ = at(r);
    }
    if (inner_ == nullptr) refuse("its second product has no operand that it makes");
    target_ = &second.outputs.front().target;
  }

  void name_loops() {
    const Operator &first = w_.op(p_.first_op), &second = w_.op(p_.second_op);
    const Access& scores = first.outputs.front().target;
    p_.middle_loop = w_.reduction_loops(p_.second_op).front();
    depth_ = w_.reduction_loops(p_.first_op).front();
    for (std::size_t i = 0; i < 2; ++i) of_first_[i] = without_chunk(first.inputs[i]);
    of_second_ = without_chunk(*second_);
    second_ = &of_second_;
    for (const Access* a : {&scores, inner_, target_}) check_whole_loops(w_, *a);
    for (const Access& a : of_first_) check_loops(w_, a, first.loops);
    check_loops(w_, *second_, second.loops);
    if (!has_whole_loop(scores, p_.middle_loop) || !has_whole_loop(*inner_, p_.middle_loop) ||
        !has_whole_loop(*second_, p_.middle_loop))
      refuse("its second product sums over no columns of the first");
    const bool swapped = has_whole_loop(of_first_[0], p_.middle_loop);
    left_ = &of_first_[swapped ? 1 : 0], right_ = &of_first_[swapped ? 0 : 1];
    if (has_whole_loop(*left_, p_.middle_loop) || !has_whole_loop(*right_, p_.middle_loop))
      refuse("both operands of its first product have loop " + loop_name(p_.middle_loop));
    for (const Affine& i : target_->index) {
      const LoopId l = *i.plain_loop();
      if (!has_whole_loop(*inner_, l)) p_.columns_loop = l;
      if (has_whole_loop(*inner_, l) && has_whole_loop(*left_, l) && !has_whole_loop(*right_, l) &&
          !has_whole_loop(*second_, l) && l != p_.chunk)
        // The innermost of these, and one around it of which a block has all.
        p_.joined = std::exchange(p_.rows_loop, l);
    }
    if (p_.joined.valid() && (extent(p_.joined) == 1 || part(p_.joined) < extent(p_.joined)))
      p_.joined = {};
    if (p_.joined.valid() && part(p_.rows_loop) < extent(p_.rows_loop))
      refuse("a block has some rows of several products");
    if (!p_.rows_loop.valid() || !p_.columns_loop.valid() ||
        !has_whole_loop(*second_, p_.columns_loop))
      refuse("its results have no rows or no columns");
    for (const Affine& i : target_->index)
      if (const LoopId l = *i.plain_loop();
          l != p_.rows_loop && l != p_.columns_loop && l != p_.joined)
        p_.products.push_back(l);
    find_chunks();
    if (!made_of(scores, {p_.rows_loop, p_.middle_loop}) ||
        !made_of(*inner_, {p_.rows_loop, p_.middle_loop}))
      refuse("what lies between its products is not of their rows and columns");
    for (const LoopId l : second.loops)
      if (l != p_.middle_loop && !has_whole_loop(*target_, l))
        refuse("its sum is over several loops");
    // Boxes end where a loop or its dimension does, as in products by warpgroups.
    const std::array<LoopId, 4> of_matrix{p_.rows_loop, p_.columns_loop, p_.middle_loop, depth_};
    for (const Access* a : {left_, right_, second_}) check_loops(w_, *a, of_matrix);
  }

  /// An access of which an index is in chunks of the middle as if it were of the first of them.
  Access without_chunk(const Access& a) {
    Access to = a;
    for (Affine& i : to.index) {
      if (i.terms.size() != 2 || i.offset != 0) continue;
      const bool last = i.terms[0].loop == p_.middle_loop;
      const Term &within = i.terms[last ? 0 : 1], &chunk = i.terms[last ? 1 : 0];
      if (within.loop != p_.middle_loop || within.coefficient != 1 ||
          chunk.coefficient != extent(p_.middle_loop))
        continue;
      if (p_.chunk.valid() && p_.chunk != chunk.loop) refuse("its operands are in other chunks");
      p_.chunk = chunk.loop;
      i.terms = {{p_.middle_loop, 1}};
      ++in_chunks_;
    }
    return to;
  }
  void find_chunks() {
    if (!p_.chunk.valid()) return;
    if (in_chunks_ != 2 || std::ranges::find(p_.products, p_.chunk) == p_.products.end())
      refuse("only some of its operands and results are in chunks");
    for (const Access* a : {left_, right_, second_})
      if (has_whole_loop(*a, p_.chunk)) refuse("its operands are in chunks, and of several");
    for (std::size_t i = p_.products.size(); p_.products[--i] != p_.chunk;)
      p_.chunk_divide *= extent(p_.products[i]);
    p_.chunk_modulo = extent(p_.chunk), p_.chunk_step = extent(p_.middle_loop);
  }

  /// Whether the access has just these loops and those that tell products apart.
  bool made_of(const Access& a, std::vector<LoopId> loops) const {
    if (p_.joined.valid() && std::ranges::find(loops, p_.rows_loop) != loops.end())
      loops.push_back(p_.joined);
    loops.insert(loops.end(), p_.products.begin(), p_.products.end());
    return a.index.size() == loops.size() &&
           std::ranges::all_of(loops, [&](LoopId l) { return has_whole_loop(a, l); });
  }

  void place_tensors() {
    p_.left = left_->tensor, p_.right = right_->tensor, p_.second = second_->tensor;
    for (const TensorId t : {p_.left, p_.right, p_.second})
      if (const OpId op = w_.producer(t);
          op.valid() && std::ranges::find(k_.ops, op) != k_.ops.end())
        refuse("it makes tensor " + name(t) + ", an operand that the TMA unit copies");
    if (p_.left == p_.right || p_.left == p_.second || p_.right == p_.second)
      refuse("one tensor is two of its operands");
    p_.operand = w_.tensor(p_.left).dtype;
    if (p_.operand != DType::f16 && p_.operand != DType::bf16)
      refuse("its operands are not of f16 or bf16");
    for (const TensorId t : {p_.right, p_.second, inner_->tensor})
      if (w_.tensor(t).dtype != p_.operand) refuse("its operands are not all of one type");
    const auto across = [&](const Access& a, LoopId outer, LoopId deep) {
      const bool yes = a.index.back().plain_loop() == outer;
      if (!yes && a.index.back().plain_loop() != deep)
        refuse("tensor " + name(a.tensor) + "'s rows are not rows of a matrix");
      return yes;
    };
    p_.left_across = across(*left_, p_.rows_loop, depth_);
    p_.right_across = across(*right_, p_.middle_loop, depth_);
    p_.second_across = across(*second_, p_.columns_loop, p_.middle_loop);
    const auto lies = [&](const Access& a, LoopId outer, LoopId deep, bool rows_across) {
      const LoopId joined = outer == p_.rows_loop ? p_.joined : LoopId();
      return rows_across ? matrix_access(w_, a, outer, deep, p_.products, joined)
                         : matrix_access(w_, a, deep, outer, p_.products, joined);
    };
    for (const Access* a : {left_, target_}) check_joined(*a);
    p_.of_left = lies(*left_, p_.rows_loop, depth_, p_.left_across);
    p_.of_right = lies(*right_, p_.middle_loop, depth_, p_.right_across);
    p_.of_second = lies(*second_, p_.columns_loop, p_.middle_loop, p_.second_across);
    check_box_rows(w_, p_.left, p_.of_left), check_box_rows(w_, p_.right, p_.of_right);
    check_box_rows(w_, p_.second, p_.of_second);
    p_.rows = p_.inner_rows = extent(p_.rows_loop), p_.columns = extent(p_.columns_loop);
    if (p_.joined.valid()) p_.rows *= extent(p_.joined);
    p_.middle = extent(p_.middle_loop), p_.depth = extent(depth_);
    for (const LoopId loop : p_.products) p_.count *= extent(loop);
    for (const std::int64_t e : {p_.rows, p_.columns, p_.middle})
      if (e >= 1 << 30) refuse("a loop has 2^30 iterations or more");
  }

  /// Rows of the joined loops must follow one another.
  void check_joined(const Access& a) const {
    if (!p_.joined.valid()) return;
    const auto strides = strides_of(w_.tensor(a.tensor));
    std::int64_t outer = 0, inner = 0;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      if (a.index[d].plain_loop() == p_.joined) outer = strides[d];
      if (a.index[d].plain_loop() == p_.rows_loop) inner = strides[d];
    }
    if (outer != inner * extent(p_.rows_loop))
      refuse("tensor " + name(a.tensor) + "'s rows of several products do not follow one another");
  }

  /// A block's or a turn's part of a loop: the step of the innermost loop over it.
  std::int64_t part(LoopId loop) const {
    return std::min(KernelReader::part(loop, grid_), KernelReader::part(loop, serial_));
  }

  void cut_tiles() {
    for (NodeId n : serial_) {
      const ScheduleNode& loop = k_.node(n);
      if (loop.max_trips <= 1) continue;
      if (loop.loop == depth_) refuse("its first product takes several steps of its depth");
      if (loop.loop != p_.middle_loop)
        refuse("a block has several tiles of loop " + loop_name(loop.loop));
      if (turns_.valid()) refuse("loop " + loop_name(loop.loop) + " is cut twice");
      turns_ = n;
    }
    for (NodeId n : grid_) {
      const ScheduleNode& loop = k_.node(n);
      if (loop.max_trips > 1 && (loop.loop == depth_ || loop.loop == p_.middle_loop))
        refuse("blocks share loop " + loop_name(loop.loop) + " of a sum");
    }
    for (LoopId loop : p_.products)
      if (part(loop) != 1) refuse("a block has several products of loop " + loop_name(loop));
    for (const OpId op : {p_.first_op, p_.second_op})
      for (NodeId c : computes_)
        if (k_.node(c).op == op && turns_.valid() && !around(turns_, c))
          refuse("its products are not in one loop over " + loop_name(p_.middle_loop));
    std::map<TensorId, int> loads;
    for (NodeId m : moves_) {
      const ScheduleNode& n = k_.node(m);
      const bool load = n.kind == NodeKind::load;
      if (!load && turns_.valid() && around(turns_, m))
        refuse("it stores results before they are whole");
      if (!load) continue;
      if (++loads[n.tensor] > 1) refuse("it loads tensor " + name(n.tensor) + " twice");
      for (NodeId g : grid_)
        if (k_.node(g).max_trips > 1 && !around(g, m))
          refuse("tensor " + name(n.tensor) + " is loaded for several blocks");
    }
  }

  /// What lies in a row, in the first product's results and in the second one's.
  Place place_of(const Access& a) const {
    if (made_of(a, {p_.rows_loop})) return Place::row;
    if (made_of(a, {p_.rows_loop, p_.middle_loop})) return Place::middle;
    if (made_of(a, {p_.rows_loop, p_.columns_loop})) return Place::columns;
    refuse("tensor " + name(a.tensor) + " has neither rows nor elements of its products");
  }

  void place_values() {
    for (std::size_t i = 0; i < computes_.size(); ++i) {
      if (i == products_at_[0] || i == products_at_[1]) continue;
      const bool inside = i < products_at_[1] || (turns_.valid() && around(turns_, computes_[i]));
      (inside ? between_ : after_).push_back(k_.node(computes_[i]).op);
    }
    value(w_.op(p_.first_op).outputs.front(), Place::middle, 0);
    place_all(between_, p_.between, false);
    check_operand();
    value(w_.op(p_.second_op).outputs.front(), Place::columns, 0);
    place_all(after_, p_.after, true);
    for (const NodeId m : moves_) check_load(m);
    for (const OpId op : k_.ops)
      for (const Output& o : w_.op(op).outputs) {
        const TensorId t = o.target.tensor;
        const bool leaves = std::ranges::any_of(k_.buffers, [&](const Buffer& b) {
          return b.tensor == t && (b.role == BufferRole::output || b.leaves);
        });
        if (!leaves) continue;
        if (p_.find(t)->place == Place::row) {
          check_row_result(o.target);
          p_.row_results.push_back(t);
          continue;
        }
        if (p_.result.valid()) refuse("it has several results");
        if (std::ranges::any_of(k_.buffers,
                                [&](const Buffer& b) { return b.tensor == t && b.leaves; }))
          refuse("tensor " + name(t) + " leaves the kernel, and is read in it");
        p_.result = t, result_ = &o.target;
      }
    if (!p_.result.valid() || p_.find(p_.result)->place != Place::columns)
      refuse("it has no results of its products' rows and columns");
    check_result_type(p_.result);
    if (result_->index.back().plain_loop() != p_.columns_loop)
      refuse("tensor " + name(p_.result) + "'s rows are not rows of a matrix");
    check_joined(*result_);
    p_.of_result =
        matrix_access(w_, *result_, p_.columns_loop, p_.rows_loop, p_.products, p_.joined);
    for (PairValue& v : p_.values) v.parts = v.parts && !read_between(v.tensor);
  }

  /// What operators read at home has a load of its own: of the products' operators in any turn, of
  /// those after the products behind all turns.
  void check_load(NodeId m) const {
    const TensorId t = k_.node(m).tensor;
    if (k_.node(m).kind != NodeKind::load || t == p_.left || t == p_.right || t == p_.second)
      return;
    if (p_.read(t) == nullptr)
      refuse("it loads tensor " + name(t) + ", which no operator beside its products reads");
    if (std::ranges::find(p_.after_reads, t, &EpilogueRead::tensor) != p_.after_reads.end() &&
        turns_.valid() && around(turns_, m))
      refuse("it loads tensor " + name(t) + " in each turn, and reads it after the last");
  }

  /// One number for each row of each product, in their order.
  void check_row_result(const Access& a) const {
    std::vector<LoopId> order = p_.products;
    if (p_.joined.valid()) order.push_back(p_.joined);
    order.push_back(p_.rows_loop);
    for (std::size_t d = 0; d < order.size(); ++d)
      if (a.index[d].plain_loop() != order[d])
        refuse("tensor " + name(a.tensor) + "'s numbers are not in the order of its rows");
    if (w_.tensor(a.tensor).dtype != DType::f32)
      refuse("tensor " + name(a.tensor) + " has a number for each row, which is not of f32");
    if (part(p_.columns_loop) < extent(p_.columns_loop))
      refuse("blocks share rows of tensor " + name(a.tensor));
  }

  /// The second product's operands beside the right one.
  void check_operand() const {
    const Operator& op = w_.op(p_.second_op);
    const PairValue* const v = p_.find(inner_->tensor);
    if (v == nullptr || v->place != Place::middle)
      refuse("its second product's operand is not made of the first one's elements");
    for (int i = 0; std::cmp_less(i, op.inputs.size()); ++i)
      if (i != second_left_ && i != second_right_)
        check_read(op.inputs[static_cast<std::size_t>(i)]);
  }

  /// Of an operator between the products or after them, which may read at home what the kernel does
  /// not make.
  Place place_read(const Operator& op, const Access& a, bool after) {
    const bool made = p_.find(a.tensor) != nullptr;
    const OpId maker = w_.producer(a.tensor);
    const bool later = maker.valid() && std::ranges::find(k_.ops, maker) != k_.ops.end();
    if (made || later) {
      check_read(a);
      return p_.find(a.tensor)->place;
    }
    ProductLoops loops{p_.rows_loop, after ? p_.columns_loop : p_.middle_loop, p_.products};
    if (p_.joined.valid()) loops.products.push_back(p_.joined);
    const EpilogueRead r = home_read(w_, op, a, loops);
    if (r.chunk && (after || *r.chunk >= p_.products.size() || p_.products[*r.chunk] != p_.chunk))
      refuse("tensor " + name(a.tensor) + " is in other chunks than its operands");
    if (after && (a.tensor == p_.left || a.tensor == p_.right || a.tensor == p_.second))
      refuse("tensor " + name(a.tensor) + " is an operand, and is read after the products");
    std::vector<EpilogueRead>& reads = after ? p_.after_reads : p_.reads;
    const EpilogueRead* const before = p_.read(a.tensor);
    const bool other = before != nullptr &&
                       std::ranges::find(reads, a.tensor, &EpilogueRead::tensor) == reads.end();
    if (before != nullptr && (other || !same_place(*before, r)))
      refuse("tensor " + name(a.tensor) + " is read at several places");
    if (before == nullptr) reads.push_back(r);
    return r.by_column == 0 ? Place::row : after ? Place::columns : Place::middle;
  }

  void check_read(const Access& a) const {
    const PairValue* const v = p_.find(a.tensor);
    if (v == nullptr)
      refuse("an operator beside the products reads tensor " + name(a.tensor) +
             ", which it does not make before");
    const OpId maker = w_.producer(a.tensor);
    for (const Output& o : w_.op(maker).outputs)
      if (o.target.tensor == a.tensor && o.target.index != a.index)
        refuse("tensor " + name(a.tensor) + " is read at other places than it is made");
  }

  bool read_between(TensorId t) const {
    const auto reads = [&](OpId id) {
      const Operator& op = w_.op(id);
      for (std::size_t o = 0; o < op.outputs.size(); ++o)
        if (op.outputs.size() > 1 && op.outputs[o].target.tensor == t) return true;
      return std::ranges::any_of(op.inputs, [&](const Access& a) { return a.tensor == t; });
    };
    return reads(p_.second_op) || std::ranges::any_of(between_, reads);
  }

  void value(const Output& o, Place place, int slot, bool parts = false) {
    check_whole_loops(w_, o.target);
    p_.values.push_back({.tensor = o.target.tensor,
                         .place = place,
                         .slot = slot,
                         .parts = parts,
                         .combine = o.combine});
  }

  void place_all(const std::vector<OpId>& ops, std::vector<PairOperator>& to, bool after) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Operator& op = w_.op(ops[i]);
      if (w_.gathers(ops[i])) refuse("operator " + op.name + " looks up rows");
      PairOperator made{.op = ops[i]};
      for (const Access& a : op.inputs) {
        const Place place = place_read(op, a, after);
        if (place == Place::row) continue;
        if (made.domain != Place::row && made.domain != place)
          refuse("operator " + op.name + " reads elements of both products");
        made.domain = place;
      }
      const auto reduced = w_.reduction_loops(ops[i]);
      if (reduced.empty() && !op.outputs.empty()) {
        const Place place = place_of(op.outputs.front().target);
        if (place != Place::row) made.domain = place;
      }
      if (made.domain == (after ? Place::middle : Place::columns))
        refuse("operator " + op.name + " reads what is not whole yet, or not there any more");
      const LoopId across = after ? p_.columns_loop : p_.middle_loop;
      if (reduced.size() > 1 || (!reduced.empty() && reduced.front() != across))
        refuse("operator " + op.name + " reduces something else than rows");
      if (!reduced.empty() && after && part(across) < extent(across))
        refuse("operator " + op.name + " reduces rows that blocks share");
      if (reduced.empty() && (op.running || op.outputs.front().combine != Combine::assign))
        refuse("operator " + op.name + " combines what it does not reduce");
      check_indices(op, made.domain);
      for (const Output& o : op.outputs) {
        const Place place = place_of(o.target);
        if (!reduced.empty() && place != Place::row)
          refuse("operator " + op.name + " reduces rows, and has more than one result for each");
        if (place != Place::row && place != made.domain)
          refuse("operator " + op.name + " has results of two kinds");
        const bool sums = !reduced.empty() && !after && o.combine != Combine::assign;
        value(o, place, place == Place::row ? 0 : slot(ops, i, made.domain, o.target.tensor), sums);
      }
      to.push_back(made);
    }
  }

  void check_indices(const Operator& op, Place domain) const {
    const auto check = [&](const auto& self, const Expr& e) -> void {
      if (e.kind == Expr::Kind::index && e.loop != p_.rows_loop && e.loop != p_.joined &&
          std::ranges::find(p_.products, e.loop) == p_.products.end() &&
          !(e.loop == p_.middle_loop && domain == Place::middle) &&
          !(e.loop == p_.columns_loop && domain == Place::columns))
        refuse("operator " + op.name + " uses the index of loop " + loop_name(e.loop));
      for (const Expr& a : e.args) self(self, a);
    };
    for (const Output& o : op.outputs) check(check, o.value);
  }

  /// An array for new elements: one whose elements nobody reads after this operator.
  int slot(const std::vector<OpId>& ops, std::size_t at, Place place, TensorId made) {
    int& arrays = place == Place::middle ? p_.middle_arrays : p_.column_arrays;
    std::vector<bool> taken(static_cast<std::size_t>(arrays) + 1, false);
    for (const PairValue& v : p_.values) {
      if (v.place != place) continue;
      bool live = v.tensor == inner_->tensor && place == Place::middle;
      for (std::size_t i = at + 1; i < ops.size(); ++i)
        for (const Access& a : w_.op(ops[i]).inputs) live = live || a.tensor == v.tensor;
      // Two results of one operator.
      for (const Output& o : w_.op(ops[at]).outputs) live = live || o.target.tensor == v.tensor;
      if (live && v.tensor != made) taken[static_cast<std::size_t>(v.slot)] = true;
    }
    const int free = static_cast<int>(std::ranges::find(taken, false) - taken.begin());
    arrays = std::max(arrays, free + 1);
    return free;
  }

  int tile(LoopId loop, std::int64_t multiple, std::int64_t most) const {
    return tile_of(loop, part(loop), multiple, most);
  }

  void arrange(int warps, int stages) {
    if (p_.joined.valid() && p_.rows > 192)
      refuse("a block's rows of several products are too many");
    p_.groups = p_.joined.valid() ? static_cast<int>(ceil_div(p_.rows, std::int64_t{64}))
                                  : tile(p_.rows_loop, 64, 192) / 64;
    // Boxes have 64 elements of a row: a tile of rows that go on is a multiple of that.
    const auto multiple = [&](LoopId loop, bool along) {
      return along && part(loop) < extent(loop) ? 64 : 16;
    };
    p_.tile_middle =
        tile(p_.middle_loop, multiple(p_.middle_loop, p_.right_across || !p_.second_across), 256);
    // A box would have rows of the next chunk.
    if (p_.chunk.valid() && p_.ragged())
      refuse(formatted("turns of {} do not divide its chunks of {}", p_.tile_middle, p_.middle));
    p_.tile_columns = tile(p_.columns_loop, multiple(p_.columns_loop, p_.second_across), 256);
    if (p_.depth > 256) refuse("its first product's depth is more than 256");
    if (warps > 0 && warps != 4 * p_.groups)
      refuse(formatted("{} warps are asked for, and {} compute {} rows", warps, 4 * p_.groups,
                       p_.tile_rows()));
    if (const auto reason = p_.too_many_registers(w_)) refuse(*reason);
    const std::int64_t stage = p_.right_bytes() + p_.second_bytes() + 32;
    const std::int64_t fixed = p_.left_bytes() + p_.groups * kStaged + 8;
    const std::int64_t all = s_.machine->level(k_.level).capacity.value;
    const auto fit = [&](int resident) {
      return (all / resident - kReservedShared - fixed) / stage;
    };
    // Two blocks of one SM, where both have room: 2 * 256 threads of at most 128 registers.
    p_.resident = p_.groups == 1 && p_.registers <= 128 && fit(2) >= 2 ? 2 : 1;
    const std::int64_t fits = fit(p_.resident);
    if (fits < 1) refuse("its tiles have no room in shared memory");
    if (stages > fits)
      refuse(formatted("{} stages of its tiles have no room in shared memory", stages));
    p_.stages =
        stages > 0 ? stages : static_cast<int>(std::min<std::int64_t>(fits, kMostPairStages));
    p_.shared_bytes = fixed + p_.stages * stage;
    p_.tiles = p_.count * p_.tiles_down() * p_.tiles_across();
    if (p_.tiles >= 1 << 30) refuse("it has 2^30 tiles or more");
    p_.grid = std::min(p_.tiles, s_.machine->units.front().count * p_.resident);
    if (!p_.edges.empty()) {
      const auto bytes = [&](TensorId t) { return w_.tensor(t).bytes().value; };
      const Level& outer =
          s_.machine->level(s_.machine->path(s_.machine->home(), k_.level).front().second);
      p_.choose_section(bytes(p_.right) + bytes(p_.second),
                        outer.kind == LevelKind::cache ? outer.capacity.value : 0);
    }
  }

  void make_maps() {
    const auto map = [&](const Access& a, const MatrixAccess& m, bool across, LoopId outer_loop,
                         LoopId deep_loop, int tile_outer, std::int64_t tile_depth) {
      const auto ends = [&](LoopId loop) {
        if (loop == p_.rows_loop && p_.joined.valid()) return p_.rows;
        if (loop != p_.middle_loop || !p_.chunk.valid()) return reached(w_, a, loop);
        const auto d =
            std::ranges::find_if(a.index, [&](const Affine& i) { return i.plain_loop() == loop; });
        return w_.tensor(a.tensor).shape[static_cast<std::size_t>(d - a.index.begin())];
      };
      const std::int64_t outer = ends(outer_loop), depth = ends(deep_loop);
      const int tall = static_cast<int>(round_up(tile_depth, 16));
      p_.maps.push_back(across ? box_map(w_, a.tensor, m, outer, depth, tall)
                               : box_map(w_, a.tensor, m, depth, outer, tile_outer));
    };
    map(*left_, p_.of_left, p_.left_across, p_.rows_loop, depth_, p_.tile_rows(), p_.depth);
    map(*right_, p_.of_right, p_.right_across, p_.middle_loop, depth_, p_.tile_middle, p_.depth);
    map(*second_, p_.of_second, p_.second_across, p_.columns_loop, p_.middle_loop, p_.tile_columns,
        p_.tile_middle);
    const std::int64_t size = size_of(w_.tensor(p_.result).dtype), across = 128 / size;
    p_.boxed = p_.of_result.outer * size % 16 == 0 && p_.of_result.apart * size % 16 == 0 &&
               (p_.tile_columns % across == 0 || p_.tile_columns >= p_.columns);
    if (p_.boxed)
      return p_.maps.push_back(box_map(w_, p_.result, p_.of_result, p_.columns, p_.rows, 64));
    p_.vector = static_cast<int>(16 / size);
    while (p_.of_result.outer % p_.vector != 0 || p_.of_result.apart % p_.vector != 0 ||
           p_.columns % p_.vector != 0)
      p_.vector /= 2;
  }

  WarpgroupPair p_;
  std::vector<NodeId> moves_;
  NodeId turns_;                          ///< the loop over the second product's sum
  std::vector<std::size_t> products_at_;  ///< in computes_
  LoopId depth_;
  std::array<Access, 2> of_first_;  ///< operands of the products, of the first chunk
  Access of_second_;
  int in_chunks_ = 0;
  const Access *left_ = nullptr, *right_ = nullptr, *second_ = nullptr, *inner_ = nullptr,
               *target_ = nullptr, *result_ = nullptr;
  int second_left_ = 0, second_right_ = 1;
  std::vector<OpId> between_, after_;
};

}  // namespace

Result<WarpgroupPair> warpgroup_pair(const Schedule& s, int kernel, int warps, int stages) {
  try {
    return PairFinder(s, kernel).find(warps, stages);
  } catch (const Refused& refused) {
    return Reason{refused.text};
  }
}

}  // namespace tilewright::lowering
