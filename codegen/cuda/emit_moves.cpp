// What a kernel declares, loads and writes.
#include <algorithm>
#include <numeric>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/launch_text.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/matrix_access.h"
#include "core/workload/expr.h"

namespace tilewright::cuda {
namespace {

std::string type_of_box(std::size_t rank) { return "Box<" + std::to_string(rank) + ">"; }

}  // namespace

void KernelEmitter::record(BufferId b, const SymBox& tile) {
  std::vector<std::int64_t> most;
  for (const SymRange& r : tile) most.push_back(r.most);
  block_.note_tile(b, most);
}

/// What is known to divide an index whenever it is reached.
std::int64_t KernelEmitter::divisor(const Linear& x) const {
  std::int64_t d = std::abs(x.constant);
  for (const auto& [variable, coefficient] : x.terms) {
    const auto known = divisors_.find(variable);
    d = std::gcd(d, coefficient * (known == divisors_.end() ? 1 : known->second));
  }
  return d == 0 ? std::int64_t{1} << 30 : d;
}

lowering::BoxAtHome KernelEmitter::at_home(const SymBox& box) const {
  lowering::BoxAtHome at;
  if (!box.empty()) at.begins = divisor(box.back().lo);
  for (const SymRange& r : box) {
    const Linear size = r.hi - r.lo;
    at.sizes.push_back(size.is_constant() ? size.constant : 0);
  }
  return at;
}

/// Whether every row of the box begins at a multiple of so many elements.
bool KernelEmitter::aligned(BufferId b, const SymBox& box, std::int64_t elements) const {
  return block_.rows_begin_at(buffer(b).tensor, at_home(box), elements);
}

/// Of pieces that a copying thread has in registers, how many at the same time: fewer where blocks
/// that wait for one another share a multiprocessor's registers.
int KernelEmitter::pieces_at_once() const {
  const Machine& m = p_.machine();
  if (m.kind != "gpu") return lowering::pieces_at_once(1);
  const ComputeUnit& sm = m.units.front();
  const std::int64_t each = ceil_div(k_.blocks, std::max<std::int64_t>(1, sm.count));
  const int most = lowering::pieces_at_once(each);
  if (!k_.co_resident || sm.registers <= 0) return most;
  const std::int64_t has =
      lowering::most_registers((threads() + copying_threads()) * each, sm.registers);
  return has >= 128 ? most : has >= 80 ? 4 : 1;
}

/// Into how many groups the copying threads part for a ring: more where a tile waits in registers,
/// so that they wait for several tiles at the same time.
int KernelEmitter::copying_groups(BufferId b) const {
  if (!shifted_.contains(b)) return 1;
  return std::gcd(
      lowering::copying_groups(block_.tile(b).stages, static_cast<std::int64_t>(shifted_.size())),
      copying_threads() / 32);
}

/// Elements between a tile's rows at home where they are one dimension's, else 0.
std::int64_t KernelEmitter::rows_apart(BufferId b) const {
  const BlockTile& p = block_.tile(b);
  const std::vector<std::int64_t> stride = strides_of(workload_.tensor(buffer(b).tensor));
  std::int64_t apart = 0;
  for (std::size_t d = 0; d + 1 < p.most.size(); ++d) {
    if (p.most[d] == 1) continue;
    if (apart != 0) return 0;
    apart = stride[d];
  }
  return apart;
}

void KernelEmitter::declare() {
  std::int64_t barrier = 0;
  std::string starts;
  for (std::size_t i = 0; i < tiles().size(); ++i) {
    const BufferId b(i);
    const BlockTile& p = tiles()[i];
    const std::string n = name(b);
    if (p.in_registers() || block_.views_outer(b)) continue;
    const std::string type = tile_type(b);
    out_.line("using " + n + "_layout = Tile<" + type + ", " + std::to_string(p.need_rows) + ", " +
              std::to_string(p.need_columns) + ", " + std::to_string(p.pitch) + ", " +
              (p.swizzle == BlockTile::Swizzle::rows    ? "true"
               : p.swizzle == BlockTile::Swizzle::fours ? "kByFours"
                                                        : "false") +
              ">;");
    out_.line(type + "* const " + n + "_data = " + shared_place(type, p.offset) + ";");
    if (p.form != Form::ring) continue;
    out_.line("u64* const " + n + "_barriers = " + shared_place("u64", 8 * barrier) + ";");
    starts += (starts.empty() ? "" : " ") +
              ("start_ring<" + std::to_string(p.stages) + ">(" + n + "_barriers, " +
               std::to_string(copying_threads() / copying_groups(b)) + ", " +
               std::to_string(threads() / 32) + ");");
    barrier += 2 * p.stages;
  }
  out_.line("float* const scratch = " + shared_place("float", block_.program().scratch_offset) +
            ";");
  out_.line("(void)scratch;");
  if (!starts.empty()) {
    out_.open("if (thread == 0)");
    out_.line(starts);
    out_.close();
    out_.line("block_sync();");
  }
}

/// A function from a tile's row to the address of its first element at home, null where there is no
/// such row. `box`: what the tile holds; null: what its record says.
std::string KernelEmitter::row_lambda(BufferId b, const SymBox* box, bool to_write) const {
  const BlockTile& p = block_.tile(b);
  const TensorId t = buffer(b).tensor;
  const std::vector<std::int64_t> stride = strides_of(workload_.tensor(t));
  const std::string type = (to_write ? "" : "const ") + element_type(t);
  const auto low = [&](std::size_t d) {
    return box != nullptr ? variables_.text((*box)[d].lo)
                          : held(b) + ".box.d[" + std::to_string(d) + "].lo";
  };
  const auto size = [&](std::size_t d) {
    return box != nullptr ? variables_.text((*box)[d].hi - (*box)[d].lo)
                          : held(b) + ".box.d[" + std::to_string(d) + "].hi - " + low(d);
  };
  std::string address = home(t), condition;
  const auto add = [&](const std::string& index, std::int64_t by) {
    if (index == "0") return;
    address += " + i64(" + index + ")" + (by == 1 ? "" : " * " + std::to_string(by));
  };
  const bool registers = p.form == Form::sums || p.form == Form::rows;
  bool first = true, whole = box != nullptr && !registers;
  // Rows of the outermost dimension may lie further apart than there are rows within.
  std::size_t outer = 0;
  while (outer < p.most.size() && p.most[outer] == 1) ++outer;
  std::int64_t within = 1;
  for (std::size_t d = outer + 1; d + 1 < p.most.size(); ++d) within *= p.most[d];
  const bool spread = !registers && outer + 2 < p.most.size() && p.stride[outer] > within;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < stride.size(); ++d) {
    add(low(d), stride[d]);
    std::string row;
    if (registers) {
      if (static_cast<int>(d) != p.row_dim) continue;
      row = "r";
    } else {
      if (d + 1 == stride.size() || p.most[d] == 1) continue;
      const std::string from =
          spread && !first ? "(r % " + std::to_string(p.stride[outer]) + ")" : "r";
      row = p.stride[d] == 1 ? from : from + " / " + std::to_string(p.stride[d]);
      if (!first && !(spread && p.stride[d] * p.most[d] == within))
        row = (p.stride[d] == 1 ? from : "(" + row + ")") + " % " + std::to_string(p.most[d]);
    }
    condition += (condition.empty() ? "" : " && ") + row + " < " + size(d);
    whole = whole && size(d) == std::to_string(p.most[d]);
    rows *= p.most[d];
    add(row, stride[d]);
    first = false;
  }
  if (condition.empty()) condition = "r < 1";
  // A condition that holds for all rows costs nothing so.
  if (whole && rows == p.need_rows)
    return "[&](int r) -> " + type + "* { return " + condition + " ? " + address + " : nullptr; }";
  return "[&](int r) -> " + type + "* { return there_if(" + condition + ", " + address + "); }";
}

