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
  const std::string place = home(v.tensor) + " + " + offset_text(v.tensor, s.at);
  const Combine how = v.loaded() ? Combine::sum : p_.output_of(v).combine;
  const bool adds = how == Combine::sum || !s.atomic;
  const std::string function = s.kind == Step::Kind::store ? !s.atomic ? "store_several"
                                                             : adds    ? "add_several"
                                                                       : "combine_several"
                               : v.alike                   ? "load_alike"
                               : s.together                ? "load_together"
                                                           : "load_several";
  out_.line(function + "<" + std::to_string(run.width) + (adds ? "" : ", " + combining(how)) +
            ">(" + (s.kind == Step::Kind::load ? values + ", " + place : place + ", " + values) +
            in + ");");
  close_loops(opened);
}

void ProgramPrinter::spread(const Step& s) {
  const Value& v = only(s);
  open_loops(s.dims);
  out_.line(array(v) + " = shuffle(" + array(v) + ", " + p_.variables.text(*s.copies.lane) + ");");
  close_loops(s.dims.size());
}

void ProgramPrinter::stage(const Step& s) {
  const Value& v = only(s);
  const bool alone = s.threads == 1;
  std::string mine = alone ? "0" : "lane";
  if (s.copies.warp && !alone) {
    const std::string first = p_.variables.text(*s.copies.warp);
    mine = first == "0" ? "thread" : "(thread - 32 * (" + first + "))";
  }
  std::string in = condition(s.inside);
  if (alone) in = both(in, owner(s.copies));
  open_loops(s.dims);
  for (std::size_t d = 0; d < s.elements.size(); ++d) {
    const ProgramIndex& i = index(s.elements[d]);
    const bool last = d + 1 == s.elements.size();
    out_.line("TW_NO_UNROLL");
    out_.open("for (int " + i.text + " = " + (last ? mine : "0") + "; " + i.text + " < " +
              std::to_string(i.count) + "; " + i.text +
              " += " + std::to_string(last ? s.threads : 1) + ")");
    defined_.emplace_back();
    for (const Linear& x : s.guards[d]) in = both(in, "(" + condition({x}) + ")");
  }
  if (s.elements.empty() && !alone) in = both(in, mine + " == 0");
  const std::string value =
      "load_one(" + home(v.tensor) + " + " + offset_text(v.tensor, s.from) + ")";
  out_.line((in.empty() ? "" : "if (" + in + ") ") + shared(v, s.at) + " = " + value + ";");
  close_loops(s.dims.size() + s.elements.size());
}

void ProgramPrinter::hold(const Step& s) {
  std::string sizes, element;
  for (int id : s.dims) sizes += "[" + std::to_string(index(id).count) + "]";
  out_.line(real() + " " + s.read.name + sizes + ";");
  open_loops(s.dims);
  for (int id : s.dims) element += "[" + index(id).text + "]";
  out_.line(s.read.name + element + " = " + read(s.read) + ";");
  close_loops(s.dims.size());
}

// ---- sums -------------------------------------------------------------------------------------

void ProgramPrinter::lanes(const Step& s) {
  const Value& v = only(s);
  std::string text;
  for (int id : s.units) {
    const ProgramIndex& i = index(id);
    const bool thread = i.unit == Binding::thread;
    text += (text.empty() ? "" : " ") + array(v) + " = over_lanes<" +
            std::to_string(thread ? 32 : i.count) + ", " + std::to_string(thread ? 1 : i.stride) +
            ">(" + array(v) + ", " + joining(p_.output_of(v).combine) + ");";
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
  std::int64_t group = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> counts;  // of warps, and how far apart
  for (int id : j.units) {
    const ProgramIndex& i = index(id);
    const bool thread = i.unit == Binding::thread;
    counts.emplace_back(thread ? p_.warps : i.count, thread ? 1 : i.stride);
    group *= counts.back().first;
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
