// A workload as a chain of products, and the names of the options.
#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "core/base/name_table.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {
namespace {

constexpr NameTable<Hoist, 4> kHoists{
    {{Hoist::none, "none"}, {Hoist::scope, "scope"}, {Hoist::dag, "dag"}, {Hoist::block, "block"}}};
constexpr NameTable<Blocks, 2> kBlocks{{{Blocks::between, "between"}, {Blocks::always, "always"}}};
constexpr NameTable<Shared, 2> kShared{{{Shared::loaded, "loaded"}, {Shared::all, "all"}}};
constexpr NameTable<Stores, 2> kStores{{{Stores::once, "once"}, {Stores::each, "each"}}};
constexpr NameTable<Ratio, 2> kRatios{
    {{Ratio::written_once, "written-once"}, {Ratio::printed, "printed"}}};

Mask loops_of(const Access& a) {
  Mask m = 0;
  for (const Affine& i : a.index)
    for (const Term& t : i.terms) m |= detail::bit(t.loop);
  return m;
}

bool plain(const Access& a) {
  return std::ranges::all_of(a.index, [](const Affine& i) {
    return i.plain_loop().has_value() || (i.terms.empty() && i.gathered < 0);
  });
}

/// The reason why an operator is none of a chain's.
std::optional<Reason> check_operator(const Workload& w, OpId id, std::span<const OpId> products) {
  const Operator& op = w.op(id);
  for (const Access& a : op.inputs)
    if (!plain(a))
      return Reason{
          formatted("MCFuser plans chains of matrix products: {} indexes {} by more than "
                    "single loops",
                    op.name, w.tensor(a.tensor).name)};
  Mask own = 0;
  for (LoopId l : op.loops) own |= detail::bit(l);
  const bool inside = std::ranges::any_of(products, [&](OpId p) {
    Mask theirs = 0;
    for (LoopId l : w.op(p).loops) theirs |= detail::bit(l);
    return (own & ~theirs) == 0;
  });
  if (!inside)
    return Reason{
        formatted("MCFuser plans chains of matrix products: the loops of {} are not among "
                  "a product's",
                  op.name)};
  return std::nullopt;
}

void fill_masks(Chain& c) {
  const Workload& w = *c.workload;
  Mask dims = 0;
  for (LoopId l : c.dims) dims |= detail::bit(l);
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    Mask loops = 0, reduced = 0;
    for (LoopId l : w.operators()[o].loops) loops |= detail::bit(l);
    for (LoopId l : w.reduction_loops(OpId(o))) reduced |= detail::bit(l);
    c.op_loops.push_back(loops & dims);
    c.op_reduced.push_back(reduced & dims);
  }
  c.tensor_loops.assign(w.tensors().size(), 0);
  for (const Operator& op : w.operators()) {
    for (const Access& a : op.inputs) c.tensor_loops[a.tensor.index()] |= loops_of(a) & dims;
    for (const Output& o : op.outputs)
      c.tensor_loops[o.target.tensor.index()] |= loops_of(o.target) & dims;
  }
  c.feeds.assign(w.operators().size(), 0);
  for (OpId op : w.topological_order())
    for (const Access& a : w.op(op).inputs)
      if (const OpId p = w.producer(a.tensor); p.valid())
        c.feeds[op.index()] |= detail::bit(p) | c.feeds[p.index()];
  const Mask last = c.op_loops[c.products.back().index()];
  c.spatial = last & ~c.op_reduced[c.products.back().index()];
}

/// Only inputs multiplied; counts them.
bool multiplies(const tilewright::Expr& e, int& inputs) {
  using Kind = tilewright::Expr::Kind;
  if (e.kind == Kind::input) {
    ++inputs;
    return true;
  }
  return e.kind == Kind::call && e.function == "mul" &&
         std::ranges::all_of(e.args, [&](const auto& a) { return multiplies(a, inputs); });
}

/// Whether a loop tells independent chains apart: it indexes all that products read and write. A
/// bias or a mask may be the same for all of them.
bool is_batch(const Workload& w, LoopId loop) {
  const auto times = [loop](const Access& a) {  // dimensions that it indexes; 2: not plainly
    int n = 0;
    for (const Affine& i : a.index)
      if (std::ranges::any_of(i.terms, [loop](const Term& t) { return t.loop == loop; }))
        n += i.plain_loop() == loop ? 1 : 2;
    return n;
  };
  for (OpId op : w.topological_order()) {
    for (const Output& out : w.op(op).outputs)
      if (times(out.target) != 1) return false;
    for (const Access& in : w.op(op).inputs)
      if (const int n = times(in);
          n > 1 || (n == 0 && (detail::is_product(w, op) || !w.is_input(in.tensor))))
        return false;
  }
  return true;
}

}  // namespace

bool detail::is_product(const Workload& w, OpId op) {
  if (w.is_contraction(op)) return true;
  return !w.reduction_loops(op).empty() &&
         std::ranges::all_of(w.op(op).outputs, [](const Output& o) {
           int inputs = 0;
           return o.combine == Combine::sum && multiplies(o.value, inputs) && inputs >= 2;
         });
}

std::string_view name_of(Hoist h) { return name_in(kHoists, h); }
std::string_view name_of(Blocks b) { return name_in(kBlocks, b); }
std::string_view name_of(Shared s) { return name_in(kShared, s); }
std::string_view name_of(Stores s) { return name_in(kStores, s); }
std::string_view name_of(Ratio r) { return name_in(kRatios, r); }
std::optional<Hoist> hoist_from_name(std::string_view n) { return value_in(kHoists, n); }
std::optional<Blocks> blocks_from_name(std::string_view n) { return value_in(kBlocks, n); }
std::optional<Shared> shared_from_name(std::string_view n) { return value_in(kShared, n); }
std::optional<Stores> stores_from_name(std::string_view n) { return value_in(kStores, n); }
std::optional<Ratio> ratio_from_name(std::string_view n) { return value_in(kRatios, n); }

Result<Chain> chain_of(std::shared_ptr<const Workload> workload) {
  Chain c;
  c.workload = std::move(workload);
  const Workload& w = *c.workload;
  constexpr const char* kOnly = "MCFuser plans chains of matrix products";
  if (w.loops().size() > 64 || w.operators().size() > 64)
    return Reason{formatted("{}: {} has too many loops or operators", kOnly, w.name())};
  for (OpId op : w.topological_order())
    if (detail::is_product(w, op)) c.products.push_back(op);
  if (c.products.empty()) return Reason{formatted("{}: {} has no product", kOnly, w.name())};
  for (std::size_t l = 0; l < w.loops().size(); ++l)
    (is_batch(w, LoopId(l)) ? c.batch : c.dims).push_back(LoopId(l));
  if (c.dims.size() > kMostLoops)
    return Reason{
        formatted("{} of at most {} loops; {} has {}", kOnly, kMostLoops, w.name(), c.dims.size())};
  for (OpId op : w.topological_order())
    if (auto reason = check_operator(w, op, c.products)) return *reason;
  fill_masks(c);
  for (std::size_t i = 1; i < c.products.size(); ++i)
    if ((c.feeds[c.products[i].index()] & detail::bit(c.products[i - 1])) == 0)
      return Reason{formatted("{}: {} does not read what {} makes", kOnly, w.op(c.products[i]).name,
                              w.op(c.products[i - 1]).name)};
  return c;
}

}  // namespace tilewright::mcfuser
