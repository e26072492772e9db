// Strong types for counts and rates, so that adding bytes to cycles does not compile.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright {

/// A 64-bit count of one kind of thing. Only counts of the same kind add, subtract and compare.
template <class Tag>
struct Count {
  std::int64_t value = 0;

  constexpr Count() = default;
  constexpr explicit Count(std::int64_t v) : value(v) {}

  friend constexpr auto operator<=>(const Count&, const Count&) = default;
  constexpr Count& operator+=(Count o) { value += o.value; return *this; }
  constexpr Count& operator-=(Count o) { value -= o.value; return *this; }
  friend constexpr Count operator+(Count a, Count b) { return Count(a.value + b.value); }
  friend constexpr Count operator-(Count a, Count b) { return Count(a.value - b.value); }
  friend constexpr Count operator*(Count a, std::int64_t n) { return Count(a.value * n); }
  friend constexpr Count operator*(std::int64_t n, Count a) { return Count(a.value * n); }
};

using Bytes = Count<struct BytesTag>;
using Elements = Count<struct ElementsTag>;
using Cycles = Count<struct CyclesTag>;
using Operations = Count<struct OperationsTag>;

/// A rate in units a second; rates of different kinds do not mix.
template <class Tag>
struct Rate {
  double value = 0.0;
  constexpr Rate() = default;
  constexpr explicit Rate(double v) : value(v) {}
  friend constexpr auto operator<=>(const Rate&, const Rate&) = default;
};

using BytesPerSecond = Rate<struct BytesTag>;
using FlopsPerSecond = Rate<struct OperationsTag>;

/// Seconds to move `bytes` at `bandwidth`; bandwidth must be positive.
constexpr double seconds_for(Bytes bytes, BytesPerSecond bandwidth) {
  return static_cast<double>(bytes.value) / bandwidth.value;
}

/// Element types, by the names that files and the command line use.
enum class DType : std::uint8_t { f16, bf16, f32, f64, i8, i32 };

/// Size of one element in bytes.
constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::i8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64: return 8;
  }
  return 0;
}

std::string_view name_of(DType t);
/// The type of that name ("f16", "bf16", "f32", "f64", "i8", "i32"), or nothing.
std::optional<DType> dtype_from_name(std::string_view name);

constexpr Bytes bytes_of(Elements n, DType t) { return Bytes(n.value * size_of(t)); }

/// a*b, or nothing when the product leaves 64 bits.
constexpr std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
constexpr std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t step) {
  return ceil_div(a, step) * step;
}

/// A number of bytes as written by users: "48K", "1M", "4096B", "32768" (powers of 1024).
/// Nothing when the text is no such number or overflows.
std::optional<Bytes> parse_bytes(std::string_view text);
/// Whole powers of 1024 with a suffix, else plain bytes with "B"; parse_bytes reads it back.
std::string to_text(Bytes b);

/// An index into one kind of table; -1 is none.
template <class Tag>
struct Id {
  std::int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

using LoopId = Id<struct LoopTag>;
using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;
using LevelId = Id<struct LevelTag>;

}  // namespace tilewright

template <class Tag>
struct std::hash<tilewright::Id<Tag>> {
  std::size_t operator()(tilewright::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};
