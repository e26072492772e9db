// A compute on its box: matrix products (emit_product.cpp), operators on tiles in registers
// (emit_rows.cpp), and any operator point by point (emit_points.cpp).
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/launch_text.h"
#include "core/lowering/gpu/matrix_access.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cuda {
namespace {

/// Whether they are the same, whatever the program's variables are: a loop of a single turn has one
/// that is always where it begins.
bool same(const Variables& v, const SymBox& a, const SymBox& b) {
  const auto equal = [&](const Linear& x, const Linear& y) {
    const Linear apart = x - y;
    return v.lower(apart) == 0 && v.upper(apart) == 0;
  };
  return std::ranges::equal(a, b, [&](const SymRange& x, const SymRange& y) {
    return equal(x.lo, y.lo) && equal(x.hi, y.hi);
  });
}

}  // namespace

void KernelEmitter::visit_compute(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  if (copying_ && !n.once) return;
  const Operator& op = workload_.op(n.op);
  still_met([&] { out_.comment("C." + to_text(workload_, n.op)); });
  // What is loaded for it alone is loaded where it is not skipped, empty or not.
  if (n.once) {
    out_.open("if (!(" + skipped(id, ranges) + "))");
    defined_.emplace_back();
    for (std::size_t i = 0; i < k_.nodes.size(); ++i)
      if (k_.nodes[i].kind == NodeKind::load && k_.nodes[i].only_for == id &&
          (!copying_ || has_copies(NodeId(i))))
        visit_load(NodeId(i), ranges);
  }
  SymRanges here = ranges;
  std::string condition;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    SymRange& r = here.at[k_.range_base[n.op.index()] + l];
    if (!r.nonempty)
      condition +=
          (condition.empty() ? "" : " && ") + variables_.text(r.lo) + " < " + variables_.text(r.hi);
    r.nonempty = true;
  }
  if (condition.empty())
    still_met([&] { out_.open(""); });
  else
    out_.open("if (" + condition + ")");
  defined_.emplace_back();
  if (!copying_) {
    std::vector<BlockStep> around = std::exchange(steps_, {});
    compute(id, here);
    way_.body = std::exchange(steps_, std::move(around));
    steps_.push_back(way_);
  }
  if (n.once) finish(id, here);
  defined_.pop_back();
  if (condition.empty())
    still_met([&] { out_.close(); });
  else
    out_.close();
  if (!n.once) return;
  defined_.pop_back();
  out_.close();
}

/// The buffer's tile is now fixed_: what was finished in another one is gone.
void KernelEmitter::begin_finished(BufferId b) {
  if (block_.finished_boxes(b) > 0)
    out_.line(finished(b) + ".in(" + box_text(*fixed_[b.index()]) + ");");
}

/// Whether every box that a compute would write is finished.
std::string KernelEmitter::skipped(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  std::string text;
  for (std::size_t w = 0; w < n.writes.size(); ++w) {
    const BufferId b = n.writes[w].buffer;
    const SymBox box = access_box(n.op, output_of(id, static_cast<int>(w)).target, ranges);
    if (!buffer(b).fixed_at.valid()) {
      settle(b, id);
      fixed_[b.index()] = box;
      begin_finished(b);
    }
    text += (text.empty() ? "" : " && ") + finished(b) + ".has(" + box_text(box) + ")";
  }
  return text;
}

void KernelEmitter::finish(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const std::string complete = completes(n.op, ranges);
  for (std::size_t w = 0; w < n.writes.size(); ++w)
    out_.line((complete.empty() ? "" : "if (" + complete + ") ") + finished(n.writes[w].buffer) +
              ".add(" +
              box_text(access_box(n.op, output_of(id, static_cast<int>(w)).target, ranges)) + ");");
}

