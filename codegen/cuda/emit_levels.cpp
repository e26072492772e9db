// Buffers that units of a block have each for itself (rule 7), and tiles at several levels.
//
// The block's computing warps share the work of every iteration of a loop over warps, lanes or
// threads, one iteration after the other. What an iteration holds of its own has a place of its own
// in shared memory, or, where no iteration comes back to what it held, one place that passes from
// unit to unit and is then empty. So what moves is what rule 7 says, whoever does it. An inner
// level's tile is a copy in shared memory, made from the outer one and written back to it by the
// rules of any other level; inputs at registers are read where they lie in the outer tile by
// whoever computes with them, which puts them there.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {

/// Whether what it holds decides what moves or is computed (`exact`'s word: tracked).
bool KernelEmitter::keeps(BufferId b) const {
  const Buffer& buf = buffer(b);
  return buf.role != BufferRole::intermediate || buf.leaves || buf.sliding || finished_boxes(b) > 0;
}

/// Loops over units of a block around a place whose iterations have buffers of their own.
std::vector<NodeId> KernelEmitter::units_around(BufferId b, NodeId place) const {
  std::vector<NodeId> loops = unit_loops(p_.schedule, k_, place, buffer(b).level);
  std::erase_if(loops, [&](NodeId l) { return k_.node(l).binding == Binding::grid; });
  return loops;
}

void KernelEmitter::place_units() {
  constexpr std::int64_t kMostUnits = 1024;  // each thread keeps a record of each
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const BufferId b(i);
    if (!keeps(b)) continue;
    std::vector<NodeId> places;
    if (buffer(b).fixed_at.valid()) places.push_back(buffer(b).fixed_at);
    for (std::size_t n = 0; n < k_.nodes.size(); ++n) {
      const ScheduleNode& node = k_.nodes[n];
      const bool writes =
          node.kind == NodeKind::compute && !buffer(b).fixed_at.valid() &&
          std::ranges::any_of(node.writes, [&](const OutputUse& w) { return w.buffer == b; });
      const bool fills =
          node.kind == NodeKind::load || (node.kind == NodeKind::drop && !node.all_units);
      if (writes || (fills && node.buffer == b)) places.emplace_back(n);
    }
    std::map<std::size_t, std::int64_t> most;
    bool back = places.size() > 1;  // whether a unit comes back to what it held
    for (NodeId place : places) {
      const std::vector<NodeId> units = units_around(b, place);
      std::int64_t n = 1;
      for (NodeId l : units) n *= k_.node(l).max_trips;
      most[units.size()] = std::max(most[units.size()], n);
      places_[i].own = places_[i].own || n > 1;
      for (NodeId l = place; l.valid() && !units.empty(); l = k_.node(l).parent)
        back = back || (k_.node(l).kind == NodeKind::loop && k_.node(l).max_trips > 1 &&
                        k_.node(l).binding != Binding::grid && l < units.back() &&
                        std::ranges::find(units, l) == units.end());
    }
    // What stands in no loop over units is another's than what stands in one, of a single turn too.
    places_[i].own = places_[i].own || most.size() > 1;
    if (!places_[i].own) continue;
    if (places_[i].form == Form::ring) places_[i].form = Form::loaded;
    if (!back) continue;
    places_[i].units = 0;
    for (const auto& [depth, n] : most) {
      first_unit_[b][depth] = places_[i].units;
      places_[i].units += n;
    }
    if (places_[i].units > kMostUnits)
      throw Refused{std::to_string(places_[i].units) +
                    " units of a block would each keep a tile of " + tensor_name(buffer(b).tensor) +
                    ": at most " + std::to_string(kMostUnits)};
  }
}

/// The number of the unit whose buffer a place uses.
std::string KernelEmitter::unit_text(BufferId b, NodeId place) const {
  const std::vector<NodeId> units = units_around(b, place);
  std::string text;
  for (const OpenLoop& l : open_) {
    if (std::ranges::find(units, l.id) == units.end()) continue;
    const ScheduleNode& n = k_.node(l.id);
    const std::string index = "(" + l.name + (l.first == "0" ? "" : " - (" + l.first + ")") +
                              ") / " + std::to_string(n.step);
    text = text.empty() ? index : "(" + text + ") * " + std::to_string(n.max_trips) + " + " + index;
  }
  std::int64_t first = 0;
  if (const auto of = first_unit_.find(b); of != first_unit_.end())
    first = of->second.at(units.size());
  if (text.empty()) return std::to_string(first);
  return (first == 0 ? "" : std::to_string(first) + " + ") + text;
}

