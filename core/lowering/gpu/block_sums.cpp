// Where tiles live: which sums stay in registers, and how warps share them. How the rest lies in
// shared memory: block_layout.cpp.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/product_tiles.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

using Form = BlockTile::Form;
using Split = BlockTile::Split;

constexpr int kMostComputingWarps = 16;
constexpr std::int64_t kOtherRegisters = 72;  // that a thread needs beside its sums, about
constexpr std::int64_t kRegisters = 65536;    // of a multiprocessor
constexpr std::int64_t kSumsAtOnce = 64;      // of a product whose sums live in a tile

int dimension_of(const Access& a, LoopId loop) {
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (a.index[d].plain_loop() == loop) return static_cast<int>(d);
  return -1;
}

/// The loop that indexes a dimension, alone.
std::optional<LoopId> loop_at(const Access& a, int dimension) {
  if (dimension < 0) return std::nullopt;
  return a.index[static_cast<std::size_t>(dimension)].plain_loop();
}

struct WarpGrid {
  int rows = 1, columns = 1;
  int warps() const { return rows * columns; }
};
/// A product's rows and columns, in blocks of 16.
using ProductBlocks = std::pair<std::int64_t, std::int64_t>;
bool divides_all(int warps, std::span<const std::int64_t> blocks) {
  return std::ranges::all_of(blocks, [&](std::int64_t b) { return b % warps == 0; });
}

/// How warps share the rows and columns of tiles that lie in registers and of products, in blocks
/// of
/// 16. The most warps that share all of them evenly; of a number that was asked for (0: none), a
/// divisor. `area`: blocks of the largest product. Unless `rows_stay`, another grid of as many
/// warps where they read fewer fragments of operands: shared memory's rate is what products wait
/// for.
WarpGrid warp_grid(std::span<const std::int64_t> rows, std::span<const std::int64_t> columns,
                   std::span<const ProductBlocks> products, std::int64_t area, int asked,
                   bool rows_stay) {
  const int wanted = asked > 0 ? asked : area >= 32 ? 8 : 4;
  // Where fewer is under half of what is wanted (7, 11, 13 blocks), more than wanted rather than a
  // warp with all.
  const auto largest = [&](int most, std::span<const std::int64_t> blocks, int divides) {
    const auto even = [&](int w) {
      return (asked == 0 || divides % w == 0) && divides_all(w, blocks);
    };
    int fewer = most;
    while (fewer > 1 && !even(fewer)) --fewer;
    if (asked > 0 || 2 * fewer >= most) return fewer;
    for (int w = most + 1; w <= kMostComputingWarps; ++w)
      if (even(w)) return w;
    return fewer;
  };
  if (rows.empty()) return {wanted, 1};
  WarpGrid grid;
  grid.rows = largest(wanted, rows, wanted);
  grid.columns = largest(ceil_div(wanted, grid.rows), columns, wanted / grid.rows);
  if (rows_stay) return grid;
  const auto read = [&](const WarpGrid& g) {
    std::int64_t all = 0;
    for (const auto& [r, c] : products) all += fragments_read(r, c, g.rows, g.columns);
    return all;
  };
  const int warps = grid.warps();
  for (int r = 1; r <= warps; ++r)
    if (const WarpGrid other{r, warps / r}; other.warps() == warps && divides_all(r, rows) &&
                                            divides_all(other.columns, columns) &&
                                            read(other) < read(grid))
      grid = other;
  return grid;
}

}  // namespace

std::vector<NodeId> last_nodes_below(const ScheduledKernel& k) {
  std::vector<NodeId> last(k.nodes.size());
  for (std::size_t i = k.nodes.size(); i-- > 0;) {
    last[i] = std::max(last[i].valid() ? last[i] : NodeId(i), NodeId(i));
    if (const NodeId p = k.nodes[i].parent; p.valid())
      last[p.index()] = std::max(last[p.index()].valid() ? last[p.index()] : p, last[i]);
  }
  return last;
}

