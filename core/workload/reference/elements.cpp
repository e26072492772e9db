#include "core/workload/reference/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/workload/reference/evaluate.h"
#include "core/workload/reference/threads.h"

namespace tilewright {
namespace {

constexpr int kF16Fraction = 10;  // bits; the exponent's bias is 15
constexpr int kF16LeastNormal = -14;

std::uint16_t f16_bits(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  const double r = std::abs(round_to(DType::f16, x));
  if (std::isinf(r)) return sign | 0x7c00;
  // A multiple of 2^-24, the least subnormal; normal numbers have their leading bit in the
  // exponent.
  if (r < std::ldexp(1.0, kF16LeastNormal))
    return static_cast<std::uint16_t>(sign | static_cast<int>(r * 0x1p24));
  // The leading bits of a double's fraction; its exponent's bias is 1023, ours 15.
  constexpr int kDoubleFraction = 52;
  const auto leading = std::bit_cast<std::uint64_t>(r) >> (kDoubleFraction - kF16Fraction);
  return static_cast<std::uint16_t>(sign | (leading - (std::uint64_t{1023 - 15} << kF16Fraction)));
}

double f16_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> kF16Fraction & 31, fraction = bits & 1023;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

std::uint16_t bf16_bits(double x) {
  if (std::isnan(x)) return 0x7fc0;
  // What round_to gives is a float whose lower half is zero.
  const auto whole = std::bit_cast<std::uint32_t>(static_cast<float>(round_to(DType::bf16, x)));
  return static_cast<std::uint16_t>(whole >> 16);
}

/// Of every half: verification reads millions of them.
const std::vector<double>& f16_values() {
  static const std::vector<double> values = [] {
    std::vector<double> all(65536);
    for (std::size_t bits = 0; bits < all.size(); ++bits)
      all[bits] = f16_value(static_cast<std::uint16_t>(bits));
    return all;
  }();
  return values;
}

double bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <class Element, class Convert>
void encode(std::span<const double> values, void* to, Convert convert) {
  reference::for_each_range(static_cast<std::int64_t>(values.size()), 0,
                            [&](std::int64_t begin, std::int64_t end) {
                              std::transform(values.data() + begin, values.data() + end,
                                             static_cast<Element*>(to) + begin, convert);
                            });
}

template <class Element, class Convert>
void decode(const void* from, std::vector<double>& values, Convert convert) {
  const auto* first = static_cast<const Element*>(from);
  reference::for_each_range(
      static_cast<std::int64_t>(values.size()), 0, [&](std::int64_t begin, std::int64_t end) {
        std::transform(first + begin, first + end, values.data() + begin, convert);
      });
}

}  // namespace

void encode_elements(DType type, std::span<const double> values, void* to) {
  switch (type) {
    case DType::f16:
      return encode<std::uint16_t>(values, to, f16_bits);
    case DType::bf16:
      return encode<std::uint16_t>(values, to, bf16_bits);
    case DType::f32:
      return encode<float>(values, to, [](double x) { return static_cast<float>(x); });
    case DType::f64:
      return encode<double>(values, to, [](double x) { return x; });
    case DType::i8:
      return encode<std::int8_t>(
          values, to, [](double x) { return static_cast<std::int8_t>(round_to(DType::i8, x)); });
    case DType::i32:
      return encode<std::int32_t>(
          values, to, [](double x) { return static_cast<std::int32_t>(round_to(DType::i32, x)); });
  }
}

void fill_with_nan(DType type, std::size_t count, void* to) {
  const bool integer = type == DType::i8 || type == DType::i32;
  const double value =
      integer ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  // Some are encoded, and the others are copies of them.
  const auto size = static_cast<std::size_t>(size_of(type));
  auto* const bytes = static_cast<std::byte*>(to);
  constexpr std::size_t kSome = 4096;
  const std::size_t some = std::min(count, kSome);
  encode_elements(type, std::vector<double>(some, value), to);
  reference::for_each_range(
      static_cast<std::int64_t>(count), 0, [&](std::int64_t begin, std::int64_t end) {
        for (auto at = static_cast<std::size_t>(begin); at < static_cast<std::size_t>(end);
             at += kSome)
          if (at > 0)
            std::memcpy(bytes + at * size, bytes,
                        std::min(kSome, static_cast<std::size_t>(end) - at) * size);
      });
}

std::vector<double> decode_elements(DType type, const void* from, std::size_t count) {
  std::vector<double> values(count);
  const auto plain = [](auto x) { return static_cast<double>(x); };
  switch (type) {
    case DType::f16:
      decode<std::uint16_t>(from, values,
                            [&all = f16_values()](std::uint16_t x) { return all[x]; });
      break;
    case DType::bf16:
      decode<std::uint16_t>(from, values, bf16_value);
      break;
    case DType::f32:
      decode<float>(from, values, plain);
      break;
    case DType::f64:
      decode<double>(from, values, plain);
      break;
    case DType::i8:
      decode<std::int8_t>(from, values, plain);
      break;
    case DType::i32:
      decode<std::int32_t>(from, values, plain);
      break;
  }
  return values;
}

}  // namespace tilewright
