// DMA: matrices between memories, changing layout and type on the way.
#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "simulator/npu/half.h"
#include "simulator/npu/units.h"

namespace tilewright::npu {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

std::int64_t up(std::int64_t n) { return ceil_div(n, kFractal) * kFractal; }

/// One end of a copy: a matrix of rows x columns in its own coordinates.
struct End {
  int object;
  Layout layout;
  std::int64_t offset, pitch, rows, columns;
};

struct Ends {
  End to, from;
};

Ends ends_of(const Instruction& i) {
  const Template& t = *i.of;
  const std::int64_t rows = i.v[4], columns = i.v[5];
  const End from{t.objects[1], t.from_layout, i.v[2], i.v[3], rows, columns};
  const End to{t.objects[0],
               t.to_layout,
               i.v[0],
               i.v[1],
               t.transpose ? columns : rows,
               t.transpose ? rows : columns};
  return {to, from};
}

std::optional<Refusal> check_end(const std::vector<Object>& objects, const End& e) {
  const Object& o = objects[static_cast<std::size_t>(e.object)];
  if (auto bad = check_offset(objects, e.object, e.offset,
                              std::max(alignment_of(o.memory), o.element()))) {
    return bad;
  }
  const std::int64_t least = e.layout == Layout::Nz   ? up(e.rows)
                             : e.layout == Layout::nd ? (e.rows > 1 ? e.columns : 0)
                                                      : up(e.columns);
  if (e.pitch < least || e.pitch > std::int64_t{1} << 32) {
    return out_of_range("a pitch of", e.pitch, least, std::int64_t{1} << 32);
  }
  const bool fractals = e.layout != Layout::nd;
  if (fractals && e.pitch % kFractal != 0) {
    return Refusal{.problem = formatted("has a pitch of {}, accepted: multiples of 16", e.pitch)};
  }
  if (!fractals && o.memory != Memory::gm && e.rows > 1 && e.pitch * o.element() % kBlock != 0) {
    return Refusal{Fault::alignment, e.object, e.offset,
                   formatted("has rows of {} {} bytes apart, accepted: multiples of {}", o.name,
                             e.pitch * o.element(), kBlock)};
  }
  return std::nullopt;
}

/// The bytes of an end, whole fractals where it has any.
Touch touch_of(const std::vector<Object>& objects, const End& e, bool write) {
  const std::int64_t size = objects[static_cast<std::size_t>(e.object)].element();
  Touch t{.object = e.object, .start = e.offset * size, .write = write};
  if (e.layout == Layout::nd) {
    t.bytes = e.columns * size;
    t.count = e.rows;
    t.stride = e.pitch * size;
  } else if (e.layout == Layout::Nz) {
    t.bytes = up(e.rows) * kFractal * size;
    t.count = ceil_div(e.columns, kFractal);
    t.stride = kFractal * e.pitch * size;
  } else {
    t.bytes = up(e.columns) * kFractal * size;
    t.count = ceil_div(e.rows, kFractal);
    t.stride = kFractal * e.pitch * size;
  }
  if (t.count > 1 && t.stride == t.bytes) {
    t.bytes *= t.count;
    t.count = 1;
  }
  return t;
}

/// Bytes that take time at an end: rows of nd are rounded up to blocks.
std::int64_t moved_at(const std::vector<Object>& objects, const End& e) {
  const std::int64_t size = objects[static_cast<std::size_t>(e.object)].element();
  if (e.layout == Layout::nd) {
    return e.rows * (ceil_div(e.columns * size, kBlock) * kBlock);
  }
  return up(e.rows) * up(e.columns) * size;
}

/// Where sixteen elements of a row of the source lie, and how far apart: (r, c) to (r, c + 15), c a
/// multiple of 16. `transposed`: the end's rows are the source's columns.
struct Chunk {
  std::int64_t offset, step;
};
Chunk chunk(const End& e, std::int64_t r, std::int64_t c, bool transposed) {
  if (transposed) {  // Zz or Zn
    const std::int64_t fractal =
        e.offset + kFractal * (c / kFractal) * e.pitch + 256 * (r / kFractal);
    if (e.layout == Layout::Zz) return {fractal + r % kFractal, kFractal};
    return {fractal + kFractal * (r % kFractal), 1};
  }
  switch (e.layout) {
    case Layout::nd:
      return {e.offset + r * e.pitch + c, 1};
    case Layout::Nz:
      return {e.offset + c * e.pitch + kFractal * r, 1};
    case Layout::Zz:
      return {
          e.offset + kFractal * (r / kFractal) * e.pitch + kFractal * c + kFractal * (r % kFractal),
          1};
    case Layout::Zn:
      return {e.offset + kFractal * (r / kFractal) * e.pitch + kFractal * c + r % kFractal,
              kFractal};
  }
  return {0, 1};
}

/// Moves every chunk of the matrix: take(offset, n) reads n elements, put(offset, step, n) writes
/// the n it got, those that were not read as zeros.
template <class Take, class Put>
void each_chunk(const Ends& ends, bool transposed, Take&& take, Put&& put) {
  const End& from = ends.from;
  const bool whole_from = from.layout != Layout::nd, whole_to = ends.to.layout != Layout::nd;
  const std::int64_t rows = whole_to ? up(from.rows) : from.rows;
  for (std::int64_t c = 0; c < from.columns; c += kFractal) {
    const std::int64_t here = std::min(kFractal, from.columns - c);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t has = whole_from ? kFractal : (r < from.rows ? here : 0);
      take(has > 0 ? chunk(from, r, c, false).offset : 0, has);
      const Chunk to = chunk(ends.to, r, c, transposed);
      put(to.offset, to.step, whole_to ? kFractal : here);
    }
  }
}

