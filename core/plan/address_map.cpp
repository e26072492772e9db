// Where tensors lie: which ones are tiled, by what, and from which address on.
#include <algorithm>
#include <optional>
#include <span>

#include "core/plan/stream.h"

namespace tilewright {

namespace {

constexpr std::int64_t kMaxEnd = std::int64_t{1} << 52;

/// Where an operator's loop gets its range from, if an inference of the list sets it: the loop of
/// the readers that index the tensor with exactly one loop in that dimension, or where that in turn
/// gets its own. A halo or readers that disagree give no loop: `known` turns false.
OpLoop source(const Workload& w, std::span<const Inference> inferences, OpLoop x, bool& known) {
  for (auto i = inferences.rbegin(); i != inferences.rend() && known; ++i) {
    if (i->producer != x.op) continue;
    const Operator& producer = w.op(x.op);
    const Access& target = producer.outputs[static_cast<std::size_t>(i->output)].target;
    for (std::size_t d = 0; d < target.index.size(); ++d) {
      if (target.index[d].plain_loop() != producer.loops[static_cast<std::size_t>(x.local)])
        continue;
      std::optional<LoopId> loop;
      for (const ReadRef& r : i->reads) {
        const Access& read = w.op(r.op).inputs[static_cast<std::size_t>(r.input)];
        const std::optional<LoopId> plain = read.index[d].plain_loop();
        if (!plain || (loop && *loop != *plain)) known = false;
        loop = plain;
      }
      if (!known) return x;
      const OpId reader = i->reads.front().op;
      x = source(w, i->lookahead, {reader, w.local_index(reader, *loop)}, known);
      break;
    }
  }
  return x;
}

/// How long the pieces are that the loops around a compute cut an operator's loop into; none where
/// the pieces of an inner loop do not fall on those of an outer one, or the range has a halo.
std::optional<std::int64_t> piece(const Workload& w, const ScheduledKernel& k, NodeId compute,
                                  OpLoop x) {
  const std::int64_t extent = w.loop(w.op(x.op).loops[static_cast<std::size_t>(x.local)]).extent;
  std::vector<std::int64_t> steps;  // innermost first
  bool known = true;
  for (NodeId n = k.node(compute).parent; n.valid(); n = k.node(n).parent) {
    const ScheduleNode& node = k.node(n);
    x = source(w, node.infer, x, known);  // on entering a body, loops cut first, then it infers
    if (!known) return std::nullopt;
    if (std::find(node.cuts.begin(), node.cuts.end(), x) != node.cuts.end())
      steps.push_back(node.step);
  }
  std::int64_t length = extent;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= length) continue;
    if (length != extent && length % *step != 0) return std::nullopt;
    length = *step;
  }
  return length;
}

/// The tile of one access at one compute, if the tiles of all visits form a regular grid.
std::optional<Box> tile(const Workload& w, const ScheduledKernel& k, NodeId compute, OpId op,
                        const Access& access) {
  Box box(static_cast<int>(access.index.size()));
  for (int d = 0; d < box.rank(); ++d) {
    const std::optional<LoopId> loop = access.index[static_cast<std::size_t>(d)].plain_loop();
    if (!loop) return std::nullopt;
    const auto length = piece(w, k, compute, {op, w.local_index(op, *loop)});
    if (!length) return std::nullopt;
    // A tensor may be smaller or larger than the loop that walks it.
    box[d] = {0, std::min(*length, w.tensor(access.tensor).shape[static_cast<std::size_t>(d)])};
  }
  return box;
}

/// By tensor: the tile that all accesses agree on. Rank 0: none.
std::vector<Box> common_tiles(const Schedule& s) {
  const Workload& w = *s.workload;
  std::vector<std::optional<Box>> tiles(w.tensors().size());
  std::vector<bool> seen(w.tensors().size(), false);
  const auto meet = [&](const ScheduledKernel& k, NodeId node, OpId op, const Access& access) {
    const std::size_t t = access.tensor.index();
    const std::optional<Box> box = tile(w, k, node, op, access);
    if (seen[t] && tiles[t] != box) tiles[t].reset();
    if (!seen[t]) tiles[t] = box;
    seen[t] = true;
  };
  for (const ScheduledKernel& k : s.kernels)
    for (std::size_t n = 0; n < k.nodes.size(); ++n) {
      if (k.nodes[n].kind != NodeKind::compute) continue;
      const Operator& op = w.op(k.nodes[n].op);
      for (const Access& a : op.inputs) meet(k, NodeId(n), k.nodes[n].op, a);
      for (const Output& o : op.outputs) meet(k, NodeId(n), k.nodes[n].op, o.target);
    }
  std::vector<Box> result;
  for (const auto& box : tiles) result.push_back(box.value_or(Box()));
  return result;
}

/// Whether laying out by these blocks differs from row order: a dimension is cut below one of which
/// a block takes more than one index.
bool reorders(const Box& block, const Box& whole) {
  bool high = false;
  for (int d = 0; d < block.rank(); ++d) {
    if (high && block[d].size() < whole[d].size()) return true;
    high = high || block[d].size() > 1;
  }
  return false;
}

