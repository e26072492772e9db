// How warps share a block's products and where its tiles lie, of what is counted on the schedule:
// by the rules of blocks' lowering (block_rules.h), about what it decides of symbolic ranges.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/block_work.h"
#include "core/lowering/gpu/product_tiles.h"

namespace tilewright::lowering {
namespace {

/// Registers of a contraction by fused multiply-adds, whose operands' places are kept and moved
/// along: ptxas of nvcc 13.0 gives the six that it makes of ResNet-50 in f32 80 to 101.
constexpr std::int64_t kContraction = 96;

class Forms {
 public:
  Forms(BlockWork& work, const BlockRates& r, int warps, int stages, bool has_room)
      : work_(work), r_(r), warps_(warps), stages_(stages), has_room_(has_room) {}

  Result<BlockForms> run() {
    for (;;) {
      apply();
      choose_warps();
      std::int64_t floats = 0, most = 0;
      std::optional<BufferId> victim;
      for (const auto& [buffer, mine] : sums()) {
        floats += mine;
        if (mine > most) most = mine, victim = buffer;
      }
      f_.threads = 32 * (f_.warps() + (copies() ? kCopyWarps : 0));
      const std::int64_t each = most_registers(f_.threads, r_.registers);
      if (floats > each - kOtherRegisters && victim) {
        banned_.insert(*victim);
        continue;
      }
      f_.registers = registers(floats, each);
      break;
    }
    for (std::size_t i = 0; i < work_.tiles.size(); ++i)
      work_.tiles[i].in_sums = in_sums(BufferId(i));
    for (BufferId b : banned_) f_.tiles.push_back(work_.tiles[b.index()].name);
    return room();
  }

 private:
  template <class F>
  void each_product(const F& f) {
    for (BlockPhase& p : work_.phases)
      for (ProductRun& x : p.products) f(x);
  }
  bool copies() const {
    return std::ranges::any_of(work_.phases, [](const BlockPhase& p) { return !p.copies.empty(); });
  }
  /// What is computed here, of a product or of what reads one, and not said to lie elsewhere.
  bool in_sums(BufferId b) const {
    return b.valid() && in_sums_.contains(b) && !banned_.contains(b);
  }

  /// Of its left operand's tile.
  bool takes_part(const ProductRun& x) const {
    const BlockWork::Tile& t = work_.tiles[x.left.index()];
    return (x.left_across ? x.rows : x.depth) < ceil_div(t.columns, std::int64_t{16});
  }

  /// Again until nothing leaves registers: what cannot stay there takes what is computed with it
  /// along.
  void apply() {
    std::set<BufferId> shared;
    while (!place(shared)) {
    }
    each_product([&](ProductRun& x) {
      const bool made = x.left.valid() && !work_.tiles[x.left.index()].ring;
      x.left_sums = made && in_sums(x.left);
      x.left_tile = made && !x.left_sums;
      x.right_tile = x.right.valid() && !work_.tiles[x.right.index()].ring;
      x.result_tile = !in_sums(x.result);
    });
  }

  /// Puts sums, and what reads them, into registers, but for the sums in `shared`, to which it adds
  /// those that turn out to have no place there. Returns whether there were none.
  bool place(std::set<BufferId>& shared) {
    const std::size_t before = shared.size();
    in_sums_.clear();
    each_product([&](ProductRun& x) {
      const BlockWork::Tile& t = work_.tiles[x.result.index()];
      x.covers = x.points >= t.rows * t.columns;
      if (!x.contraction && x.covers && !shared.contains(x.result)) in_sums_.insert(x.result);
    });
    // Sums in registers are no operand of a product whose own are in shared memory, nor of one that
    // takes a part of them at a time.
    each_product([&](ProductRun& x) {
      const auto leaves = [&](BufferId b) {
        in_sums_.erase(b);
        if (work_.tiles[b.index()].made) shared.insert(b);
      };
      if (x.left.valid() && (!in_sums(x.result) || takes_part(x))) leaves(x.left);
      if (x.right.valid()) leaves(x.right);
    });
    const std::set<BufferId> of_products = in_sums_;
    for (BlockPhase& p : work_.phases)
      for (PointsRun& x : p.points) {
        // What uses a part of a tile finds it in shared memory.
        bool covers = true;
        for (std::size_t i = 0; i < x.touched.size(); ++i) {
          const BlockWork::Tile& t = work_.tiles[x.touched[i].index()];
          covers = covers && (!t.made || x.volumes[i] >= t.rows * t.columns);
        }
        x.in_registers =
            covers && std::ranges::any_of(x.touched, [&](BufferId b) { return in_sums(b); }) &&
            std::ranges::none_of(
                x.touched, [&](BufferId b) { return banned_.contains(b) || shared.contains(b); });
        if (x.in_registers)
          for (BufferId b : x.touched)
            if (work_.tiles[b.index()].made) in_sums_.insert(b);
        if (!x.in_registers)
          for (BufferId b : x.touched)
            if (in_sums(b)) {
              in_sums_.erase(b);
              if (of_products.contains(b)) shared.insert(b);
            }
      }
    return shared.size() == before;
  }

