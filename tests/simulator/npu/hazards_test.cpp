// Does the emulator find what is wrong with a program, and nothing where nothing is?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/simulator/npu/support.h"

namespace tilewright::npu {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Report run(const Program& p) {
  TensorData data = random_inputs(p, 1);
  return emulate(p, ascend(), data);
}
Report run(const std::string& text) { return run(parse_assembly(text, "p")); }

bool has(const Report& r, Fault fault) {
  return std::any_of(r.findings.begin(), r.findings.end(),
                     [&](const Finding& f) { return f.fault == fault; });
}

// Flags taken out
// ------------------------------------------------------------------------------------

/// Keeps what `keep` says, at any depth.
template <class F>
std::vector<Statement> kept(const std::vector<Statement>& body, F&& keep) {
  std::vector<Statement> out;
  for (Statement s : body) {
    if (!keep(s)) continue;
    if (auto* l = std::get_if<Loop>(&s.action)) l->body = kept(l->body, keep);
    if (auto* b = std::get_if<Branch>(&s.action)) {
      b->then = kept(b->then, keep);
      b->otherwise = kept(b->otherwise, keep);
    }
    out.push_back(std::move(s));
  }
  return out;
}

/// "set_flag MTE2, V, i%2"
std::vector<std::string> flag_lines(const Program& p) {
  std::vector<std::string> lines;
  kept(p.body, [&](const Statement& s) {
    const bool flag =
        std::holds_alternative<SetFlag>(s.action) || std::holds_alternative<WaitFlag>(s.action);
    if (flag) lines.push_back(to_line(s));
    return true;
  });
  return lines;
}

Program without_flag(const Program& p, std::size_t which) {
  Program out = p;
  std::size_t n = 0;
  out.body = kept(p.body, [&](const Statement& s) {
    const bool flag =
        std::holds_alternative<SetFlag>(s.action) || std::holds_alternative<WaitFlag>(s.action);
    return !flag || n++ != which;
  });
  return out;
}

/// Without any flag of one pipe for another, events as given (empty: all).
Program without_pair(const Program& p, Pipe from, Pipe to, const std::string& event) {
  Program out = p;
  out.body = kept(p.body, [&](const Statement& s) {
    const auto goes = [&](const auto& f) {
      return f.from == from && f.to == to && (event.empty() || to_text(f.event) == event);
    };
    if (const auto* f = std::get_if<SetFlag>(&s.action)) return !goes(*f);
    if (const auto* f = std::get_if<WaitFlag>(&s.action)) return !goes(*f);
    return true;
  });
  return out;
}

struct Valid {
  const char* name;
  std::string text;
  /// Pairs of flags that nothing needs, with the reason in the test below.
  std::vector<std::tuple<Pipe, Pipe, std::string>> redundant;
};

std::vector<Valid> valid_programs() {
  return {
      {"gemm", gemm_text(32, 512, 256), {}},
      {"element_wise", element_wise_text(5), {}},
      // The second row's x2 flag is set after the first copy in the same pipe, in order, so that
      // waiting for it is waiting for both: the first is redundant.
      {"two_loads",
       R"(.input X f16[256]
.output Y f16[128]
.buffer x UB f16[256] at 0 holds X
.buffer y UB f16[128] at 1024 holds Y
copy x[0].nd(128), X[0].nd(128), rows=1, columns=128
set_flag MTE2, V, 0
copy x[128].nd(128), X[128].nd(128), rows=1, columns=128
set_flag MTE2, V, 1
wait_flag MTE2, V, 0
wait_flag MTE2, V, 1
vadd y[0], x[0], x[128], repeat=1
set_flag V, MTE3, 0
wait_flag V, MTE3, 0
copy Y[0].nd(128), y[0].nd(128), rows=1, columns=128
)",
       {{Pipe::mte2, Pipe::vector, "0"}}},
      // One tile is in flight at a time: what MTE1 loads next comes after MTE3's flag, that after
      // V's, that after M's, so that M need not tell MTE1 that a0 is free; and V writes eu after
      // M, M after MTE1, MTE1 after MTE3's flag, which comes after MTE3 has read eu.
      {"chain", chain_text(256), {{Pipe::cube, Pipe::mte1, "0"}, {Pipe::mte3, Pipe::vector, "0"}}}};
}

TEST(NpuHazards, ValidProgramsHaveNoFindings) {
  for (const Valid& v : valid_programs()) {
    const Report r = run(v.text);
    EXPECT_THAT(findings_text(r), IsEmpty()) << v.name;
  }
}

