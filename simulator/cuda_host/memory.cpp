// Loads, stores, asynchronous copies and atomics: checked, counted and done.
#include <cmath>
#include <cstring>

#include "core/base/format.h"
#include "simulator/cuda_host/device/tilewright_half.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

bool aligned(const void* p, std::int64_t to) {
  return address(p) % static_cast<std::uintptr_t>(to) == 0;
}

}  // namespace

bool Engine::in_arena(const Block& b, std::uintptr_t p) const {
  return p - address(b.arena.data()) < static_cast<std::uintptr_t>(b.arena_bytes);
}

std::int64_t Engine::shared_offset(Fiber& f, const void* p, std::int64_t bytes,
                                   std::int64_t alignment, bool write, std::uint32_t place,
                                   const char* what) {
  const std::int64_t offset =
      static_cast<std::int64_t>(address(p)) - static_cast<std::int64_t>(address(f.owner->shared));
  if (offset < 0 || offset + bytes > shared_bytes_) {
    const bool near = in_arena(*f.owner, address(p));
    report(f, Fault::out_of_bounds, place,
           near ? formatted("{} {} bytes at byte {} of shared memory, which has {}", what, bytes,
                            offset, shared_bytes_)
                : formatted("{} {} bytes at {}, which is not in shared memory", what, bytes,
                            static_cast<const void*>(p)));
    return -1;
  }
  if (!aligned(p, alignment)) {
    report(f, Fault::misaligned, place,
           formatted("{} {} bytes at byte {} of shared memory, which is not a multiple of {}", what,
                     bytes, offset, alignment));
    return -1;
  }
  static_cast<void>(write);
  return offset;
}

void Engine::check_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, bool write,
                          std::uint32_t place, int component, Clock now) {
  Block& b = *f.owner;
  const Seen seen = b.clocks.seen(f.index);
  const auto outcome = write ? b.shadow.write(offset, bytes, component, now, seen, place)
                             : b.shadow.read(offset, bytes, component, now, seen, place);
  if (outcome.other)
    report_race(f, Fault::race, place, write, b.clocks.is_copier(component), outcome.other.place,
                b.index, outcome.other.component, outcome.other_wrote, -2, outcome.offset);
  if (outcome.uninitialised && !findings_.seen_before(Fault::uninitialised, place, 0, -2))
    findings_.add({.fault = Fault::uninitialised,
                   .kernel = kernel_,
                   .block = b.index,
                   .thread = f.index,
                   .place = place,
                   .object = object_name(-2),
                   .offset = outcome.offset,
                   .what = formatted("reads byte {} of shared memory, which nobody has written",
                                     outcome.offset)},
                  -2);
  if (outcome.barrier)
    report(f, Fault::mbarrier_misuse, place,
           formatted("{} byte {} of shared memory, where an mbarrier lies",
                     write ? "writes" : "reads", offset));
}

void Engine::read_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place) {
  counts_->shared_read += bytes;
  if (options_.checks)
    check_shared(f, offset, bytes, false, place, f.index, f.owner->clocks.now(f.index));
}

void Engine::write_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place) {
  counts_->shared_written += bytes;
  if (options_.checks)
    check_shared(f, offset, bytes, true, place, f.index, f.owner->clocks.now(f.index));
}

