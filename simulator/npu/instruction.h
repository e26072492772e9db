// A program made ready to run: objects by number, expressions as postfix code over slots, loops and
// branches as jumps.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/npu/program.h"
#include "simulator/vector_clocks.h"

namespace tilewright::npu {

/// A tensor or buffer.
struct Object {
  std::string name;
  Memory memory = Memory::gm;
  DType type = DType::f16;
  std::int64_t address = 0;  ///< bytes
  std::int64_t bytes = 0;
  int tensor = 0;             ///< index of the name that counters are kept by
  Role role = Role::scratch;  ///< tensors
  std::int64_t element() const { return size_of(type); }
};

enum class Kind : std::uint8_t { copy, mad, vector, move, put, set_flag, wait_flag, barrier };

/// A statement that pipes execute: what does not change from one execution to the next.
struct Template {
  Kind kind = Kind::barrier;
  Pipe pipe = Pipe::scalar;
  int statement = 0;
  /// copy: to, from; mad: c, a, b; vector: to, sources; move: to, from, indices
  std::array<int, 2 + kMostIndices> objects = {-1, -1, -1, -1, -1};
  std::int64_t statements = 1;  ///< move, put: that they come to
  Layout to_layout = Layout::nd, from_layout = Layout::nd;
  bool transpose = false, add = false;  ///< copy
  const DataPath* path = nullptr;       ///< copy; move from GM
  VectorOp op = VectorOp::copy;         ///< vector
  double immediate = 0;
  Pipe flag_from = Pipe::scalar, flag_to = Pipe::scalar;
  Barrier::Scope scope = Barrier::Scope::all;
  std::vector<std::pair<int, int>> arguments;  ///< code ranges of its expressions
};

/// One execution. `v` by kind: copy: to offset, to pitch, from offset, from pitch, rows, columns;
/// mad: c, a, b offsets, m, n, k, accumulate; vector: four times (offset, repeat stride, block
/// stride) for to and sources, repeat, mask; move: to and from offsets, for each index offset,
/// step, below; put: offset, value; flags: event.
struct Instruction {
  const Template* of = nullptr;
  std::array<std::int64_t, 14> v = {};
  std::int64_t issued = 0;              ///< cycle
  std::array<Clock, kPipes> seen = {};  ///< what the scalar unit had seen by then
};

/// What the scalar unit does next.
struct Step {
  enum class Kind : std::uint8_t { scalar, issue, end, fault };
  Kind kind = Kind::end;
  Instruction instruction = {};
  int statement = 0;
  std::string problem = {};  ///< Kind::fault
};

class Code {
 public:
  /// The program and machine outlive it; check(program, machine) has passed.
  Code(const Program& program, const Machine& machine);

  const std::vector<Object>& objects() const { return objects_; }
  const std::vector<std::string>& tensors() const { return tensors_; }
  std::size_t slots() const { return slot_names_.size() + hidden_; }
  /// The text of a statement by its number.
  std::string line(int statement) const;
  const Template* of_statement(int statement) const;

 private:
  friend class Scalars;
  struct Node {
    IntOp op;
    std::int64_t value;  ///< literal, or slot
  };
  struct Op {
    enum class Kind : std::uint8_t { assign, loop, loop_end, branch, jump, issue, end };
    Kind kind;
    int statement = 0;
    int slot = 0;  ///< assign, loop, loop_end; loops hide two more: end and step
    int hidden = 0;
    int target = 0;  ///< where a loop or branch goes when it is over
    std::pair<int, int> code[3] = {};
    int instruction = 0;  ///< issue: index of its template
  };

  void add_objects(const Program& program);
  void add_body(const std::vector<Statement>& body);
  void add(const Statement& s);
  template <class Action>
  void add_instruction(const Action& action);
  void fill(Template& t, const Copy& c);
  void fill(Template& t, const Mad& m);
  void fill(Template& t, const Vector& v);
  void fill(Template& t, const Move& m);
  void fill(Template& t, const Put& p);
  void fill(Template& t, const SetFlag& f);
  void fill(Template& t, const WaitFlag& f);
  void fill(Template& t, const Barrier& b);
  void vector_place(Template& t, const VectorPlace& p, bool element_step, std::int64_t full);
  int object(const Place& p) const;
  int slot(const std::string& name);
  int tensor(const std::string& name);
  std::pair<int, int> compile(const IntExpr& e);

  const NpuCore& core_;
  std::vector<Object> objects_;
  std::vector<std::string> tensors_, slot_names_;
  std::vector<const Statement*> statements_;
  std::vector<int> template_of_;
  std::vector<Template> templates_;
  std::vector<Node> nodes_;
  std::vector<Op> ops_;
  int hidden_ = 0;
  int number_ = 0;
};

/// The scalar unit of one core: walks the code of one block.
class Scalars {
 public:
  explicit Scalars(const Code& code) : code_(code), slots_(code.slots()) {}
  void start(std::int64_t block, std::int64_t blocks);
  Step next();

 private:
  /// The value, or nothing and why in problem_.
  std::optional<std::int64_t> value(std::pair<int, int> code);
  Step issue(const Code::Op& op);
  Step enter(const Code::Op& op);
  Step fault(const Code::Op& op) const;

  const Code& code_;
  std::vector<std::int64_t> slots_;
  std::vector<std::int64_t> stack_;
  std::size_t at_ = 0;
  std::string problem_;
};

}  // namespace tilewright::npu