void KernelEmitter::compute(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const std::string fresh = initialises(n.op, ranges, n.writes.front().atomic);
  for (const OutputUse& w : n.writes) {
    const SymBox box =
        access_box(n.op, op.outputs[static_cast<std::size_t>(w.output)].target, ranges);
    if (!buffer(w.buffer).fixed_at.valid()) {
      if (!n.once) settle(w.buffer, id);
      record(w.buffer, box);
      fixed_[w.buffer.index()] = box;
    }
    if (!fixed_[w.buffer.index()])
      throw Refused{tensor_name(w.tensor) + " is written before its tile is known"};
    if (!same(variables_, box, *fixed_[w.buffer.index()])) block_.note_part(w.buffer);
    if (fresh != "true") block_.note_added(w.buffer);
    hold(w, *fixed_[w.buffer.index()], fresh);
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const BufferId b = block_.buffer_of_input(n, static_cast<int>(i));
    if (!b.valid()) continue;
    if (!fixed_[b.index()])
      throw Refused{tensor_name(op.inputs[i].tensor) + " is read before its tile is known"};
    // Points outside of the tensor are read as zeros, which registers do not hold.
    if (buffer(b).role != BufferRole::input &&
        (can_leave(workload_, op, op.inputs[i]) ||
         !same(variables_, access_box(n.op, op.inputs[i], ranges), *fixed_[b.index()])))
      block_.note_part(b);
  }
  const std::vector<std::int64_t> most = mosts(n.op, ranges);
  if (!forms_chosen_) {
    const std::vector<BlockProduct> all = block_.as_products(id, most);
    block_.note_compute(id, most,
                        !all.empty() && std::ranges::all_of(all, [&](const BlockProduct& p) {
                          return product_fits(id, p, ranges);
                        }));
  }
  const std::string adds = not_yet_added(n.op, n.writes.front().atomic);
  if (!adds.empty()) out_.open("if (" + adds + ")");
  way_ = block_.way_of(id, most);
  const bool product = way_.method == BlockStep::Method::product,
             in_fragments = block_.fragment_op(id);
  if (product ? block_.micro_kernel().name != "mma" : !in_fragments) make_addresses(n);
  switch (way_.method) {
    case BlockStep::Method::product:
      for (const BlockProduct& p : *block_.products(id)) {
        product_fits(id, p, ranges);  // what it reads
        if (in_fragments)
          multiply(id, p, ranges, fresh);
        else
          act(BlockAct::product, [&] { multiply_tiles(id, p, ranges, fresh); });
      }
      break;
    case BlockStep::Method::fragments:
      row_computes(id, ranges, fresh);
      break;
    case BlockStep::Method::contraction:
      for (const BlockContraction& c : block_.contractions(id, most))
        act(BlockAct::product, [&] { contract(id, c, ranges, fresh); });
      break;
    case BlockStep::Method::points:
      act(BlockAct::points, [&] { points(id, ranges, fresh); });
      break;
  }
  here_.clear();
  if (!adds.empty()) out_.close();
}

/// Addresses of the tiles that a compute's loops walk along, each for this compute alone.
void KernelEmitter::make_addresses(const ScheduleNode& n) {
  const auto make = [this](BufferId b) {
    if (!b.valid() || block_.tile(b).in_registers() || here_.contains(b)) return;
    const std::string at = names_.fresh(name(b) + "_here");
    const std::string type = tile_type(b);
    out_.line(type + "* const " + at + " = " + shared_place(type, block_.tile(b).offset) + ";");
    here_[b] = at;
  };
  for (const InputUse& use : n.reads) make(use.buffer);
  for (const OutputUse& use : n.writes) make(use.buffer);
}

std::string KernelEmitter::index_text(OpId id, const Affine& a,
                                      const std::vector<std::string>& loops) const {
  std::string text;
  for (const Term& t : a.terms)
    text +=
        (text.empty() ? "" : " + ") +
        times(t.coefficient, loops[static_cast<std::size_t>(workload_.local_index(id, t.loop))]);
  if (text.empty()) return std::to_string(a.offset);
  if (a.offset == 0) return text;
  return text + (a.offset < 0 ? " - " : " + ") + std::to_string(std::abs(a.offset));
}

/// The condition under which the access lies within its tensor; empty: always.
std::string KernelEmitter::inside(OpId id, const Access& a,
                                  const std::vector<std::string>& loops) const {
  std::string text;
  if (!can_leave(workload_, workload_.op(id), a)) return text;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const std::string index = index_text(id, a.index[d], loops);
    text += (text.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
            std::to_string(workload_.tensor(a.tensor).shape[d]);
  }
  return text;
}