  /// Floats of a thread in the phase that has most, by product's result.
  std::vector<std::pair<BufferId, std::int64_t>> sums() const {
    std::vector<std::pair<BufferId, std::int64_t>> most;
    std::int64_t most_floats = 0;
    for (const BlockPhase& p : work_.phases) {
      std::map<BufferId, std::int64_t> own;
      for (const ProductRun& x : p.products) {
        if (x.result_tile) continue;
        const bool part = x.left_sums && f_.warp_columns > 1;
        std::int64_t& mine = own[x.result];
        mine =
            std::max(mine, ceil_div(x.rows, std::int64_t{f_.warp_rows}) *
                               ceil_div(x.columns, std::int64_t{part ? 1 : f_.warp_columns}) * 4);
      }
      std::int64_t floats = 0;
      for (const auto& [buffer, mine] : own) floats += mine;
      if (floats <= most_floats) continue;
      most_floats = floats;
      most.assign(own.begin(), own.end());
    }
    return most;
  }

  /// About what ptxas gives a thread (kernels of h200-chains.json): sums that are the next
  /// product's operand are rounded beside themselves, values of rows are kept.
  std::int64_t registers(std::int64_t floats, std::int64_t each) const {
    bool chained = false, rows = false, contracts = false;
    for (const BlockPhase& p : work_.phases) {
      for (const ProductRun& x : p.products) {
        chained = chained || x.left_sums;
        contracts = contracts || x.contraction;
      }
      for (const PointsRun& x : p.points) rows = rows || (x.reduces && x.in_registers);
    }
    const std::int64_t all = r_.mma == 0 && floats > 0
                                 ? fma_registers(floats, ceil_div(f_.most_rows, f_.warp_rows))
                             : chained ? 44 + ceil_div(5 * floats, std::int64_t{4})
                                       : 40 + floats;
    const std::int64_t least = contracts && r_.mma == 0 ? kContraction : 0;
    return std::min(each, std::max(least, all + (rows ? 20 : 0)));
  }

  void choose_warps() {
    std::vector<std::int64_t> rows, columns;
    std::vector<ProductBlocks> blocks;
    std::int64_t area = 0;
    bool rows_stay = false;
    f_.most_rows = 1;
    each_product([&](const ProductRun& x) {
      if (x.contraction) {  // by its results, of 16 x 16
        area = std::max(area, x.rows * x.columns / 2 * x.contraction->products);
        return;
      }
      rows.push_back(x.rows), columns.push_back(x.columns / 2);
      blocks.emplace_back(x.rows, x.columns / 2);
      area = std::max(area, x.rows * x.columns / 2);
      f_.most_rows = std::max(f_.most_rows, x.rows);
      rows_stay = rows_stay || x.left_sums;
    });
    for (const BlockPhase& p : work_.phases)
      for (const PointsRun& x : p.points) rows_stay = rows_stay || (x.reduces && x.in_registers);
    const WarpGrid grid = warp_grid(rows, columns, blocks, area, warps_, rows_stay);
    f_.warp_rows = grid.rows, f_.warp_columns = grid.columns;
  }

