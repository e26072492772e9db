#include "core/workload/values.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/mapped_file.h"

namespace tilewright {
namespace {

constexpr std::string_view kDrawn = "drawn";

template <class T>
double plain(const char* bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof value, sizeof value);
  return static_cast<double>(value);
}

double half(const char* bytes, std::size_t i) {
  std::uint16_t h;
  std::memcpy(&h, bytes + i * sizeof h, sizeof h);
  const int exponent = h >> 10 & 31;
  const double fraction = (h & 1023) / 1024.0, sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * fraction * 0x1p-14;
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  return sign * std::ldexp(1 + fraction, exponent - 15);
}

double brain(const char* bytes, std::size_t i) {
  std::uint16_t h;
  std::memcpy(&h, bytes + i * sizeof h, sizeof h);
  return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
}

double truth(const char* bytes, std::size_t i) { return bytes[i] != 0 ? 1 : 0; }

/// Four bits of a byte.
int nibble(const char* bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i / 2]) >> (i % 2 * 4) & 15;
}
double small(const char* bytes, std::size_t i) { return nibble(bytes, i); }
double small_signed(const char* bytes, std::size_t i) {
  const int n = nibble(bytes, i);
  return n < 8 ? n : n - 16;
}

struct Element {
  std::string_view name;
  std::uint64_t bits;
  double (*read)(const char* bytes, std::size_t i);
};
constexpr Element kElements[] = {
    {"f16", 16, half},
    {"bf16", 16, brain},
    {"f32", 32, plain<float>},
    {"f64", 64, plain<double>},
    {"i8", 8, plain<std::int8_t>},
    {"u8", 8, plain<std::uint8_t>},
    {"i16", 16, plain<std::int16_t>},
    {"u16", 16, plain<std::uint16_t>},
    {"i32", 32, plain<std::int32_t>},
    {"u32", 32, plain<std::uint32_t>},
    {"i64", 64, plain<std::int64_t>},
    {"u64", 64, plain<std::uint64_t>},
    {"bool", 8, truth},
    {"u4", 4, small},
    {"i4", 4, small_signed},
};

const Element* find(std::string_view type) {
  for (const Element& e : kElements)
    if (e.name == type) return &e;
  return nullptr;
}

}  // namespace

const std::vector<std::string>& value_types() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const Element& e : kElements) names.emplace_back(e.name);
    return names;
  }();
  return all;
}

bool is_value_type(std::string_view type) { return find(type) != nullptr; }

std::uint64_t values_in(std::string_view type, std::uint64_t bytes) {
  const Element* e = find(type);
  return e == nullptr ? 0 : e->bits < 8 ? bytes * (8 / e->bits) : bytes / (e->bits / 8);
}

std::uint64_t bytes_of(std::string_view type, std::uint64_t count) {
  const Element* e = find(type);
  return e == nullptr ? 0 : e->bits < 8 ? (count + 1) / 2 : count * (e->bits / 8);
}

std::vector<double> values_at(std::string_view type, const char* bytes, std::size_t count) {
  const Element* e = find(type);
  TW_CHECK(e != nullptr, "a type of values that there is not");
  std::vector<double> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = e->read(bytes, i);
  return out;
}

double value_at(std::string_view type, const char* bytes) {
  return values_at(type, bytes, 1).front();
}

std::vector<double> read_values(const Values& values, std::size_t count, std::string_view field) {
  const auto fail = [&](const std::string& value, const std::string& problem) {
    throw InputError({.field = std::string(field),
                      .value = value,
                      .problem = problem,
                      .accepted = std::to_string(count) + " values"});
  };
  if (values.file.empty()) {
    if (values.list.size() != count)
      fail(std::to_string(values.list.size()) + " values", "are not the tensor's");
    return values.list;
  }
  const MappedFile file(values.file, "a file of values");
  const auto offset = static_cast<std::size_t>(values.offset);
  if (offset > file.bytes().size() || values_in(values.type, file.bytes().size() - offset) < count)
    fail(to_text(values),
         "goes past the file's end, " + std::to_string(file.bytes().size()) + " bytes");
  return values_at(values.type, file.bytes().data() + offset, count);
}

std::string to_text(const Values& values) {
  if (values.drawn()) return std::string(kDrawn);
  return values.type + " at " + std::to_string(values.offset) + " of " + values.file;
}

Values parse_values(std::string_view text, std::string_view where, std::string_view field) {
  Values out;
  if (text == kDrawn) return out;
  const std::size_t at = text.find(" at "), of = text.find(" of ", at == text.npos ? 0 : at + 4);
  if (at != text.npos && of != text.npos) {
    out.type = text.substr(0, at);
    out.file = text.substr(of + 4);
    const std::string_view number = text.substr(at + 4, of - at - 4);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), out.offset);
    if (error == std::errc() && end == number.data() + number.size() && out.offset >= 0 &&
        is_value_type(out.type) && !out.file.empty())
      return out;
  }
  throw InputError({.where = std::string(where),
                    .field = std::string(field),
                    .value = "'" + std::string(text.substr(0, 80)) + "'",
                    .problem = "says no values",
                    .accepted = "a list of numbers, drawn, or TYPE at BYTE of FILE with TYPE of " +
                                join(value_types())});
}

}  // namespace tilewright
