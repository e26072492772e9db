#include "core/base/units.h"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>

namespace tilewright {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) { a + b; };
template <class A, class B>
concept Comparable = requires(A a, B b) { a < b; };

// What must not compile.
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Cycles>);
static_assert(!Addable<Bytes, Elements>);
static_assert(!Addable<Bytes, std::int64_t>);
static_assert(!Comparable<Bytes, Elements>);
static_assert(!std::convertible_to<std::int64_t, Bytes>);
static_assert(!std::convertible_to<LoopId, TensorId>);
static_assert(!Comparable<LoopId, TensorId>);

TEST(Units, CountsAddAndScale) {
  EXPECT_EQ(Bytes(3) + Bytes(4), Bytes(7));
  EXPECT_EQ(2 * Bytes(3), Bytes(6));
  EXPECT_EQ(bytes_of(Elements(10), DType::f16), Bytes(20));
  EXPECT_DOUBLE_EQ(seconds_for(Bytes(100), BytesPerSecond(50)), 2.0);
}

TEST(Units, DTypeNamesReadBack) {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::i32})
    EXPECT_EQ(dtype_from_name(name_of(t)), t);
  EXPECT_EQ(dtype_from_name("f31"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(Units, ParsesBytes) {
  EXPECT_EQ(parse_bytes("48K"), Bytes(48 * 1024));
  EXPECT_EQ(parse_bytes("1M"), Bytes(1 << 20));
  EXPECT_EQ(parse_bytes("4096B"), Bytes(4096));
  EXPECT_EQ(parse_bytes("32768"), Bytes(32768));
  EXPECT_EQ(parse_bytes("2G"), Bytes(std::int64_t{2} << 30));
  for (const char* bad : {"", "K", "-1", "+1", " 1", "1 ", "1KB", "1.5K", "0x10", "9999999999999T",
                          "9223372036854775808", "9007199254740992K"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
}

TEST(Units, PrintedBytesReadBack) {
  for (std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1023}, std::int64_t{1024},
                         std::int64_t{49152}, std::int64_t{1} << 40, std::int64_t{1} << 52,
                         std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(parse_bytes(to_text(Bytes(n))), Bytes(n)) << to_text(Bytes(n));
  EXPECT_EQ(to_text(Bytes(49152)), "48K");
  EXPECT_EQ(to_text(Bytes(1000)), "1000B");
}

TEST(Units, CheckedArithmetic) {
  EXPECT_EQ(checked_mul(1 << 30, std::int64_t{1} << 32), std::int64_t{1} << 62);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_add(std::numeric_limits<std::int64_t>::max(), 1), std::nullopt);
  EXPECT_EQ(ceil_div(10, 4), 3);
  EXPECT_EQ(ceil_div(8, 4), 2);
}

}  // namespace
}  // namespace tilewright
