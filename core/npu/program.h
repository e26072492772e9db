// The instruction set of a DaVinci-style AI core: what a program for the emulated NPU is made of.
// docs/npu.md says what each instruction does; assembly.h reads and prints programs as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/units.h"
#include "core/machine/machine.h"
#include "core/npu/int_expr.h"

namespace tilewright::npu {

/// Where data is. gm is home, behind the L2 that all cores share; the others are a core's own.
enum class Memory : std::uint8_t { gm, l1, l0a, l0b, l0c, ub };
constexpr int kMemories = 6;
/// What executes instructions: each in order, none waiting for another unless told to.
enum class Pipe : std::uint8_t { scalar, vector, cube, mte1, mte2, mte3, fix };
constexpr int kPipes = 7;
/// How the elements of a matrix lie in memory. A fractal is 16 x 16 elements. The capital letter is
/// the order of fractals, the small one that of elements in a fractal: z row by row, n column by
/// column.
enum class Layout : std::uint8_t { nd, Nz, Zz, Zn };
enum class Role : std::uint8_t { input, output, scratch };

constexpr std::int64_t kFractal = 16;     ///< rows and columns of a fractal
constexpr std::int64_t kBlock = 32;       ///< bytes: the grain of UB, L1 and DMA
constexpr std::int64_t kVector = 256;     ///< bytes of one repeat of a vector instruction
constexpr std::int64_t kMaxRepeat = 255;  ///< of one vector instruction
constexpr std::int64_t kMaxStride = 255;  ///< in blocks, of vector operands

std::string_view name_of(Memory m);  ///< "GM", "L1", "L0A", "L0B", "L0C", "UB"
std::string_view name_of(Pipe p);    ///< "S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"
std::string_view name_of(Layout l);  ///< "nd", "Nz", "Zz", "Zn"
std::string_view name_of(Role r);
std::optional<Memory> memory_from_name(std::string_view name);
std::optional<Pipe> pipe_from_name(std::string_view name);
std::optional<Layout> layout_from_name(std::string_view name);

/// A tensor in global memory, row-major. Inputs hold data before the program and are not written;
/// outputs and scratch hold nothing at first, and every element of an output must be written.
struct Tensor {
  std::string name;
  Role role = Role::input;
  DType type = DType::f16;  ///< any but f64
  std::vector<std::int64_t> shape;
  std::int64_t elements() const;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A named part of one of a core's memories. Buffers may overlap: the hazards of bytes used twice
/// are checked when the program runs.
struct Buffer {
  std::string name;
  Memory memory = Memory::ub;
  std::int64_t address = 0;  ///< bytes; a multiple of alignment_of(memory)
  std::int64_t elements = 0;
  DType type = DType::f16;
  std::string tensor;  ///< what it holds: byte counters are kept by this name
  std::int64_t bytes() const { return elements * size_of(type); }
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// Of buffers and of what instructions touch: 32 B in UB and L1, 512 B in L0A and L0B, 64 B in L0C
/// (Ascend C, hardware constraints), 1 in GM.
std::int64_t alignment_of(Memory m);

/// An element of a tensor or buffer.
struct Place {
  std::string object;
  IntExpr offset;  ///< elements
  friend bool operator==(const Place&, const Place&) = default;
};

/// A matrix in a tensor or buffer. `pitch` is in elements: of nd, from one row to the next; of Nz,
/// 16ths of the distance between columns of fractals (the rows of the whole, a multiple of 16); of
/// Zz and Zn, those between rows of fractals (the columns of the whole, a multiple of 16).
struct MatrixPlace {
  Place place;
  Layout layout = Layout::nd;
  IntExpr pitch;
  friend bool operator==(const MatrixPlace&, const MatrixPlace&) = default;
};

/// What a vector instruction walks: a repeat is up to eight blocks of 32 bytes, `block_stride`
/// apart; repeats are `repeat_stride` apart. In blocks; at most 255. A reduction's destination has
/// one element a repeat, and brcb's source eight, `repeat_stride` elements apart.
struct VectorPlace {
  Place place;
  std::optional<IntExpr> repeat_stride = {};  ///< default: the blocks of a full repeat (1 element)
  std::optional<IntExpr> block_stride = {};   ///< default: 1
  friend bool operator==(const VectorPlace&, const VectorPlace&) = default;
};

/// DMA: a matrix of rows x columns from one memory to another, changing layout on the way, and type
/// where the two differ (f32 to f16 and back: rounded to nearest even). Into a layout of fractals,
/// the last fractals are filled up with zeros. Between layouts of fractals whole fractals move.
struct Copy {
  MatrixPlace to, from;
  IntExpr rows, columns;   ///< of the source
  bool transpose = false;  ///< the destination is columns x rows; from L1 into L0A or L0B only
  bool add = false;        ///< add to what is there, atomically; into GM only
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// The cube: C = A B, or C += A B, on whole fractals. A (L0A, f16, Zz) is m x k, B (L0B, f16, Zn)
/// k x n, C (L0C, f32, Nz) m x n, all packed: their pitches are k, n and m rounded up to 16. k
/// ascending, each product exact, each sum rounded to nearest even in f32.
struct Mad {
  Place c, a, b;
  IntExpr m, k, n;
  IntExpr accumulate;  ///< 0: C = A B; else C += A B
  friend bool operator==(const Mad&, const Mad&) = default;
};

enum class VectorOp : std::uint8_t {
  add,
  sub,
  mul,
  div,
  max,
  min,
  lt,   // two sources
  sel,  // three
  exp,
  log,
  sqrt,
  rsqrt,
  recip,
  relu,
  abs,
  floor,
  round,  // one source
  copy,
  cast,  // one source; cast: to f32 of any other type, or back
  adds,
  subs,
  muls,
  maxs,
  mins,  // one source and an immediate
  dup,   // an immediate
  rsum,
  rmax,
  rmin,  // one source; each repeat becomes one element
  brcb,  // one source; each element fills a block
};
std::string_view name_of(VectorOp op);  ///< with the v: "vadd"
std::optional<VectorOp> vector_op_from_name(std::string_view name);
int sources_of(VectorOp op);  ///< 0 to 3
bool has_immediate(VectorOp op);
bool is_reduction(VectorOp op);
/// Elements of one repeat: 256 bytes of the wider type; brcb: 8.
std::int64_t lanes_of(VectorOp op, DType to, DType from);

/// The vector unit, on UB. Each repeat computes its first `mask` elements.
struct Vector {
  VectorOp op = VectorOp::copy;
  VectorPlace to;
  std::vector<VectorPlace> from = {};
  double immediate = 0;
  IntExpr repeat = 1;                ///< 0 to 255
  std::optional<IntExpr> mask = {};  ///< default: all of a repeat
  friend bool operator==(const Vector&, const Vector&) = default;
};

/// The scalar unit: one element of UB or of a tensor to a place in UB, by its value: between types
/// it is rounded as vcast does. What it reads may depend on values in UB: the offset goes up by
/// `step` times each of them, and where one is not in 0 to `below` - 1, zero is written.
struct Move {
  struct Index {
    Place value;
    IntExpr step, below;
    friend bool operator==(const Index&, const Index&) = default;
  };
  Place to, from;
  std::vector<Index> by = {};  ///< at most kMostIndices
  friend bool operator==(const Move&, const Move&) = default;
};
constexpr std::size_t kMostIndices = 3;

/// The scalar unit writes a number to an element of UB.
struct Put {
  Place to;
  IntExpr value;
  friend bool operator==(const Put&, const Put&) = default;
};

/// Statements that a Move or a Put comes to on the scalar unit: a load and a store, and for each
/// index a load, a comparison and a multiplication with an addition.
constexpr std::int64_t statements_of(const Move& m) {
  return 2 + 3 * static_cast<std::int64_t>(m.by.size());
}
constexpr std::int64_t statements_of(const Put&) { return 1; }

/// When all before it in pipe `from` is done, the flag (from, to, event) is set.
struct SetFlag {
  Pipe from = Pipe::scalar, to = Pipe::scalar;
  IntExpr event;
  friend bool operator==(const SetFlag&, const SetFlag&) = default;
};

/// Pipe `to` goes on when the flag is set, and clears it.
struct WaitFlag {
  Pipe from = Pipe::scalar, to = Pipe::scalar;
  IntExpr event;
  friend bool operator==(const WaitFlag&, const WaitFlag&) = default;
};

/// pipe: it goes on when all before it in this pipe is done. all: every pipe of the core, when all
/// before it in every pipe is. grid: every pipe of every core, when every block has come here;
/// needs as many cores as blocks.
struct Barrier {
  enum class Scope : std::uint8_t { pipe, all, grid };
  Scope scope = Scope::all;
  Pipe pipe = Pipe::vector;  ///< Scope::pipe
  friend bool operator==(const Barrier&, const Barrier&) = default;
};

struct Statement;

/// A scalar register takes a value.
struct Assign {
  std::string name;
  IntExpr value;
  friend bool operator==(const Assign&, const Assign&) = default;
};

/// counter = from, from + step, ... while below `to`; bounds are computed once, step is positive.
struct Loop {
  std::string counter;
  IntExpr from, to;
  IntExpr step = 1;
  std::vector<Statement> body;
  bool operator==(const Loop&) const;
};

struct Branch {
  IntExpr condition;  ///< 0: otherwise
  std::vector<Statement> then, otherwise;
  bool operator==(const Branch&) const;
};

/// A line of comment.
struct Note {
  friend bool operator==(const Note&, const Note&) = default;
};

struct Statement {
  std::variant<Note, Assign, Loop, Branch, Copy, Mad, Vector, Move, Put, SetFlag, WaitFlag, Barrier>
      action;
  std::string comment = {};  ///< one line
  bool operator==(const Statement&) const;
};

/// Every block runs it, with the scalars `block` (from 0) and `blocks`. Block b runs on core b mod
/// (cores), blocks of one core one after another; but no program may depend on that.
struct Program {
  std::string name;
  std::int64_t blocks = 1;
  std::vector<Tensor> tensors;
  std::vector<Buffer> buffers;
  std::vector<Statement> body;

  const Tensor* tensor(std::string_view name) const;
  const Buffer* buffer(std::string_view name) const;
  bool operator==(const Program&) const;
};

/// The level of a machine that is this memory; gm is what `npu_core` paths call L2.
std::string_view level_of(Memory m);
/// The path between two memories of that machine, or null.
const DataPath* path_between(const NpuCore& core, Memory from, Memory to);
/// The pipe that copies between two memories, or nothing where that machine cannot.
std::optional<Pipe> copy_pipe(const NpuCore& core, Memory from, Memory to);
/// The unit that multiplies fractals, whose count is that of cores and whose clock times are in;
/// null where the machine has none.
const ComputeUnit* cube_unit(const Machine& machine);
/// Layout changes that a copy can make: docs/npu.md, "Copies".
bool copies_layout(Memory from, Layout source, Memory to, Layout destination);

/// Throws InputError (field: "statement N" or a name) unless names are unique identifiers, what
/// instructions name exists and is in the right memory with the right type and layout, the path
/// between two memories exists, scalars are assigned before they are used, and each buffer is
/// aligned and within its memory of `machine`, which must have an npu_core, an L2, and a unit named
/// cube with a clock.
void check(const Program& program, const Machine& machine);

}  // namespace tilewright::npu