/// A set without its wait, or a wait without its set, never goes unnoticed.
TEST(NpuHazards, EveryFlagStatementTakenOutIsFound) {
  for (const Valid& v : valid_programs()) {
    const Program p = parse_assembly(v.text, v.name);
    const std::vector<std::string> lines = flag_lines(p);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Report r = run(without_flag(p, i));
      EXPECT_FALSE(r.ok()) << v.name << ": " << lines[i];
    }
  }
}

/// Both halves taken out: the accesses that they ordered race, or what is read is not there yet,
/// unless other flags order them, too.
TEST(NpuHazards, EveryPairOfFlagsTakenOutIsFoundOrRedundant) {
  int pairs = 0;
  for (const Valid& v : valid_programs()) {
    const Program p = parse_assembly(v.text, v.name);
    const bool by_event = std::string(v.name) == "two_loads" || std::string(v.name) == "chain";
    for (int from = 0; from < kPipes; ++from) {
      for (int to = 0; to < kPipes; ++to) {
        for (const std::string& event :
             by_event ? std::vector<std::string>{"0", "1"} : std::vector<std::string>{""}) {
          const Pipe a = static_cast<Pipe>(from), b = static_cast<Pipe>(to);
          const Program q = without_pair(p, a, b, event);
          if (q == p) continue;
          ++pairs;
          const bool redundant = std::find(v.redundant.begin(), v.redundant.end(),
                                           std::tuple(a, b, event)) != v.redundant.end();
          const Report r = run(q);
          EXPECT_EQ(redundant, r.ok())
              << v.name << ": " << name_of(a) << " to " << name_of(b) << " " << event << "\n"
              << findings_text(r);
          if (!redundant) {
            // Where a pipe runs ahead unhindered, the flags that it sets are what overruns first.
            EXPECT_TRUE(has(r, Fault::race) || has(r, Fault::unwritten_read) ||
                        has(r, Fault::flag_overrun))
                << v.name << ": " << name_of(a) << " to " << name_of(b) << "\n"
                << findings_text(r);
          }
        }
      }
    }
  }
  EXPECT_GT(pairs, 20);
}

TEST(NpuHazards, ARaceNamesBothStatements) {
  const Report r = run(replaced(replaced(element_wise_text(5), "  wait_flag MTE2, V, i%2\n", ""),
                                "  set_flag MTE2, V, i%2\n", ""));
  ASSERT_FALSE(r.ok());
  const auto race = std::find_if(r.findings.begin(), r.findings.end(),
                                 [](const Finding& f) { return f.fault == Fault::race; });
  ASSERT_NE(race, r.findings.end()) << findings_text(r);
  EXPECT_GT(race->statement, 0);
  EXPECT_GT(race->other_statement, 0);
  EXPECT_EQ(race->object, "x");
  EXPECT_THAT(race->text, HasSubstr("nothing orders the two"));
  EXPECT_THAT(race->text, HasSubstr("copy x[h].nd(128)"));
  EXPECT_THAT(race->text, HasSubstr("byte "));
}

/// Parts of 32 bytes at home are told apart: a part may be read back while the part beside it is
/// still being written. The last writer counted for both before.
TEST(NpuHazards, PartsOfABlockAtHomeAreApart) {
  const auto read = [](const std::string& from) {
    return run(
        ".output Y f16[16]\n.buffer y UB f16[16] at 0 holds Y\n"
        ".buffer z UB f16[16] at 64 holds Y\n"
        "vdup y[0], 1, repeat=1, mask=16\nset_flag V, MTE3, 0\nwait_flag V, MTE3, 0\n"
        "copy Y[0].nd(16), y[0].nd(16), rows=1, columns=8\nset_flag MTE3, MTE2, 0\n"
        "copy Y[8].nd(16), y[0].nd(16), rows=1, columns=8\nwait_flag MTE3, MTE2, 0\n"
        "copy z[0].nd(16), " +
        from + ".nd(16), rows=1, columns=8\n");
  };
  EXPECT_THAT(findings_text(read("Y[0]")), IsEmpty());
  const Report raced = read("Y[8]");
  EXPECT_TRUE(has(raced, Fault::race)) << findings_text(raced);
  EXPECT_TRUE(has(read("Y[4]"), Fault::race));
}

// One instruction at fault
// -----------------------------------------------------------------------------