std::string KernelEmitter::columns_text(BufferId b, const SymBox* box) const {
  const std::size_t rank = block_.tile(b).most.size();
  if (rank == 0) return "1";
  if (box != nullptr) return variables_.text(box->back().hi - box->back().lo);
  const std::string last = held(b) + ".box.d[" + std::to_string(rank - 1) + "]";
  return last + ".hi - " + last + ".lo";
}

void KernelEmitter::visit_load(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const BlockTile& p = block_.tile(n.buffer);
  const std::string& tensor = tensor_name(n.tensor);
  const std::string tile = name(n.buffer);
  SymRanges made;
  const SymBox box = reads_box(n.reads_below, n.tensor, ahead_of(n.lookahead, ranges, made));
  record(n.buffer, box);
  fixed_[n.buffer.index()] = box;
  if (block_.views_outer(n.buffer)) return;
  settle(n.buffer, id);
  std::string condition = nonempty(box);
  if (!condition.empty()) condition += " && ";
  out_.comment("L." + tensor);
  const std::string here = names_.fresh(identifier("", tensor) + "_box");
  out_.line("const " + type_of_box(box.size()) + " " + here + " = " + box_text(box) + ";");
  const BlockStep move = block_.movement(id, copying_, at_home(box));
  steps_.push_back(move);
  if (move.way == BlockStep::Way::shifted) shifted_.insert(n.buffer);
  if (p.form == Form::ring) {
    const std::string at = tile_text(n.buffer);
    if (!copying_)
      return out_.line("if (" + condition + tile + "_ring.needs(" + here + ")) " + tile +
                       "_ring.take(" + here + ", me.lane);");
    const int groups = copying_groups(n.buffer);
    std::string mine;
    if (groups > 1) {
      // Rings begin with another group each.
      const auto before = std::ranges::distance(shifted_.begin(), shifted_.find(n.buffer));
      mine = " && " + tile + "_ring.fill_mine<" + std::to_string(groups) + ">(" + here +
             ", copier / " + std::to_string(copying_threads() / groups) +
             (before == 0 ? ")" : " + " + std::to_string(before) + ")");
    }
    out_.open("if (" + condition + tile + "_ring.needs(" + here + ")" + mine + ")");
    if (groups == 1) out_.line(tile + "_ring.fill(" + here + ");");
    const std::string copiers = std::to_string(copying_threads() / groups),
                      copier = groups == 1 ? "copier" : "copier % " + copiers;
    const bool comes_later = copy_box(move, box, at, copier, copiers);
    out_.line(tile + (comes_later ? "_ring.copies_started();" : "_ring.elements_stored();"));
    return out_.close();
  }
  for (BufferId f = n.flush; f.valid(); f = buffer(f).outer) {
    if (block_.tile(f).plain || !block_.is_written(f)) continue;
    out_.open("if (" + condition + held(f) + ".changed)");
    out_.comment(tensor + " is spilled: written before it is read");
    write_out(f, nullptr);
    out_.close();
  }
  out_.open("if (" + condition + "!" + held(n.buffer) + ".is(" + here + "))");
  if (buffer(n.buffer).outer.valid()) {
    load_inner(id, here);
    return out_.close();
  }
  if (block_.slides(n.buffer)) {
    out_.line("const " + type_of_box(box.size()) + " part = needed(" + held(n.buffer) + ", " +
              here + ");");
    slide(n.buffer, here);
    std::string home_strides_text;
    const auto strides_home = strides_of(workload_.tensor(n.tensor));
    for (std::size_t d = 0; d < box.size(); ++d)
      home_strides_text += (d == 0 ? "" : ", ") + std::to_string(strides_home[d]);
    act(BlockAct::load_new, [&] {
      out_.line("load_part<" + std::to_string(box.size()) + ">(" + tile_text(n.buffer) + ", {" +
                strides_text(n.buffer) + "}, " + here + ", part, " + home(n.tensor) + ", {" +
                home_strides_text + "}, thread, " + std::to_string(threads()) + ");");
    });
  } else {
    out_.line(held(n.buffer) + ".now(" + here + ");");
    act(BlockAct::load, [&] {
      if (!copy_box(move, box, tile_text(n.buffer), "thread", std::to_string(threads()))) return;
      out_.line("cp_async_commit();");
      out_.line("cp_async_wait<0>();");
    });
  }
  out_.close();
}