void BlockLowering::choose_forms() {
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    BlockTile& p = program_.tiles[i];
    const Buffer& b = k_.buffers[i];
    p.rows = 1;
    for (std::size_t d = 0; d + 1 < p.most.size(); ++d) p.rows *= p.most[d];
    p.columns = p.most.empty() ? 1 : p.most.back();
    p.stride.assign(p.most.size(), 1);
    for (std::size_t d = p.most.size(); d-- > 2;) p.stride[d - 2] = p.stride[d - 1] * p.most[d - 1];
    p.plain = b.role == BufferRole::output && !b.sliding && b.store.valid() && b.fixed_at.valid() &&
              !chained(BufferId(i)) && fresh_at_fix_[i] == "true";
    for (std::size_t n = 0; n < k_.nodes.size() && p.plain; ++n) {
      for (const OutputUse& w : k_.nodes[n].writes)
        if (w.buffer == BufferId(i) && (b.store < NodeId(n) || k_.nodes[n].once)) p.plain = false;
      if (k_.nodes[n].flush == BufferId(i) && NodeId(n) < b.store) p.plain = false;
    }
    if (p.plain) p.own = false, p.units = 1;
  }
  std::erase_if(program_.products, [&](const auto& of) { return !rows_are_neighbours(of.first); });
  for (std::size_t i = 0; i < program_.tiles.size(); ++i)
    if (!choices_.tight && program_.tiles[i].form == Form::loaded && !k_.buffers[i].sliding &&
        !program_.tiles[i].own && !k_.buffers[i].outer.valid() && made_before_all_wait(BufferId(i)))
      program_.tiles[i].form = Form::ring;
  choose_roles();
  std::set<BufferId> banned;
  for (;;) {
    assign_forms(banned);
    if (const auto bad = misused()) {
      banned.insert(*bad);
      continue;
    }
    choose_warps();
    const std::vector<BufferId> together = most_sums_alive();
    std::int64_t floats = 0, largest = 0;
    std::optional<BufferId> victim;
    for (BufferId b : together) {
      const std::int64_t mine = sums_rows(b) * sums_columns(b) * 4;
      floats += mine;
      if (mine > largest) largest = mine, victim = b;
    }
    const std::int64_t each =
        gives_registers()
            ? register_shares(program_.threads(), program_.copying_threads(), copying_registers(),
                              1, kRegisters)
                  .computing
            : most_registers(program_.threads() + program_.copying_threads(), kRegisters);
    sums_alive_ = floats;
    part_floats_ = std::min(kSumsAtOnce, each - kOtherRegisters - floats);
    if (!victim || floats <= each - kOtherRegisters) return;
    banned.insert(*victim);
    at(*victim).reason = "its sums would need too many registers";
  }
}

/// Whether the copying warps give registers to the computing ones: both are whole warpgroups, and
/// the kernel is one product of floats, whose copies wait in no registers.
bool BlockLowering::gives_registers() const {
  const auto warpgroups = [](int threads) { return threads > 0 && threads % 128 == 0; };
  const auto sums = [&](OpId op) { return !workload_.reduction_loops(op).empty(); };
  return choices_.gives_registers && micro_kernel().f32 && !k_.co_resident &&
         warpgroups(program_.threads()) && warpgroups(program_.copying_threads()) &&
         program_.products.size() == 1 && std::ranges::count_if(k_.ops, sums) == 1 &&
         std::ranges::all_of(program_.tiles, [&](const BlockTile& t) {
           return size_of(workload_.tensor(buffer(t.buffer).tensor).dtype) == 4;
         });
}

/// Registers that a copying thread has left: of pieces of 16 bytes, and of smaller ones. ptxas of
/// nvcc 13.0 spills nothing of either.
std::int64_t BlockLowering::copying_registers() const {
  constexpr std::int64_t kOfSixteen = 24, kOfPieces = 40;
  const auto sixteen = [&](const BlockTile& t) {
    const TensorId id = buffer(t.buffer).tensor;
    return t.form != Form::ring ||
           rows_begin_at(id, {.begins = 4}, 16 / size_of(workload_.tensor(id).dtype));
  };
  return std::ranges::all_of(program_.tiles, sixteen) ? kOfSixteen : kOfPieces;
}

