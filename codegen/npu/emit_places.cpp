// Where tiles lie: a memory, a layout, an address and copies for every buffer of the schedule.
#include <algorithm>
#include <cstdlib>

#include "codegen/npu/emitter.h"
#include "core/workload/expr.h"

namespace tilewright::npu {
namespace {

constexpr std::int64_t kMostScratch = 64 << 10;  // bytes of UB: more makes no instruction longer
constexpr std::int64_t kMostSlice = 32 << 10;    // bytes of sums that pass through UB at a time

std::int64_t grain(Memory m) { return std::max<std::int64_t>(alignment_of(m), kBlock); }

}  // namespace

Matrices matrices_of(const Box& box, int rows) {
  Matrices m;
  for (int d = 0; d < box.rank(); ++d) {
    const std::int64_t size = box[d].size();
    if (d + 1 == box.rank())
      m.columns = size;
    else if (d == rows)
      m.rows = size;
    else
      m.count *= size;
  }
  return m;
}

Box matrix_of(const Box& box, std::int64_t index, int rows) {
  Box one = box;
  for (int d = box.rank() - 2; d >= 0; --d) {
    if (d == rows) continue;
    one[d].lo = box[d].lo + index % box[d].size();
    one[d].hi = one[d].lo + 1;
    index /= box[d].size();
  }
  return one;
}

/// Whether the buffer's tiles come from, or go to, another buffer or home.
bool KernelEmitter::moves(BufferId b) const {
  const tilewright::Buffer& own = buffer(b);
  return own.role != BufferRole::intermediate || own.leaves ||
         std::ranges::any_of(k_.buffers, [&](const tilewright::Buffer& o) { return o.outer == b; });
}

/// Whether the compute's sums are added up in several turns of a loop around it.
bool KernelEmitter::in_turns(const ScheduleNode& n) const {
  const Operator& op = w_.op(n.op);
  for (NodeId at = n.parent; at.valid(); at = k_.node(at).parent) {
    const ScheduleNode& loop = k_.node(at);
    if (loop.kind == NodeKind::loop && loop.max_trips > 1 &&
        std::ranges::any_of(loop.cuts, [&](const OpLoop& c) {
          return c.op == n.op && w_.is_reduction(n.op, op.loops[static_cast<std::size_t>(c.local)]);
        }))
      return true;
  }
  return false;
}

/// A tile of running sums: in f32, whatever its tensor is.
bool KernelEmitter::widened(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  return p.memory == Memory::ub && p.type != w_.tensor(buffer(b).tensor).dtype;
}

void KernelEmitter::choose_places() {
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
    const BufferId b(i);
    const tilewright::Buffer& own = buffer(b);
    const std::string& level = s_.machine->level(own.level).name;
    const tilewright::Tensor& tensor = w_.tensor(own.tensor);
    TilePlace p;
    bool found = false;
    for (Memory m : {Memory::l1, Memory::ub, Memory::l0a, Memory::l0b, Memory::l0c})
      if (level_of(m) == level) p.memory = m, found = true;
    if (!found)
      throw Refused{tensor.name + " is at " + level +
                    ", where no instruction works on it: L1, UB, L0A, L0B or L0C"};
    if (tensor.dtype == DType::f64 || (tensor.dtype != DType::f16 && p.memory != Memory::ub))
      throw Refused{tensor.name + " at " + level + " is " + std::string(name_of(tensor.dtype)) +
                    ": the cube multiplies f16, the vector unit computes in f32, and no unit of a "
                    "core in f64"};
    p.type = tensor.dtype;
    switch (p.memory) {
      case Memory::l1:
        p.layout = Layout::Nz;
        break;
      case Memory::l0a:
        p.layout = Layout::Zz;
        break;
      case Memory::l0b:
        p.layout = Layout::Zn;
        break;
      case Memory::l0c:
        p.layout = Layout::Nz;
        p.type = DType::f32;
        break;
      default:
        p.layout = Layout::nd;
        // Nothing but the vector unit sees it. Integers are rounded as they are made.
        if (!moves(b) && tensor.dtype != DType::i8 && tensor.dtype != DType::i32)
          p.type = DType::f32;
    }
    if (p.memory != Memory::ub && tensor.shape.size() < 2)
      throw Refused{tensor.name + " is not a matrix: its place is UB"};
    p.copies = own.copies;
    p.name = names_.fresh(tensor.name + "_" + level);
    places_.push_back(std::move(p));
  }
  for (const ScheduleNode& n : k_.nodes)
    if (n.kind == NodeKind::loop) {
      const std::string& loop = w_.loop(n.loop).name;
      if (!counters_.contains(loop)) counters_[loop] = names_.fresh("i_" + loop);
    }
  place_operands();
}