BufferId behind(const ScheduledKernel& k, BufferId b) {
  while (b.valid()) {
    const Buffer& buffer = k.buffer(b);
    if (buffer.role == BufferRole::intermediate) return buffer.leaves ? BufferId() : b;
    b = buffer.outer;
  }
  return BufferId();
}

}  // namespace

std::int64_t AddressMap::take(Bytes bytes, std::int64_t alignment) {
  const std::int64_t base = ceil_div(end_, alignment) * alignment;
  if (bytes.value > kMaxEnd - base)
    throw InputError({.field = "workload " + workload_->name(),
                      .problem = "is too large to lay out in memory",
                      .accepted = "tensors of 2^52 bytes together"});
  end_ = base + bytes.value;
  return base;
}

AddressMap::AddressMap(const Schedule& s, Layout layout, std::int64_t alignment)
    : workload_(s.workload), end_(kArena), alignment_(alignment) {
  const Workload& w = *workload_;
  const std::size_t tensors = w.tensors().size();
  std::vector<bool> at_home(tensors, false);
  for (std::size_t t = 0; t < tensors; ++t)
    at_home[t] = w.is_input(TensorId(t)) || w.is_output(TensorId(t));
  for (const ScheduledKernel& k : s.kernels) {
    auto& arrays = arrays_.emplace_back();
    for (std::size_t b = 0; b < k.buffers.size(); ++b) {
      const TensorId t = k.buffers[b].tensor;
      arrays.push_back({.buffer = behind(k, BufferId(b)), .tensor = t, .element = element(t)});
      if (!arrays.back().buffer.valid()) at_home[t.index()] = true;
    }
  }
  base_.assign(tensors, 0);
  for (std::size_t t = 0; t < tensors; ++t) {
    whole_.push_back(w.tensor(TensorId(t)).whole());
    if (at_home[t]) base_[t] = take(w.tensor(TensorId(t)).bytes(), alignment);
  }
  for (std::size_t k = 0; k < arrays_.size(); ++k)
    for (std::size_t b = 0; b < arrays_[k].size(); ++b)
      if (arrays_[k][b].buffer == BufferId(b))  // room for any tile: addresses cost nothing
        arrays_[k][b].base = take(w.tensor(s.kernels[k].buffers[b].tensor).bytes(), alignment);

  block_.assign(tensors, Box());
  if (layout != Layout::tiled) return;
  std::vector<Box> tiles = common_tiles(s);
  for (std::size_t t = 0; t < tensors; ++t)
    if (at_home[t] && reorders(tiles[t], whole_[t])) block_[t] = tiles[t];
}

std::optional<std::int64_t> AddressMap::translation(TensorId t, std::span<const std::int64_t> by,
                                                    const Box& within) const {
  const Box& whole = whole_[t.index()];
  const Box& block = block_[t.index()];
  const bool tiled = block.rank() != 0;
  // Every block of dimension d that the boxes meet is whole, none cut short by the tensor's edge.
  const auto full = [&](int d) {
    return within[d].hi <= whole[d].hi - whole[d].hi % block[d].hi;
  };
  std::int64_t sum = 0, height = element(t), width = 1;
  for (int d = 0; d < whole.rank(); ++d) width *= whole[d].size();
  for (int d = 0; d < whole.rank(); ++d) {
    const std::int64_t step = by[static_cast<std::size_t>(d)];
    width /= whole[d].size();
    sum += step * height * width;
    if (!tiled) continue;
    if (step != 0) {
      // Blocks before in other dimensions set this one's pitch: they have to be alike.
      for (int e = 0; e <= d; ++e)
        if (!full(e)) return std::nullopt;
      if (step % block[d].hi != 0) return std::nullopt;
    }
    height *= block[d].hi;
  }
  return sum;
}

std::int64_t AddressMap::packed_translation(int kernel, BufferId b, const Box& tile,
                                            std::span<const std::int64_t> by) const {
  std::int64_t sum = 0;
  std::int64_t step = arrays_[static_cast<std::size_t>(kernel)][b.index()].element;
  for (int d = tile.rank() - 1; d >= 0; --d) {
    sum += by[static_cast<std::size_t>(d)] * step;
    step *= tile[d].size();
  }
  return sum;
}

std::vector<AddressMap::Region> AddressMap::regions() const {
  std::vector<Region> all;
  for (std::size_t t = 0; t < base_.size(); ++t)
    if (base_[t] != 0)
      all.push_back({.base = base_[t],
                     .end = base_[t] + workload_->tensor(TensorId(t)).bytes().value,
                     .tensor = TensorId(t)});
  for (std::size_t k = 0; k < arrays_.size(); ++k)
    for (std::size_t b = 0; b < arrays_[k].size(); ++b) {
      const Array& a = arrays_[k][b];
      if (a.buffer != BufferId(b)) continue;
      const std::int64_t bytes = workload_->tensor(a.tensor).bytes().value;
      all.push_back({.base = a.base,
                     .end = a.base + bytes,
                     .tensor = a.tensor,
                     .kernel = static_cast<int>(k),
                     .buffer = BufferId(b)});
    }
  return all;
}

Bytes AddressMap::packing_bytes() const {
  Bytes sum;
  for (std::size_t t = 0; t < block_.size(); ++t)
    if (tiled(TensorId(t))) sum += 2 * workload_->tensor(TensorId(t)).bytes();
  return sum;
}

}  // namespace tilewright
