// What a pair of products has by the numbers of its tiles, and the pair for people.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kSections = 12;  // numbers of products whose tiles come together, looked at

constexpr std::int64_t kColumnsEach = 16;

/// A thread's registers beside its values and one for kColumnsEach of the first product's columns:
/// addresses, places, what instructions need for a moment; of turns that have an end or a mask in
/// them more, because they have a text of their own. Chosen by ptxas: no tile that this allows is
/// spilled (cuda_pairs_test).
std::int64_t other_registers(const WarpgroupPair& p) {
  const bool masked = !p.edges.empty() || !p.guards.empty() || p.read_ends();
  if (!masked && !p.ragged()) return 16;
  if (p.groups == 3) return masked ? 46 : 40;
  if (p.tile_columns > 96) return masked ? 32 : 26;
  return masked ? 36 : 33;
}

/// More of them where elements are computed from indices, as slopes times distances are: ptxas
/// keeps some of these for several elements.
constexpr std::int64_t kOfIndices = 32;

/// Whether the value has indices beside those of conditions.
bool has_indices(const Expr& e) {
  if (e.kind == Expr::Kind::index) return true;
  if (e.kind == Expr::Kind::call && e.function == "lt") return false;
  return std::ranges::any_of(e.args, has_indices);
}
std::int64_t index_registers(const WarpgroupPair& p, const Workload& w) {
  const bool any = std::ranges::any_of(p.between, [&](const PairOperator& o) {
    return o.domain == PairValue::Place::middle &&
           std::ranges::any_of(w.op(o.op).outputs,
                               [](const Output& out) { return has_indices(out.value); });
  });
  return !any ? 0 : p.groups == 3 ? 3 * kOfIndices / 2 : kOfIndices;
}

/// Registers of a computing thread that a plan may fill, by warpgroups that compute. Of three, all
/// that an SM has for each (160); of two and one less than the 240 and 255 that there are, because
/// ptxas spills before it has used them.
std::int64_t registers_of(int groups) { return groups == 3 ? 160 : 228; }

/// Of one tile of an operand: boxes of 64 of the depth, or of 64 across it.
std::int64_t tile_bytes(std::int64_t outer, std::int64_t depth, bool across) {
  return across ? ceil_div(outer, std::int64_t{64}) * round_up(depth, 16) * 128
                : ceil_div(depth, std::int64_t{64}) * outer * 128;
}

}  // namespace

PairBound bound_of(const Output& o) {
  const Expr& e = o.value;
  const bool bounded =
      e.kind == Expr::Kind::call && ((o.combine == Combine::max && e.function == "max") ||
                                     (o.combine == Combine::min && e.function == "min"));
  if (bounded && e.args[1].kind == Expr::Kind::constant) return {&e.args[0], e.args[1].constant};
  return {&e, std::nullopt};
}

const PairValue* WarpgroupPair::find(TensorId t) const {
  const auto v = std::ranges::find(values, t, &PairValue::tensor);
  return v == values.end() ? nullptr : &*v;
}

const EpilogueRead* WarpgroupPair::read(TensorId t) const {
  for (const auto* of : {&reads, &after_reads})
    if (const auto r = std::ranges::find(*of, t, &EpilogueRead::tensor); r != of->end()) return &*r;
  return nullptr;
}

bool WarpgroupPair::by_row(const EpilogueRead& r) const {
  return r.by_row != 0 || (joined.valid() && r.by_product.back() != 0);
}

bool WarpgroupPair::rows_share(const EpilogueRead& r) const {
  return r.diagonal && !joined.valid();
}

bool WarpgroupPair::read_ends() const {
  return std::ranges::any_of(reads, [](const EpilogueRead& r) { return r.end > 0; });
}

/// Two neighbours of a row lie in one word where they are pairs of 16 bits, else in two; and an
/// address for each row.
std::int64_t WarpgroupPair::read_registers(const Workload& w, bool after) const {
  std::int64_t all = 0;
  for (const EpilogueRead& r : after ? after_reads : reads) {
    const std::int64_t rows = by_row(r) ? 2 : 1, width = after ? tile_columns : tile_middle;
    const bool one_word = r.pairs && size_of(w.tensor(r.tensor).dtype) == 2;
    all += r.by_column == 0 ? rows
           : rows_share(r)  ? width / 4 + 6
                            : rows * (width / (one_word ? 8 : 4) + 2);
  }
  return all;
}