/// A product of which nothing is in UB, or of which the sums are not: the vector unit has it where
/// the plan has all of it there.
bool KernelEmitter::on_cube(const ScheduleNode& n) const {
  const auto in_ub = [&](BufferId b) { return places_[b.index()].memory == Memory::ub; };
  return w_.is_contraction(n.op) && !(std::ranges::all_of(n.reads, in_ub, &InputUse::buffer) &&
                                      std::ranges::all_of(n.writes, in_ub, &OutputUse::buffer));
}

Matrices KernelEmitter::matrices_in(BufferId b, const Box& box) const {
  return places_[b.index()].layout == Layout::nd ? matrices_of(box)
                                                 : matrices_of(box, rows_of(buffer(b).tensor));
}

/// Products read L0A and L0B and add up in L0C; the vector unit has UB.
void KernelEmitter::place_operands() {
  for (const tilewright::Tensor& t : w_.tensors())
    rows_.push_back(static_cast<int>(t.shape.size()) - 2);
  std::ranges::for_each(k_.nodes, [&](const ScheduleNode& n) { place_product(n); });
  for (const ScheduleNode& n : k_.nodes) {
    if (n.kind != NodeKind::compute) continue;
    const std::string& op = w_.op(n.op).name;
    const bool product = on_cube(n);
    uses_vector_ |= !product;
    const auto demand = [&](BufferId b, Memory m) {
      const TilePlace& p = places_[b.index()];
      if (p.memory != m)
        throw Refused{op + " uses " + tensor_name(buffer(b).tensor) + " at " +
                      std::string(name_of(p.memory)) + "; its place is " + std::string(name_of(m)) +
                      (m == Memory::ub ? "" : " (pin it there, or load it to there)")};
    };
    if (!product) {
      for (const InputUse& u : n.reads)
        if (u.buffer.valid()) demand(u.buffer, Memory::ub);  // a gather reads home
      for (const OutputUse& u : n.writes) {
        demand(u.buffer, Memory::ub);
        const Combine c = w_.op(n.op).outputs[static_cast<std::size_t>(u.output)].combine;
        // Rounded when they are complete. The largest and the least are rounded alike before.
        if ((c == Combine::sum || c == Combine::product) && in_turns(n))
          places_[u.buffer.index()].type = DType::f32;
      }
      widen_tiles(n);
      moves_elements_ |= by_elements(n);
      continue;
    }
    const Product& p = products_.at(n.op.value);
    const BufferId left = codegen::buffer_of_input(n, p.left);
    const BufferId right = codegen::buffer_of_input(n, p.right);
    demand(left, Memory::l0a);
    demand(right, Memory::l0b);
    demand(n.writes.front().buffer, Memory::l0c);
    places_[left.index()].transposed = p.left_transposed;
    places_[right.index()].transposed = p.right_transposed;
  }
}

/// Tiles of what vector instructions only cast are in f32 where they cannot be cast as they lie:
/// they are cast on their way. Not what is an index, nor results that are rounded to whole numbers.
void KernelEmitter::widen_tiles(const ScheduleNode& n) {
  const Operator& op = w_.op(n.op);
  const SlabLoops loops = slab_loops(n.op);
  // A copy and a cast a matrix: few elements of one the scalar unit moves as fast.
  constexpr std::int64_t kWorthACopy = 64;
  const auto elements = [&](const Access& a) {
    std::int64_t all = 1;
    for (std::size_t d = a.index.size() < 2 ? 0 : a.index.size() - 2; d < a.index.size(); ++d) {
      std::int64_t size = 1;
      for (const Term& t : a.index[d].terms)
        size += std::abs(t.coefficient) * (tile_size(n.op, t.loop) - 1);
      all *= std::min(size, w_.tensor(a.tensor).shape[d]);
    }
    return all;
  };
  const auto widen = [&](const Access& a, BufferId b) {
    const bool may_be_cast = spread_of(a, loops) || along_rows(a, loops);
    if (!in_lines(b) && (widens_ || !may_be_cast) && elements(a) >= kWorthACopy)
      places_[b.index()].type = DType::f32;
  };
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
    const bool is_index = std::ranges::any_of(op.inputs, [&](const Access& a) {
      return std::ranges::find(a.index, i, &Affine::gathered) != a.index.end();
    });
    const BufferId b = codegen::buffer_of_input(n, i);
    if (b.valid() && !is_index) widen(op.inputs[static_cast<std::size_t>(i)], b);
  }
  for (const OutputUse& u : n.writes)
    if (!is_integer(places_[u.buffer.index()].type))
      widen(op.outputs[static_cast<std::size_t>(u.output)].target, u.buffer);
}