/// As many blocks on a multiprocessor as registers and shared memory suffice for.
void BlockLowering::share_registers() {
  program_.registers = {};
  if (!gives_registers() || sums_alive_ == 0) return;
  // With fewer beside its sums ptxas spills: as few of 64 x 64 to 128 x 128 by four warps. Of a
  // right operand whose rows run along the depth a thread has more.
  const bool along =
      std::ranges::any_of(program_.tiles, [](const BlockTile& t) { return t.right_along; });
  std::int64_t needed = sums_alive_ + kOtherRegisters + (along && sums_alive_ > 32 ? 16 : 0);
  if (micro_kernel().matrix)
    for (const BlockTile& t : program_.tiles)
      if (t.form == Form::sums)
        needed = std::max(needed, tf32_registers(sums_alive_, sums_rows(t.buffer)));
  const std::int64_t threads = program_.threads(), copying = program_.copying_threads();
  const std::int64_t shared =
      (room() + kSharedReserved) / (program_.shared_bytes + kSharedReserved);
  for (std::int64_t blocks = std::clamp<std::int64_t>(shared, 1, 4); blocks > 0; --blocks) {
    const RegisterShares shares =
        register_shares(threads, copying, copying_registers(), blocks, kRegisters);
    if (shares.computing < needed && blocks > 1) continue;
    program_.registers = shares;
    return;
  }
}

/// The sums in registers that are alive at the same time and take the most of them. Sums are alive
/// from the first node that makes them to the last that uses them, and in all of a loop that they
/// outlast; what an element-wise operator reads for the last time gives its registers to the
/// result.
std::vector<BufferId> BlockLowering::most_sums_alive() const {
  struct Life {
    NodeId first, last;
  };
  const NodeId end(k_.nodes.size());
  std::vector<Life> lives(program_.tiles.size(), {end, NodeId(0)});
  const auto touch = [&](BufferId b, NodeId n) {
    if (!b.valid() || tile(b).form != Form::sums) return;
    Life& life = lives[b.index()];
    life = {std::min(life.first, n), std::max(life.last, n)};
    const NodeId fixed = buffer(b).fixed_at;
    NodeId outermost;
    for (NodeId l = k_.node(n).parent; l.valid() && l != fixed; l = k_.node(l).parent)
      if (k_.node(l).kind == NodeKind::loop && k_.node(l).binding != Binding::grid &&
          k_.node(l).max_trips > 1)
        outermost = l;
    if (outermost.valid())
      life = {std::min(life.first, outermost), std::max(life.last, last_below_[outermost.index()])};
  };
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind == NodeKind::store) touch(n.buffer, NodeId(i));
    for (BufferId f = n.flush; f.valid(); f = buffer(f).outer) touch(f, NodeId(i));
    for (const InputUse& use : n.reads) touch(use.buffer, NodeId(i));
    for (const OutputUse& use : n.writes) touch(use.buffer, NodeId(i));
  }
  for (std::size_t i = 0; i < program_.tiles.size(); ++i)
    if (program_.tiles[i].form == Form::sums && is_written(BufferId(i)) && !program_.tiles[i].plain)
      lives[i].last = end;  // written where another takes its place, or at the end
  std::vector<BufferId> most;
  std::int64_t most_floats = 0;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    if (k_.nodes[i].kind != NodeKind::compute) continue;
    std::vector<BufferId> here;
    std::int64_t floats = 0;
    for (std::size_t b = 0; b < program_.tiles.size(); ++b) {
      if (program_.tiles[b].form != Form::sums || NodeId(i) < lives[b].first ||
          lives[b].last < NodeId(i) ||
          (lives[b].last == NodeId(i) && !program_.products.contains(NodeId(i)) &&
           std::ranges::none_of(k_.nodes[i].writes,
                                [&](const OutputUse& w) { return w.buffer == BufferId(b); })))
        continue;
      here.emplace_back(b);
      floats += sums_rows(BufferId(b)) * sums_columns(BufferId(b)) * 4;
    }
    if (floats > most_floats) most_floats = floats, most = std::move(here);
  }
  return most;
}

