#include "core/lowering/gpu/product_chain.h"

#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/matrix_access.h"
#include "core/workload/access.h"

namespace tilewright::lowering {
void KernelReader::refuse(const std::string& text) { throw Refused{text}; }

bool KernelReader::around(NodeId outer, NodeId inner) const {
  for (NodeId n = inner; n.valid(); n = k_.node(n).parent)
    if (n == outer) return true;
  return false;
}

std::int64_t KernelReader::part(LoopId loop, const std::vector<NodeId>& of) const {
  std::int64_t step = extent(loop);
  for (NodeId n : of)
    if (k_.node(n).loop == loop) step = std::min(step, k_.node(n).step);
  return step;
}

int KernelReader::tile_of(LoopId loop, std::int64_t part, std::int64_t multiple,
                          std::int64_t most) const {
  const std::int64_t tile = part >= extent(loop) ? round_up(part, multiple) : part;
  if (tile % multiple != 0 || tile > most)
    refuse(formatted("its tile has {} of loop {}, and takes multiples of {} up to {}", part,
                     loop_name(loop), multiple, most));
  return static_cast<int>(tile);
}

void KernelReader::check_kernel() const {
  if (!k_.zeroed.empty() || k_.co_resident) refuse("its blocks share results");
  for (const Buffer& b : k_.buffers)
    if (b.level != k_.level || b.atomic || b.sliding || b.outer.valid())
      refuse("tensor " + name(b.tensor) + " has tiles at several levels");
}

void KernelReader::check_operand_types(TensorId left, TensorId right) const {
  const DType type = w_.tensor(left).dtype;
  if ((type != DType::f16 && type != DType::bf16) || w_.tensor(right).dtype != type)
    refuse("its operands are not both of f16 or both of bf16");
}

void KernelReader::check_result_type(TensorId result) const {
  const DType type = w_.tensor(result).dtype;
  if (type != DType::f16 && type != DType::bf16 && type != DType::f32)
    refuse("its results are not of f16, bf16 or f32");
}

void ProductChain::walk(bool clusters) {
  check_kernel();
  for (std::size_t i = 1; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    switch (n.kind) {
      case NodeKind::loop:
        if (n.binding == Binding::grid && (!serial_.empty() || shared_.valid()))
          refuse("a loop of blocks stands inside of one within a block");
        if (clusters && n.binding == Binding::cluster && n.max_trips > 1) {
          if (shared_.valid() || !serial_.empty())
            refuse("a loop of a cluster stands inside of one within a block, or of another");
          shared_ = NodeId(i);
          break;
        }
        if (n.binding != Binding::grid && n.binding != Binding::seq)
          refuse("loop " + loop_name(n.loop) + " is bound within the block");
        (n.binding == Binding::grid ? grid_ : serial_).push_back(NodeId(i));
        break;
      case NodeKind::compute:
        if (n.once || computes_.size() == k_.ops.size()) refuse("it computes more than once");
        computes_.push_back(NodeId(i));
        break;
      case NodeKind::sequence:
      case NodeKind::load:
      case NodeKind::store:
        break;
      default:
        refuse("it has barriers, packs or drops");
    }
  }
  if (computes_.empty()) refuse("it is not a product of two tensors");
  for (std::size_t i = 1; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::loop && !around(NodeId(i), computes_.front()))
      refuse("its loops are not a chain");
}

const Operator& ProductChain::product(std::size_t compute) const {
  const OpId id = k_.node(computes_[compute]).op;
  const Operator& op = w_.op(id);
  if (op.outputs.size() != 1 || op.inputs.size() != 2 || op.running || w_.gathers(id))
    refuse("it is not a product of two tensors");
  const Output& out = op.outputs.front();
  if (out.rescale || !factors_of(out)) refuse("it is not a sum of products of two tensors");
  return op;
}

void ProductChain::find_result() {
  for (const Buffer& b : k_.buffers)
    if (b.leaves) refuse("tensor " + name(b.tensor) + " leaves it, and is read in it");
  for (const NodeId c : computes_)
    for (const Output& o : w_.op(k_.node(c).op).outputs) {
      const auto leaves = [&](const Buffer& b) {
        return b.tensor == o.target.tensor && b.role == BufferRole::output;
      };
      if (std::ranges::none_of(k_.buffers, leaves)) continue;
      if (result_ != nullptr) refuse("it has several results");
      result_ = &o.target;
    }
  if (result_ == nullptr || result_->index.empty()) refuse("it has no results");
  check_loops_within(w_, *result_);
}

ProductEpilogue ProductChain::following(const ProductLoops& loops) const {
  const std::size_t products = twin_ == nullptr ? 1 : 2;
  ProductEpilogue epilogue = product_epilogue(w_, k_, computes_, loops, products);
  for (const EpilogueRead& r : epilogue.reads)
    if (r.tensor == left_->tensor || r.tensor == right_->tensor ||
        (twin_ != nullptr && r.tensor == twin_->tensor))
      refuse("tensor " + name(r.tensor) + " is an operand, and is read after it");
  for (std::size_t i = products; i < computes_.size(); ++i)
    check_block(computes_[i], "operator " + w_.op(k_.node(computes_[i]).op).name);
  return epilogue;
}

void ProductChain::check_block(NodeId n, const std::string& what) const {
  for (const NodeId g : grid_)
    if (k_.node(g).max_trips > 1 && !around(g, n)) refuse(what + " is for several blocks");
  for (const NodeId l : serial_)
    if (k_.node(l).max_trips > 1 && around(l, n)) refuse(what + " is within the loop of the sum");
}

void ProductChain::check_moves(const ProductEpilogue& epilogue) const {
  std::array<int, 3> loads{};
  for (std::size_t i = 1; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    const bool load = n.kind == NodeKind::load, store = n.kind == NodeKind::store;
    if (!load && !store) continue;
    const bool left = n.tensor == left_->tensor, right = n.tensor == right_->tensor,
               twin = twin_ != nullptr && n.tensor == twin_->tensor;
    if (load && !left && !right && !twin) {
      if (std::ranges::none_of(epilogue.reads,
                               [&](const EpilogueRead& r) { return r.tensor == n.tensor; }))
        refuse("it loads its results");
      check_block(NodeId(i), "the load of " + name(n.tensor));
      if (std::ranges::count_if(k_.nodes, [&](const ScheduleNode& other) {
            return other.kind == NodeKind::load && other.tensor == n.tensor;
          }) > 1)
        refuse("it loads tensor " + name(n.tensor) + " twice");
      continue;
    }
    // Of two products the second finds the left operand where the first has it.
    if (load && ++loads[left ? 0 : right ? 1 : 2] > (left && twin_ != nullptr ? 2 : 1))
      refuse("it loads an operand twice");
    const Access& a = left ? *left_ : right ? *right_ : twin ? *twin_ : *result_;
    for (NodeId g : grid_)
      if (indexes(a, k_.node(g).loop) && k_.node(g).max_trips > 1 && !around(g, NodeId(i)))
        refuse("tensor " + name(n.tensor) + " is loaded for several blocks");
    if (load && shared_.valid() && !around(shared_, NodeId(i)))
      refuse("tensor " + name(n.tensor) + " is loaded for several blocks");
    for (NodeId l : serial_)
      if (store && k_.node(l).max_trips > 1 && around(l, NodeId(i)))
        refuse("it stores results before they are whole");
  }
}

}  // namespace tilewright::lowering