std::optional<PairGuard> WarpgroupPair::guard(const Expr& condition) const {
  if (!chunk.valid() && !joined.valid()) return std::nullopt;
  bool placed = !chunk.valid();
  const auto is = [](const Expr& e, const char* function) {
    return e.kind == Expr::Kind::call && e.function == function;
  };
  const auto of = [](const Expr& e, LoopId l) {
    return e.kind == Expr::Kind::index && e.loop == l;
  };
  // chunk * chunk_step + middle, as split-running writes it, is one place.
  const auto in_operands = [&](const auto& self, const Expr& e) -> Expr {
    if (is(e, "add") && is(e.args[0], "mul") && of(e.args[1], middle_loop) &&
        of(e.args[0].args[1], chunk) && e.args[0].args[0].kind == Expr::Kind::constant &&
        e.args[0].args[0].constant == static_cast<double>(chunk_step)) {
      placed = true;
      return e.args[1];
    }
    Expr to = e;
    for (Expr& a : to.args) a = self(self, a);
    return to;
  };
  const auto m = true_beyond(in_operands(in_operands, condition), rows_loop, middle_loop);
  if (!m || !placed) return std::nullopt;
  // What it is of the first row and column.
  return m->offset < 0 ? PairGuard{opposite(*m), true} : PairGuard{*m, false};
}
void WarpgroupPair::find_guards(const Workload& w, std::span<const OpId> ops) {
  const std::int64_t all = chunk.valid() ? chunk_modulo * chunk_step : middle;
  const auto exact = [&](const MaskEdge& m) {
    return std::abs(static_cast<double>(m.by_row)) * static_cast<double>(inner_rows) +
               std::abs(static_cast<double>(m.by_column)) * static_cast<double>(all) +
               std::abs(static_cast<double>(m.offset)) <
           1 << 24;
  };
  const auto find = [&](const auto& self, const Expr& e) -> void {
    for (const Expr& a : e.args) self(self, a);
    const auto g = guard(e);
    if (!g || !exact(g->edge)) return;
    guarded.push_back(e);
    if (std::ranges::find(guards, g->edge) == guards.end()) guards.push_back(g->edge);
  };
  for (const OpId op : ops)
    for (const Output& o : w.op(op).outputs) find(find, o.value);
}

void WarpgroupPair::find_factors(const Workload& w) {
  const auto reads = [](const auto& self, const Expr& e, const auto& which) -> bool {
    return (e.kind == Expr::Kind::input && which(e.input)) ||
           std::ranges::any_of(e.args, [&](const Expr& a) { return self(self, a, which); });
  };
  const auto is = [](const Expr& e, const char* function) {
    return e.kind == Expr::Kind::call && e.function == function;
  };
  const auto same_times_any = [](const Expr& e) {  // nothing, or infinite
    return e.kind == Expr::Kind::constant && (e.constant == 0 || std::isinf(e.constant));
  };
  // What `op` makes of the elements of a tensor: itself times a number; 0: something else.
  const auto passes = [&](const Operator& op, int input) -> double {
    const Expr& e = op.outputs.front().value;
    const auto it = [&](const Expr& a) { return a.kind == Expr::Kind::input && a.input == input; };
    const auto by = [&](const Expr& a, const Expr& b) {
      return it(a) && b.kind == Expr::Kind::constant && b.constant > 0 && std::isfinite(b.constant)
                 ? b.constant
                 : 0;
    };
    if (op.outputs.size() != 1 || op.outputs.front().combine != Combine::assign) return 0;
    if (is(e, "mul")) return std::max(by(e.args[0], e.args[1]), by(e.args[1], e.args[0]));
    const auto any = [](int) { return true; };
    if (is(e, "select") && !reads(reads, e.args[0], any))
      return (same_times_any(e.args[1]) && it(e.args[2])) ||
                     (it(e.args[1]) && same_times_any(e.args[2]))
                 ? 1
                 : 0;
    return 0;
  };
  // Whether it can do with elements that are a number times what lies there.
  const auto takes = [&](const Operator& op, int input) {
    const auto it = [&](int i) { return i == input; };
    if (w.reduction_loops(*w.find_op(op.name)).empty()) {
      if (op.outputs.size() != 1) return false;
      const Expr& e = op.outputs.front().value;
      return is(e, "exp") && is(e.args[0], "sub") && e.args[0].args[0].kind == Expr::Kind::input &&
             e.args[0].args[0].input == input && !reads(reads, e.args[0].args[1], it);
    }
    return std::ranges::all_of(op.outputs, [&](const Output& o) {
      if (o.combine == Combine::assign) return !reads(reads, o.value, it);
      const Expr& value = *bound_of(o).of;
      return (o.combine == Combine::max || o.combine == Combine::min) && !o.rescale &&
             value.kind == Expr::Kind::input && value.input == input;
    });
  };
  std::map<TensorId, bool> may;  // whether a tensor's elements may lie as others, times a number
  for (auto made = between.rbegin(); made != between.rend(); ++made)
    for (const Output& out : w.op(made->op).outputs) {
      const auto readers = [&](OpId id, bool second) {
        const Operator& op = w.op(id);
        for (int i = 0; std::cmp_less(i, op.inputs.size()); ++i) {
          if (op.inputs[static_cast<std::size_t>(i)].tensor != out.target.tensor) continue;
          const bool passed = !second && passes(op, i) > 0 && may[op.outputs.front().target.tensor];
          if (second || (!passed && !takes(op, i))) return false;
        }
        return true;
      };
      const PairValue* const v = find(out.target.tensor);
      may[out.target.tensor] =
          v->place == PairValue::Place::middle && readers(second_op, true) &&
          std::ranges::all_of(between, [&](const PairOperator& o) { return readers(o.op, false); });
    }
  for (PairOperator& o : between) {
    const Operator& op = w.op(o.op);
    const TensorId to = op.outputs.front().target.tensor;
    if (o.domain != PairValue::Place::middle || !may[to]) continue;
    for (int i = 0; std::cmp_less(i, op.inputs.size()); ++i) {
      const double by = passes(op, i);
      if (by == 0 || find(op.inputs[static_cast<std::size_t>(i)].tensor) == nullptr) continue;
      const auto value = std::ranges::find(values, to, &PairValue::tensor);
      value->factor = by * find(op.inputs[static_cast<std::size_t>(i)].tensor)->factor;
      o.scales = is(op.outputs.front().value, "mul");
    }
  }
}