/// Whether all that a product reads and writes has its rows side by side in the largest tile of its
/// buffer: a tile of several dimensions, another time in the kernel, puts rows further apart.
bool BlockLowering::rows_are_neighbours(NodeId product) const {
  const ScheduleNode& n = k_.node(product);
  const Operator& op = workload_.op(n.op);
  const auto of = [&](const Access& a, BufferId b) {
    if (!b.valid()) return true;
    const std::vector<std::int64_t>& most = mosts_.at(product);
    const BlockTile& p = tile(b);
    for (std::size_t d = 0; d + 1 < a.index.size(); ++d)
      if (p.stride[d] > 1 && std::ranges::any_of(a.index[d].terms, [&](const Term& t) {
            return most[static_cast<std::size_t>(workload_.local_index(n.op, t.loop))] > 1;
          }))
        return false;
    return true;
  };
  for (const OutputUse& w : n.writes)
    if (!of(op.outputs[static_cast<std::size_t>(w.output)].target, w.buffer)) return false;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (!of(op.inputs[i], buffer_of_input(n, static_cast<int>(i)))) return false;
  return true;
}

/// Whether every block has written the tensor, and waited for all others, before it is loaded: then
/// it can be copied ahead like an input.
bool BlockLowering::made_before_all_wait(BufferId b) const {
  const TensorId t = buffer(b).tensor;
  NodeId last_write, first_load;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    const bool writes =
        (n.kind == NodeKind::store && n.tensor == t) ||
        std::ranges::any_of(n.writes, [&](const OutputUse& w) { return w.tensor == t; });
    for (const OutputUse& w : n.writes)
      if (w.tensor == t && !tile(w.buffer).plain) return false;
    if (writes) last_write = NodeId(i);
    if (n.kind == NodeKind::load && n.buffer == b && !first_load.valid()) first_load = NodeId(i);
  }
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::sync && k_.nodes[i].scope == Unit::machine &&
        last_write < NodeId(i) && NodeId(i) < first_load)
      return true;
  return false;
}

/// Optimistic: what could stay in registers, does; misused() then says what cannot.
void BlockLowering::assign_forms(const std::set<BufferId>& banned) {
  const bool registers = choices_.registers && !f64_ && micro_kernel().fragments;
  for (std::size_t i = 0; i < program_.tiles.size(); ++i) {
    if (k_.buffers[i].role == BufferRole::input) continue;
    program_.tiles[i].form = Form::computed;
    program_.tiles[i].row_dim = program_.tiles[i].column_dim = -1;
  }
  if (!registers) return;
  for (OpId op : k_.ops) {
    const Operator& o = workload_.op(op);
    std::vector<NodeId> nodes;
    for (std::size_t n = 0; n < k_.nodes.size(); ++n)
      if (k_.nodes[n].kind == NodeKind::compute && k_.nodes[n].op == op) nodes.emplace_back(n);
    if (nodes.size() != 1 || workload_.gathers(op)) continue;
    const ScheduleNode& n = k_.node(nodes[0]);
    const auto product = program_.products.find(nodes[0]);
    std::optional<LoopId> row, column;
    if (product != program_.products.end()) {
      row = o.loops[static_cast<std::size_t>(product->second.front().rows)];
      column = o.loops[static_cast<std::size_t>(product->second.front().columns)];
    } else {
      for (std::size_t i = 0; i < o.inputs.size() && !column; ++i) {
        const BlockTile& p = tile(buffer_of_input(n, static_cast<int>(i)));
        if (!p.in_registers()) continue;
        row = loop_at(o.inputs[i], p.row_dim);
        if (p.form == Form::sums) column = loop_at(o.inputs[i], p.column_dim);
      }
      if (!row) continue;
      for (const OutputUse& w : n.writes) {
        const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
        const auto last = a.index.empty() ? std::nullopt : a.index.back().plain_loop();
        if (!column && last && last != row) column = last;
      }
    }
    bool only_these = true;
    const std::vector<std::int64_t>& most = mosts_.at(nodes[0]);
    for (std::size_t l = 0; l < o.loops.size(); ++l) {
      const bool depth = product != program_.products.end() &&
                         static_cast<int>(l) == product->second.front().depth;
      if (o.loops[l] != row && o.loops[l] != column && !depth && most[l] > 1) only_these = false;
    }
    if (!only_these) continue;
    for (const OutputUse& w : n.writes) {
      BlockTile& p = at(w.buffer);
      const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
      if (banned.contains(w.buffer) || !p.covered || buffer(w.buffer).sliding || p.own ||
          chained(w.buffer))
        continue;
      p.row_dim = dimension_of(a, *row);
      p.column_dim = column ? dimension_of(a, *column) : -1;
      if (p.row_dim < 0) continue;
      if (p.column_dim >= 0 && p.column_dim + 1 != static_cast<int>(a.index.size())) continue;
      p.form = p.column_dim >= 0 ? Form::sums : Form::rows;
    }
  }
}