int Engine::global_region(Fiber& f, const void* p, std::int64_t bytes, std::int64_t alignment,
                          bool write, std::uint32_t place, const char* what) {
  const std::uintptr_t at = address(p);
  const int region = memory_.find(at);
  if (region >= 0) {
    const GlobalMemory::Region& r = memory_.regions()[static_cast<std::size_t>(region)];
    const auto offset = static_cast<std::int64_t>(at - r.base);
    if (!aligned(p, alignment)) {
      report(f, Fault::misaligned, place,
             formatted("{} {} bytes at byte {} of {}, which is not a multiple of {}", what, bytes,
                       offset, r.name, alignment));
      return -1;
    }
    if (offset + bytes <= r.bytes) {
      if (write) memory_.mark_written(region);
      return region;
    }
  }
  const int near = memory_.nearest(at);
  if (near < 0) {
    report(f, Fault::out_of_bounds, place,
           formatted("{} {} bytes at {}, which is in no tensor", what, bytes,
                     static_cast<const void*>(p)));
    return -1;
  }
  const GlobalMemory::Region& r = memory_.regions()[static_cast<std::size_t>(near)];
  if (!findings_.seen_before(Fault::out_of_bounds, place, 0, near))
    findings_.add({.fault = Fault::out_of_bounds,
                   .kernel = kernel_,
                   .block = f.owner->index,
                   .thread = f.index,
                   .place = place,
                   .object = r.name,
                   .offset = static_cast<std::int64_t>(at - r.base),
                   .what = formatted("{} {} bytes at byte {} of {}, which has {}", what, bytes,
                                     static_cast<std::int64_t>(at - r.base), r.name, r.bytes)},
                  near);
  return -1;
}

void Engine::check_global(Fiber& f, int region, const void* p, std::int64_t bytes,
                          GlobalMemory::Kind kind, std::uint32_t place, int component, Clock now) {
  if (!options_.checks || bytes <= 0) return;
  if (early_ && !f.launches_ended &&
      (kind != GlobalMemory::Kind::read || memory_.launch_before_wrote(region)))
    report(f, Fault::block_race, place,
           "is at home before it has called launches_ended: the launch before may still run");
  Block& b = *f.owner;
  const GlobalMemory::Region& r = memory_.regions()[static_cast<std::size_t>(region)];
  const auto outcome =
      memory_.access(region, static_cast<std::int64_t>(address(p) - r.base), bytes, kind,
                     {.phase = phase_,
                      .block = b.index,
                      .component = static_cast<std::uint32_t>(component),
                      .now = now,
                      .seen = b.clocks.seen(f.index),
                      .place = place});
  if (outcome.race)
    report_race(f, outcome.between_blocks ? Fault::block_race : Fault::race, place,
                kind != GlobalMemory::Kind::read, b.clocks.is_copier(component),
                outcome.other_place, outcome.other_block, static_cast<int>(outcome.other_component),
                outcome.other_wrote, region, outcome.offset);
  if (outcome.uninitialised && !findings_.seen_before(Fault::uninitialised, place, 0, region))
    findings_.add({.fault = Fault::uninitialised,
                   .kernel = kernel_,
                   .block = b.index,
                   .thread = f.index,
                   .place = place,
                   .object = r.name,
                   .offset = outcome.offset,
                   .what = formatted("reads byte {} of {}, which nobody has written",
                                     outcome.offset, r.name)},
                  region);
}

void Engine::access(Fiber& f, const void* p, std::int64_t bytes, unsigned flags,
                    std::uint32_t place) {
  const std::uintptr_t at = address(p);
  watch(f, place);
  if (in_arena(*f.owner, at)) {
    plain_shared(f, p, bytes, flags, place);
  } else if (memory_.holds(at)) {
    plain_global(f, p, bytes, flags, place);
  } else if (!image_.contains(at)) {
    // Nothing says whether the machine would survive it: the block ends here.
    report(f, Fault::out_of_bounds, place,
           formatted("{} {} bytes at {}, which is in no tensor and not in shared memory",
                     (flags & TW_WRITE) != 0 ? "writes" : "reads", bytes, p));
    stop(f);
  }
}

void Engine::plain_shared(Fiber& f, const void* p, std::int64_t bytes, unsigned flags,
                          std::uint32_t place) {
  const bool write = (flags & TW_WRITE) != 0;
  const std::int64_t alignment = (flags & TW_UNALIGNED) != 0 ? 1 : bytes;
  const std::int64_t offset =
      shared_offset(f, p, bytes, alignment, write, place, write ? "writes" : "reads");
  if (offset < 0) {
    if (!in_arena(*f.owner, address(p) + static_cast<std::uintptr_t>(bytes))) stop(f);
    return;
  }
  write ? write_shared(f, offset, bytes, place) : read_shared(f, offset, bytes, place);
}