/// A load's box by `copiers` threads, of which this one is number `copier`; whether the copies are
/// asynchronous.
bool KernelEmitter::copy_box(const BlockStep& move, const SymBox& box, const std::string& at,
                             const std::string& copier, const std::string& copiers) {
  const BufferId b = move.tile;
  const TensorId t = buffer(b).tensor;
  const std::string& tensor = tensor_name(t);
  const std::string rows = row_lambda(b, &box, false), columns = columns_text(b, &box);
  const auto note = [&](const std::string& text) {
    if (std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(text);
  };
  // Where rows are one dimension's they are so many from the first one's address on.
  const std::int64_t apart = rows_apart(b);
  const auto stride = strides_of(workload_.tensor(t));
  std::string from = home(t), count = "1";
  for (std::size_t d = 0; d < box.size(); ++d) {
    const std::string low = variables_.text(box[d].lo);
    if (low != "0")
      from += " + i64(" + low + ")" + (stride[d] == 1 ? "" : " * " + std::to_string(stride[d]));
    if (d + 1 < box.size() && block_.tile(b).most[d] != 1)
      count = variables_.text(box[d].hi - box[d].lo);
  }
  switch (move.way) {
    case BlockStep::Way::whole:
      out_.line("copy_whole<" + copiers + ", " + std::to_string(apart) + ">(" + at + ", " + copier +
                ", " + from + ");");
      return true;
    case BlockStep::Way::rows:
    case BlockStep::Way::pieces: {
      const bool pieces = move.way == BlockStep::Way::pieces;
      const std::string bytes = std::to_string(pieces ? move.piece : 16);
      if (pieces)
        note("rows of " + tensor + " begin at multiples of " + bytes +
             " bytes: they are copied in pieces of as many");
      if (apart != 0)
        out_.line("copy_rows<" + copiers + ", " + bytes + ", " + std::to_string(apart) + ">(" + at +
                  ", " + copier + ", " + count + ", " + columns + ", " + from + ");");
      else
        out_.line("copy_async<" + copiers + ", " + bytes + ">(" + at + ", " + copier + ", " +
                  columns + ", " + home(t) + ", " + rows + ");");
      return true;
    }
    case BlockStep::Way::shifted: {
      const bool ends_within = workload_.tensor(t).bytes().value % 8 != 0;
      out_.line((apart != 0 ? "copy_shifted_rows<" : "copy_shifted<") + copiers + ", " +
                std::to_string(pieces_at_once()) + ", " + (k_.co_resident ? "false" : "true") +
                (apart == 0
                     ? ""
                     : ", " + std::to_string(apart) + ", " + (ends_within ? "true" : "false")) +
                ">(" + at + ", " + copier + ", " + (apart != 0 ? count + ", " : "") + columns +
                (apart != 0 ? ", " + from : "") + ", " + home(t) + " + " +
                std::to_string(workload_.tensor(t).elements().value) +
                (apart != 0 ? "" : ", " + rows) + ");");
      note("rows of " + tensor +
           " do not begin at multiples of 16 bytes: they are copied through registers");
      return false;
    }
    case BlockStep::Way::elements:
      out_.line("copy_elements(" + at + ", " + copier + ", " + copiers + ", " + columns + ", " +
                rows + ");");
      note("elements of " + tensor + " are i8 at home and i32 in tiles: each is copied alone");
      return false;
  }
  return false;
}

std::string KernelEmitter::tile_type(BufferId b) const {
  return cuda::element_type(block_.element(b));
}

std::string KernelEmitter::put_text(BufferId b, const std::string& at,
                                    const std::string& value) const {
  return block_.tile(b).narrow ? "put(" + at + ", " + value + ");" : "*" + at + " = " + value + ";";
}

std::string KernelEmitter::tile_text(BufferId b) const {
  const BlockTile& p = block_.tile(b);
  const auto here = here_.find(b);
  std::string data = here == here_.end() ? name(b) + "_data" : here->second;
  if (p.form == Form::ring)
    data += " + " + name(b) + "_ring.stage * " + std::to_string(p.need_rows * p.pitch);
  if (block_.slides(b))
    data += " + " + sliding_place(b) + " * " + std::to_string(p.need_rows * p.pitch);
  if (p.units > 1)
    data += " + " + name(b) + "_unit * " + std::to_string(p.need_rows * p.pitch * p.stages);
  return name(b) + "_layout{" + data + "}";
}

/// The tile becomes another: what both share moves to where it lies in the new one (rule 8), in the
/// other of the buffer's two places.
void KernelEmitter::slide(BufferId b, const std::string& box) {
  const BlockTile& p = block_.tile(b);
  const std::string n = name(b), rank = std::to_string(p.most.size()), place = sliding_place(b);
  if (!copying_) {
    std::string other = n + "_layout{" + n + "_data + (1 - " + place + ") * " +
                        std::to_string(p.need_rows * p.pitch);
    if (p.units > 1)
      other += " + " + n + "_unit * " + std::to_string(p.need_rows * p.pitch * p.stages);
    other += "}";
    act(BlockAct::slide, [&] {
      out_.line("if (!equal(needed(" + held(b) + ", " + box + "), " + box + ")) keep_shared<" +
                rank + ">(" + other + ", " + tile_text(b) + ", {" + strides_text(b) + "}, " + box +
                ", " + held(b) + ".box, thread, " + std::to_string(threads()) + ");");
    });
    out_.line(place + " = 1 - " + place + ";");
  }
  out_.line(held(b) + ".now(" + box + ");");
}

/// Writes a tile home (or adds it, where blocks share it). `box`: null: what its record says.
void KernelEmitter::write_out(BufferId b, const SymBox* box) {
  const BlockTile& p = block_.tile(b);
  const Buffer& buf = buffer(b);
  steps_.push_back({.kind = BlockStep::Kind::store,
                    .node = {},
                    .tile = b,
                    .other = buf.outer,
                    .atomic = buf.atomic,
                    .kept = !p.plain});
  if (buf.outer.valid()) return write_inner(b, std::nullopt);
  const std::string n = name(b), type = element_type(buf.tensor), t = std::to_string(threads());
  const std::string row = row_lambda(b, box, true), columns = columns_text(b, box);
  std::string how;
  for (const Output& o : workload_.op(workload_.producer(buf.tensor)).outputs)
    if (buf.atomic && o.target.tensor == buf.tensor && o.combine != Combine::sum)
      how = ", " + combining(o.combine);
  if (p.form == Form::computed) {
    out_.line(std::string(buf.atomic ? "add_tile" : "write_tile") + "<" + type + how + ">(" +
              tile_text(b) + ", thread, " + t + ", " + columns + ", " + row + ");");
  } else if (p.form == Form::rows) {
    out_.line(std::string(buf.atomic ? "add_rows" : "write_rows") + "<" + type + how + ">(" + n +
              ", me, " + row + ");");
  } else {
    const Joined sums = joined(b);
    std::string pairs;
    if (buf.atomic) {
      if (how.empty() && type == "float" && box != nullptr && aligned(b, *box, 4))
        pairs = ", kSum, true";
    } else {
      pairs = box == nullptr || is_integer(workload_.tensor(buf.tensor).dtype) ? ", false"
              : aligned(b, *box, at_once(type))                                ? ", true"
                                                                               : ", false";
    }
    out_.line(std::string(buf.atomic ? "add_sums" : "write_sums") + "<" + type + how + pairs +
              ">(" + sums.name + ", me, " + sums.first + ", " + columns + ", " + row + ");");
  }
  if (!p.plain) out_.line(held(b) + ".changed = false;");
}

void KernelEmitter::visit_store(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  out_.comment("S." + tensor_name(n.tensor) + (n.atomic ? "!atomic" : ""));
  const BlockTile& p = block_.tile(n.buffer);
  if (buffer(n.buffer).outer.valid()) {
    out_.open("if (" + held(n.buffer) + ".changed)");
    steps_.push_back({.kind = BlockStep::Kind::store,
                      .node = id,
                      .tile = n.buffer,
                      .other = buffer(n.buffer).outer,
                      .kept = true});
    bool combined = false;
    for (BufferId o = n.buffer; o.valid(); o = buffer(o).outer)
      combined = combined || buffer(o).atomic;
    write_inner(n.buffer, initialises(n.op, ranges, combined));
    return out_.close();
  }
  if (p.plain) {
    const SymBox box = *fixed_[n.buffer.index()];
    const std::string some = nonempty(box);
    if (!some.empty()) out_.open("if (" + some + ")");
    write_out(n.buffer, &box);
    if (!some.empty()) out_.close();
    return;
  }
  out_.open("if (" + held(n.buffer) + ".changed)");
  write_out(n.buffer, nullptr);
  out_.close();
}

/// Makes the tile that a compute writes what its buffer holds: another one is written if changed,
/// and the new one is read back unless it starts afresh (rules 10 and 12).
void KernelEmitter::hold(const OutputUse& w, const SymBox& box, const std::string& fresh) {
  const BlockTile& p = block_.tile(w.buffer);
  const Buffer& buf = buffer(w.buffer);
  if (!block_.is_written(w.buffer) || p.plain) return;
  const std::string n = name(w.buffer), type = element_type(w.tensor),
                    t = std::to_string(threads());
  const std::string here = names_.fresh(n + "_now");
  out_.line("const " + type_of_box(box.size()) + " " + here + " = " + box_text(box) + ";");
  if (buf.outer.valid()) return touch(w.buffer, here, fresh);
  out_.open("if (!" + held(w.buffer) + ".is(" + here + "))");
  out_.open("if (" + held(w.buffer) + ".changed)");
  write_out(w.buffer, nullptr);
  out_.close();
  out_.line(held(w.buffer) + ".now(" + here + ");");
  const bool reads = fresh != "true" && buf.role == BufferRole::output && !buf.atomic;
  if (reads) {
    if (fresh != "false") out_.open("if (!(" + fresh + "))");
    const std::string row = row_lambda(w.buffer, &box, false),
                      columns = columns_text(w.buffer, &box);
    if (p.form == Form::computed) {
      act(BlockAct::resume, [&] {
        out_.line("read_tile<" + type + ">(" + tile_text(w.buffer) + ", thread, " + t + ", " +
                  columns + ", " + row + ");");
      });
    } else if (p.form == Form::rows) {
      out_.line("read_rows<" + type + ", " + t + ">(" + n + ", me, scratch, " + row + ");");
    } else {
      const bool integer = is_integer(workload_.tensor(w.tensor).dtype);
      const std::string whole =
          !integer && aligned(w.buffer, box, at_once(type)) ? ", true" : ", false";
      const std::string read = "read_sums<" + type + whole + ">(" + n + ", me, " +
                               first_column(w.buffer) + ", " + columns + ", " + row + ");";
      if (p.split == Split::partial) {
        out_.line("if (me.column == 0) " + read);
        out_.line("else fill(" + n + ", 0);");
      } else {
        out_.line(read);
      }
    }
    if (fresh != "false") out_.close();
  }
  out_.close();
  out_.line(held(w.buffer) + ".changed = true;");
}

}  // namespace tilewright::cuda
