#include "core/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/base/names.h"

namespace tilewright {
namespace {

TEST(InputError, IsOneLineWithEveryPart) {
  const InputError e({.where = "--tiles",
                      .field = "m",
                      .value = "600",
                      .problem = "is larger than the loop's extent 512",
                      .accepted = "1..512"});
  EXPECT_STREQ(e.what(), "--tiles: m: 600 is larger than the loop's extent 512; accepted: 1..512");
}

TEST(InputError, KeepsHostileInputOnOneShortLine) {
  const InputError e({.where = "a\nb", .field = "x\r\n\ty", .value = std::string(100000, 'z')});
  const std::string what = e.what();
  EXPECT_EQ(what.find_first_of("\n\r\t"), std::string::npos);
  EXPECT_LT(what.size(), 400u);
  EXPECT_NE(what.find("is not accepted"), std::string::npos);
  const std::string binary = InputError({.value = std::string("\x1b[31m\0x", 7)}).what();
  EXPECT_EQ(binary.find('\x1b'), std::string::npos);
  EXPECT_EQ(binary.find('\0'), std::string::npos);
}

TEST(InputError, IsLocatedOnce) {
  const InputError e({.field = "m", .problem = "is missing"});
  EXPECT_STREQ(e.located("f.yaml:3").what(), "f.yaml:3: m: is missing");
  EXPECT_STREQ(e.located("f.yaml:3").located("g").what(), "f.yaml:3: m: is missing");
}

TEST(Nearest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> keys = {"loops", "tensors", "operators", "outputs"};
  EXPECT_EQ(nearest("lops", keys), "loops");
  EXPECT_EQ(nearest("operator", keys), "operators");
  EXPECT_EQ(nearest("LOOPS", keys), "loops");
  EXPECT_EQ(nearest("zzz", keys), "");
  EXPECT_EQ(nearest("", keys), "");
  // Of many names: the three most like it, the nearest first, then longer ones that have it.
  const std::vector<std::string> many{"gemm",    "gemm-chain", "gemm-chain3", "layernorm",
                                      "rmsnorm", "batchnorm",  "groupnorm"};
  EXPECT_EQ(names_like("gem-chain", many, "tilewright workloads"),
            "gemm-chain, gemm-chain3 or another name that tilewright workloads lists");
  EXPECT_EQ(names_like("norm", many, "x"),
            "layernorm, rmsnorm, batchnorm or another name that x lists");
  EXPECT_EQ(names_like("zzz", many, "x"), "a name that x lists");
  EXPECT_EQ(nearest("x", std::vector<std::string>{"m", "n"}), "");
  EXPECT_EQ(nearest(std::string(1000000, 'l'), keys), "");
}

TEST(Identifiers, AreLettersDigitsAndUnderscores) {
  // Emitted names have a prefix or an ending, so that words of a language are names like others.
  for (const char* good : {"m", "C1", "_x", "oc1", "a_b", "exp", "x0", "int", "class", "i386",
                           "co_await", "__asm__", "__global__", "restrict", "M_PI"})
    EXPECT_TRUE(is_identifier(good)) << good;
  for (const char* bad : {"", "1a", "a-b", "a b", "a;b", "a\"", "\xc3\xa9", "a\n"})
    EXPECT_FALSE(is_identifier(bad)) << bad;
  EXPECT_TRUE(is_identifier(std::string(64, 'a')));
  EXPECT_FALSE(is_identifier(std::string(65, 'a')));
  EXPECT_FALSE(is_identifier(std::string_view("a\0", 2)));
}

TEST(Result, HoldsAValueOrAReason) {
  const Result<int> value = 3;
  const Result<int> reason = Reason{"does not fit"};
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 3);
  ASSERT_FALSE(reason.ok());
  EXPECT_EQ(reason.reason(), "does not fit");
}

TEST(Join, Separates) {
  EXPECT_EQ(join(std::vector<std::string>{}), "");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, "|"), "a|b");
}

TEST(Check, ThrowsItsPlace) {
  try {
    TW_CHECK(1 == 2, "arithmetic");
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), ::testing::AllOf(::testing::HasSubstr("1 == 2"),
                                           ::testing::HasSubstr("arithmetic")));
  }
}

}  // namespace
}  // namespace tilewright