/// Which matrices a product on the cube multiplies.
void KernelEmitter::place_product(const ScheduleNode& n) {
  if (n.kind != NodeKind::compute || !on_cube(n)) return;
  const Operator& op = w_.op(n.op);
  const Product& p = products_.insert_or_assign(n.op.value, product_of(n)).first->second;
  std::vector<TensorId> placed;
  const auto place = [&](const Access& a, LoopId rows, LoopId others) {
    int at = 0;
    for (int d = 0; d + 1 < static_cast<int>(a.index.size()); ++d) {
      const auto loop = a.index[static_cast<std::size_t>(d)].plain_loop();
      if (loop == rows || loop == others) at = d;
    }
    const auto is = [&](const Access& x) { return x.tensor == a.tensor; };
    for (const auto& [id, _] : products_) {
      const Operator& its = w_.op(OpId(id));
      const bool uses = id == n.op.value
                            ? std::ranges::find(placed, a.tensor) != placed.end()
                            : std::ranges::any_of(its.inputs, is) ||
                                  std::ranges::any_of(its.outputs, is, &Output::target);
      if (uses && rows_of(a.tensor) != at)
        throw Refused{op.name + " and " + its.name + " multiply different matrices of " +
                      w_.tensor(a.tensor).name};
    }
    rows_[a.tensor.index()] = at;
    placed.push_back(a.tensor);
  };
  place(op.outputs.front().target, p.rows, p.columns);
  place(op.inputs[static_cast<std::size_t>(p.left)], p.rows, p.depth);
  place(op.inputs[static_cast<std::size_t>(p.right)], p.columns, p.depth);
}

/// Elements from one row of a tile to the next; of fractals, from one column (Nz) or row (Zz, Zn)
/// of them to the next, over 16.
std::int64_t KernelEmitter::pitch(BufferId b, const Matrices& m) const {
  const TilePlace& p = places_[b.index()];
  switch (p.layout) {
    case Layout::nd:
      return round_up(m.columns, kBlock / size_of(p.type));
    case Layout::Nz:
      return round_up(m.rows, kFractal);
    default:
      return round_up(p.transposed ? m.rows : m.columns, kFractal);
  }
}

std::int64_t KernelEmitter::matrix_elements(BufferId b, const Matrices& m) const {
  if (places_[b.index()].layout == Layout::nd) return m.rows * pitch(b, m);
  return round_up(m.rows, kFractal) * round_up(m.columns, kFractal);
}

std::int64_t KernelEmitter::copy_bytes(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  return p.elements * size_of(p.type);
}

/// Walks blocks without emitting: the largest tile of every buffer, and how many it opens.
void KernelEmitter::measure() {
  measuring_ = true;
  most_opens_.assign(places_.size(), 0);
  walk_alike(measured_, [&](std::int64_t block) {
    begin_block();
    walk(block);
    for (std::size_t i = 0; i < places_.size(); ++i)
      most_opens_[i] = std::max(most_opens_[i], opens_[i]);
  });
  measuring_ = false;
  for (TilePlace& p : places_)
    p.elements = round_up(p.elements * size_of(p.type), grain(p.memory)) / size_of(p.type);
}

