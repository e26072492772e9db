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

/// The number of the unit whose buffer a place uses.
std::string KernelEmitter::unit_text(BufferId b, NodeId place) const {
  const std::vector<NodeId> units = block_.units_around(b, place);
  std::string text;
  for (const OpenLoop& l : open_) {
    if (std::ranges::find(units, l.id) == units.end()) continue;
    const ScheduleNode& n = k_.node(l.id);
    const std::string index = "(" + l.name + (l.first == "0" ? "" : " - (" + l.first + ")") +
                              ") / " + std::to_string(n.step);
    text = text.empty() ? index : "(" + text + ") * " + std::to_string(n.max_trips) + " + " + index;
  }
  const std::int64_t first = block_.first_unit(b, units.size());
  if (text.empty()) return std::to_string(first);
  return (first == 0 ? "" : std::to_string(first) + " + ") + text;
}

/// From here on a place's unit has the buffer. Where units have one place in turn, the last one's
/// content is written, if changed, and gone.
void KernelEmitter::settle(BufferId b, NodeId place) {
  const BlockTile& p = block_.tile(b);
  if (!p.own) return;
  const std::string unit = name(b) + "_unit", now = unit_text(b, place);
  if (p.units > 1) return out_.line(unit + " = " + now + ";");
  out_.open("if (" + unit + " != " + now + ")");
  if (block_.is_written(b) && !copying_) {
    out_.open("if (" + held(b) + ".changed)");
    write_out(b, nullptr);
    out_.close();
  }
  if (has_record(b)) out_.line(held(b) + ".full = false;");
  if (block_.finished_boxes(b) > 0) out_.line(finished(b) + ".count = -1;");
  out_.line(unit + " = " + now + ";");
  out_.close();
}

/// Whether this pass keeps a record of what the buffer holds.
bool KernelEmitter::has_record(BufferId b) const {
  const BlockTile& p = block_.tile(b);
  if (block_.views_outer(b)) return false;
  if (block_.slides(b) && buffer(b).role == BufferRole::intermediate &&
      (copying_ || !block_.is_written(b)))
    return true;
  return !copying_ && (p.form == Form::loaded || (block_.is_written(b) && !p.plain));
}

std::string KernelEmitter::held(BufferId b) const {
  return name(b) + "_held" + (block_.tile(b).units > 1 ? "[" + name(b) + "_unit]" : "");
}
std::string KernelEmitter::finished(BufferId b) const {
  return name(b) + "_finished" + (block_.tile(b).units > 1 ? "[" + name(b) + "_unit]" : "");
}
std::string KernelEmitter::sliding_place(BufferId b) const {
  return name(b) + "_place" + (block_.tile(b).units > 1 ? "[" + name(b) + "_unit]" : "");
}

// ---- tiles at several levels ------------------------------------------------------------------

/// What a tile that another level's comes from or goes to holds, as text.
std::string KernelEmitter::box_of_tile(BufferId b) const {
  if (block_.tile(b).form == Form::ring) return name(b) + "_ring.held";
  if (block_.tile(b).form == Form::loaded || block_.is_written(b)) return held(b) + ".box";
  return name(b) + "_fixed";
}

std::string KernelEmitter::strides_text(BufferId b) const {
  const BlockTile& p = block_.tile(b);
  std::string text;
  for (std::size_t d = 0; d < p.most.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(d + 1 < p.most.size() ? p.stride[d] : 1);
  return text;
}

/// `part` of one tile to another that has it, by all computing threads; boxes as text.
void KernelEmitter::copy_part(BufferId to, const std::string& to_box, BufferId from,
                              const std::string& from_box, const std::string& part) {
  const std::string rank = std::to_string(block_.tile(to).most.size());
  out_.line("copy_part<" + rank + ">(" + tile_text(to) + ", {" + strides_text(to) + "}, " + to_box +
            ", " + tile_text(from) + ", {" + strides_text(from) + "}, " + from_box + ", " + part +
            ", thread, " + std::to_string(threads()) + ");");
}

/// A load of what the outer level has; `box`: the name of what is to be held from now on.
void KernelEmitter::load_inner(NodeId id, const std::string& box) {
  const BufferId b = k_.node(id).buffer, outer = buffer(b).outer;
  const BlockTile& p = block_.tile(b);
  std::string part = box;
  if (block_.slides(b)) {
    part = "part";
    out_.line("const Box<" + std::to_string(p.most.size()) + "> part = needed(" + held(b) + ", " +
              box + ");");
    slide(b, box);
  } else {
    out_.line(held(b) + ".now(" + box + ");");
    if (block_.is_operand(b))  // products read whole blocks of it
      act(BlockAct::clear, [&] {
        out_.line("clear_tile(" + tile_text(b) + ", thread, " + std::to_string(threads()) + ");");
      });
  }
  act(block_.slides(b) ? BlockAct::load_new : BlockAct::load,
      [&] { copy_part(b, box, outer, box_of_tile(outer), part); });
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
    if (outer.valid() && block_.is_written(outer) && !buffer(outer).atomic) {
      out_.open("if (!" + held(outer) + ".is(" + name(outer) + "_fixed))");
      out_.open("if (" + held(outer) + ".changed)");
      write_out(outer, nullptr);
      out_.close();
      read_home(outer, name(outer) + "_fixed");
      out_.close();
    }
    if (outer.valid()) {
      act(BlockAct::read_back, [&] { copy_part(b, box, outer, box_of_tile(outer), box); });
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
  act(BlockAct::read_back, [&] {
    out_.line("read_tile<" + element_type(buffer(b).tensor) + ">(" + tile_text(b) + ", thread, " +
              std::to_string(threads()) + ", " + columns_text(b, nullptr) + ", " +
              row_lambda(b, nullptr, false) + ");");
  });
}

/// An inner tile to the outer one, which begins another tile where it has not this one's box.
/// `fresh`: of a store, whether sums begin there; else what the tile's record says.
void KernelEmitter::write_inner(BufferId b, const std::optional<std::string>& fresh) {
  const BufferId outer = buffer(b).outer;
  if (!buffer(outer).fixed_at.valid())
    throw Refused{tensor_name(buffer(b).tensor) +
                  " goes to a tile of another level that is not known"};
  if (block_.is_written(outer)) {
    if (!fresh)
      out_.open("if (!(" + held(outer) + ".full && within(" + held(b) + ".box, " + held(outer) +
                ".box)))");
    touch(outer, name(outer) + "_fixed", fresh ? *fresh : held(b) + ".fresh");
    if (!fresh) out_.close();
    out_.line(held(outer) + ".changed = true;");
  }
  act(BlockAct::hand_over,
      [&] { copy_part(outer, box_of_tile(outer), b, held(b) + ".box", held(b) + ".box"); });
  out_.line(held(b) + ".changed = false;");
}

}  // namespace tilewright::cuda
