// Do traces read back as they were written, do the text formats mean what their tools mean, and
// does recorded code touch what it says?
#include "simulator/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "core/base/error.h"
#include "simulator/recorder.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct One {
  std::int64_t address, bytes;
  bool write;
  int tensor;
  friend bool operator==(const One&, const One&) = default;
};

std::vector<One> read(const std::string& text, TraceSummary* summary = nullptr) {
  std::istringstream in(text);
  std::vector<One> all;
  const TraceSummary s = read_trace(in, "t", [&](std::span<const Stream> round, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      for (const Stream& x : round)
        all.push_back({x.address + i * x.stride, x.bytes, x.write, x.tensor});
  });
  if (summary != nullptr) *summary = s;
  return all;
}

std::string written(const std::vector<One>& all, const std::vector<std::string>& tensors) {
  std::ostringstream out;
  TraceWriter w(out, tensors);
  for (const One& a : all) w.access(a.address, a.bytes, a.write, a.tensor);
  w.finish();
  return out.str();
}

std::vector<One> nest() {
  std::vector<One> all;
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t k = 0; k < 8; ++k) {
      all.push_back({1000 + 32 * i + 4 * k, 4, false, 0});
      for (std::int64_t j = 0; j < 8; ++j) {
        all.push_back({5000 + 32 * k + 4 * j, 4, false, 1});
        all.push_back({9000 + 32 * i + 4 * j, 4, false, 2});
        all.push_back({9000 + 32 * i + 4 * j, 4, true, 2});
      }
    }
  return all;
}

TEST(Trace, BinaryReadsBackAndFindsLoops) {
  const std::vector<One> all = nest();
  const std::string text = written(all, {"A", "B", "C"});
  TraceSummary s;
  EXPECT_EQ(read(text, &s), all);
  EXPECT_THAT(s.tensors, ElementsAre("A", "B", "C"));
  EXPECT_EQ(s.reads, 64 + 2 * 512);
  EXPECT_EQ(s.writes, 512);
  EXPECT_LT(text.size(), all.size() / 1.4);  // 64 rows, a group of three streams each
  std::istringstream in(text);
  EXPECT_THAT(trace_tensors(in, "t"), ElementsAre("A", "B", "C"));
  EXPECT_EQ(in.tellg(), 0);
}

TEST(Trace, BinaryReadsBackWhateverComes) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<One> all;
    while (all.size() < 2000) {
      const std::size_t round = random() % 10 + 1, rounds = random() % 6 + 1;
      std::vector<One> first;
      std::vector<std::int64_t> stride;
      for (std::size_t i = 0; i < round; ++i) {
        first.push_back({static_cast<std::int64_t>(random() % (seed % 2 ? 1000 : 1ull << 50)) + 100,
                         static_cast<std::int64_t>(random() % 3 == 0 ? random() % 1000 + 1 : 4),
                         random() % 2 == 0, static_cast<int>(random() % 3)});
        stride.push_back(static_cast<std::int64_t>(random() % 21) - 10);
      }
      for (std::size_t k = 0; k < rounds; ++k)
        for (std::size_t i = 0; i < round; ++i) {
          One a = first[i];
          a.address += static_cast<std::int64_t>(k) * stride[i];
          all.push_back(a);
        }
    }
    EXPECT_EQ(read(written(all, {"x", "", "a name"})), all);
  }
}

TEST(Trace, BinaryThatIsCutOffOrAlteredIsRefusedOrReadsAsSomethingElse) {
  const std::string text = written(nest(), {"A", "B", "C"});
  for (std::size_t n = 8; n < text.size(); ++n)
    EXPECT_THROW(read(text.substr(0, n)), InputError) << n;
  EXPECT_THROW(read(text + "x"), InputError);
  std::mt19937_64 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string altered = text;
    altered[8 + random() % (text.size() - 8)] ^= static_cast<char>(1 << random() % 8);
    std::istringstream in(altered);
    try {
      std::int64_t n = 0;
      read_trace(in, "t", [&](std::span<const Stream> round, std::int64_t rounds) {
        n += std::ssize(round) * rounds;
        for (const Stream& s : round) {
          EXPECT_GE(s.address + (rounds - 1) * s.stride, 0);
          EXPECT_GE(s.bytes, 1);
        }
      });
    } catch (const InputError&) {
    }
  }
}

TEST(Trace, Din) {
  TraceSummary s;
  EXPECT_THAT(read("0 10\n1 0x1F extra words\r\n\n2 400000\n0 0\n", &s),
              ElementsAre(One{16, 4, false, 0}, One{31, 4, true, 0}, One{0, 4, false, 0}));
  EXPECT_EQ(s.format, TraceFormat::din);
  EXPECT_THAT(s.tensors, ElementsAre("trace"));
  EXPECT_EQ(s.fetches, 1);
  EXPECT_EQ(s.reads, 2);
}