/// Tiles of all products in the order of their turns fill blocks evenly. Where the operands of all
/// do not stay in a cache those of a few products come together: of numbers whose operands stay,
/// the one that fills blocks best.
void WarpgroupPair::choose_section(std::int64_t bytes, std::int64_t kept) {
  section = count;
  if (kept == 0 || bytes <= kept / 4 * 3) return;
  const std::int64_t most = std::clamp(kept / 2 * count / bytes, std::int64_t{1}, count);
  std::int64_t best = 0;
  for (std::int64_t n = most; n > 0 && n > most - kSections; --n) {
    WarpgroupPair with = *this;
    with.section = n;
    const std::int64_t turns = with.most_turns();
    if (best == 0 || turns < best) best = turns, section = n;
  }
}

std::optional<std::string> WarpgroupPair::too_many_registers(const Workload& w) {
  const std::int64_t of_middle = tile_middle / 2, of_columns = tile_columns / 2,
                     rows_each =
                         2 * std::ranges::count(values, PairValue::Place::row, &PairValue::place);
  registers = static_cast<int>(
      std::max(std::max(middle_arrays * of_middle + of_middle / 2 + of_columns,
                        column_arrays * of_columns) +
                   read_registers(w),
               column_arrays * of_columns + read_registers(w, true)) +
      rows_each + index_registers(*this, w) + other_registers(*this) + tile_middle / kColumnsEach);
  const std::int64_t most = registers_of(groups);
  spare = static_cast<int>(most) - registers;
  if (spare >= 0) return std::nullopt;
  return formatted("its tile of {} x {} x {} needs about {} registers a thread, of {}", tile_rows(),
                   tile_middle, tile_columns, registers, most);
}

std::int64_t WarpgroupPair::left_bytes() const {
  return tile_bytes(tile_rows(), depth, left_across);
}
std::int64_t WarpgroupPair::right_bytes() const {
  return tile_bytes(tile_middle, depth, right_across);
}
std::int64_t WarpgroupPair::second_bytes() const {
  return tile_bytes(tile_columns, tile_middle, second_across);
}

std::pair<std::int64_t, std::int64_t> WarpgroupPair::turns(std::int64_t down) const {
  const std::int64_t all = ceil_div(middle, std::int64_t{tile_middle});
  const std::int64_t low = down * tile_rows(), high = std::min(low + tile_rows(), rows) - 1;
  const MaskColumns c = columns_needed(edges, low, high, middle);
  return {c.from / tile_middle, std::min(all, ceil_div(c.to, std::int64_t{tile_middle}))};
}

bool WarpgroupPair::last_first() const {
  const auto count = [&](std::int64_t down) { return turns(down).second - turns(down).first; };
  return count(tiles_down() - 1) > count(0);
}

