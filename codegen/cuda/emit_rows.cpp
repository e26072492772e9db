// Operators on tiles in registers: element by element, and reductions along rows.
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/launch_text.h"
#include "core/workload/expr.h"

namespace tilewright::cuda {
namespace {

/// Whether an expression, or an input that it reads, has the loop as an index.
bool reads_loop(const Operator& op, const Expr& e, LoopId loop) {
  if (e.kind == Expr::Kind::index) return e.loop == loop;
  if (e.kind == Expr::Kind::input)
    return std::ranges::any_of(
        op.inputs[static_cast<std::size_t>(e.input)].index, [&](const Affine& i) {
          return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
        });
  return std::ranges::any_of(e.args, [&](const Expr& a) { return reads_loop(op, a, loop); });
}

}  // namespace

/// What the result so far of a product is multiplied by before this block is added (rule 14).
/// `sums`: where it is, of so many rows and columns in the units of Sums; from the first row of the
/// product on, and from block `first` of its columns.
void KernelEmitter::rescale(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                            const std::string& fresh, const std::string& sums, std::int64_t rows,
                            std::int64_t columns, const std::string& first) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const auto& by = output_of(id, p.write).rescale;
  if (!by || fresh == "true") return;
  const bool of_columns = reads_loop(op, *by, op.loops[static_cast<std::size_t>(p.columns)]);
  std::vector<std::string> loops(op.loops.size());
  for (std::size_t l = 0; l < loops.size(); ++l) {
    const std::string low = variables_.text(range(ranges, n.op, static_cast<int>(l)).lo, true);
    loops[l] = static_cast<int>(l) == p.rows                    ? "(" + low + " + r)"
               : of_columns && static_cast<int>(l) == p.columns ? "(" + low + " + c)"
                                                                : low;
  }
  const std::string beyond = "r >= " + size_text(range(ranges, n.op, p.rows));
  if (fresh != "false") out_.open("if (!(" + fresh + "))");
  if (of_columns) {
    out_.open("each<" + std::to_string(rows) + ", " + std::to_string(columns) + ">(me, " + first +
              ", [&](int i, int j, int e, int r, int c)");
    out_.line("(void)r;");
    out_.line("if (" + beyond + " || c >= " + size_text(range(ranges, n.op, p.columns)) +
              ") return;");
  } else {
    out_.open("each_row<" + std::to_string(rows) + ">(me, [&](int i, int h, int r)");
    out_.line("if (" + beyond + ") return;");
  }
  for (std::size_t x = 0; x < op.inputs.size(); ++x) {
    if (!reads_input(*by, static_cast<int>(x))) continue;
    const BufferId b = block_.buffer_of_input(n, static_cast<int>(x));
    if (block_.tile(b).form == Form::rows)
      out_.line("const float x" + std::to_string(x) + " = " + name(b) + ".x[i][" +
                (of_columns ? "e / 2" : "h") + "];");
    else
      declare_input(id, x, loops, ranges);
  }
  out_.line("const float by = " + expression_text(*by, n.op, loops) + ";");
  if (of_columns) {
    out_.line(sums + ".x[i][j][e] *= by;");
  } else {
    out_.line("TW_UNROLL");
    out_.open("for (int j = 0; j < " + std::to_string(columns) + "; ++j)");
    out_.line(sums + ".x[i][j][2 * h] *= by;");
    out_.line(sums + ".x[i][j][2 * h + 1] *= by;");
    out_.close();
  }
  out_.end();
  out_.line("});");
  if (fresh != "false") out_.close();
}

