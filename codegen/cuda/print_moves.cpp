// Between home, registers and shared memory, and between the threads of a block.
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cuda/launch_text.h"
#include "codegen/cuda/print_program.h"

namespace tilewright::cuda {
/// Each run of a thread's values, as one where it is aligned and what holds is the same for all of
/// it. What all threads load alike, its owner counts.
void ProgramPrinter::move(const Step& s) {
  const Value& v = only(s);
  const Strip& run = s.strip;
  std::size_t opened = 0;
  for (int id : s.dims)
    if (id != run.element) open_loop(id), ++opened;
  if (run.element >= 0 && !run.whole) open_loop(run.element, run.width), ++opened;
  const std::string only = both(owner(s.copies), s.shared_out ? joining_warp(s.dims, run) : "");
  std::string in = both(condition(s.inside), v.alike && v.loaded() ? "" : only);
  if (!in.empty()) in = ", " + in;
  if (v.alike && v.loaded()) in += ", " + only;
  const std::string values = "&" + (run.whole ? array(v, {}, run.element) + "[0]" : array(v));
  const bool loads = s.kind == Step::Kind::load;
  const std::string place =
      (loads ? source(v.tensor) : home(v.tensor)) + " + " + offset_text(v.tensor, s.at);
  const Combine how = v.loaded() ? Combine::sum : p_.output_of(v).combine;
  const bool adds = how == Combine::sum || !s.atomic;
  const std::string function = s.kind == Step::Kind::store ? !s.atomic ? "store_several"
                                                             : adds    ? "add_several"
                                                                       : "combine_several"
                               : v.alike                   ? "load_alike"
                               : s.together                ? "load_together"
                               : s.ahead                   ? "load_ahead"
                                                           : "load_several";
  out_.line(function + "<" + std::to_string(run.width) + (adds ? "" : ", " + combining(how)) +
            ">(" + (loads ? values + ", " + place : place + ", " + values) + in + ");");
  close_loops(opened);
}

void ProgramPrinter::spread(const Step& s) {
  const Value& v = only(s);
  open_loops(s.dims);
  out_.line(array(v) + " = shuffle(" + array(v) + ", " + p_.variables.text(*s.copies.lane) + ");");
  close_loops(s.dims.size());
}

/// A thread's place among those that bring a tile together.
std::string ProgramPrinter::among_threads(const Step& s) const {
  if (s.threads == 1) return "0";
  if (!s.copies.warp) return "lane";
  const std::string first = p_.variables.text(*s.copies.warp);
  return first == "0" ? "thread" : "(thread - 32 * (" + first + "))";
}

/// What a thread does in one turn of a stage, its loops' turns counted as one: an element from home
/// to a register, or from there to shared memory.
void ProgramPrinter::bring(const Step& s, const std::string& turn, std::string in,
                           const std::string& of_register, bool puts) {
  const Value& v = only(s);
  in = both(both(in, condition(s.inside)), s.threads == 1 ? owner(s.copies) : "");
  if (p_.brings_rows(s)) return bring_rows(s, turn, in, of_register, puts);
  if (s.elements.empty() && s.threads > 1) in = both(in, among_threads(s) + " == 0");
  std::int64_t below = 1;
  for (std::size_t d = s.elements.size(); d-- > 0;) {
    const ProgramIndex& i = index(s.elements[d]);
    const bool last = d + 1 == s.elements.size();
    const std::int64_t turns = last ? ceil_div(i.count, s.threads) : i.count;
    std::string mine = below == 1 ? turn : "(" + turn + ") / " + std::to_string(below);
    if (turns == 1) mine = "0";
    if (turns > 1 && below * turns < p_.turns_of(s))
      mine = "(" + mine + ") % " + std::to_string(turns);
    if (last && s.threads > 1)
      mine = among_threads(s) +
             (turns == 1 ? "" : " + " + std::to_string(s.threads) + " * (" + mine + ")");
    out_.line("const int " + i.text + " = " + mine + ";");
    if (last && turns * s.threads != i.count)
      in = both(in, i.text + " < " + std::to_string(i.count));
    below *= turns;
  }
  for (const std::vector<Linear>& guards : s.guards)
    for (const Linear& x : guards) in = both(in, "(" + condition({x}) + ")");
  if (puts) {
    out_.line((in.empty() ? "" : "if (" + in + ") ") + shared(v, s.at) + " = " + of_register + ";");
  } else {
    const std::string place = source(v.tensor) + " + " + offset_text(v.tensor, s.from);
    out_.line("load_several<1>(&" + of_register + ", " + place + (in.empty() ? "" : ", " + in) +
              ");");
  }
}

/// The same of several rows at a time, of a tile with zeros around so many neighbours at once.
/// Turns differ by constants.
void ProgramPrinter::bring_rows(const Step& s, const std::string& turn, const std::string& in,
                                const std::string& of_register, bool puts) {
  const Value& v = only(s);
  const ThreadProgram::Rows rows = p_.rows_of(s);
  const std::int64_t neighbours = std::max<std::int64_t>(1, v.padded);
  const std::string width = std::to_string(neighbours);
  const std::int64_t at_once = s.threads / rows.threads;
  const ProgramIndex& along = index(s.elements.back());
  const auto part = [&](std::int64_t step, std::int64_t turns, const std::string& now) {
    return turns == 1 ? "" : " + " + times(step, now);
  };
  const std::string thread = among_threads(s), threads = std::to_string(rows.threads);
  const std::string column =
      rows.down == 1 ? turn : "((" + turn + ") % " + std::to_string(rows.along) + ")";
  const std::string row =
      rows.along == 1 ? "(" + turn + ")" : "((" + turn + ") / " + std::to_string(rows.along) + ")";
  std::string there = in;
  out_.line("const int " + along.text + " = " +
            (rows.threads == 1 ? "0" : thread + " % " + threads) +
            part(rows.threads, rows.along, column) + ";");
  if (rows.threads * rows.along != along.count)
    there = both(there, along.text + " < " + std::to_string(along.count));
  std::string rest =
      (at_once == 1 ? "0" : thread + " / " + threads) + part(at_once, rows.down, row);
  const std::int64_t all = p_.size_of_dims(s.elements) / along.count;
  if (at_once * rows.down != all) there = both(there, rest + " < " + std::to_string(all));
  std::int64_t left = all;
  for (std::size_t d = s.elements.size() - 1; d-- > 0;) {
    const ProgramIndex& i = index(s.elements[d]);
    left /= i.count;
    const std::string now = i.count == 1 ? "0"
                            : left == 1  ? rest
                                         : "(" + rest + ") % " + std::to_string(i.count);
    out_.line("const int " + i.text + " = " + now + ";");
    if (i.count > 1) rest = "(" + rest + ") / " + std::to_string(i.count);
  }
  if (puts) {
    // Rows begin at even places at least.
    const std::int64_t wide = v.whole_from % neighbours == 0 ? neighbours : 2;
    out_.open(there.empty() ? "" : "if (" + there + ")");
    for (std::int64_t i = 0; i < neighbours; i += wide)
      out_.line("put_several<" + std::to_string(wide) + ">(&" +
                shared(v, s.at + lowering::number(i)) + ", &" + of_register +
                (i == 0 ? ")" : " + " + std::to_string(i) + ")") + ";");
    return out_.close();
  }
  for (const std::vector<Linear>& guards : s.guards)
    for (const Linear& x : guards) there = both(there, "(" + condition({x}) + ")");
  const bool past_first = v.begins_early && neighbours > 1;
  if (past_first) there = along.text + " == 0, " + (there.empty() ? "true" : there);
  out_.line((past_first ? "load_past_first<" : "load_several<") + width + ">(&" + of_register +
            ", " + source(v.tensor) + " + " + offset_text(v.tensor, s.from) +
            (there.empty() ? "" : ", " + there) + ");");
}

/// A stage whose registers hold it until a `put`, or that put.
void ProgramPrinter::fetch(const Step& s) {
  const std::string turn = p_.names.fresh("turn"), all = std::to_string(p_.turns_of(s));
  const std::int64_t width = std::max<std::int64_t>(1, only(s).padded);
  const bool puts = s.kind == Step::Kind::put;
  if (!puts)
    out_.line(real() + " " + s.fetched + "[" + std::to_string(p_.turns_of(s) * width) + "];");
  if (puts) zeros_beside(s);
  out_.line("TW_UNROLL");
  out_.open("for (int " + turn + " = 0; " + turn + " < " + all + "; ++" + turn + ")");
  defined_.emplace_back();
  bring(s, turn, "", s.fetched + "[" + times(width, turn) + "]", puts);
  close_loop();
}

/// Some turns' loads at a time, which are under way together.
void ProgramPrinter::stage(const Step& s) {
  const std::int64_t turns = p_.turns_of(s), together = p_.together_of(s);
  const std::int64_t width = std::max<std::int64_t>(1, only(s).padded);
  const std::string name = p_.names.fresh(only(s).name + "_fetched"),
                    first = p_.names.fresh("first"), turn = p_.names.fresh("turn");
  open_loops(s.dims);
  zeros_beside(s);
  out_.line("TW_NO_UNROLL");
  out_.open("for (int " + first + " = 0; " + first + " < " + std::to_string(turns) + "; " + first +
            " += " + std::to_string(together) + ")");
  defined_.emplace_back();
  out_.line(real() + " " + name + "[" + std::to_string(together * width) + "];");
  for (const bool puts : {false, true}) {
    out_.line("TW_UNROLL");
    out_.open("for (int " + turn + " = 0; " + turn + " < " + std::to_string(together) + "; ++" +
              turn + ")");
    defined_.emplace_back();
    const std::string now = first + " + " + turn;
    bring(s, now, turns % together == 0 ? "" : now + " < " + std::to_string(turns),
          name + "[" + times(width, turn) + "]", puts);
    close_loop();
  }
  close_loop();
  close_loops(s.dims.size());
}

/// What of a tile's rows no turn brings, because it does not exist.
void ProgramPrinter::zeros_beside(const Step& s) {
  const Value& v = only(s);
  const std::int64_t row = v.tile.empty() ? 0 : v.tile.back().most, zeros = row - v.whole;
  if (v.whole == 0 || zeros == 0) return;
  lowering::Linear first = s.at - lowering::number(v.whole_from);
  for (int id : s.elements) first.terms.erase(id);
  const std::string i = p_.names.fresh("zero"), all = std::to_string(v.elements / row * zeros);
  const std::string at = i + " / " + std::to_string(zeros) + " * " + std::to_string(row) + " + " +
                         i + " % " + std::to_string(zeros);
  const std::string within = both(condition(s.inside), s.threads == 1 ? owner(s.copies) : "");
  if (!within.empty()) out_.open("if (" + within + ")");
  out_.line("for (int " + i + " = " + among_threads(s) + "; " + i + " < " + all + "; " + i +
            " += " + std::to_string(s.threads) + ") (&" + shared(v, first) + ")[" + at + " + (" +
            i + " % " + std::to_string(zeros) + " < " + std::to_string(v.whole_from) +
            " ? 0 : " + std::to_string(v.whole) + ")] = 0;");
  if (!within.empty()) out_.close();
}

void ProgramPrinter::hold(const Step& s) {
  std::string sizes, element;
  for (int id : s.dims) sizes += "[" + std::to_string(index(id).count) + "]";
  out_.line(real() + " " + s.read.name + sizes + ";");
  const std::int64_t width = s.strip.element < 0 ? 1 : s.strip.width;
  for (int id : s.dims) open_loop(id, id == s.strip.element ? width : 1);
  for (int id : s.dims) element += "[" + index(id).text + "]";
  if (width == 1)
    out_.line(s.read.name + element + " = " + read(s.read) + ";");
  else
    out_.line("get_several<" + std::to_string(width) + ">(&" + s.read.name + element + ", &" +
              place_of(s.read) + ");");
  close_loops(s.dims.size());
}

// ---- sums -------------------------------------------------------------------------------------

void ProgramPrinter::lanes(const Step& s) {
  const Value& v = only(s);
  std::string text;
  for (int id : s.units) {
    const ProgramIndex& i = index(id);
    text += (text.empty() ? "" : " ") + array(v) + " = over_lanes<" +
            std::to_string(p_.lanes_of(id)) + ", " +
            std::to_string(i.unit == Binding::thread ? 1 : i.stride) + ">(" + array(v) + ", " +
            joining(p_.output_of(v).combine) + ");";
  }
  open_loops(s.dims);
  out_.line(text);
  close_loops(s.dims.size());
}

/// Where a thread's value lies among all values of the array that it has.
std::string ProgramPrinter::place_among(const std::vector<int>& dims) const {
  std::string at;
  for (int id : dims) {
    const ProgramIndex& i = index(id);
    at = at.empty() ? i.text : "(" + at + ") * " + std::to_string(i.count) + " + " + i.text;
  }
  return at.empty() ? "0" : at;
}

/// "warp == ...": the one that joins and writes a value; those that are written at once are one's.
std::string ProgramPrinter::joining_warp(const std::vector<int>& dims, const Strip& run) const {
  std::string at;
  const auto append = [&at](const std::string& index, std::int64_t count) {
    at = at.empty() ? index : "(" + at + ") * " + std::to_string(count) + " + " + index;
  };
  for (int id : dims)
    if (id != run.element) append(index(id).text, index(id).count);
  if (run.element >= 0 && !run.whole) {
    const ProgramIndex& i = index(run.element);
    append(run.width == 1 ? i.text : i.text + " / " + std::to_string(run.width),
           ceil_div(i.count, run.width));
  }
  return "warp == " + (at.empty() ? "0" : "(" + at + ") % " + std::to_string(p_.warps));
}

/// A warp's slot for a value of a sum, in shared memory.
std::string ProgramPrinter::part(const Step::Joined& joined, const std::string& parts,
                                 const std::string& warp) const {
  return parts + "[((" + place_among(joined.dims) + ") * " + std::to_string(p_.warps) + " + " +
         warp + ")" + (joined.lanes == 1 ? "]" : " * 32 + lane]");
}

/// Joins the parts that warps have of some sums, at one barrier.
void ProgramPrinter::exchange(const Step& s) {
  if (!s.flip.empty()) out_.line(s.flip + " ^= 1;");
  std::vector<std::string> parts;
  for (const Step::Joined& j : s.joined) {
    const Value& v = p_.value(j.value);
    parts.push_back(p_.names.fresh(v.name + "_parts"));
    const std::string more =
        s.flip.empty() ? "" : " + " + s.flip + " * " + std::to_string(j.elements);
    out_.line(real() + "* const " + parts.back() + " = " + shared_place(real(), j.scratch) + more +
              ";");
    open_loops(j.dims);
    out_.line((j.lanes == 1 ? "if (lane == 0) " : "") + part(j, parts.back(), "warp") + " = " +
              array(v) + ";");
    close_loops(j.dims.size());
  }
  out_.line("block_sync();");
  for (std::size_t i = 0; i < s.joined.size(); ++i) add_up_parts(s.joined[i], parts[i]);
}

void ProgramPrinter::add_up_parts(const Step::Joined& j, const std::string& parts) {
  const Value& v = p_.value(j.value);
  std::string from = "warp";
  const std::int64_t group = p_.group_of(j);
  std::vector<std::pair<std::int64_t, std::int64_t>> counts;  // of warps, and how far apart
  for (int id : j.units) {
    const ProgramIndex& i = index(id);
    counts.emplace_back(p_.warps_of(id), i.unit == Binding::thread ? 1 : i.stride);
    from += " - " + times(i.stride, i.text);
  }
  from = group == p_.warps ? "" : named("int", "first_warp", from) + " + ";
  const Combine combine = p_.output_of(v).combine;
  open_loops(j.dims);
  if (j.shared_out) out_.open("if (" + joining_warp(j.dims, j.strip) + ")");
  out_.line(array(v) + " = " + literal_text(identity_of(combine)) + ";");
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const std::string w = p_.names.fresh("w");
    out_.line("TW_UNROLL");
    out_.open("for (int " + w + " = 0; " + w + " < " + std::to_string(counts[c].first) + "; ++" +
              w + ")");
    from += (c == 0 ? "" : " + ") + times(counts[c].second, w);
  }
  // A block may have warps that are no whole group.
  const std::string exists =
      p_.warps % group == 0 ? "" : "if (" + from + " < " + std::to_string(p_.warps) + ") ";
  out_.line(exists + combined(combine, array(v), part(j, parts, "(" + from + ")")));
  for (std::size_t i = 0; i < counts.size(); ++i) out_.close();
  if (j.shared_out) out_.close();
  close_loops(j.dims.size());
}

/// A sum that is complete, to shared memory.
void ProgramPrinter::keep(const Step& s) {
  const Value& v = only(s);
  open_loops(s.dims);
  const std::string in = both(condition(s.inside), owner(s.copies));
  out_.line((in.empty() ? "" : "if (" + in + ") ") + shared(v, s.at) + " = " + array(v) + ";");
  close_loops(s.dims.size());
}

}  // namespace tilewright::cuda
