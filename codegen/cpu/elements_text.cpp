// Element types in emitted programs: how they become numbers and back, and rows of them.
#include <set>

#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"
#include "core/workload/expr.h"

namespace tilewright::cpu {
namespace {

constexpr const char* kBfloat16 = R"(struct Bfloat16 {
  std::uint16_t bits;
};
inline Real get(Bfloat16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// To the nearest, ties to even; NaN stays one.
inline void put(Bfloat16& to, float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  to.bits = static_cast<std::uint16_t>(x == x ? rounded : (bits >> 16) | 0x40);
}
)";

constexpr const char* kFloat16 = R"(struct Float16 {
  std::uint16_t bits;
};
inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
// The exponent is moved by a product of powers of two; denormals come by a difference of floats.
inline Real get(Float16 x) {
  const std::uint32_t word = static_cast<std::uint32_t>(x.bits) << 16, twice = word + word;
  const float normal = float_of((twice >> 4) + (std::uint32_t{0xe0} << 23)) * 0x1.0p-112f;
  const float denormal = float_of((twice >> 17) | (std::uint32_t{126} << 23)) - 0.5f;
  const std::uint32_t size = bits_of(twice < (std::uint32_t{1} << 27) ? denormal : normal);
  return float_of((word & 0x80000000u) | size);
}
// To the nearest, ties to even, by a sum with a number whose last bit is the result's; what is too
// large is infinite, and NaN stays one.
inline void put(Float16& to, float x) {
  const std::uint32_t word = bits_of(x), twice = word + word;
  const float size = (std::fabs(x) * 0x1.0p+112f) * 0x1.0p-110f;
  std::uint32_t exponent = twice & 0xff000000u;
  if (exponent < 0x71000000u) exponent = 0x71000000u;
  const std::uint32_t sum = bits_of(float_of((exponent >> 1) + 0x07800000u) + size);
  const std::uint32_t rounded = ((sum >> 13) & 0x7c00) + (sum & 0x0fff);
  const std::uint32_t size_bits = twice > 0xff000000u ? 0x7e00 : rounded;
  to.bits = static_cast<std::uint16_t>((word >> 16 & 0x8000) | size_bits);
}
)";

constexpr const char* kRows = R"(inline void copy_row(Real* to, const Real* from, int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(Real));
}
template <class From>
TILEWRIGHT_TARGET void copy_row(Real* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = get(from[i]);
}
template <class To>
TILEWRIGHT_TARGET void copy_row(To* to, const Real* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) put(to[i], from[i]);
}
)";

// A sum with 2^23 + 2^22 is rounded to a whole number, whose bytes are the last ones of its own.
constexpr const char* kRowsOfBytes =
    R"(TILEWRIGHT_TARGET inline void copy_row(std::int8_t* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float rounded = from[i] + 12582912.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    to[i] = static_cast<std::int8_t>(bits);
  }
}
)";

}  // namespace

std::string element_type(DType type) {
  switch (type) {
    case DType::f16:
      return "Float16";
    case DType::bf16:
      return "Bfloat16";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i8:
      return "std::int8_t";
    case DType::i32:
      return "std::int32_t";
  }
  return "?";
}

std::string elements_text(const PreludeOptions& options) {
  std::set<DType> types = options.read;
  types.insert(options.written.begin(), options.written.end());
  std::string text;
  for (const DType type : types) {
    if (type == DType::f16) text += kFloat16;
    if (type == DType::bf16) text += kBfloat16;
    if (type == DType::f16 || type == DType::bf16) continue;
    const std::string name = type == options.real() ? "Real" : element_type(type);
    text += "inline Real get(" + name + " x) { return static_cast<Real>(x); }\n";
    if (options.written.contains(type))
      text += "inline void put(" + name + "& to, Real x) { to = static_cast<" + name +
              (is_integer(type) ? ">(std::nearbyint(x)); }\n" : ">(x); }\n");
  }
  const bool same = options.home == options.real();
  text += "using Home = " + (same ? "Real" : element_type(options.home)) +
          ";  // an element at home of what most tiles write\n"
          "inline void place(Real*& at, Real* element) { at = element; }\n"
          "template <class Element>\n"
          "void place(Real*&, Element*) {}  // not in place: it is converted\n";
  text += kRows;
  if (!options.f64 && options.written.contains(DType::i8)) text += kRowsOfBytes;
  if (options.converts_f16()) text += rows_of_f16_text(options.vector_bytes);
  return text;
}

}  // namespace tilewright::cpu
