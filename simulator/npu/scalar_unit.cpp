// What the scalar unit does to UB: one element at a time.
#include "core/base/format.h"
#include "simulator/npu/half.h"
#include "simulator/npu/units.h"

namespace tilewright::npu {
namespace {

const Object& object_of(const std::vector<Object>& objects, const Instruction& i, std::size_t o) {
  return objects[static_cast<std::size_t>(i.of->objects[o])];
}

float element(const std::vector<Object>& objects, const Bases& bases, const Instruction& i,
              std::size_t o, std::int64_t offset) {
  const Object& from = object_of(objects, i, o);
  float x = 0;
  load_elements(bases[static_cast<std::size_t>(i.of->objects[o])] + offset * from.element(),
                from.type, &x, 1);
  return x;
}

void write(const std::vector<Object>& objects, const Bases& bases, const Instruction& i, float x) {
  const Object& to = object_of(objects, i, 0);
  store_elements(&x, to.type,
                 bases[static_cast<std::size_t>(i.of->objects[0])] + i.v[0] * to.element(), 1);
}

std::size_t indices(const Instruction& i) { return (i.of->arguments.size() - 2) / 3; }

/// Of the element that is read; nothing where an index is out of its table.
std::optional<std::int64_t> source(const std::vector<Object>& objects, const Bases& bases,
                                   const Instruction& i) {
  std::int64_t offset = i.v[1];
  for (std::size_t k = 0; k < indices(i); ++k) {
    const float index = element(objects, bases, i, 2 + k, i.v[2 + 3 * k]);
    if (!(index >= 0 && index < static_cast<float>(i.v[4 + 3 * k]))) return std::nullopt;
    offset += i.v[3 + 3 * k] * static_cast<std::int64_t>(index);
  }
  return offset;
}

std::optional<Refusal> touch(const std::vector<Object>& objects, const Instruction& i,
                             std::size_t o, std::int64_t offset, bool write, Work& work) {
  const std::int64_t size = object_of(objects, i, o).element();
  if (auto bad = check_offset(objects, i.of->objects[o], offset, size)) return bad;
  work.touches.push_back(
      {.object = i.of->objects[o], .start = offset * size, .bytes = size, .write = write});
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> plan_move(const NpuCore& core, const std::vector<Object>& objects,
                                 const Bases& bases, const Instruction& i, Work& work) {
  work.cycles = core.issue_cycles * i.of->statements;
  if (i.of->path != nullptr) work.cycles += i.of->path->startup + i.of->path->latency;
  for (std::size_t k = 0; k < indices(i); ++k)
    if (auto bad = touch(objects, i, 2 + k, i.v[2 + 3 * k], false, work)) return bad;
  if (const auto from = source(objects, bases, i)) {
    if (auto bad = touch(objects, i, 1, *from, false, work)) return bad;
    if (i.of->path != nullptr) work.moved = object_of(objects, i, 1).element();
  }
  return touch(objects, i, 0, i.v[0], true, work);
}

std::optional<Refusal> plan_put(const NpuCore& core, const std::vector<Object>& objects,
                                const Instruction& i, Work& work) {
  work.cycles = core.issue_cycles * i.of->statements;
  return touch(objects, i, 0, i.v[0], true, work);
}

void do_move(const std::vector<Object>& objects, const Bases& bases, const Instruction& i) {
  const auto from = source(objects, bases, i);
  write(objects, bases, i, from ? element(objects, bases, i, 1, *from) : 0.0F);
}

void do_put(const std::vector<Object>& objects, const Bases& bases, const Instruction& i) {
  write(objects, bases, i, static_cast<float>(i.v[1]));
}

}  // namespace tilewright::npu
