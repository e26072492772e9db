// A BlockProgram for people.
#include <algorithm>

#include "core/lowering/gpu/block_program.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

std::string counted(std::int64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::string element_name(DType type) {
  return type == DType::f32   ? "float"
         : type == DType::f64 ? "double"
         : type == DType::i32 ? "int"
                              : std::string(name_of(type));
}

class BlockDescriber {
 public:
  explicit BlockDescriber(const BlockProgram& p) : p_(p) {}

  std::string text() {
    int warps = 0;
    for (const BlockRole& r : p_.roles) warps += r.warps;
    line(p_.kernel->name + ": " + counted(p_.kernel->blocks, "block") + " of " +
         counted(warps, "warp") + ", " + std::to_string(p_.shared_bytes) +
         " bytes of shared memory");
    line("tiles");
    ++depth_;
    for (const BlockTile& t : p_.tiles) line(tile_text(t));
    --depth_;
    for (const BlockRole& r : p_.roles) {
      line(r.name + ": " + counted(r.warps, "warp") + " from warp " + std::to_string(r.first_warp) +
           (r.name == "compute" ? ", " + std::to_string(p_.warp_rows) + " along rows, " +
                                      std::to_string(p_.warp_columns) + " along columns"
                                : ""));
      body(r.steps);
    }
    return std::move(text_);
  }

 private:
  void line(const std::string& text) {
    text_.append(2 * depth_, ' ');
    text_ += text + "\n";
  }
  std::string name(BufferId b) const {
    return p_.workload->tensor(p_.kernel->buffer(b).tensor).name;
  }

  std::string tile_text(const BlockTile& t) const {
    using Form = BlockTile::Form;
    std::string text = name(t.buffer) + ": ";
    if (t.view.valid())
      text += "registers of each use, from another level's tile";
    else if (t.form == Form::ring)
      text += "ring of " + counted(t.stages, "stage");
    else if (t.form == Form::sums)
      text += "registers, as sums of matrix instructions";
    else if (t.form == Form::rows)
      text += "registers, one value a row";
    else
      text += "shared memory";
    if (t.bytes > 0) {
      text += " of " + element_name(t.element) + ", " + std::to_string(t.bytes) +
              " bytes at byte " + std::to_string(t.offset);
      if (t.units > 1) text += ", a place for each of " + counted(t.units, "unit");
      if (t.takes_turns) text += ", between its uses the place of others";
      if (t.last_phase > 0)
        text +=
            ", in phases " + std::to_string(t.first_phase) + " to " + std::to_string(t.last_phase);
    }
    return text + (t.reason.empty() ? "" : "; " + t.reason);
  }

  void body(const std::vector<BlockStep>& steps) {
    ++depth_;
    for (const BlockStep& s : steps) step(s);
    --depth_;
  }

  std::string compute_text(const BlockStep& s) const {
    using Method = BlockStep::Method;
    const ScheduleNode& n = p_.kernel->node(s.node);
    std::string text = "C." + to_text(*p_.workload, n.op) + (n.once ? "!once" : "") + ": ";
    switch (s.method) {
      case Method::product:
      case Method::contraction:
        text += std::string(s.method == Method::product ? "product" : "contraction") +
                " of at most " + std::to_string(s.rows) + " x " + std::to_string(s.columns) +
                " x " + std::to_string(s.depth) + " by " + s.micro_kernel + ", a " +
                std::string(name_of(s.unit)) + " an instruction";
        break;
      case Method::fragments:
        text += "on values in registers";
        break;
      case Method::points:
        text += "point by point";
        break;
    }
    return text;
  }

  static std::string way(const BlockStep& s) {
    return s.way == BlockStep::Way::elements  ? ", element by element"
           : s.way == BlockStep::Way::shifted ? ", through registers"
                                              : ", asynchronously";
  }

  void step(const BlockStep& s) {
    using Kind = BlockStep::Kind;
    const std::string record = s.kept ? ", where it is not held" : "";
    switch (s.kind) {
      case Kind::loop:
        line("loop " + s.index + ", " + counted(s.count, "turn"));
        break;
      case Kind::blocks:
        line("blocks " + s.index + ", " + std::to_string(s.count));
        break;
      case Kind::part:
        line(counted(s.count, "block") + " from block " + std::to_string(s.first));
        break;
      case Kind::ahead:
        line("ahead, for the next phase");
        break;
      case Kind::copy:
        line("L." + name(s.tile) + " into the next stage" + way(s) + record);
        break;
      case Kind::take:
        line("wait for " + name(s.tile) + record);
        break;
      case Kind::load:
        line("L." + name(s.tile) +
             (s.other.valid() ? " from another level's tile" : " from home" + way(s)) + record);
        break;
      case Kind::compute:
        line(compute_text(s));
        break;
      case Kind::store:
        line("S." + name(s.tile) + (s.atomic ? "!atomic" : "") +
             (s.other.valid() ? " to another level's tile" : "") +
             (s.kept ? ", where it has changed" : ""));
        break;
      case Kind::drop:
        line("D." + name(s.tile));
        break;
      case Kind::barrier:
        line(s.count == 0 ? "barrier of all blocks" : "barrier of " + counted(s.count, "thread"));
        break;
    }
    body(s.body);
  }

  const BlockProgram& p_;
  std::string text_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string describe(const BlockProgram& p) { return BlockDescriber(p).text(); }

}  // namespace tilewright::lowering
