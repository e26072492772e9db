// Names and tables of the instruction set.
#include "core/npu/program.h"

#include <algorithm>
#include <array>
#include <span>

namespace tilewright::npu {
namespace {

constexpr std::array<std::string_view, kMemories> kMemoryNames = {"GM",  "L1",  "L0A",
                                                                  "L0B", "L0C", "UB"};
constexpr std::array<std::string_view, kPipes> kPipeNames = {"S",    "V",    "M",  "MTE1",
                                                             "MTE2", "MTE3", "FIX"};
constexpr std::array<std::string_view, 4> kLayoutNames = {"nd", "Nz", "Zz", "Zn"};
constexpr std::array<std::string_view, 3> kRoleNames = {"input", "output", "scratch"};

struct OpRecord {
  std::string_view name;
  int sources;
  bool immediate;
};
/// In the order of VectorOp.
constexpr std::array<OpRecord, 28> kOps = {{
    {"vadd", 2, false},   {"vsub", 2, false},  {"vmul", 2, false},  {"vdiv", 2, false},
    {"vmax", 2, false},   {"vmin", 2, false},  {"vlt", 2, false},   {"vsel", 3, false},
    {"vexp", 1, false},   {"vlog", 1, false},  {"vsqrt", 1, false}, {"vrsqrt", 1, false},
    {"vrecip", 1, false}, {"vrelu", 1, false}, {"vabs", 1, false},  {"vfloor", 1, false},
    {"vround", 1, false}, {"vcopy", 1, false}, {"vcast", 1, false}, {"vadds", 1, true},
    {"vsubs", 1, true},   {"vmuls", 1, true},  {"vmaxs", 1, true},  {"vmins", 1, true},
    {"vdup", 0, true},    {"vrsum", 1, false}, {"vrmax", 1, false}, {"vrmin", 1, false},
}};
constexpr OpRecord kBrcb = {"vbrcb", 1, false};

const OpRecord& record(VectorOp op) {
  const auto i = static_cast<std::size_t>(op);
  return i < kOps.size() ? kOps[i] : kBrcb;
}

template <class Enum, std::size_t N>
std::optional<Enum> from_name(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return std::nullopt;
  return static_cast<Enum>(it - names.begin());
}

template <class T>
const T* find(const std::vector<T>& all, std::string_view name) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const T& t) { return t.name == name; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

std::string_view name_of(Memory m) { return kMemoryNames[static_cast<std::size_t>(m)]; }
std::string_view name_of(Pipe p) { return kPipeNames[static_cast<std::size_t>(p)]; }
std::string_view name_of(Layout l) { return kLayoutNames[static_cast<std::size_t>(l)]; }
std::string_view name_of(Role r) { return kRoleNames[static_cast<std::size_t>(r)]; }
std::string_view name_of(VectorOp op) { return record(op).name; }
std::optional<Memory> memory_from_name(std::string_view n) {
  return from_name<Memory>(kMemoryNames, n);
}
std::optional<Pipe> pipe_from_name(std::string_view n) { return from_name<Pipe>(kPipeNames, n); }
std::optional<Layout> layout_from_name(std::string_view n) {
  return from_name<Layout>(kLayoutNames, n);
}
std::optional<VectorOp> vector_op_from_name(std::string_view name) {
  for (std::size_t i = 0; i <= kOps.size(); ++i) {
    if (record(static_cast<VectorOp>(i)).name == name) return static_cast<VectorOp>(i);
  }
  return std::nullopt;
}
int sources_of(VectorOp op) { return record(op).sources; }
bool has_immediate(VectorOp op) { return record(op).immediate; }
bool is_reduction(VectorOp op) {
  return op == VectorOp::rsum || op == VectorOp::rmax || op == VectorOp::rmin;
}
std::int64_t lanes_of(VectorOp op, DType to, DType from) {
  if (op == VectorOp::brcb) return kVector / kBlock;
  return kVector / std::max(size_of(to), size_of(from));
}

std::int64_t Tensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::int64_t alignment_of(Memory m) {
  switch (m) {
    case Memory::gm:
      return 1;
    case Memory::l1:
    case Memory::ub:
      return kBlock;
    case Memory::l0a:
    case Memory::l0b:
      return kFractal * kFractal * 2;
    case Memory::l0c:
      return 64;
  }
  return 1;
}

bool Loop::operator==(const Loop&) const = default;
bool Branch::operator==(const Branch&) const = default;
bool Statement::operator==(const Statement&) const = default;
bool Program::operator==(const Program&) const = default;

const Tensor* Program::tensor(std::string_view n) const { return find(tensors, n); }
const Buffer* Program::buffer(std::string_view n) const { return find(buffers, n); }

std::string_view level_of(Memory m) { return m == Memory::gm ? "L2" : name_of(m); }

const DataPath* path_between(const NpuCore& core, Memory from, Memory to) {
  for (const DataPath& path : core.paths) {
    if (path.from == level_of(from) && path.to == level_of(to)) return &path;
  }
  return nullptr;
}

const ComputeUnit* cube_unit(const Machine& machine) { return find(machine.units, "cube"); }

std::optional<Pipe> copy_pipe(const NpuCore& core, Memory from, Memory to) {
  const DataPath* path = path_between(core, from, to);
  return path == nullptr ? std::nullopt : pipe_from_name(path->pipe);
}

bool copies_layout(Memory from, Layout source, Memory to, Layout destination) {
  if (from == Memory::l1 && to == Memory::l0a) {
    return source == Layout::Nz && destination == Layout::Zz;
  }
  if (from == Memory::l1 && to == Memory::l0b) {
    return source == Layout::Nz && destination == Layout::Zn;
  }
  const auto fits = [](Memory m, Layout l) {
    if (m == Memory::gm) return l == Layout::nd;
    if (m == Memory::l0c) return l == Layout::Nz;
    return (m == Memory::l1 || m == Memory::ub) && (l == Layout::nd || l == Layout::Nz);
  };
  return fits(from, source) && fits(to, destination);
}

}  // namespace tilewright::npu