void Engine::plain_global(Fiber& f, const void* p, std::int64_t bytes, unsigned flags,
                          std::uint32_t place) {
  const bool write = (flags & TW_WRITE) != 0;
  const std::int64_t alignment = (flags & TW_UNALIGNED) != 0 ? 1 : bytes;
  const int region =
      global_region(f, p, bytes, alignment, write, place, write ? "writes" : "reads");
  if (region < 0) {
    if (!memory_.holds(address(p) + static_cast<std::uintptr_t>(bytes))) stop(f);
    return;
  }
  TensorBytes& c = counts_->tensors[static_cast<std::size_t>(region)];
  (write ? c.written_through_l1 : c.read_through_l1) += bytes;
  check_global(f, region, p, bytes, write ? GlobalMemory::Kind::write : GlobalMemory::Kind::read,
               place, f.index, f.owner->clocks.now(f.index));
}

void Engine::cp_async(Fiber& f, void* to, const void* from, int bytes, int valid,
                      std::uint32_t place) {
  watch(f, place);
  Block& b = *f.owner;
  ++counts_->copies;
  if (valid < 0 || valid > bytes) {
    report(f, Fault::bad_argument, place, formatted("copies {} valid bytes of {}", valid, bytes));
    return;
  }
  const std::int64_t offset = shared_offset(f, to, bytes, bytes, true, place, "copies to");
  int region = -1;
  if (valid > 0) {
    region = global_region(f, from, valid, bytes, false, place, "copies");
  } else if (!aligned(from, bytes)) {
    report(f, Fault::misaligned, place,
           formatted("copies from an address that is not a multiple of {}", bytes));
  }
  if (offset < 0) return;
  PendingCopy copy{
      .offset = offset, .clock = b.clocks.issue_copy(f.index), .bytes = bytes, .data = {}};
  const int component = b.clocks.copier(f.index);
  if (region >= 0) {
    counts_->tensors[static_cast<std::size_t>(region)].read += valid;
    check_global(f, region, from, valid, GlobalMemory::Kind::read, place, component, copy.clock);
    std::memcpy(copy.data.data(), from, static_cast<std::size_t>(valid));
  }
  counts_->shared_written += bytes;
  if (options_.checks) check_shared(f, offset, bytes, true, place, component, copy.clock);
  f.copies.push_back(copy);
}

void Engine::cp_async_commit(Fiber& f) { f.groups.push_back(f.owner->clocks.copies(f.index)); }

void Engine::cp_async_wait(Fiber& f, int groups, std::uint32_t place) {
  if (left_out("cp_async_wait", place)) return;
  if (groups < 0) {
    report(f, Fault::bad_argument, place, formatted("waits for {} groups", groups));
    return;
  }
  const auto keep = static_cast<std::size_t>(groups);
  if (f.groups.size() <= keep) return;
  const std::size_t done = f.groups.size() - keep;
  const Clock upto = f.groups[done - 1];
  f.groups.erase(f.groups.begin(), f.groups.begin() + static_cast<std::ptrdiff_t>(done));
  land_copies(f, upto);
  f.owner->clocks.see_copies(f.index, f.index, upto);
}

void Engine::land_copies(Fiber& f, Clock upto) {
  auto copy = f.copies.begin();
  for (; copy != f.copies.end() && copy->clock <= upto; ++copy)
    std::memcpy(f.owner->shared + copy->offset, copy->data.data(),
                static_cast<std::size_t>(copy->bytes));
  f.copies.erase(f.copies.begin(), copy);
}