/// From here on a place's unit has the buffer. Where units have one place in turn, the last one's
/// content is written, if changed, and gone.
void KernelEmitter::settle(BufferId b, NodeId place) {
  const TilePlace& p = places_[b.index()];
  if (!p.own) return;
  const std::string unit = name(b) + "_unit", now = unit_text(b, place);
  if (p.units > 1) return out_.line(unit + " = " + now + ";");
  out_.open("if (" + unit + " != " + now + ")");
  if (is_written(b) && !copying_) {
    out_.open("if (" + held(b) + ".changed)");
    write_out(b, nullptr);
    out_.close();
  }
  if (has_record(b)) out_.line(held(b) + ".full = false;");
  if (finished_boxes(b) > 0) out_.line(finished(b) + ".count = -1;");
  out_.line(unit + " = " + now + ";");
  out_.close();
}

/// Whether this pass keeps a record of what the buffer holds.
bool KernelEmitter::has_record(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  if (views_outer(b)) return false;
  if (slides(b) && buffer(b).role == BufferRole::intermediate && (copying_ || !is_written(b)))
    return true;
  return !copying_ && (p.form == Form::loaded || (is_written(b) && !p.plain));
}

std::string KernelEmitter::held(BufferId b) const {
  return name(b) + "_held" + (places_[b.index()].units > 1 ? "[" + name(b) + "_unit]" : "");
}
std::string KernelEmitter::finished(BufferId b) const {
  return name(b) + "_finished" + (places_[b.index()].units > 1 ? "[" + name(b) + "_unit]" : "");
}
std::string KernelEmitter::sliding_place(BufferId b) const {
  return name(b) + "_place" + (places_[b.index()].units > 1 ? "[" + name(b) + "_unit]" : "");
}

// ---- tiles at several levels ------------------------------------------------------------------

/// Whether its tile comes from or goes to another level's, or another level's comes from it.
bool KernelEmitter::chained(BufferId b) const {
  return buffer(b).outer.valid() ||
         std::ranges::any_of(k_.buffers, [&](const Buffer& inner) { return inner.outer == b; });
}

int KernelEmitter::levels_outside(BufferId b) const {
  int n = 0;
  for (BufferId o = buffer(b).outer; o.valid(); o = buffer(o).outer) ++n;
  return n;
}

std::vector<BufferId> KernelEmitter::innermost_first() const {
  std::vector<BufferId> all;
  for (std::size_t i = 0; i < places_.size(); ++i) all.emplace_back(i);
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [&](BufferId b) { return levels_outside(b); });
  return all;
}

/// Inputs at registers whose outer tile is there, with all that is read of it, wherever they are
/// used: no other tile of the outer buffer is loaded between the load and its uses.
void KernelEmitter::choose_views() {
  const auto is_in = [&](NodeId n, NodeId around) {
    for (; n.valid(); n = k_.node(n).parent)
      if (n == around) return true;
    return false;
  };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Buffer& b = k_.buffers[i];
    if (b.role != BufferRole::input || !b.outer.valid() || b.sliding ||
        p_.machine().level(b.level).kind != LevelKind::registers)
      continue;
    bool there = true;
    for (std::size_t n = 0; n < k_.nodes.size() && there; ++n) {
      if (k_.nodes[n].kind != NodeKind::load || k_.nodes[n].buffer != BufferId(i)) continue;
      const NodeId scope = k_.nodes[n].parent;
      for (std::size_t m = n + 1; m < k_.nodes.size(); ++m)
        there = there && (k_.nodes[m].kind != NodeKind::load || k_.nodes[m].buffer != b.outer ||
                          !is_in(NodeId(m), scope));
    }
    if (there) views_[BufferId(i)] = b.outer;
  }
}

bool KernelEmitter::views_outer(BufferId b) const { return views_.contains(b); }

/// The buffer in whose tile a compute reads an input; none: a gather.
BufferId KernelEmitter::buffer_of_input(const ScheduleNode& compute, int input) const {
  BufferId b = lowering::buffer_of_input(compute, input);
  for (auto v = views_.find(b); v != views_.end(); v = views_.find(b)) b = v->second;
  return b;
}

/// What a tile that another level's comes from or goes to holds, as text.
std::string KernelEmitter::box_of_tile(BufferId b) const {
  if (places_[b.index()].form == Form::ring) return name(b) + "_ring.held";
  if (places_[b.index()].form == Form::loaded || is_written(b)) return held(b) + ".box";
  return name(b) + "_fixed";
}

