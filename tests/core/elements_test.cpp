// Elements in memory: every half against its own definition, both ways.
#include "core/workload/reference/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/workload/reference/evaluate.h"

namespace tilewright {
namespace {

template <class Element>
Element encoded(DType type, double value) {
  Element element{};
  encode_elements(type, std::span(&value, 1), &element);
  return element;
}

template <class Element>
double decoded(DType type, Element element) {
  return decode_elements(type, &element, 1).front();
}

TEST(Elements, KnownHalves) {
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 1.0), 0x3c00);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, -2.0), 0xc000);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 65504.0), 0x7bff);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 65520.0), 0x7c00);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 0x1p-24), 0x0001);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 0x1p-14), 0x0400);
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 0x1.ffcp-15),
            0x0400);  // rounds up to the least normal
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 1 + 0x1p-11), 0x3c00);  // ties to even
  EXPECT_EQ(encoded<std::uint16_t>(DType::f16, 1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(encoded<std::uint16_t>(DType::bf16, 1.0), 0x3f80);
  EXPECT_EQ(encoded<std::uint16_t>(DType::bf16, 1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(encoded<std::uint16_t>(DType::bf16, 1 + 3 * 0x1p-8), 0x3f82);
}

TEST(Elements, EveryHalfThereAndBack) {
  for (const DType type : {DType::f16, DType::bf16})
    for (int bits = 0; bits < 65536; ++bits) {
      const auto element = static_cast<std::uint16_t>(bits);
      const double value = decoded(type, element);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(decoded(type, encoded<std::uint16_t>(type, value))));
        continue;
      }
      ASSERT_EQ(encoded<std::uint16_t>(type, value), element) << name_of(type) << " " << bits;
      ASSERT_EQ(round_to(type, value), value) << name_of(type) << " " << bits;
    }
}

TEST(Elements, NaNFillsEveryType) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    std::vector<char> memory(static_cast<std::size_t>(3 * size_of(type)));
    fill_with_nan(type, 3, memory.data());
    for (double x : decode_elements(type, memory.data(), 3)) EXPECT_TRUE(std::isnan(x));
  }
  EXPECT_EQ(decoded<std::int8_t>(DType::i8, -7), -7);
  EXPECT_EQ(encoded<std::int32_t>(DType::i32, -1e12), std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace tilewright
