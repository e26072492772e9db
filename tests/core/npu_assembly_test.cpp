// Do NPU programs read back as they were printed, and are bad ones refused by line?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/machine/machine.h"
#include "core/npu/assembly.h"
#include "core/plan/file.h"

namespace tilewright::npu {
namespace {

using testing::HasSubstr;

constexpr char kGemm[] = R"(.program gemm
.blocks 4
.input A f16[256, 128]
.input B f16[128, 96]
.output C f16[256, 96]
.buffer a1 L1 f16[16384] at 0 holds A
.buffer a0 L0A f16[8192] at 0 holds A
.buffer b1 L1 f16[12288] at 32768 holds B
.buffer b0 L0B f16[6144] at 512 holds B
.buffer c0 L0C f32[6144] at 0 holds C
.buffer cu UB f16[6144] at 0 holds C
; one block computes 64 rows
let m0 = block*64
copy a1[0].Nz(64), A[m0*128].nd(128), rows=64, columns=128  ; rows of A
copy b1[0].Nz(128), B[0].nd(96), rows=128, columns=96
for k = 0 to 128 step 64
  if k > 0 && m0 >= 0
    wait_flag M, MTE1, (k/64 - 1) % 2
  else
    barrier all
  end
  copy a0[0].Zz(64), a1[64*k].Nz(64), rows=64, columns=64
  copy b0[0].Zn(96), b1[16*k].Nz(128), rows=64, columns=96
  set_flag MTE1, M, 0
  wait_flag MTE1, M, 0
  mad c0[0], a0[0], b0[0], m=64, n=96, k=min(64, 128 - k), accumulate=k != 0
  set_flag M, MTE1, k/64 % 2
end
;
copy cu[0].nd(96), c0[0].Nz(64), rows=64, columns=96
vexp cu[0], cu[0], repeat=48
vadd cu[0](8), cu[0](12, 1), cu[0](, 0), repeat=3, mask=16
vmuls cu[0], cu[0], -0.125, repeat=-(-m0)
vdup cu[0](0), -inf, repeat=1
vsel cu[0], cu[0], cu[0], cu[0], repeat=1
move cu[1], cu[block], by cu[2], step=block*3, below=5, by cu[3], step=1, below=2
move cu[0], A[7]
put cu[1], block - 3
barrier V
)";

TEST(NpuAssembly, ReadsBackAsPrinted) {
  const Program p = parse_assembly(kGemm, "gemm.s");
  EXPECT_EQ(p.tensors.size(), 3U);
  EXPECT_EQ(p.buffers.size(), 6U);
  EXPECT_EQ(p.body.size(), 16U);
  const std::string text = to_text(p);
  EXPECT_EQ(parse_assembly(text, "again"), p) << text;
  EXPECT_THAT(text, HasSubstr("let m0 = block*64\n"));
  EXPECT_THAT(text, HasSubstr("columns=128  ; rows of A\n"));
  EXPECT_THAT(text, HasSubstr("  mad c0[0], a0[0], b0[0], m=64, n=96, k=min(64, 128 - k), "
                              "accumulate=k != 0\n"));
  EXPECT_THAT(text, HasSubstr("  else\n    barrier all\n  end\n"));
}

TEST(NpuAssembly, ListingNumbersStatementsAndNamesPipes) {
  const Machine m = named_machine("ascend910");
  const std::string text = listing(parse_assembly(kGemm, "gemm.s"), *m.npu_core);
  EXPECT_THAT(text, HasSubstr("    2  S     let m0"));
  EXPECT_THAT(text, HasSubstr("    3  MTE2  copy a1"));
  EXPECT_THAT(text, HasSubstr("    7  MTE1      wait_flag M, MTE1"));
}

IntExpr random_expr(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (depth == 0 || pick(4) == 0) {
    constexpr std::int64_t kLiterals[] = {0, 1, 2, 16, -3, INT64_MAX, INT64_MIN};
    return pick(2) == 0 ? IntExpr(kLiterals[pick(7)]) : scalar(pick(2) == 0 ? "i" : "j");
  }
  const int op = pick(17);
  if (op < 2) {
    return IntExpr::unary(op == 0 ? IntOp::negate : IntOp::logical_not,
                          random_expr(random, depth - 1));
  }
  return IntExpr::binary(static_cast<IntOp>(static_cast<int>(IntOp::multiply) + op - 2),
                         random_expr(random, depth - 1), random_expr(random, depth - 1));
}

TEST(NpuAssembly, RandomExpressionsReadBack) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    Program p;
    p.body.push_back({Assign{"x", random_expr(random, 5)}});
    ASSERT_EQ(parse_assembly(to_text(p), "x"), p) << "seed " << seed << "\n" << to_text(p);
  }
}