bool BlockLowering::fragment_op(NodeId compute) const {
  return std::ranges::any_of(k_.node(compute).writes,
                             [&](const OutputUse& w) { return tile(w.buffer).in_registers(); });
}

/// A tile in registers that some compute cannot use there, if there is one.
std::optional<BufferId> BlockLowering::misused() const {
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::compute) continue;
    const Operator& o = workload_.op(n.op);
    const bool fragments = fragment_op(NodeId(i));
    std::optional<LoopId> row, column;
    for (const OutputUse& w : n.writes) {
      const BlockTile& p = tile(w.buffer);
      const Access& a = o.outputs[static_cast<std::size_t>(w.output)].target;
      if (fragments && !p.in_registers()) {
        for (const OutputUse& other : n.writes)
          if (tile(other.buffer).in_registers()) return other.buffer;
      }
      if (!p.in_registers()) continue;
      row = loop_at(a, p.row_dim);
      if (p.form == Form::sums) column = loop_at(a, p.column_dim);
    }
    const auto product = program_.products.find(NodeId(i));
    for (std::size_t x = 0; x < o.inputs.size(); ++x) {
      const BufferId b = buffer_of_input(n, static_cast<int>(x));
      if (!b.valid()) continue;
      const BlockTile& p = tile(b);
      if (!p.in_registers()) continue;
      if (!fragments) return b;
      const auto its_row = loop_at(o.inputs[x], p.row_dim);
      const auto its_column = loop_at(o.inputs[x], p.column_dim);
      if (its_row != row) return b;
      if (product != program_.products.end()) {
        const int at = static_cast<int>(x);
        bool operand = false;
        for (const BlockProduct& one : product->second) {
          const LoopId depth = o.loops[static_cast<std::size_t>(one.depth)];
          if (at == one.right) return b;
          if (at == one.left && (p.form != Form::sums || its_column != depth)) return b;
          operand = operand || at == one.left;
        }
        if (!operand && p.form != Form::rows) return b;
        continue;
      }
      if (p.form == Form::sums && !column) column = its_column;  // a reduction over it
      if (p.form == Form::sums && its_column != column) return b;
    }
  }
  return std::nullopt;
}

void BlockLowering::choose_warps() {
  std::vector<std::int64_t> rows, columns;  // in blocks of 16
  std::vector<ProductBlocks> blocks;
  std::int64_t area = 0;
  // Where rows are reduced, or sums are the next product's operand, a warp keeps as much of its
  // rows as it can.
  bool rows_stay = false;
  for (const auto& [node, products] : program_.products) {
    const auto& most = mosts_.at(node);
    blocks.emplace_back(ceil_div(most[static_cast<std::size_t>(products.front().rows)], 16),
                        ceil_div(most[static_cast<std::size_t>(products.front().columns)], 16));
    rows.push_back(blocks.back().first);
    columns.push_back(blocks.back().second);
    area = std::max(area, rows.back() * columns.back());
    for (const BlockProduct& p : products)
      rows_stay = rows_stay || tile(buffer_of_input(k_.node(node), p.left)).form == Form::sums;
  }
  for (const auto& [node, points] : contracted_)
    if (!program_.products.contains(node)) area = std::max(area, points);
  for (const BlockTile& p : program_.tiles) {
    if (!p.in_registers()) continue;
    rows.push_back(ceil_div(p.most[static_cast<std::size_t>(p.row_dim)], 16));
    if (p.form == Form::sums) columns.push_back(ceil_div(p.columns, 16));
    rows_stay = rows_stay || p.form == Form::rows;
  }
  const int asked = choices_.warps > 0 ? choices_.warps : k_.launch.warps.value_or(0);
  const WarpGrid grid = warp_grid(rows, columns, blocks, area, asked, rows_stay);
  program_.warp_rows = grid.rows;
  program_.warp_columns = grid.columns;
  for (OpId op : k_.ops)
    for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
      const ScheduleNode& n = k_.nodes[i];
      if (n.kind != NodeKind::compute || n.op != op) continue;
      const auto product = program_.products.find(NodeId(i));
      for (std::size_t w = 0; w < n.writes.size(); ++w) {
        BlockTile& p = at(n.writes[w].buffer);
        if (p.form != Form::sums) continue;
        p.split = program_.warp_columns == 1 ? Split::whole : Split::columns;
        if (program_.warp_columns > 1 && product != program_.products.end() &&
            tile(buffer_of_input(n, product->second[w].left)).form == Form::sums)
          p.split = Split::partial;
      }
    }
}