template <class T>
void move_plain(const Ends& ends, bool transposed, const std::byte* from, std::byte* to) {
  const T* const source = reinterpret_cast<const T*>(from);
  T* const destination = reinterpret_cast<T*>(to);
  T buffer[kFractal];
  each_chunk(
      ends, transposed,
      [&](std::int64_t offset, std::int64_t n) {
        if (n < kFractal) std::fill(buffer, buffer + kFractal, T{});
        std::copy_n(source + offset, n, buffer);
      },
      [&](std::int64_t offset, std::int64_t step, std::int64_t n) {
        T* const out = destination + offset;
        if (step == 1) {
          std::copy_n(buffer, n, out);
        } else {
          for (std::int64_t i = 0; i < n; ++i) out[i * step] = buffer[i];
        }
      });
}

/// Through f32: another type, or adding to what is there.
void move_converted(const Ends& ends, const std::vector<Object>& objects, bool transposed, bool add,
                    const std::byte* from, std::byte* to) {
  const DType source = objects[static_cast<std::size_t>(ends.from.object)].type;
  const DType destination = objects[static_cast<std::size_t>(ends.to.object)].type;
  float buffer[kFractal], there[kFractal];
  each_chunk(
      ends, transposed,
      [&](std::int64_t offset, std::int64_t n) {
        std::fill(buffer, buffer + kFractal, 0.0F);
        load_elements(from + offset * size_of(source), source, buffer, static_cast<std::size_t>(n));
      },
      [&](std::int64_t offset, std::int64_t, std::int64_t n) {  // never into Zn or transposed
        std::byte* const out = to + offset * size_of(destination);
        if (add) {
          load_elements(out, destination, there, static_cast<std::size_t>(n));
          for (std::int64_t i = 0; i < n; ++i) buffer[i] += there[i];
        }
        store_elements(buffer, destination, out, static_cast<std::size_t>(n));
      });
}

/// Nz to Zn: each fractal turned over, which is most of what fills L0B.
void move_turned(const Ends& ends, const std::byte* from, std::byte* to) {
  const auto* const source = reinterpret_cast<const std::uint16_t*>(from);
  auto* const destination = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t c = 0; c < ends.from.columns; c += kFractal) {
    for (std::int64_t r = 0; r < ends.from.rows; r += kFractal) {
      transpose_fractal(source + chunk(ends.from, r, c, false).offset,
                        destination + chunk(ends.to, r, c, false).offset);
    }
  }
}

}  // namespace

std::optional<Refusal> plan_copy(const std::vector<Object>& objects, const Instruction& i,
                                 Work& work) {
  const Ends ends = ends_of(i);
  if (ends.from.rows < 0 || ends.from.rows > kMaxExtent) {
    return out_of_range("rows", ends.from.rows, 0, kMaxExtent);
  }
  if (ends.from.columns < 0 || ends.from.columns > kMaxExtent) {
    return out_of_range("columns", ends.from.columns, 0, kMaxExtent);
  }
  const DataPath& path = *i.of->path;
  work.cycles = path.startup;
  work.latency = path.latency;
  if (ends.from.rows == 0 || ends.from.columns == 0) return std::nullopt;
  if (auto bad = check_end(objects, ends.to)) return bad;
  if (auto bad = check_end(objects, ends.from)) return bad;
  work.touches.push_back(touch_of(objects, ends.from, false));
  work.touches.push_back(touch_of(objects, ends.to, true));
  work.touches.back().add = i.of->add;
  work.moved = std::max(moved_at(objects, ends.from), moved_at(objects, ends.to));
  const auto in_gm = [&](const End& e) {
    return objects[static_cast<std::size_t>(e.object)].memory == Memory::gm;
  };
  if (!in_gm(ends.to) && !in_gm(ends.from)) work.cycles += ceil_div(work.moved, path.width.value);
  return check_bounds(objects, work);
}

void do_copy(const std::vector<Object>& objects, const Bases& bases, const Instruction& i) {
  const Ends ends = ends_of(i);
  const auto type = [&](const End& e) { return objects[static_cast<std::size_t>(e.object)].type; };
  const std::byte* const from = bases[static_cast<std::size_t>(ends.from.object)];
  std::byte* const to = bases[static_cast<std::size_t>(ends.to.object)];
  const bool transposed = i.of->transpose;
  if (type(ends.from) != type(ends.to) || i.of->add) {
    move_converted(ends, objects, transposed, i.of->add, from, to);
  } else if (ends.to.layout == Layout::Zn && !transposed) {
    move_turned(ends, from, to);
  } else if (size_of(type(ends.to)) == 1) {
    move_plain<std::uint8_t>(ends, transposed, from, to);
  } else if (size_of(type(ends.to)) == 2) {
    move_plain<std::uint16_t>(ends, transposed, from, to);
  } else {
    move_plain<std::uint32_t>(ends, transposed, from, to);
  }
}

}  // namespace tilewright::npu
