// Whether a program makes sense for a machine, before it runs.
#include <set>

#include "core/npu/assembly.h"
#include "core/npu/program.h"

namespace tilewright::npu {
namespace {

/// Bytes of one of a core's memories: the emulator keeps each.
constexpr std::int64_t kMaxLocal = std::int64_t{64} << 20;
constexpr std::int64_t kMaxCores = 1024;
constexpr std::int64_t kMaxTensor = std::int64_t{1} << 33;  ///< bytes of global memory together

class Checker {
 public:
  Checker(const Program& p, const Machine& m) : p_(p), m_(m) {}

  void run() {
    check_machine();
    if (p_.blocks < 1)
      fail("blocks", std::to_string(p_.blocks), "is not a number of blocks", "1 up");
    check_tensors();
    for (const Buffer& b : p_.buffers) check_buffer(b);
    defined_ = {"block", "blocks"};
    check_body(p_.body);
  }

 private:
  [[noreturn]] void fail(std::string field, std::string value, std::string problem,
                         std::string accepted) const {
    throw InputError({.where = p_.name.empty() ? "program" : p_.name,
                      .field = std::move(field),
                      .value = std::move(value),
                      .problem = std::move(problem),
                      .accepted = std::move(accepted)});
  }
  /// Of the statement that is being checked.
  [[noreturn]] void fail(const std::string& value, std::string problem,
                         std::string accepted) const {
    fail("statement " + std::to_string(number_), value, std::move(problem), std::move(accepted));
  }

  void check_machine() const {
    if (!m_.npu_core) {
      fail("machine", m_.name, "has no npu_core", "a machine that the emulator knows: ascend910");
    }
    const ComputeUnit* const cube = cube_unit(m_);
    if (cube == nullptr || cube->clock_hz <= 0 || cube->count > kMaxCores) {
      fail("machine", m_.name, "has no unit named cube, or one without a clock or of too many",
           "a clock, and a count of 1 to " + std::to_string(kMaxCores));
    }
    if (!m_.find(level_of(Memory::gm))) fail("machine", m_.name, "has no L2", "a level named L2");
    for (const Memory memory : {Memory::l1, Memory::l0a, Memory::l0b, Memory::l0c, Memory::ub}) {
      const auto level = m_.find(level_of(memory));
      if (level && m_.level(*level).capacity.value > kMaxLocal) {
        fail("machine", m_.name, "has too large an " + std::string(name_of(memory)),
             std::to_string(kMaxLocal) + " bytes of each memory of a core");
      }
    }
  }

  void check_name(const std::string& name) {
    if (!is_identifier(name)) fail("name", name, "is not an identifier", "letters, digits and _");
    if (!names_.insert(name).second) fail("name", name, "is there twice", "unique names");
  }

  void check_type(const std::string& name, DType type) const {
    if (type == DType::f64)
      fail(name, std::string(tilewright::name_of(type)), "is not a type of this core",
           "f16, bf16, f32, i8 or i32");
  }

  void check_tensors() {
    std::int64_t bytes = 0;
    for (const Tensor& t : p_.tensors) {
      check_name(t.name);
      check_type(t.name, t.type);
      std::int64_t size = size_of(t.type);
      for (const std::int64_t extent : t.shape) {
        if (extent < 1 || extent > kMaxTensor / size) {
          fail(t.name, std::to_string(extent), "makes no tensor that fits",
               "extents of 1 up, tensors of 8 GiB together");
        }
        size *= extent;
      }
      bytes += size;
      if (t.shape.empty() || bytes > kMaxTensor) {
        fail(t.name, std::to_string(size), "bytes do not fit, or there is no shape",
             "tensors of 8 GiB together");
      }
    }
  }

