// f16 and bf16 in integer code: the same bits as the GPU's conversions, whatever the host's
// compiler knows of such types. NaN becomes the GPU's canonical NaN (0x7fff).
#pragma once

#include <stdint.h>

namespace tw_half {

#define TW_HALF static inline __attribute__((always_inline, unused))

TW_HALF float float_of_bits(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } x = {bits};
  return x.f;
}
TW_HALF uint32_t bits_of_float(float value) {
  union {
    float f;
    uint32_t u;
  } x = {value};
  return x.u;
}

TW_HALF float float_of_f16(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, m = h & 0x3ffu;
  if (exponent == 31) return float_of_bits(m != 0 ? 0x7fffffffu : sign | 0x7f800000u);
  if (exponent == 0) {  // m * 2^-24, exactly
    const float magnitude = float(int(m)) * 5.9604644775390625e-8f;
    return float_of_bits(sign | bits_of_float(magnitude));
  }
  return float_of_bits(sign | ((exponent + 112) << 23) | (m << 13));
}

TW_HALF uint16_t f16_of_float(float value) {
  const uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000u, x = bits & 0x7fffffffu;
  if (x > 0x7f800000u) return 0x7fff;
  if (x >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // from 65520 on, a tie with 2^16
  if (x >= 0x38800000u) {                                 // normal: round the low 13 bits
    const uint32_t rounded = x + 0xfffu + ((x >> 13) & 1u);
    return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (x <= 0x33000000u) return uint16_t(sign);  // to 2^-25, a tie with 0
  const uint32_t exponent = x >> 23, m = (x & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126 - exponent;  // 14 .. 24
  const uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1);
  uint32_t r = m >> shift;
  if (rest > half || (rest == half && (r & 1u))) ++r;
  return uint16_t(sign | r);
}

TW_HALF float float_of_bf16(uint16_t h) { return float_of_bits(uint32_t(h) << 16); }

TW_HALF uint16_t bf16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#undef TW_HALF
}  // namespace tw_half