std::string KernelEmitter::strides_text(BufferId b) const {
  const TilePlace& p = places_[b.index()];
  std::string text;
  for (std::size_t d = 0; d < p.most.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(d + 1 < p.most.size() ? p.stride[d] : 1);
  return text;
}

/// `part` of one tile to another that has it, by all computing threads; boxes as text.
void KernelEmitter::copy_part(BufferId to, const std::string& to_box, BufferId from,
                              const std::string& from_box, const std::string& part) {
  const std::string rank = std::to_string(places_[to.index()].most.size());
  out_.line("copy_part<" + rank + ">(" + tile_text(to) + ", {" + strides_text(to) + "}, " + to_box +
            ", " + tile_text(from) + ", {" + strides_text(from) + "}, " + from_box + ", " + part +
            ", thread, " + std::to_string(threads()) + ");");
}

/// A load of what the outer level has; `box`: the name of what is to be held from now on.
void KernelEmitter::load_inner(NodeId id, const std::string& box) {
  const BufferId b = k_.node(id).buffer, outer = buffer(b).outer;
  const TilePlace& p = places_[b.index()];
  std::string part = box;
  if (slides(b)) {
    part = "part";
    out_.line("const Box<" + std::to_string(p.most.size()) + "> part = needed(" + held(b) + ", " +
              box + ");");
    slide(b, box);
  } else {
    out_.line(held(b) + ".now(" + box + ");");
    out_.line(meet());
    if (is_operand(b)) {  // products read whole blocks of it
      out_.line("clear_tile(" + tile_text(b) + ", thread, " + std::to_string(threads()) + ");");
      out_.line(meet());
    }
  }
  copy_part(b, box, outer, box_of_tile(outer), part);
  out_.line(meet());
}

/// An output's buffer holds `box` from now on, and changes (rules 10 to 12): what it held is
/// written if changed; unless it starts afresh, it is read from where it goes.
void KernelEmitter::touch(BufferId b, const std::string& box, const std::string& fresh) {
  const Buffer& buf = buffer(b);
  out_.open("if (!" + held(b) + ".is(" + box + "))");
  out_.open("if (" + held(b) + ".changed)");
  write_out(b, nullptr);
  out_.close();
  out_.line(held(b) + ".now(" + box + ");");
  out_.line(held(b) + ".fresh = " + fresh + ";");
  // What blocks combine at home, none reads there; its own part is in the outer level's tile.
  if (fresh != "true" && buf.role == BufferRole::output && !buf.atomic) {
    out_.open("if (!" + held(b) + ".fresh)");
    const BufferId outer = buf.outer;
    if (outer.valid() && is_written(outer) && !buffer(outer).atomic) {
      out_.open("if (!" + held(outer) + ".is(" + name(outer) + "_fixed))");
      out_.open("if (" + held(outer) + ".changed)");
      write_out(outer, nullptr);
      out_.close();
      read_home(outer, name(outer) + "_fixed");
      out_.close();
    }
    if (outer.valid()) {
      out_.line(meet());
      copy_part(b, box, outer, box_of_tile(outer), box);
      out_.line(meet());
    } else {
      read_home(b, box);
    }
    out_.close();
  }
  out_.close();
  out_.line(held(b) + ".changed = true;");
}

/// An output's tile at the outermost level that holds it, from home.
void KernelEmitter::read_home(BufferId b, const std::string& box) {
  if (buffer(b).outer.valid())
    throw Refused{tensor_name(buffer(b).tensor) +
                  " is read back through more than two levels, which the cuda target does not do"};
  out_.line(held(b) + ".now(" + box + ");");
  out_.line(meet());
  out_.line("read_tile<" + element_type(buffer(b).tensor) + ">(" + tile_text(b) + ", thread, " +
            std::to_string(threads()) + ", " + columns_text(b, nullptr) + ", " +
            row_lambda(b, nullptr, false) + ");");
  out_.line(meet());
}

/// An inner tile to the outer one, which begins another tile where it has not this one's box.
/// `fresh`: of a store, whether sums begin there; else what the tile's record says.
void KernelEmitter::write_inner(BufferId b, const std::optional<std::string>& fresh) {
  const BufferId outer = buffer(b).outer;
  if (!buffer(outer).fixed_at.valid())
    throw Refused{tensor_name(buffer(b).tensor) +
                  " goes to a tile of another level that is not known"};
  if (is_written(outer)) {
    if (!fresh)
      out_.open("if (!(" + held(outer) + ".full && within(" + held(b) + ".box, " + held(outer) +
                ".box)))");
    touch(outer, name(outer) + "_fixed", fresh ? *fresh : held(b) + ".fresh");
    if (!fresh) out_.close();
    out_.line(held(outer) + ".changed = true;");
  }
  out_.line(meet());
  copy_part(outer, box_of_tile(outer), b, held(b) + ".box", held(b) + ".box");
  out_.line(meet());
  out_.line(held(b) + ".changed = false;");
}

}  // namespace tilewright::cuda