void KernelEmitter::row_computes(NodeId id, const SymRanges& ranges, const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  int row = -1, column = -1;
  std::int64_t m = 1, columns = 0;
  std::string first = "0";
  // Sums that every warp has a part of are joined before they are used.
  std::vector<std::string> values(op.inputs.size());
  const auto take_columns = [&](BufferId b, std::int64_t own, const std::string& from) {
    m = block_.sums_rows(b), columns = own, first = from;
  };
  for (const OutputUse& w : n.writes) {
    const BlockTile& p = block_.tile(w.buffer);
    const Access& a = op.outputs[static_cast<std::size_t>(w.output)].target;
    row = workload_.local_index(n.op, *a.index[static_cast<std::size_t>(p.row_dim)].plain_loop());
    m = block_.sums_rows(w.buffer);
    if (p.form != Form::sums) continue;
    column =
        workload_.local_index(n.op, *a.index[static_cast<std::size_t>(p.column_dim)].plain_loop());
    take_columns(w.buffer, block_.sums_columns(w.buffer), first_column(w.buffer));
  }
  for (std::size_t x = 0; x < op.inputs.size(); ++x) {
    const BufferId b = block_.buffer_of_input(n, static_cast<int>(x));
    const BlockTile& p = block_.tile(b);
    if (p.form == Form::rows) values[x] = name(b);
    if (p.form != Form::sums) continue;
    const Joined sums = joined(b);
    values[x] = sums.name;
    if (column < 0)
      column = workload_.local_index(
          n.op, *op.inputs[x].index[static_cast<std::size_t>(p.column_dim)].plain_loop());
    if (columns == 0) take_columns(b, sums.columns, sums.first);
  }
  const SymRange& row_range = range(ranges, n.op, row);
  const auto bound = [&](const SymRange& r, std::int64_t blocks_of, const std::string& index) {
    const Linear size = r.hi - r.lo;
    if (size.is_constant() && size.constant % blocks_of == 0) return std::string();
    return index + " < " + variables_.text(size);
  };
  std::string in = bound(row_range, 16, "r");
  if (column >= 0) {
    const std::string in_columns = bound(range(ranges, n.op, column), 16, "c");
    in += (in.empty() || in_columns.empty() ? "" : " && ") + in_columns;
  }
  // Each loop's value at an element; loops that are neither rows nor columns have one value.
  const auto loops_at = [&](bool with_column) {
    std::vector<std::string> loops(op.loops.size());
    for (std::size_t l = 0; l < loops.size(); ++l) {
      const std::string low = variables_.text(range(ranges, n.op, static_cast<int>(l)).lo, true);
      const bool is_row = static_cast<int>(l) == row,
                 is_column = static_cast<int>(l) == column && with_column;
      loops[l] = is_row ? "(" + low + " + r)" : is_column ? "(" + low + " + c)" : low;
    }
    return loops;
  };
  const auto inputs = [&](const Expr& e, bool element) {
    for (std::size_t x = 0; x < op.inputs.size(); ++x) {
      if (!reads_input(e, static_cast<int>(x))) continue;
      const BufferId b = block_.buffer_of_input(n, static_cast<int>(x));
      const Form form = block_.tile(b).form;
      std::string value;
      if (form == Form::sums) {
        value = values[x] + ".x[i][j][e]";
      } else if (form == Form::rows) {
        value = values[x] + (element ? ".x[i][e / 2]" : ".x[i][h]");
      } else {
        const auto loops = loops_at(element);
        value = "to_float(" + value_at(n.op, op.inputs[x], b, loops) + ")";
      }
      out_.line("const float x" + std::to_string(x) + " = " + value + ";");
    }
  };
  // Where all that is read lies in registers an element is computed whether it exists or not: a
  // branch around it would make elements wait for one another.
  const auto only_registers = [&](const Expr& e) {
    for (std::size_t x = 0; x < op.inputs.size(); ++x) {
      if (!reads_input(e, static_cast<int>(x))) continue;
      const Form form = block_.tile(block_.buffer_of_input(n, static_cast<int>(x))).form;
      if (form != Form::sums && form != Form::rows) return false;
    }
    return true;
  };
  const auto each_text = [&] {
    return "each<" + std::to_string(m) + ", " + std::to_string(columns) + ">(me, " + first +
           ", [&](int i, int j, int e, int r, int c)";
  };
  const auto unused = [&] { out_.line("(void)i, (void)j, (void)e, (void)r, (void)c;"); };

  std::vector<std::string> parts(n.writes.size());
  for (std::size_t o = 0; o < n.writes.size(); ++o) {
    const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
    const BlockTile& p = block_.tile(n.writes[o].buffer);
    const std::string target = name(n.writes[o].buffer);
    if (p.form == Form::sums) {
      out_.open(each_text());
      unused();
      const bool branch =
          !in.empty() && (out.combine != Combine::assign || !only_registers(out.value));
      if (branch) {
        out_.line("if (!(" + in + ")) {");
        out_.line("  " + target + ".x[i][j][e] = 0;");
        out_.line("  return;");
        out_.line("}");
      }
      inputs(out.value, true);
      const std::string y = target + ".x[i][j][e]";
      if (out.combine != Combine::assign) {
        if (out.rescale)
          throw Refused{"operator " + op.name + " is rescaled and no matrix product"};
        if (fresh != "false")
          out_.line((fresh == "true" ? "" : "if (" + fresh + ") ") + y + " = " +
                    literal_text(identity_of(out.combine)) + ";");
      }
      const std::string made = made_text(out, n.op, loops_at(true));
      if (in.empty() || branch) {
        out_.line(combined(out.combine, y, made));
      } else {
        out_.line("const float made = " + made + ";");
        out_.line(y + " = " + in + " ? made : 0.0f;");
      }
      out_.end();
      out_.line("});");
      continue;
    }
    const bool reduces =
        column >= 0 && workload_.is_reduction(n.op, op.loops[static_cast<std::size_t>(column)]);
    if (!reduces || names_outputs(out.value)) continue;
    parts[o] = names_.fresh(target + "_part");
    out_.line("RowValues<" + std::to_string(m) + "> " + parts[o] + ";");
    out_.line("fill(" + parts[o] + ", " + literal_text(identity_of(out.combine)) + ");");
    out_.open(each_text());
    unused();
    const bool branch = !in.empty() && !only_registers(out.value);
    if (branch) out_.line("if (!(" + in + ")) return;");
    inputs(out.value, true);
    std::string made = expression_text(out.value, n.op, loops_at(true));
    if (!in.empty() && !branch) {
      out_.line("const float made = " + made + ";");
      made = "(" + in + " ? made : " + literal_text(identity_of(out.combine)) + ")";
    }
    out_.line(combined(out.combine, parts[o] + ".x[i][e / 2]", made));
    out_.end();
    out_.line("});");
    out_.line("combine_rows<" + std::to_string(block_.program().warp_columns) + ", " +
              std::to_string(threads()) + ">(" + parts[o] + ", me, scratch, " +
              joining(out.combine) + ");");
  }

  // One value a row: the result so far, rescaled, and this block's part.
  const bool any_rows = std::ranges::any_of(
      n.writes, [&](const OutputUse& w) { return block_.tile(w.buffer).form == Form::rows; });
  if (!any_rows) return;
  out_.open("each_row<" + std::to_string(m) + ">(me, [&](int i, int h, int r)");
  out_.line("(void)i, (void)h, (void)r;");
  const auto named = [&](int output, bool before) {
    for (std::size_t o = 0; o < n.writes.size(); ++o)
      if (n.writes[o].output == output) return (before ? "before" : "y") + std::to_string(o);
    throw Refused{"operator " + op.name + " reads an output that it does not write here"};
  };
  const bool reductions = !workload_.reduction_loops(n.op).empty();
  const auto all_outputs = [&](bool naming) {
    for (std::size_t o = 0; o < n.writes.size(); ++o) {
      const Output& out = op.outputs[static_cast<std::size_t>(n.writes[o].output)];
      if (block_.tile(n.writes[o].buffer).form != Form::rows || names_outputs(out.value) != naming)
        continue;
      const std::string at = name(n.writes[o].buffer) + ".x[i][h]", y = "y" + std::to_string(o);
      const std::string identity = literal_text(identity_of(out.combine));
      std::string start = at;
      if (fresh == "true" || !reductions)
        start = identity;
      else if (fresh != "false")
        start = "(" + fresh + ") ? " + identity + " : " + at;
      if (naming && out.combine == Combine::assign) start = "0";
      out_.line("const float before" + std::to_string(o) + " = " + start + ";");
      out_.line("(void)before" + std::to_string(o) + ";");
      out_.line("float " + y + " = before" + std::to_string(o) + ";");
      out_.open("");
      if (out.rescale && fresh != "true") {
        out_.open(fresh == "false" ? "" : "if (!(" + fresh + "))");
        inputs(*out.rescale, false);
        out_.line(y + " *= " + expression_text(*out.rescale, n.op, loops_at(false)) + ";");
        out_.close();
      }
      if (!parts[o].empty()) {
        out_.line(combined(out.combine, y, parts[o] + ".x[i][h]"));
      } else {
        inputs(out.value, false);
        out_.line(combined(reductions && !naming ? out.combine
                           : naming              ? out.combine
                                                 : Combine::assign,
                           y, made_text(out, n.op, loops_at(false), named)));
      }
      out_.close();
      out_.line(at + " = " + y + ";");
    }
  };
  all_outputs(false);
  all_outputs(true);
  out_.end();
  out_.line("});");
}

}  // namespace tilewright::cuda