  void check_buffer(const Buffer& b) {
    check_name(b.name);
    check_type(b.name, b.type);
    if (b.memory == Memory::gm) {
      fail(b.name, "GM", "holds tensors, not buffers", "L1, L0A, L0B, L0C or UB");
    }
    if (!is_identifier(b.tensor))
      fail(b.name, b.tensor, "is not a tensor's name", "letters, digits");
    const std::int64_t align = alignment_of(b.memory);
    if (b.address < 0 || b.address % align != 0) {
      fail(b.name, std::to_string(b.address), "is not an aligned address",
           "multiples of " + std::to_string(align) + " bytes");
    }
    const auto level = m_.find(level_of(b.memory));
    const std::int64_t capacity = level ? m_.level(*level).capacity.value : 0;
    if (b.elements < 1 || b.elements > capacity || b.address > capacity - b.bytes()) {
      fail(b.name, std::to_string(b.elements) + " elements at " + std::to_string(b.address),
           "end beyond the memory",
           std::string(name_of(b.memory)) + " of " + std::to_string(capacity) + " bytes");
    }
  }

  void check_body(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      ++number_;
      std::visit([&](const auto& action) { check_action(action); }, s.action);
    }
  }

  void check_expr(const IntExpr& e) const {
    for (const IntExpr::Node& node : e.code()) {
      if (node.op == IntOp::scalar && !defined_.contains(node.scalar)) {
        fail(
            node.scalar, "is used where it may have no value",
            "a scalar that a let before it assigned, a counter of a loop around it, block, blocks");
      }
    }
  }

  void check_free(const std::string& name) const {
    if (!is_identifier(name) || name == "block" || name == "blocks" || counters_.contains(name)) {
      fail(name, "cannot be assigned", "an identifier that is not a counter of a loop around it");
    }
  }

  void check_action(const Note&) {}
  void check_action(const Assign& a) {
    check_free(a.name);
    check_expr(a.value);
    defined_.insert(a.name);
  }
  void check_action(const Loop& l) {
    check_free(l.counter);
    check_expr(l.from);
    check_expr(l.to);
    check_expr(l.step);
    const std::set<std::string> before = defined_;
    defined_.insert(l.counter);
    counters_.insert(l.counter);
    check_body(l.body);
    counters_.erase(l.counter);
    defined_ = before;  // it may not run at all
  }
  void check_action(const Branch& b) {
    check_expr(b.condition);
    const std::set<std::string> before = defined_;
    check_body(b.then);
    std::set<std::string> then = before;
    std::swap(then, defined_);
    check_body(b.otherwise);
    std::erase_if(defined_, [&](const std::string& name) { return !then.contains(name); });
  }

  /// Memory and type of a place.
  struct Object {
    Memory memory;
    DType type;
    const std::string& tensor;
  };
  Object object(const Place& p) const {
    check_expr(p.offset);
    if (const Buffer* b = p_.buffer(p.object)) return {b->memory, b->type, b->tensor};
    if (const Tensor* t = p_.tensor(p.object)) return {Memory::gm, t->type, t->name};
    fail(p.object, "names no tensor or buffer", "a name that a directive declares");
  }

  void check_action(const Copy& c) {
    const Object to = object(c.to.place), from = object(c.from.place);
    for (const IntExpr* e : {&c.to.pitch, &c.from.pitch, &c.rows, &c.columns}) check_expr(*e);
    const std::string way =
        std::string(name_of(from.memory)) + " to " + std::string(name_of(to.memory));
    if (!copy_pipe(*m_.npu_core, from.memory, to.memory)) {
      fail(way, "is not a path of " + m_.name, "the paths of its machine file");
    }
    if (!copies_layout(from.memory, c.from.layout, to.memory, c.to.layout)) {
      fail(way + ", " + std::string(name_of(c.from.layout)) + " to " +
               std::string(name_of(c.to.layout)),
           "is not a layout change of this path", "GM: nd; L0C: Nz; L0A: Nz to Zz; L0B: Nz to Zn");
    }
    const bool accumulators = from.memory == Memory::l0c || to.memory == Memory::l0c;
    if (from.type != to.type && !accumulators) {
      fail(way, "does not change types", "copies out of L0C or into it; vcast in UB");
    }
    if (c.transpose && to.memory != Memory::l0a && to.memory != Memory::l0b) {
      fail(way, "does not transpose", "L1 to L0A or L0B");
    }
    if (c.add && to.memory != Memory::gm) fail(way, "does not add", "copies to GM");
    if (from.tensor != to.tensor) {
      fail(from.tensor + " to " + to.tensor, "are two tensors' names at the ends of one copy",
           "buffers that say which tensor they hold");
    }
    if (const Tensor* t = p_.tensor(c.to.place.object); t != nullptr && t->role == Role::input) {
      fail(t->name, "is an input and cannot be written", "outputs and scratch");
    }
  }