TEST(NpuAssembly, ExpressionsDivideTowardsMinusInfinity) {
  EXPECT_EQ(*apply(IntOp::divide, -1, 2), -1);
  EXPECT_EQ(*apply(IntOp::modulo, -1, 2), 1);
  EXPECT_EQ(*apply(IntOp::modulo, 1, -2), -1);
  EXPECT_FALSE(apply(IntOp::divide, 1, 0).ok());
  EXPECT_FALSE(apply(IntOp::divide, INT64_MIN, -1).ok());
  EXPECT_EQ(*apply(IntOp::modulo, INT64_MIN, -1), 0);
  EXPECT_EQ(*apply(IntOp::modulo, INT64_MAX, INT64_MIN), -1);
  EXPECT_EQ(*apply(IntOp::modulo, INT64_MIN + 1, 3), 2);
  EXPECT_FALSE(apply(IntOp::add, INT64_MAX, 1).ok());
}

std::string refusal(const std::string& text) {
  try {
    const Program p = parse_assembly(text, "p.s");
    check(p, named_machine("ascend910"));
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(NpuAssembly, BadTextIsRefusedByLineAndColumn) {
  EXPECT_THAT(refusal("let x = 1 +"), HasSubstr("p.s:1: column 12: end of line"));
  EXPECT_THAT(refusal("\nfoo"), HasSubstr("p.s:2: column 1: foo"));
  EXPECT_THAT(refusal("for i = 0 to 3"), HasSubstr("comes before its end"));
  EXPECT_THAT(refusal("end"), HasSubstr("that this would end"));
  EXPECT_THAT(refusal("else"), HasSubstr("an if that this belongs to"));
  EXPECT_THAT(refusal(".buffer a UB f64[1] at 0 holds A"), HasSubstr("f16, bf16, f32, i8 or i32"));
  EXPECT_THAT(refusal("set_flag V, X, 0"), HasSubstr("a pipe"));
  EXPECT_THAT(refusal("let x = 1 < 2 < 3"), HasSubstr("the end of the line"));
  EXPECT_THAT(refusal("let x = " + std::string(100, '(')), HasSubstr("parentheses"));
  EXPECT_THAT(refusal(".input A f16[1099511627776, 2]"), HasSubstr("an integer from 1 to 1"));
}

TEST(NpuCheck, RefusesWhatNoMachineCouldMean) {
  const std::string head =
      ".input A f16[16, 16]\n.output C f16[16, 16]\n.buffer a1 L1 f16[256] at 0 holds A\n"
      ".buffer a0 L0A f16[256] at 0 holds A\n.buffer u UB f16[256] at 0 holds C\n"
      ".buffer f UB f32[256] at 512 holds C\n";
  const auto body = [&](const char* line) { return refusal(head + line); };
  EXPECT_EQ(body("copy a1[0].Nz(16), A[0].nd(16), rows=16, columns=16"), "accepted");
  EXPECT_THAT(body("copy a0[0].Zz(16), A[0].nd(16), rows=16, columns=16"),
              HasSubstr("statement 1: GM to L0A is not a path of ascend910"));
  EXPECT_THAT(body("copy a0[0].Zz(16), a1[0].nd(16), rows=16, columns=16"),
              HasSubstr("is not a layout change of this path"));
  EXPECT_THAT(body("copy u[0].nd(16), A[0].nd(16), rows=16, columns=16"),
              HasSubstr("A to C are two tensors' names"));
  EXPECT_THAT(body("copy u[0].nd(x), C[0].nd(16), rows=16, columns=16"),
              HasSubstr("x is used where it may have no value"));
  EXPECT_THAT(body("if block\n let x = 1\nend\nlet y = x"), HasSubstr("may have no value"));
  EXPECT_EQ(body("if block\n let x = 1\nelse\n let x = 2\nend\nlet y = x"), "accepted");
  EXPECT_THAT(body("for i = 0 to 2\n let i = 1\nend"), HasSubstr("cannot be assigned"));
  EXPECT_THAT(body("vadd u[0], u[0], f[0], repeat=1"), HasSubstr("operands of one type"));
  EXPECT_THAT(body("vcast u[0], u[0], repeat=1"), HasSubstr("f32 to another type"));
  EXPECT_THAT(body("move A[0], u[0]"), HasSubstr("is not in UB"));
  EXPECT_THAT(body("move u[0], a1[0]"), HasSubstr("may be a tensor"));
  EXPECT_THAT(body("move u[0], u[0], by A[0], step=1, below=2"), HasSubstr("is not in UB"));
  EXPECT_EQ(body("move f[0], A[0], by u[0], step=1, below=2"), "accepted");
  EXPECT_THAT(body("put a1[0], 1"), HasSubstr("is not in UB"));
  EXPECT_THAT(refusal(".buffer u UB i8[256] at 0 holds C\nvadd u[0], u[0], u[0], repeat=1"),
              HasSubstr("f16 or f32"));
  EXPECT_THAT(body("set_flag V, V, 0"), HasSubstr("waits for itself"));
  EXPECT_THAT(refusal(".blocks 33\nbarrier grid"), HasSubstr("at most 32"));
  EXPECT_THAT(refusal(".buffer a L1 f16[524289] at 0 holds A"), HasSubstr("L1 of 1048576 bytes"));
  EXPECT_THAT(refusal(".buffer a L0A f16[256] at 64 holds A"), HasSubstr("multiples of 512"));
  EXPECT_THAT(refusal(".buffer a UB f16[1] at 0 holds A\n.input a f16[1]"), HasSubstr("twice"));
}

TEST(NpuCheck, RefusesMachinesThatItCannotRunOn) {
  const Program p = parse_assembly("let x = 1", "p");
  const auto refused = [&](const Machine& m) {
    try {
      check(p, m);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const Machine good = named_machine("ascend910b");
  EXPECT_EQ(refused(good), "accepted");
  EXPECT_THAT(refused(named_machine("h100")), HasSubstr("has no npu_core"));
  Machine m = good;
  m.units[0].clock_hz = 0;
  EXPECT_THAT(refused(m), HasSubstr("without a clock"));
  m = good;
  m.levels[1].name = "LLC";
  EXPECT_THAT(refused(m), HasSubstr("has no L2"));
  m = good;
  m.levels[2].capacity = Bytes(std::int64_t{1} << 40);
  EXPECT_THAT(refused(m), HasSubstr("has too large an L1"));
}

TEST(NpuMachine, PathsRoundTripAndAreChecked) {
  const Machine good = named_machine("ascend910");
  EXPECT_EQ(machine_from_yaml(to_yaml(good), "again"), good);
  const auto refused = [](const Machine& m) {
    try {
      tilewright::check(m);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  Machine m = good;
  m.npu_core->paths[0].from = "L9";
  EXPECT_THAT(refused(m), HasSubstr("npu_core: path 0: from, to: L9 names no level on chip"));
  m = good;
  m.npu_core->paths[1] = m.npu_core->paths[0];
  EXPECT_THAT(refused(m), HasSubstr("is given twice"));
  m = good;
  m.npu_core->paths[0].pipe = "MTE4";
  EXPECT_THAT(refused(m), HasSubstr("moves no data"));
  m = good;
  m.npu_core->paths[0].width = Bytes(0);
  EXPECT_THAT(refused(m), HasSubstr("is not positive"));
  m = good;
  m.kind = "gpu";
  EXPECT_THAT(refused(m), HasSubstr("belongs to another kind of machine"));
  // The emulated cube's peak is the machine file's: 2 * 4096 a clock of each core.
  for (const char* name : {"ascend910", "ascend910-256"}) {
    const Machine n = named_machine(name);
    const ComputeUnit& cube = *cube_unit(n);
    EXPECT_DOUBLE_EQ(2.0 * 4096 * static_cast<double>(cube.count) * cube.clock_hz,
                     cube.peak.at("f16").value);
  }
}

}  // namespace
}  // namespace tilewright::npu
