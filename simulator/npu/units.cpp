// Checks that all instructions share.
#include "simulator/npu/units.h"

#include "core/base/format.h"

namespace tilewright::npu {

Refusal out_of_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  return {.problem = formatted("has {} {}, accepted: {} to {}", what, value, least, most)};
}

std::optional<Refusal> check_offset(const std::vector<Object>& objects, int object,
                                    std::int64_t offset, std::int64_t align) {
  const Object& o = objects[static_cast<std::size_t>(object)];
  const std::int64_t elements = o.bytes / o.element();
  if (offset < 0 || offset >= elements) {
    return Refusal{Fault::out_of_bounds, object, offset,
                   formatted("begins at {}[{}], which has {} elements", o.name, offset, elements)};
  }
  if ((o.address + offset * o.element()) % align != 0) {
    return Refusal{
        Fault::alignment, object, offset,
        formatted("begins at {}[{}], byte {} of {}, accepted: multiples of {} bytes", o.name,
                  offset, o.address + offset * o.element(), name_of(o.memory), align)};
  }
  return std::nullopt;
}

std::optional<Refusal> check_bounds(const std::vector<Object>& objects, const Work& work) {
  for (const Touch& t : work.touches) {
    if (t.count == 0 || t.bytes == 0) continue;
    const Object& o = objects[static_cast<std::size_t>(t.object)];
    const std::int64_t end = t.start + (t.count - 1) * t.stride + t.bytes;
    if (end > o.bytes) {
      return Refusal{Fault::out_of_bounds, t.object, t.start / o.element(),
                     formatted("{} {} up to element {}, which has {}", t.write ? "writes" : "reads",
                               o.name, end / o.element(), o.bytes / o.element())};
    }
  }
  return std::nullopt;
}

}  // namespace tilewright::npu