  void check_operand(const Place& p, Memory memory, DType type) const {
    const Object o = object(p);
    if (o.memory != memory || o.type != type) {
      fail(p.object, "is not an operand of mad",
           std::string(tilewright::name_of(type)) + " in " + std::string(name_of(memory)));
    }
  }
  void check_action(const Mad& m) {
    check_operand(m.c, Memory::l0c, DType::f32);
    check_operand(m.a, Memory::l0a, DType::f16);
    check_operand(m.b, Memory::l0b, DType::f16);
    for (const IntExpr* e : {&m.m, &m.n, &m.k, &m.accumulate}) check_expr(*e);
  }

  void check_action(const Vector& v) {
    if (v.from.size() != static_cast<std::size_t>(sources_of(v.op))) {
      fail(std::string(name_of(v.op)), "has another number of sources",
           std::to_string(sources_of(v.op)));
    }
    const DType to = check_vector(v.to);
    for (const VectorPlace& p : v.from) {
      const DType from = check_vector(p);
      const bool fits = v.op == VectorOp::cast
                            ? from != to && (from == DType::f32 || to == DType::f32)
                            : from == to;
      if (!fits)
        fail(p.place.object, "has a type that " + std::string(name_of(v.op)) + " does not take",
             v.op == VectorOp::cast ? "f32 to another type, or back" : "operands of one type");
    }
    if (v.op != VectorOp::cast && to != DType::f16 && to != DType::f32)
      fail(v.to.place.object, "has a type that " + std::string(name_of(v.op)) + " does not take",
           "f16 or f32");
    check_expr(v.repeat);
    if (v.mask) check_expr(*v.mask);
  }
  DType check_vector(const VectorPlace& p) const {
    const Object o = object(p.place);
    if (o.memory != Memory::ub) fail(p.place.object, "is not in UB", "buffers in UB");
    if (p.repeat_stride) check_expr(*p.repeat_stride);
    if (p.block_stride) check_expr(*p.block_stride);
    return o.type;
  }

  void check_element(const Place& p, bool may_be_home) const {
    const Object o = object(p);
    if (o.memory != Memory::ub && !(may_be_home && o.memory == Memory::gm))
      fail(p.object, "is not in UB", "buffers in UB; what a move reads may be a tensor");
  }
  void check_action(const Move& m) {
    check_element(m.to, false);
    check_element(m.from, true);
    if (m.by.size() > kMostIndices)
      fail(std::to_string(m.by.size()), "indices are too many",
           "at most " + std::to_string(kMostIndices));
    for (const Move::Index& i : m.by) {
      check_element(i.value, false);
      check_expr(i.step);
      check_expr(i.below);
    }
  }
  void check_action(const Put& p) {
    check_element(p.to, false);
    check_expr(p.value);
  }

  void check_flag(Pipe from, Pipe to, const IntExpr& event) const {
    if (from == to) fail(std::string(name_of(from)), "waits for itself", "two pipes");
    check_expr(event);
  }
  void check_action(const SetFlag& f) { check_flag(f.from, f.to, f.event); }
  void check_action(const WaitFlag& f) { check_flag(f.from, f.to, f.event); }
  void check_action(const Barrier& b) {
    if (b.scope == Barrier::Scope::grid && p_.blocks > cores()) {
      fail("barrier grid", "of more blocks than cores", "at most " + std::to_string(cores()));
    }
  }
  std::int64_t cores() const { return cube_unit(m_)->count; }

  const Program& p_;
  const Machine& m_;
  std::set<std::string> names_, defined_, counters_;
  int number_ = 0;
};

}  // namespace

void check(const Program& program, const Machine& machine) { Checker(program, machine).run(); }

}  // namespace tilewright::npu