std::pair<std::int64_t, std::int64_t> WarpgroupPair::left_out() const {
  std::int64_t steps = 0;  // columns of all tiles of rows
  for (std::int64_t d = 0; d < tiles_down(); ++d) {
    const auto [from, to] = turns(d);
    steps += middle - (std::min(to * tile_middle, middle) - from * tile_middle);
  }
  const std::int64_t each = steps * count * size_of(operand);
  return {each * depth * tiles_across(), each * columns};
}

std::int64_t WarpgroupPair::elements_read(const EpilogueRead& r, bool after) const {
  std::int64_t elements = 0;
  if (after) {
    for (std::int64_t d = 0; d < tiles_down(); ++d)
      for (std::int64_t c = 0; c < tiles_across(); ++c) {
        const std::int64_t all = joined.valid() ? inner_rows : rows,
                           down = std::min<std::int64_t>(all - d * tile_rows(), tile_rows()),
                           width = std::min<std::int64_t>(columns - c * tile_columns, tile_columns);
        elements += (r.diagonal ? width + down - 1
                                : (r.by_row != 0 ? down : 1) * (r.by_column == 0 ? 1 : width)) *
                    (joined.valid() && r.by_product.back() != 0 ? rows / inner_rows : 1);
      }
    return elements * count;
  }
  for (std::int64_t d = 0; d < tiles_down(); ++d) {
    const auto [from, to] = turns(d);
    const std::int64_t all = joined.valid() ? inner_rows : rows,
                       down = std::min<std::int64_t>(all - d * tile_rows(), tile_rows());
    const std::int64_t width = std::min(to * tile_middle, middle) - from * tile_middle;
    // Along a diagonal a turn reads as many as there are different ones.
    elements += (r.diagonal ? width + (to - from) * (down - 1)
                            : (r.by_row != 0 ? down : 1) * (r.by_column == 0 ? 1 : width)) *
                (joined.valid() && r.by_product.back() != 0 ? rows / inner_rows : 1);
  }
  // Turns divide chunks, and none is left out of these.
  if (r.end > 0) return elements / middle * r.end * (count / chunk_modulo) * tiles_across();
  return elements * count * tiles_across();
}

double WarpgroupPair::part_masked() const {
  std::int64_t taken = 0, whole = 0;
  for (std::int64_t d = 0; d < tiles_down(); ++d) {
    const auto [from, to] = turns(d);
    const std::int64_t low = d * tile_rows(), high = std::min(low + tile_rows(), rows) - 1;
    const MaskColumns c = columns_whole(edges, low, high, middle);
    taken += to - from;
    whole += std::max<std::int64_t>(0, (c.to == middle ? to : c.to / tile_middle) -
                                           ceil_div(c.from, std::int64_t{tile_middle}));
  }
  return 1 - static_cast<double>(whole) / static_cast<double>(taken);
}

std::int64_t WarpgroupPair::most_turns() const {
  const std::int64_t all = ceil_div(middle, std::int64_t{tile_middle});
  if (edges.empty()) return ceil_div(tiles, grid) * all;
  std::vector<std::int64_t> taken(static_cast<std::size_t>(tiles_down())),
      blocks(static_cast<std::size_t>(grid), 0);
  const bool reversed = last_first();
  for (std::int64_t d = 0; d < tiles_down(); ++d) {
    const auto [from, to] = turns(reversed ? tiles_down() - 1 - d : d);
    taken[static_cast<std::size_t>(d)] = to - from;
  }
  // As PairOrder of tilewright_pairs.h has them.
  const std::int64_t each = section * tiles_down() * tiles_across();
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t first = tile / each * section, n = std::min(section, count - first);
    const std::int64_t down = tile % each / (n * tiles_across()), place = tile % grid;
    const std::int64_t block = tile / grid % 2 == 0 ? place : grid - 1 - place;
    blocks[static_cast<std::size_t>(block)] += taken[static_cast<std::size_t>(down)];
  }
  return std::ranges::max(blocks);
}