/// An element of a tile in shared memory, its row and column; `loops`: each loop's value, by
/// position.
std::string KernelEmitter::point(OpId id, const Access& a, BufferId b,
                                 const std::vector<std::string>& loops) const {
  return tile_text(b) + ".at(" + place(id, a, b, loops) + ")";
}
std::string KernelEmitter::place(OpId id, const Access& a, BufferId b,
                                 const std::vector<std::string>& loops) const {
  const BlockTile& p = block_.tile(b);
  const SymBox& tile = *fixed_[b.index()];
  std::string row, column = "0";
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const std::string low = variables_.text(tile[d].lo, true);
    std::string index = index_text(id, a.index[d], loops);
    if (low != "0") index += " - " + low;
    if (d + 1 == a.index.size()) {
      column = index;
    } else if (p.most[d] > 1 || measuring_) {
      row += (row.empty() ? "" : " + ") + (p.stride.size() > d && p.stride[d] != 1
                                               ? "(" + index + ") * " + std::to_string(p.stride[d])
                                               : index);
    }
  }
  return (row.empty() ? "0" : row) + ", " + column;
}

/// An element's value; zero where the access lies outside of its tensor.
std::string KernelEmitter::value_at(OpId id, const Access& a, BufferId b,
                                    const std::vector<std::string>& loops) const {
  const std::string in = inside(id, a, loops);
  if (in.empty()) return "*" + point(id, a, b, loops);
  return "read_inside(" + in + ", " + tile_text(b) + ", " + place(id, a, b, loops) + ")";
}

/// An input's value at a point, as x0, x1, ...
void KernelEmitter::declare_input(NodeId id, std::size_t input,
                                  const std::vector<std::string>& loops, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Access& a = workload_.op(n.op).inputs[input];
  if (is_gather(a)) return declare_gathered(id, input, loops, ranges);
  const std::string r = real();
  const bool integer = is_integer(workload_.tensor(a.tensor).dtype);
  out_.line("const " + r + " x" + std::to_string(input) + " = " + (integer ? r : "to_float") + "(" +
            value_at(n.op, a, block_.buffer_of_input(n, static_cast<int>(input)), loops) + ");");
}

/// What is read by values that name no element is zero. Points that differ in other loops than
/// those that say which element is read read it alike: one of them counts, the others find it in
/// L1.
void KernelEmitter::declare_gathered(NodeId id, std::size_t input,
                                     const std::vector<std::string>& loops,
                                     const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a = op.inputs[input];
  const std::vector<std::int64_t> strides = strides_of(workload_.tensor(a.tensor));
  const std::string x = std::to_string(input);
  std::string offset, condition = inside(n.op, a, loops);
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    std::string index = "(" + index_text(n.op, a.index[d], loops) + ")";
    if (const int by = a.index[d].gathered; by >= 0) {
      const Access& by_access = op.inputs[static_cast<std::size_t>(by)];
      const std::string in = inside(n.op, by_access, loops);
      index = "index" + x + "_" + std::to_string(d);
      out_.line("const i64 " + index + " = " + (in.empty() ? "" : in + " ? ") + "i64(*" +
                point(n.op, by_access, block_.buffer_of_input(n, by), loops) + ")" +
                (in.empty() ? ";" : " : 0;"));
      condition += (condition.empty() ? "" : " && ") + index + " >= 0 && " + index + " < " +
                   std::to_string(workload_.tensor(a.tensor).shape[d]);
    }
    offset += " + i64" + (index.front() == '(' ? index : "(" + index + ")") +
              (strides[d] == 1 ? "" : " * " + std::to_string(strides[d]));
  }
  std::string first;
  const std::vector<int> naming = gather_loops(op, a);
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const SymRange& of = range(ranges, n.op, static_cast<int>(l));
    if (of.most > 1 && std::ranges::find(naming, static_cast<int>(l)) == naming.end())
      first += (first.empty() ? "" : " && ") + loops[l] + " == " + variables_.text(of.lo, true);
  }
  const std::string at = home(a.tensor) + offset;
  out_.line("const " + real() + " x" + x + " = " + condition + " ? " +
            (is_integer(workload_.tensor(a.tensor).dtype) ? real() : "to_float") + "(" +
            (first.empty() ? "load_global(" + at : "read_alike(" + at + ", " + first) +
            ")) : " + real() + "(0);");
}

}  // namespace tilewright::cuda
