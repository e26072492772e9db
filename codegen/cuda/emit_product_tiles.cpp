// Matrix products whose sums come from a tile in shared memory and go back there.
#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/launch_text.h"

namespace tilewright::cuda {
namespace {

std::int64_t whole_blocks(std::int64_t extent) { return ceil_div(extent, 16) * 16; }

}  // namespace

void KernelEmitter::multiply_tiles(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                                   const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BufferId out = written_by(id, p.write);
  const Access& target = output_of(id, p.write).target;
  const SymBox& tile = *fixed_[out.index()];
  Corner at;
  for (std::size_t d = 0; d < target.index.size(); ++d)
    for (const int l : {p.rows, p.columns})
      if (target.index[d].plain_loop() == op.loops[static_cast<std::size_t>(l)])
        (d + 1 == target.index.size() ? at.column : at.row) =
            variables_.text(range(ranges, n.op, l).lo - tile[d].lo);
  if (block_.micro_kernel().fragments)
    multiply_parts(id, p, ranges, fresh, at);
  else
    multiply_whole(id, p, ranges, fresh, at);
}

/// By sums in registers, a part of a warp's columns at a time, so that they find room there.
void KernelEmitter::multiply_parts(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                                   const std::string& fresh, const Corner& at) {
  const ScheduleNode& n = k_.node(id);
  const std::string sum_tile = tile_text(written_by(id, p.write));
  const auto [rows, columns, part] = block_.parts_of(p, mosts(n.op, ranges));
  out_.open("for (int part = 0; part < " + std::to_string(columns / part) + "; ++part)");
  out_.line("const int first = me.column * " + std::to_string(columns) + " + part * " +
            std::to_string(part) + ";");
  out_.line("Sums<" + std::to_string(rows) + ", " + std::to_string(part) + "> sums;");
  if (fresh == "true") {
    out_.line("fill(sums, 0);");
  } else {
    if (fresh != "false") out_.line("if (" + fresh + ") fill(sums, 0); else");
    out_.line("sums_from_tile(sums, me, first, " + sum_tile + ", " + at.row + ", " + at.column +
              ");");
    rescale(id, p, ranges, fresh, "sums", rows, part, "first");
  }
  call_product(id, p, ranges, "sums", "first");
  out_.line("sums_to_tile(sums, me, first, " + sum_tile + ", " + at.row + ", " + at.column + ");");
  out_.close();
}

/// By a micro-kernel that takes the whole tile: its sums have a layout of their own.
void KernelEmitter::multiply_whole(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                                   const std::string& fresh, const Corner& at) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const std::string sum_tile = tile_text(written_by(id, p.write)), t = std::to_string(threads());
  const std::string rows = std::to_string(whole_blocks(range(ranges, n.op, p.rows).most));
  const std::int64_t columns = whole_blocks(range(ranges, n.op, p.columns).most);
  const std::string across = std::to_string(columns);
  const auto along = [&](int input) {
    return block_.runs_along(n.op, op.inputs[static_cast<std::size_t>(input)].index.back(),
                             mosts(n.op, ranges)) == op.loops[static_cast<std::size_t>(p.depth)];
  };
  std::string half;
  const BufferId left = block_.buffer_of_input(n, p.left);
  if (block_.tile(left).form == Form::computed) {
    // What was computed here is rounded for it, in room of its own at the end.
    const BlockTile& l = block_.tile(left);
    const std::int64_t pitch = ceil_div(l.need_columns, 8) * 8 + 8;
    block_.note_half(l.need_rows * pitch * 2 + 128);
    out_.line("using Half = Tile<f16, " + std::to_string(l.need_rows) + ", " +
              std::to_string(l.need_columns) + ", " + std::to_string(pitch) + ", false>;");
    half = "Half{" +
           shared_place("f16",
                        ceil_div(block_.program().shared_bytes - block_.half_bytes(), 128) * 128) +
           "}";
    out_.line("round_tile(" + tile_text(left) + ", " + half + ", thread, " + t + ");");
  }
  if (fresh != "false") {
    if (fresh != "true") out_.open("if (" + fresh + ")");
    out_.line("for (int i = thread; i < " + rows + " * " + across + "; i += " + t + ")");
    out_.line("  *" + sum_tile + ".at(" + at.row + " + i / " + across + ", " + at.column +
              " + i % " + across + ") = 0;");
    if (fresh != "true") out_.close();
  }
  act(BlockAct::begin, [&] {
    out_.line(kernel_text(DType::f16) + "::template multiply<" + rows + ", " + across + ", " +
              std::to_string(whole_blocks(range(ranges, n.op, p.depth).most)) + ", " +
              (along(p.left) ? "false" : "true") + ", " + (along(p.right) ? "true" : "false") +
              ">(" + sum_tile + ", " + at.row + ", " + at.column + ", " +
              operand(id, p.left, p.rows, p.depth, ranges, half) + ", " +
              operand(id, p.right, p.columns, p.depth, ranges) + ", warp, " +
              std::to_string(threads() / 32) + ");");
  });
}

}  // namespace tilewright::cuda