/// Floats that the warps of a compute on rows in registers exchange: its reductions' parts, or what
/// comes back from home.
std::int64_t BlockLowering::rows_exchanged(NodeId compute) const {
  const ScheduleNode& n = k_.node(compute);
  const Operator& op = workload_.op(n.op);
  std::optional<LoopId> column;
  std::int64_t rows = 0;
  bool sums = false, comes_back = false, reduces = false;
  for (const OutputUse& w : n.writes) {
    const BlockTile& p = tile(w.buffer);
    const Output& out = op.outputs[static_cast<std::size_t>(w.output)];
    rows = sums_rows(w.buffer);
    if (p.form == Form::sums) sums = true, column = loop_at(out.target, p.column_dim);
    if (p.form != Form::rows) continue;
    reduces = reduces || !names_outputs(out.value);
    const Buffer& b = buffer(w.buffer);
    comes_back = comes_back || (is_written(w.buffer) && !p.plain && !b.outer.valid() &&
                                !p.at_once && b.role == BufferRole::output && !b.atomic);
  }
  for (std::size_t x = 0; x < op.inputs.size() && !sums; ++x) {
    const BufferId b = buffer_of_input(n, static_cast<int>(x));
    if (!b.valid() || tile(b).form != Form::sums) continue;
    if (!column) column = loop_at(op.inputs[x], tile(b).column_dim), rows = sums_rows(b);
  }
  reduces = reduces && column && workload_.is_reduction(n.op, *column);
  return reduces || comes_back ? rows * 16 * program_.warp_rows * program_.warp_columns : 0;
}

/// Floats that warps exchange at the most, of tiles in registers.
std::int64_t BlockLowering::exchanged() const {
  std::int64_t most = 0;
  for (const BlockTile& p : program_.tiles)
    if (p.form == Form::sums && p.split == Split::partial)
      most = std::max(most, sums_rows(p.buffer) * 128 * program_.warp_columns *
                                program_.warp_columns * program_.warp_rows);
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::compute && fragment_op(NodeId(i)) &&
        !program_.products.contains(NodeId(i)))
      most = std::max(most, rows_exchanged(NodeId(i)));
  return most;
}

bool BlockLowering::is_operand(BufferId b) const {
  return std::ranges::any_of(program_.products, [&](const auto& products) {
    const ScheduleNode& n = k_.node(products.first);
    return std::ranges::any_of(products.second, [&](const BlockProduct& p) {
      return buffer_of_input(n, p.left) == b || buffer_of_input(n, p.right) == b;
    });
  });
}

bool BlockLowering::read_by_elements(BufferId b) const {
  return !is_operand(b) && std::ranges::any_of(contracted_, [&](const auto& of) {
    return of.second > 0 && std::ranges::any_of(k_.node(of.first).reads, [&](const InputUse& use) {
             return use.buffer == b;
           });
  });
}

std::int64_t BlockLowering::sums_rows(BufferId b) const {
  const BlockTile& p = tile(b);
  return ceil_div(p.most[static_cast<std::size_t>(p.row_dim)], 16) / program_.warp_rows;
}

std::int64_t BlockLowering::sums_columns(BufferId b) const {
  const BlockTile& p = tile(b);
  return ceil_div(p.columns, 16) * 2 / (p.split == Split::columns ? program_.warp_columns : 1);
}

}  // namespace tilewright::lowering