  std::int64_t bytes(const BlockWork::Tile& t, std::int64_t element, bool blocks) const {
    const std::int64_t rows = blocks ? round_up(t.rows, 16) : t.rows,
                       columns = blocks ? round_up(t.columns, 16) : t.columns;
    return round_up(rows * row_pitch(columns, element, false) * element, kSharedLine);
  }

  Result<BlockForms> room() {
    bool parts = false;
    std::int64_t joined = 0;
    each_product([&](const ProductRun& x) {
      if (x.left_sums && f_.warp_columns > 1)
        parts = true,
        joined = std::max(joined, x.rows * 128 * f_.warp_columns * f_.warp_columns * 4);
    });
    std::int64_t fixed = parts ? joined : 0, rounded = fixed;
    std::vector<std::int64_t> ring(work_.tiles.size(), 0), turns(work_.tiles.size(), 1);
    for (std::size_t i = 0; i < work_.tiles.size(); ++i) {
      const BlockWork::Tile& t = work_.tiles[i];
      if (t.ring) {
        ring[i] = bytes(t, t.element, r_.mma > 0);
        turns[i] = ring_stages(t.again, stages_, t.copies);
      } else if (t.made && !in_sums(BufferId(i))) {
        fixed += bytes(t, 4, false);
        rounded += bytes(t, t.element, false);
      }
    }
    // Rings of one phase lie where another phase has its own.
    const auto total = [&] {
      std::int64_t most = 0;
      for (const BlockPhase& p : work_.phases) {
        std::set<std::size_t> here;
        for (const CopyRun& c : p.copies) here.insert(c.buffer);
        std::int64_t all = fixed + kSharedLine;
        for (std::size_t i = 0; i < ring.size(); ++i)
          if (here.contains(i)) all += ring[i] * turns[i];
        most = std::max(most, all);
      }
      return most;
    };
    const std::int64_t most_shared = r_.shared - kSharedReserved;
    while (total() > most_shared) {
      std::optional<std::size_t> most;
      for (std::size_t i = 0; i < ring.size(); ++i)
        if (turns[i] > 1 && stages_ == 0 &&
            (!most || ring[i] * turns[i] > ring[*most] * turns[*most]))
          most = i;
      // Where there is no room for floats, elements are as the tensor has them.
      if (!most && rounded < fixed) {
        fixed = rounded;
        continue;
      }
      if (!most && has_room_) break;
      if (!most)
        return Reason{formatted("its tiles need {} bytes of shared memory; a block has {}", total(),
                                most_shared),
                      Reason::Shortage{total(), most_shared}};
      --turns[*most];
    }
    f_.shared = std::min(total(), most_shared);
    for (BlockPhase& p : work_.phases)
      for (CopyRun& c : p.copies)
        c.stages = c.buffer < turns.size() ? static_cast<double>(turns[c.buffer]) : 4;
    const auto resident = [&](std::int64_t registers) {
      return std::min({r_.blocks, r_.threads / f_.threads,
                       r_.registers / (f_.threads * round_up(registers, 8)),
                       r_.shared / (f_.shared + kSharedReserved)});
    };
    f_.resident = resident(f_.registers);
    // Of products by fused multiply-adds ptxas' numbers are known to a tenth; in kernels of 16-bit
    // types it takes no more than these (17 kernels of h100-drawn-seconds-priced.json).
    const std::int64_t more = r_.mma > 0 ? 10 : !in_sums_.empty() ? 11 : 12;
    f_.crowded =
        std::max<std::int64_t>(1, resident(ceil_div(more * f_.registers, std::int64_t{10})));
    if (f_.resident < 1) return Reason{"its threads need more registers than an SM has"};
    return f_;
  }

  BlockWork& work_;
  const BlockRates& r_;
  int warps_, stages_;
  bool has_room_;
  BlockForms f_;
  std::set<BufferId> in_sums_, banned_;
};

}  // namespace

Result<BlockForms> block_forms(BlockWork& work, const BlockRates& r, int warps, int stages,
                               bool has_room) {
  return Forms(work, r, warps, stages, has_room).run();
}

}  // namespace tilewright::lowering