TEST(Trace, Lackey) {
  TraceSummary s;
  EXPECT_THAT(read("==12== Lackey\nI  04001000,3\n L 1ffeff0,8\n S 10,4\n M 20,2\n", &s),
              ElementsAre(One{0x1ffeff0, 8, false, 0}, One{16, 4, true, 0}, One{32, 2, false, 0},
                          One{32, 2, true, 0}));
  EXPECT_EQ(s.format, TraceFormat::lackey);
  EXPECT_EQ(s.fetches, 1);
}

TEST(Trace, BadTextNamesItsLine) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    try {
      read(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
      EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
    }
  };
  refuses("", "nothing");
  refuses("hello", "no format");
  refuses("0 10\n3 10\n", "t:2");
  refuses("0 10\n0 xyz\n", "t:2");
  refuses("0 10\n0\n", "t:2");
  refuses("0 ffffffffffffffff\n", "t:1");
  refuses(" L 10,4\n L 10\n", "t:2");
  refuses(" L 10,0\n", "t:1");
  refuses(" X 10,4\n", "no format");
  refuses(std::string("0 ") + std::string(5000, '1'), "t:1");
}

TEST(Recorder, TouchesWhatTheCodeSays) {
  std::ostringstream out;
  TraceWriter w(out, {"a", "x", "y"});
  Recorder record(w);
  auto a = record.array<float>({2, 3});
  auto x = record.array<float>({3});
  auto y = record.array<double>({2});
  for (std::size_t i = 0; i < 6; ++i) a.untraced()[i] = static_cast<float>(i);
  for (std::int64_t i = 0; i < 3; ++i) x(i) = 2;
  for (std::int64_t i = 0; i < 2; ++i) {
    y(i) = 0;
    for (std::int64_t j = 0; j < 3; ++j) {
      const float left = a(i, j);
      y(i) += left * x(j);
    }
  }
  w.finish();
  EXPECT_THAT(y.untraced(), ElementsAre(6, 24));
  const std::int64_t base = 0x10000000;
  EXPECT_EQ(a.base(), base);
  EXPECT_EQ(x.base(), base + 4096);
  std::vector<One> expected;
  for (std::int64_t i = 0; i < 3; ++i) expected.push_back({x.base() + 4 * i, 4, true, 1});
  for (std::int64_t i = 0; i < 2; ++i) {
    expected.push_back({y.base() + 8 * i, 8, true, 2});
    for (std::int64_t j = 0; j < 3; ++j) {
      expected.push_back({base + 4 * (3 * i + j), 4, false, 0});
      expected.push_back({x.base() + 4 * j, 4, false, 1});
      expected.push_back({y.base() + 8 * i, 8, false, 2});
      expected.push_back({y.base() + 8 * i, 8, true, 2});
    }
  }
  EXPECT_EQ(read(out.str()), expected);
}

// The same code into caches, into a stack, and into a trace that is walked later.
TEST(Recorder, EverySinkSeesTheSame) {
  const std::vector<CacheGeometry> levels{{.name = "L1", .capacity = Bytes(1024), .ways = 2},
                                          {.name = "L2", .capacity = Bytes(8192), .ways = 4}};
  const auto code = [](auto& sink) {
    Recorder record(sink);
    auto a = record.array<float>({20, 20});
    auto b = record.array<float>({20, 20});
    for (std::int64_t i = 0; i < 20; ++i)
      for (std::int64_t j = 0; j < 20; ++j) b(j, i) = a(i, j);
  };
  CacheHierarchy direct(levels, 2), later(levels, 2);
  StackDistances stack(Bytes(64), 1, 2);
  std::ostringstream out;
  TraceWriter w(out, {"a", "b"});
  code(direct);
  code(stack);
  code(w);
  w.finish();
  std::istringstream in(out.str());
  read_trace(in, "t", [&](std::span<const Stream> s, std::int64_t n) { later.streams(s, n); });
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(direct.counts(l), later.counts(l));
    EXPECT_EQ(direct.contents(l), later.contents(l));
  }
  EXPECT_EQ(stack.total().first, direct.total(1).misses);
  EXPECT_EQ(stack.total().touches(), 800);
}

TEST(Recorder, RefusesArraysThatCannotBeLaidOut) {
  StackDistances stack(Bytes(64));
  Recorder record(stack);
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 50, INT64_MAX})
    EXPECT_THROW(record.array<double>({n, 2}), InputError) << n;
  EXPECT_THROW(record.caches(), std::logic_error);
}

}  // namespace
}  // namespace tilewright
