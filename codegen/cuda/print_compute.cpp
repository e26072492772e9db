// Operators on the values that a thread has.
#include <cmath>

#include "codegen/common/expression.h"
#include "codegen/cuda/launch_text.h"
#include "codegen/cuda/print_program.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cuda {

/// Where this thread reads a gather, and whether there is such an element.
ProgramPrinter::Gathered ProgramPrinter::gathered_at(const Gather& g) {
  Gathered at{.there = both(condition(g.inside), owner(g.copies)),
              .place = source(g.tensor),
              .lane = g.copies.lane ? p_.variables.text(*g.copies.lane) : ""};
  for (const Gather::Dimension& d : g.dimensions) {
    std::string index = "i64(" + p_.variables.text(d.index) + ")";
    if (d.by >= 0) {
      index = named("i64", "index", "i64(x" + std::to_string(d.by) + ")");
      at.there = both(at.there, index + " >= 0 && " + index + " < " + std::to_string(d.extent));
    }
    at.place += " + " + times(d.stride, index);
  }
  return at;
}

/// Where a read of shared memory is: a unit without a part reads what the first one does.
std::string ProgramPrinter::place_of(const Read& r) {
  const Value& v = p_.value(r.value);
  if (r.busy.empty()) return shared(v, r.at);
  const std::string own =
      named("int", "own", condition(r.busy) + " ? " + p_.variables.text(r.own) + " : 0");
  return v.name + "[" + own + " + " + p_.variables.text(r.at) + "]";
}

/// An input at the compute's point.
std::string ProgramPrinter::read(const Read& r) {
  const std::string none = real() + "(0)";
  const auto where = [&](const std::string& in, const std::string& value) {
    return in.empty() ? value : in + " ? " + value + " : " + none;
  };
  // No branch: loads of other turns would not pass it.
  const auto loaded = [](const std::string& place, const std::string& in) {
    return "load_one(" + place + (in.empty() ? "" : ", " + in) + ")";
  };
  const auto from_lane = [](const std::string& lane, const std::string& value) {
    return lane.empty() ? value : "shuffle(" + value + ", " + lane + ")";
  };
  switch (r.from) {
    case Read::From::registers:
      return array(p_.value(r.value), r.names);
    case Read::From::held: {
      std::string text = r.name;
      for (const Linear& at : r.place) text += "[" + p_.variables.text(at) + "]";
      if (!r.place.empty()) return text;
      for (int id : r.dims) text += "[" + index(id).text + "]";
      return text;
    }
    case Read::From::shared: {
      const std::string in = condition(r.inside);
      return where(in, place_of(r));
    }
    case Read::From::home: {
      const std::string in = both(condition(r.inside), owner(r.copies));
      return from_lane(r.copies.lane ? p_.variables.text(*r.copies.lane) : "",
                       loaded(source(r.tensor) + " + " + offset_text(r.tensor, r.at), in));
    }
    case Read::From::gather:
    case Read::From::run: {
      const Gathered g = gathered_at(r.gather);
      return from_lane(g.lane, r.gather.alike ? where(g.there, "to_float(read_alike(" + g.place +
                                                                   ", thread == 0))")
                                              : loaded(g.place, g.there));
    }
  }
  return {};
}

/// The values of a run, in an array of their own.
void ProgramPrinter::load_run(Run& run, bool ahead) {
  const ProgramIndex& e = index(run.element);
  run.name = p_.names.fresh(identifier("", workload_.tensor(run.gather.tensor).name) + "_run");
  out_.line(real() + " " + run.name + "[" + std::to_string(e.count) + "];");
  open_loop(run.element, run.width);
  const Gathered g = gathered_at(run.gather);
  out_.line((ahead ? "load_ahead<" : "load_several<") + std::to_string(run.width) + ">(&" +
            run.name + "[" + e.text + "], " + g.place + ", " + g.there + ");");
  close_loop();
  if (g.lane.empty()) return;
  open_loop(run.element);
  const std::string value = run.name + "[" + e.text + "]";
  out_.line(value + " = shuffle(" + value + ", " + g.lane + ");");
  close_loop();
}

void ProgramPrinter::write(const Write& w, const std::function<std::string(LoopId)>& of_index) {
  const Value& v = p_.value(w.value);
  const Output& out = p_.output_of(v);
  const std::string value = made_as(workload_.tensor(v.tensor).dtype, out,
                                    expression(out.value, real(), of_index, {}, true));
  if (w.sum) {
    const std::string in = condition(w.inside);
    return out_.line(combined(out.combine, array(v),
                              in.empty() ? value
                                         : "(" + in + " ? " + value + " : " +
                                               literal_text(identity_of(out.combine)) + ")"));
  }
  if (v.storage == Storage::registers) return out_.line(array(v) + " = " + value + ";");
  const std::string in = both(condition(w.inside), owner(w.copies));
  const bool to_shared = v.storage == Storage::shared;
  const std::string place = to_shared ? shared(v, w.shared_at) : "";
  const auto to_home = [&](const std::string& what) {
    return "store_one(" + home(v.tensor) + " + " + offset_text(v.tensor, w.home_at) + ", " + what +
           ");";
  };
  // What leaves is stored by the thread that makes it; others read it where it is shared.
  const std::string text = !to_shared ? to_home(value)
                           : w.leaves ? "{ " + place + " = " + value + "; " + to_home(place) + " }"
                                      : place + " = " + value + ";";
  out_.line((in.empty() ? "" : "if (" + in + ") ") + text);
}

void ProgramPrinter::compute(const Step& s) {
  const OpId id = p_.kernel->node(s.node).op;
  out_.comment("C." + to_text(workload_, id));
  std::optional<Run> run = s.run;
  const std::vector<int> loops = ThreadProgram::loops_of(s);
  std::size_t opened = 0;
  const bool braces = run || loops.empty() || std::ranges::any_of(s.reads, [&](const Read& r) {
                        return r.at_home() && ThreadProgram::depth_of(s, r) == 0;
                      });
  if (braces) {
    out_.open("");
    defined_.emplace_back();
  }
  std::vector<bool> defined(s.reads.size());
  const std::function<void(std::size_t)> define = [&](std::size_t i) {
    if (defined[i]) return;
    defined[i] = true;
    const Read& r = s.reads[i];
    for (const Gather::Dimension& d : r.gather.dimensions)
      if (d.by >= 0) define(static_cast<std::size_t>(d.by));
    const std::string value =
        r.from == Read::From::run ? run->name + "[" + index(run->element).text + "]" : read(r);
    out_.line("const " + real() + " x" + std::to_string(i) + " = " + value + ";");
  };
  const auto read_known = [&] {
    for (std::size_t i = 0; i < s.reads.size(); ++i) {
      const Read& r = s.reads[i];
      if (!r.at_home() || ThreadProgram::depth_of(s, r) > opened) continue;
      if (r.from != Read::From::run) {
        define(i);
      } else if (run->name.empty()) {
        for (int by : run->named_by) define(static_cast<std::size_t>(by));
        load_run(*run, s.ahead);
      }
    }
  };
  for (int e : loops) {
    read_known();
    open_loop(e);
    ++opened;
  }
  for (std::size_t i = 0; i < s.reads.size(); ++i) define(i);
  const auto of_index = [&](LoopId loop) {
    const auto l = static_cast<std::size_t>(workload_.local_index(id, loop));
    return real() + "(" + p_.variables.text(s.point[l]) + ")";
  };
  for (const Write& w : s.writes) write(w, of_index);
  close_loops(s.dims.size() + (braces ? 1 : 0));
}

}  // namespace tilewright::cuda