void Engine::load_global(Fiber& f, void* to, const void* from, int bytes, std::uint32_t place) {
  watch(f, place);
  const int region = global_region(f, from, bytes, bytes, false, place, "reads");
  if (region < 0) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
    return;
  }
  counts_->tensors[static_cast<std::size_t>(region)].read += bytes;
  check_global(f, region, from, bytes, GlobalMemory::Kind::read, place, f.index,
               f.owner->clocks.now(f.index));
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void Engine::store_global(Fiber& f, void* to, const void* from, int bytes, std::uint32_t place) {
  watch(f, place);
  const int region = global_region(f, to, bytes, bytes, true, place, "writes");
  if (region < 0) return;
  counts_->tensors[static_cast<std::size_t>(region)].written += bytes;
  check_global(f, region, to, bytes, GlobalMemory::Kind::write, place, f.index,
               f.owner->clocks.now(f.index));
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

namespace {

/// Global atomics on f32 flush subnormal operands and results to zero of their sign (PTX,
/// atom.add).
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// What an atomic leaves of two numbers.
template <class Real>
Real combined(std::uint32_t how, Real a, Real b) {
  switch (how) {
    case TW_LARGEST:
      return b > a || b != b ? b : a;  // NaN if one is
    case TW_SMALLEST:
      return b < a || b != b ? b : a;
    case TW_TIMES:
      return a * b;
    default:
      return a + b;
  }
}

/// f16 and bf16: the addend rounded, then the sum. Rounding a float sum of two such numbers once
/// more is the same as rounding their exact sum (24 bits are at least twice 11 plus 2).
template <auto ToFloat, auto FromFloat>
void add_half(std::uint32_t how, void* p, float x) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, 2);
  bits = FromFloat(combined(how, ToFloat(bits), ToFloat(FromFloat(x))));
  std::memcpy(p, &bits, 2);
}

template <class T>
T loaded(const void* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

/// As the device's integers wrap around.
template <class T>
void combine_integer(std::uint32_t how, void* p, double x) {
  const std::int64_t a = loaded<T>(p), b = static_cast<std::int64_t>(x);
  const T result = static_cast<T>(how == TW_TIMES      ? a * b
                                  : how == TW_LARGEST  ? std::max(a, b)
                                  : how == TW_SMALLEST ? std::min(a, b)
                                                       : a + b);
  std::memcpy(p, &result, sizeof result);
}

}  // namespace

void Engine::atomic_add(Fiber& f, void* p, std::uint32_t what, double x, std::uint32_t place) {
  const std::uint32_t type = what % TW_LARGEST, how = what - type;
  watch(f, place);
  const int bytes = type == TW_F64                     ? 8
                    : type == TW_F32 || type == TW_I32 ? 4
                    : type == TW_I8                    ? 1
                                                       : 2;
  const int region = global_region(f, p, bytes, bytes, true, place, "adds to");
  if (region < 0) return;
  counts_->tensors[static_cast<std::size_t>(region)].atomic += bytes;
  check_global(f, region, p, bytes, GlobalMemory::Kind::atomic, place, f.index,
               f.owner->clocks.now(f.index));
  if (type == TW_F64) {
    const double sum = combined(how, loaded<double>(p), x);
    std::memcpy(p, &sum, 8);
  } else if (type == TW_F32) {
    const float sum = how == 0 ? flushed(flushed(loaded<float>(p)) + flushed(static_cast<float>(x)))
                               : combined(how, loaded<float>(p), static_cast<float>(x));
    std::memcpy(p, &sum, 4);
  } else if (type == TW_I32) {
    combine_integer<std::int32_t>(how, p, x);
  } else if (type == TW_I8) {
    combine_integer<std::int8_t>(how, p, x);
  } else if (type == TW_F16) {
    add_half<tw_half::float_of_f16, tw_half::f16_of_float>(how, p, static_cast<float>(x));
  } else {
    add_half<tw_half::float_of_bf16, tw_half::bf16_of_float>(how, p, static_cast<float>(x));
  }
}

}  // namespace tilewright::cuda_host