const std::string kHead =
    ".input X f16[1024]\n.output Y f16[1024]\n.buffer x UB f16[1024] at 0 holds X\n"
    ".buffer y UB f16[1024] at 2048 holds Y\n.buffer a1 L1 f16[1024] at 0 holds A\n"
    ".buffer a0 L0A f16[1024] at 0 holds A\n.buffer b0 L0B f16[1024] at 0 holds B\n"
    ".buffer c0 L0C f32[1024] at 0 holds C\n";

std::string first_of(const std::string& lines) {
  const Report r = run(kHead + lines);
  return r.ok() ? "nothing" : r.findings[0].text;
}

TEST(NpuHazards, OneInstructionAtFault) {
  EXPECT_THAT(
      first_of("vcopy y[0], x[0], repeat=1"),
      HasSubstr("unwritten read: block 0, statement 1 (V: vcopy y[0], x[0], repeat=1) reads "
                "x[0] (byte 0 of UB), which nothing has written"));
  EXPECT_THAT(first_of("copy x[0].nd(1025), X[0].nd(1025), rows=1, columns=1025"),
              HasSubstr("out of bounds: block 0, statement 1"));
  EXPECT_THAT(first_of("copy x[0].nd(128), X[1000].nd(128), rows=1, columns=128"),
              HasSubstr("reads X up to element 1128, which has 1024"));
  EXPECT_THAT(first_of("vdup x[-16], 0, repeat=1"), HasSubstr("begins at x[-16]"));
  EXPECT_THAT(
      first_of("vdup x[8], 0, repeat=1"),
      HasSubstr("alignment: block 0, statement 1 (V: vdup x[8], 0, repeat=1) begins at x[8], "
                "byte 16 of UB, accepted: multiples of 32 bytes"));
  EXPECT_THAT(first_of("copy x[0].nd(40), X[0].nd(40), rows=2, columns=40"),
              HasSubstr("rows of x 80 bytes apart"));
  EXPECT_THAT(first_of("copy a0[16].Zz(16), a1[0].Nz(16), rows=16, columns=16"),
              HasSubstr("multiples of 512 bytes"));
  EXPECT_THAT(first_of("mad c0[8], a0[0], b0[0], m=16, n=16, k=16, accumulate=0"),
              HasSubstr("multiples of 64 bytes"));
  EXPECT_THAT(first_of("mad c0[0], a0[0], b0[0], m=64, n=32, k=16, accumulate=0"),
              HasSubstr("writes c0 up to element 2048"));
  EXPECT_THAT(first_of("mad c0[0], a0[0], b0[0], m=16, n=-1, k=16, accumulate=0"),
              HasSubstr("has n -1, accepted: 0 to 4096"));
  EXPECT_THAT(first_of("vdup x[0], 0, repeat=256"),
              HasSubstr("has repeat 256, accepted: 0 to 255"));
  EXPECT_THAT(first_of("vdup x[0], 0, repeat=1, mask=129"), HasSubstr("has mask 129"));
  EXPECT_THAT(first_of("vdup x[0](256), 0, repeat=1"), HasSubstr("a stride of 256"));
  EXPECT_THAT(first_of("set_flag V, M, 8"), HasSubstr("has event 8, accepted: 0 to 7"));
  EXPECT_THAT(first_of("let q = 1/(block*0)"), HasSubstr("divides by zero; the block ends here"));
  EXPECT_THAT(first_of("for i = 0 to 5 step block\nend"), HasSubstr("has the step 0"));
  EXPECT_THAT(first_of("set_flag V, M, 0"), HasSubstr("flag left"));
  EXPECT_THAT(
      first_of("wait_flag V, M, 3"),
      HasSubstr("deadlock: block 0, statement 1 (M: wait_flag V, M, 3) waits for event 3 of V"));
  EXPECT_THAT(first_of("let x0 = 0"),
              HasSubstr("unwritten output: block 0 ends with 1024 elements of Y that nothing has "
                        "written, from Y[0] on"));
  EXPECT_THAT(first_of("set_flag V, M, 0\nset_flag V, M, 0\nwait_flag V, M, 0"),
              HasSubstr("flag overrun"));
}

TEST(NpuHazards, BlocksRaceInGlobalMemory) {
  const std::string text =
      ".blocks 2\n.output Y f16[128]\n.buffer y UB f16[128] at 0 holds Y\n"
      "vdup y[0], 1, repeat=1\nbarrier all\n"
      "copy Y[block*OFF].nd(128), y[0].nd(128), rows=1, columns=64";
  EXPECT_THAT(findings_text(run(replaced(text, "OFF", "63"))), HasSubstr("in block 0"));
  EXPECT_THAT(findings_text(run(replaced(text, "OFF", "64"))), IsEmpty());
}

