#include "core/base/units.h"

#include <array>
#include <charconv>

namespace tilewright {
namespace {

struct DTypeName {
  DType type;
  std::string_view name;
};
constexpr std::array kDTypes = {
    DTypeName{DType::f16, "f16"}, DTypeName{DType::bf16, "bf16"}, DTypeName{DType::f32, "f32"},
    DTypeName{DType::f64, "f64"}, DTypeName{DType::i8, "i8"},     DTypeName{DType::i32, "i32"},
};

/// Powers of 1024 that a suffix stands for, or -1.
int suffix_power(char c) {
  switch (c) {
    case 'B': case 'b': return 0;
    case 'K': case 'k': return 1;
    case 'M': case 'm': return 2;
    case 'G': case 'g': return 3;
    case 'T': case 't': return 4;
    default: return -1;
  }
}

}  // namespace

std::string_view name_of(DType t) {
  for (const DTypeName& d : kDTypes)
    if (d.type == t) return d.name;
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeName& d : kDTypes)
    if (d.name == name) return d.type;
  return std::nullopt;
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  std::int64_t n = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [rest, error] = std::from_chars(text.data(), end, n);
  if (error != std::errc()) return std::nullopt;
  if (rest == end) return Bytes(n);
  const int power = end - rest == 1 ? suffix_power(*rest) : -1;
  if (power < 0) return std::nullopt;
  const auto bytes = checked_mul(n, std::int64_t{1} << (10 * power));
  if (!bytes) return std::nullopt;
  return Bytes(*bytes);
}

std::string to_text(Bytes b) {
  constexpr std::string_view kSuffixes = "BKMGT";
  std::int64_t n = b.value;
  std::size_t power = 0;
  while (n != 0 && n % 1024 == 0 && power + 1 < kSuffixes.size()) {
    n /= 1024;
    ++power;
  }
  return std::to_string(n) + kSuffixes[power];
}

}  // namespace tilewright
