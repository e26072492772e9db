// Operands of products that take several steps of the depth at once: pairs of bfloat16, and quads
// or pairs of whole numbers of 8 bits.
#include "codegen/cpu/emitter.h"
#include "core/lowering/byte_products.h"

namespace tilewright::cpu {

int KernelEmitter::steps_at_once(OpId op) const {
  if (p_.pairs) return 2;
  return sums_whole(op) ? p_.whole : 1;
}

bool KernelEmitter::sums_whole(OpId op) const {
  return p_.whole > 0 && multiplies_bytes(p_.workload(), op);
}

std::string KernelEmitter::together_name(OpId op) const {
  return steps_at_once(op) == 4 ? "quads" : "pairs";
}

/// Whether one operand of one compute is all that reads the buffer.
bool KernelEmitter::is_read_once(BufferId b) const {
  int reads = 0;
  for (const ScheduleNode& n : k_.nodes)
    for (const InputUse& use : n.reads)
      if (use.buffer == b) reads += static_cast<int>(use.inputs.size());
  for (const Buffer& other : k_.buffers) reads += other.outer == b ? 1 : 0;
  return reads == 1;
}

/// `prepared`: the right operand is together already. Otherwise one that comes from home and nobody
/// changes is put together once for each tile of it that is held.
void KernelEmitter::take_together(NodeId id, const Product& p, const SymRanges& ranges,
                                  bool prepared, Operands& o) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const BufferId in_b = buffer_of_input(n, p.right);
  const auto most = [&](int local) { return local < 0 ? 1 : range(ranges, n.op, local).most; };
  const std::int64_t line = 64 / p_.element_bytes;
  const auto row_of = [line](std::int64_t extent) { return (ceil_div(extent, line) | 1) * line; };
  const std::int64_t together = steps_at_once(n.op), steps = ceil_div(most(p.depth), together);
  const bool whole = sums_whole(n.op);
  const std::string name = together_name(n.op);
  const std::int64_t along = row_of(steps), across = row_of(most(p.columns));
  std::int64_t offset = 0;
  const auto array = [&](std::int64_t rows, std::int64_t row) {
    const auto bytes = checked_mul(row * p_.element_bytes, rows);
    if (!bytes) throw Refused{"operator " + op.name + " packs more than 64 bits count"};
    return *bytes;
  };
  const auto text = [](std::int64_t number) { return std::to_string(number); };

  const std::string left = names_.fresh("left");
  out_.line("Real* const " + left + " = " + scratch(array(most(p.rows), along), offset, "Real") +
            ";");
  out_.line(name + "_of_rows(" + size_of_loop(n.op, p.rows, ranges) + ", " + o.depth + ", " +
            o.left + ", " + o.left_row + ", " + o.left_depth + ", " + left + ", " + text(along) +
            (together == 4 ? ", true" : "") + ");");
  const auto finish = [&] {
    o.left = left;
    o.left_row = text(along);
    o.left_depth = "1";
    o.depth = "(" + o.depth + " + " + text(together - 1) + ") / " + text(together);
  };
  if (prepared) return finish();

  const std::string right = names_.fresh("right"), columns = size_of_loop(n.op, p.columns, ranges);
  const std::int64_t rows = whole ? round_up(steps, multiple_of_quads()) + 1 : steps;
  const bool keeps = buffer(in_b).role == BufferRole::input && !is_plain(in_b) &&
                     !p_.workload().producer(b.tensor).valid() && !parallel_grid_ &&
                     scopes_[in_b.index()].kind == TileScope::Kind::root;
  if (keeps) {
    Kept& kept = pairs_[id];
    kept.bytes = array(rows, across);
    kept.rank = p_.workload().tensor(b.tensor).shape.size();
    out_.line("Real* const " + right + " = reinterpret_cast<Real*>(memory + " + text(kept.offset) +
              ");");
    out_.line("if (!paired_" + std::to_string(id.index()) + ".is(" + ref(in_b) + ".held, " +
              o.right + ", " + columns + ", " + o.depth + "))");
  } else {
    out_.line("Real* const " + right + " = " + scratch(array(rows, across), offset, "Real") + ";");
  }
  const std::int64_t column = stride_of(op, b, in_b, p.columns);
  const std::string rows_of_columns =
      column == 1 ? "nullptr" : scratch(array(most(p.columns), along), offset, "Real");
  out_.line(std::string(keeps ? "  " : "") + name + "_of_columns(" + columns + ", " + o.depth +
            ", " + o.right + ", " + o.right_depth + ", " + text(column) + ", " + right + ", " +
            text(across) + ", " + rows_of_columns + ", " + text(along) +
            (together == 4 ? ", " + text(multiple_of_quads()) : "") + ");");
  o.right = right;
  o.right_depth = text(across);
  finish();
}

}  // namespace tilewright::cpu