TEST(NpuHazards, AGridBarrierOrdersBlocks) {
  const std::string text = R"(.blocks 4
.scratch T f16[512]
.output Y f16[512]
.buffer t UB f16[128] at 0 holds T
.buffer u UB f16[128] at 256 holds T
.buffer y UB f16[128] at 512 holds Y
vdup t[0], 3, repeat=1
barrier all
copy T[block*128].nd(128), t[0].nd(128), rows=1, columns=128
BARRIER
copy u[0].nd(128), T[(blocks - 1 - block)*128].nd(128), rows=1, columns=128
barrier all
vmuls y[0], u[0], 2, repeat=1
barrier all
copy Y[block*128].nd(128), y[0].nd(128), rows=1, columns=128
)";
  EXPECT_THAT(findings_text(run(replaced(text, "BARRIER", "barrier grid"))), IsEmpty());
  EXPECT_FALSE(run(replaced(text, "BARRIER", "barrier all")).ok());
  EXPECT_THAT(findings_text(run(replaced(text, "BARRIER", "if block > 0\nbarrier grid\nend"))),
              HasSubstr("waits for blocks that never come"));
}

TEST(NpuHazards, LimitsEndEndlessPrograms) {
  const Program p = parse_assembly("for i = 0 to 1000000000000\nlet x = i\nend", "p");
  TensorData data;
  const Report r = emulate(p, ascend(), data, {.most_statements = 10000});
  EXPECT_TRUE(has(r, Fault::limit));
}

TEST(NpuHazards, FindingsAreCountedNotRepeated) {
  const Report r = run(kHead +
                       "for i = 0 to 100\nvcopy y[0], x[0], repeat=8\nend\nbarrier all\n"
                       "copy Y[0].nd(1024), y[0].nd(1024), rows=1, columns=1024");
  ASSERT_EQ(r.findings.size(), 1U) << findings_text(r);
  EXPECT_EQ(r.findings[0].count, 100);
}

/// Numbers and lines of valid programs changed at random: refused in one line, or run to an end
/// with findings or without; never anything else (the sanitizers watch this test).
TEST(NpuHazards, MutatedProgramsRunOrAreRefused) {
  constexpr const char* kNumbers[] = {"0",
                                      "1",
                                      "-1",
                                      "16",
                                      "17",
                                      "255",
                                      "4096",
                                      "65536",
                                      "i",
                                      "e",
                                      "k",
                                      "9223372036854775807",
                                      "1000000000000"};
  int ran = 0, refused = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    std::string text = valid_programs()[pick(4)].text;
    for (std::size_t changes = 1 + pick(3); changes > 0; --changes) {
      std::size_t at = text.find_first_of("0123456789", pick(text.size()));
      if (at == text.npos) continue;
      const std::size_t end = text.find_first_not_of("0123456789", at);
      if (pick(4) == 0) {
        const std::size_t line = text.rfind('\n', at) + 1;
        text.erase(line, text.find('\n', line) - line);
      } else {
        text.replace(at, end - at, kNumbers[pick(std::size(kNumbers))]);
      }
    }
    try {
      const Program p = parse_assembly(text, "mutated");
      check(p, ascend());
      std::int64_t elements = 0;
      for (const Tensor& t : p.tensors) elements += t.elements();
      if (elements > 1 << 22 || p.blocks > 8) continue;
      TensorData data = random_inputs(p, seed);
      const Report r = emulate(p, ascend(), data, {.most_statements = 5000});
      EXPECT_GE(r.cycles.value, 0) << "seed " << seed;
      for (const Finding& f : r.findings) EXPECT_EQ(f.text.find('\n'), f.text.npos);
      ++ran;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(ran, 100);
  EXPECT_GT(refused, 20);
}

TEST(NpuHazards, TimelinesAreWellFormed) {
  const Program p = parse_assembly(element_wise_text(3), "e");
  TensorData data = random_inputs(p, 1);
  const Report r = emulate(p, ascend(), data, {.timeline = true});
  EXPECT_THAT(trace_json(r, p), HasSubstr("\"traceEvents\""));
  EXPECT_THAT(trace_json(r, p), HasSubstr("\"name\":\"wait: wait_flag\""));
  const std::string svg = timeline_svg(r, p, 1);
  EXPECT_THAT(svg, HasSubstr("core 1"));
  EXPECT_EQ(svg.find("MTE1"), svg.npos) << "only pipes that did anything";
}

}  // namespace
}  // namespace tilewright::npu