std::string describe(const WarpgroupPair& p, const Schedule& s, int kernel) {
  const Workload& w = *s.workload;
  const auto name = [&](TensorId t) { return w.tensor(t).name; };
  const auto box = [](const BoxMap& m) { return formatted("{} x {}", m.box[1], m.box[0]); };
  std::string text =
      formatted("{}: {} blocks of {} warps for {} tiles of {} x {}, {} bytes of shared memory\n",
                s.kernels[static_cast<std::size_t>(kernel)].name, p.grid, p.threads() / 32, p.tiles,
                p.tile_rows(), p.tile_columns, p.shared_bytes);
  text += formatted("tiles\n  {}: shared, {} bytes\n", name(p.left), p.left_bytes());
  text += formatted("  {}: ring of {} stages, {} bytes each\n", name(p.right), p.stages,
                    p.right_bytes());
  text += formatted("  {}: ring of {} stages, {} bytes each\n", name(p.second), p.stages,
                    p.second_bytes());
  for (const PairValue& v : p.values) {
    static constexpr const char* kPlaces[] = {"one value a row", "of the first product's sums",
                                              "of the second product's sums"};
    text += formatted("  {}: registers, {}", name(v.tensor), kPlaces[static_cast<int>(v.place)]);
    if (v.place != PairValue::Place::row) text += formatted(", array {}", v.slot);
    text += v.parts ? "; threads of a row have parts of it until the last turn\n" : "\n";
  }
  text += formatted("registers: about {} a computing thread\n", p.registers);
  text += formatted(
      "barriers: of each stage of {} and of {} one full, one free; of {} one free, which comes "
      "with {}\n",
      name(p.right), name(p.second), name(p.left), name(p.right));
  if (p.joined.valid())
    text += formatted("rows: {} of {} for each of {}, one tile\n", p.inner_rows,
                      w.loop(p.rows_loop).name, w.loop(p.joined).name);
  if (p.chunk.valid())
    text += formatted("chunks: {} of {} rows of {} and {}, by {}\n", p.chunk_modulo, p.chunk_step,
                      name(p.right), name(p.second), w.loop(p.chunk).name);
  const std::string turns = formatted("{} by {}", w.loop(p.middle_loop).name, p.tile_middle);
  if (!p.edges.empty()) {
    std::int64_t taken = 0;
    for (std::int64_t d = 0; d < p.tiles_down(); ++d) taken += p.turns(d).second - p.turns(d).first;
    const auto [rights, seconds] = p.left_out();
    text += formatted(
        "mask: {} of {} turns of a product's tiles have an element that it leaves; the others are "
        "not taken: {} bytes of {} and {} of {} less than the plan says\n",
        taken, p.tiles_down() * ceil_div(p.middle, std::int64_t{p.tile_middle}), rights,
        name(p.right), seconds, name(p.second));
    text += formatted(
        "order: rows from the {} on, of {} of {} products together; every other "
        "round of tiles goes through the blocks backwards\n",
        p.last_first() ? "last" : "first", p.section, p.count);
  }
  text += formatted(
      "copy: 1 warpgroup, one thread of it\n  tiles in turn\n    wait until {}'s place is free\n   "
      " {}\n"
      "      wait until the stage is free; boxes of {} into it, in the first turn of {} too ({})\n"
      "      wait until the stage is free; boxes of {} into it\n",
      name(p.left), turns, box(p.maps[1]), name(p.left), box(p.maps[0]), box(p.maps[2]));
  text += formatted(
      "compute: {} warpgroups, 64 rows each\n  the same tiles\n    {}\n      {} products of 64 x "
      "{} "
      "x 16 by wgmma, both operands shared\n",
      p.groups, turns, (p.depth + 15) / 16, p.tile_middle);
  const std::string second =
      formatted("{} products of 64 x {} x 16 by wgmma, the left operand in registers",
                p.tile_middle / 16, p.tile_columns);
  text += formatted("      of the turn before, at the same time: {}\n", second);
  for (const EpilogueRead& r : p.reads)
    text += formatted("      {} from home, {}\n", name(r.tensor),
                      r.by_column == 0 ? "once a tile of rows"
                                       : "as the threads have the products' results, a turn ahead");
  for (const PairOperator& o : p.between)
    text += "      C." + to_text(w, o.op) + (o.scales ? ", in what reads it\n" : "\n");
  text += formatted("    of the last turn: {}\n", second);
  for (const EpilogueRead& r : p.after_reads)
    text += formatted("    {} from home\n", name(r.tensor));
  for (const PairOperator& o : p.after) text += "    C." + to_text(w, o.op) + "\n";
  for (const TensorId t : p.row_results)
    text += "    " + name(t) + ": one number a row, stored by the first of its four threads\n";
  text += "    results through shared memory, ";
  text += p.boxed ? formatted("boxes of {} by the TMA unit\n", box(p.maps[3]))
                  : formatted("{} elements a store\n", p.vector);
  return text;
}

}  // namespace tilewright::lowering