/// Room for what passes through a memory without being kept there by the plan.
void KernelEmitter::place_transits(Room& used) {
  std::int64_t fractals = 0;  // the largest operand that comes to L0 from home
  bool slices = false;        // sums that leave for L1 or home
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Memory outer = buffer(BufferId(i)).outer.valid()
                             ? places_[buffer(BufferId(i)).outer.index()].memory
                             : Memory::gm;
    const Memory own = places_[i].memory;
    if ((own == Memory::l0a || own == Memory::l0b) && outer != Memory::l1)
      fractals = std::max(fractals, copy_bytes(BufferId(i)));
    slices |= own == Memory::l0c && outer != Memory::ub && moves(BufferId(i));
    slices |= widened(BufferId(i)) && slice_bytes_ > 0;
  }
  const auto room = [&](Memory m) { return capacity(m) - used[static_cast<std::size_t>(m)]; };
  const auto take = [&](Memory m, std::int64_t bytes) {
    used[static_cast<std::size_t>(m)] += bytes;
  };
  if (fractals > 0) {
    l1_transit_ = Transit{.memory = Memory::l1, .bytes = fractals};
    take(Memory::l1, 2 * fractals);
  }
  if (uses_vector_) {
    scratch_bytes_ =
        std::max<std::int64_t>(0, std::min(kMostScratch, room(Memory::ub) / 2) / kVector * kVector);
    take(Memory::ub, scratch_bytes_);
  }
  if (slices) {
    const std::int64_t place = std::min({slice_bytes_, room(Memory::ub) / 2 / kBlock * kBlock,
                                         std::max(kMostSlice, widest_slice_)});
    if (place < widest_slice_)
      throw Refused{"UB has no room for two slices of sums on their way out (" +
                    std::to_string(2 * widest_slice_) + " bytes)"};
    ub_transit_ = Transit{.memory = Memory::ub, .bytes = place};
    take(Memory::ub, 2 * place);
  }
}

/// More copies of tiles that several are opened of in a block, inner memories first.
void KernelEmitter::add_copies(Room& used) {
  for (Memory m : {Memory::l0a, Memory::l0b, Memory::l0c, Memory::l1, Memory::ub})
    for (std::size_t i = 0; i < places_.size(); ++i) {
      TilePlace& p = places_[i];
      if (p.memory != m || most_opens_[i] < 2 || (m == Memory::ub && !moves(BufferId(i)))) continue;
      const std::int64_t bytes = copy_bytes(BufferId(i));
      auto& at = used[static_cast<std::size_t>(m)];
      while (p.copies < options_.copies && at + bytes <= capacity(m)) ++p.copies, at += bytes;
    }
}

void KernelEmitter::lay_out() {
  Room used{};
  for (std::size_t i = 0; i < places_.size(); ++i)
    used[static_cast<std::size_t>(places_[i].memory)] +=
        places_[i].copies * copy_bytes(BufferId(i));
  place_transits(used);
  for (int m = 0; m < kMemories; ++m)
    if (const Memory memory = static_cast<Memory>(m);
        memory != Memory::gm && used[static_cast<std::size_t>(m)] > capacity(memory))
      throw Refused{"its tiles need " + std::to_string(used[static_cast<std::size_t>(m)]) +
                        " bytes of " + std::string(name_of(memory)) + ", which has " +
                        std::to_string(capacity(memory)) +
                        (memory == Memory::l0c ? " (sums are f32)" : ""),
                    Reason::Shortage{used[static_cast<std::size_t>(m)], capacity(memory)}};
  add_copies(used);
  Room at{};  // what passes through lies first
  if (l1_transit_) at[static_cast<std::size_t>(Memory::l1)] = 2 * l1_transit_->bytes;
  if (ub_transit_) at[static_cast<std::size_t>(Memory::ub)] = 2 * ub_transit_->bytes;
  if (scratch_bytes_ > 0) {
    auto& ub = at[static_cast<std::size_t>(Memory::ub)];
    scratch_name_ = names_.fresh("scratch");
    extra_.push_back({.name = scratch_name_,
                      .memory = Memory::ub,
                      .address = ub,
                      .elements = scratch_bytes_ / size_of(DType::f32),
                      .type = DType::f32,
                      .tensor = scratch_name_});
    ub += scratch_bytes_;
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto& next = at[static_cast<std::size_t>(places_[i].memory)];
    places_[i].address = round_up(next, grain(places_[i].memory));
    next = places_[i].address + places_[i].copies * copy_bytes(BufferId(i));
  }
}

}  // namespace tilewright::npu
