// Souffle's classes, composition, partition and barriers on graphs that are drawn, each held
// against a slow computation that shares nothing with the model: points and elements one by one,
// blocks put on multiprocessors one by one, plans with a barrier less. TILEWRIGHT_SEED: other
// graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/plan/schedule.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/souffle/model.h"
#include "tests/support/drawn_graphs.h"

namespace tilewright::souffle {
namespace {

unsigned first_seed() {
  const char* const said = std::getenv("TILEWRIGHT_SEED");
  return said == nullptr ? 1 : static_cast<unsigned>(std::strtoul(said, nullptr, 10));
}

/// Three kinds of graphs in turn.
std::string drawn(unsigned seed) {
  if (seed % 3 == 0) return testing::drawn_branches(seed);
  return testing::GraphDrawer(seed).text(4 + static_cast<int>(seed % 11));
}

Workload workload_of(unsigned seed) { return workload_from_yaml(drawn(seed), "test"); }

std::int64_t value_of(const Affine& f, const std::map<LoopId, std::int64_t>& at) {
  std::int64_t v = f.offset;
  for (const Term& t : f.terms) v += t.coefficient * at.at(t.loop);
  return v;
}
std::vector<std::int64_t> element_of(const Access& a, const std::map<LoopId, std::int64_t>& at) {
  std::vector<std::int64_t> out;
  for (const Affine& f : a.index) out.push_back(value_of(f, at));
  return out;
}

/// An expression relies on many elements where two of its points write the same one.
TEST(SouffleDrawn, ClassesPointByPoint) {
  int many = 0, one = 0;
  for (unsigned seed = first_seed(); seed < first_seed() + 150; ++seed) {
    const Workload w = workload_of(seed);
    const Analysis a = analyse(w, {});
    for (std::size_t i = 0; i < w.operators().size(); ++i) {
      const Operator& op = w.operators()[i];
      const Access& target = op.outputs.front().target;
      // Two values of each loop suffice: indices are affine, targets are plain loops.
      std::set<std::vector<std::int64_t>> written;
      std::size_t points = 1;
      for (std::size_t l = 0; l < op.loops.size(); ++l) points *= 2;
      std::size_t seen = 0;
      for (std::size_t bits = 0; bits < points; ++bits) {
        std::map<LoopId, std::int64_t> at;
        bool there = true;
        for (std::size_t l = 0; l < op.loops.size(); ++l) {
          at[op.loops[l]] = (bits >> l) & 1;
          there = there && at[op.loops[l]] < w.loop(op.loops[l]).extent;
        }
        if (!there) continue;
        ++seen;
        written.insert(element_of(target, at));
      }
      EXPECT_EQ(a.of[i].many, written.size() < seen) << "seed " << seed << " " << op.name;
      (a.of[i].many ? many : one) += 1;
    }
  }
  EXPECT_GT(many, 100);
  EXPECT_GT(one, 100);
}

/// The map of two expressions leads every element where one after the other leads it.
TEST(SouffleDrawn, MapsElementByElement) {
  int held = 0, printed_wrong = 0;
  for (unsigned seed = first_seed(); seed < first_seed() + 300; ++seed) {
    const Workload w = workload_of(seed);
    std::mt19937 draw(seed);
    for (std::size_t r = 0; r < w.operators().size(); ++r) {
      const Operator& reader = w.operators()[r];
      for (const Access& read : reader.inputs) {
        const OpId maker = w.producer(read.tensor);
        if (!maker.valid()) continue;
        const Operator& producer = w.op(maker);
        const auto outer = index_map(reader, read);
        for (const Access& source : producer.inputs) {
          const auto inner = index_map(producer, source);
          if (!outer || !inner || producer.outputs.size() != 1) continue;
          const auto both = composed(*inner, *outer);
          ASSERT_TRUE(both) << "seed " << seed;
          const auto printed = composed(*outer, *inner);
          printed_wrong += !printed || *printed != *both;
          for (int times = 0; times < 8; ++times) {
            // Where the reader writes, what it reads, which point made that, and what that read.
            std::map<LoopId, std::int64_t> at;
            std::vector<std::int64_t> element;
            for (const Affine& f : reader.outputs.front().target.index) {
              const LoopId l = *f.plain_loop();
              at[l] = static_cast<std::int64_t>(draw() % w.loop(l).extent);
              element.push_back(at[l]);
            }
            const std::vector<std::int64_t> middle = element_of(read, at);
            std::map<LoopId, std::int64_t> made;
            const Access& target = producer.outputs.front().target;
            for (std::size_t d = 0; d < middle.size(); ++d)
              made[*target.index[d].plain_loop()] = middle[d];
            std::vector<std::int64_t> mapped = both->offset;
            for (std::size_t row = 0; row < mapped.size(); ++row)
              for (std::size_t c = 0; c < element.size(); ++c)
                mapped[row] += both->matrix[row][c] * element[c];
            EXPECT_EQ(mapped, element_of(source, made)) << "seed " << seed << " " << reader.name;
            ++held;
          }
        }
      }
    }
  }
  EXPECT_GT(held, 1000);
  EXPECT_GT(printed_wrong, 20);
}

/// Blocks put on multiprocessors one by one until one has no place.
bool all_resident(const Device& d, const Resources& each, std::int64_t blocks) {
  struct Left {
    std::int64_t threads = 2048, registers = 0, shared = 0, blocks = 0;
  };
  std::vector<Left> sms(static_cast<std::size_t>(d.sms),
                        {.registers = d.registers, .shared = d.shared.value, .blocks = d.blocks});
  std::size_t sm = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto takes = [&each](const Left& l) {
      return l.blocks >= 1 && l.threads >= each.threads &&
             l.registers >= each.threads * each.registers && l.shared >= each.shared.value;
    };
    while (sm < sms.size() && !takes(sms[sm])) ++sm;
    if (sm == sms.size()) return false;
    sms[sm].blocks -= 1, sms[sm].threads -= each.threads;
    sms[sm].registers -= each.threads * each.registers, sms[sm].shared -= each.shared.value;
  }
  return true;
}

/// Algorithm 1 with its tail, by schedules that are drawn for every product.
TEST(SouffleDrawn, PartitionsBlockByBlock) {
  const Machine machine = named_machine("a100");
  int several = 0;
  for (unsigned seed = first_seed(); seed < first_seed() + 200; ++seed) {
    const Workload w = workload_of(seed);
    const Device d = *device_of(machine, w.dtype(), {});
    std::mt19937 draw(seed);
    const auto among = [&draw](std::initializer_list<std::int64_t> of) {
      return *(of.begin() + draw() % of.size());
    };
    Options o;
    for (const Operator& op : w.operators())
      o.schedules[op.name] = {.blocks = among({40, 96, 108, 109, 200, 216, 217, 432, 900}),
                              .threads = among({64, 128, 256, 512}),
                              .registers = among({32, 64, 100, 128}),
                              .shared = Bytes(among({0, 20000, 49152, 82000, 100000, 160000}))};
    const Analysis a = analyse(w, o);
    std::vector<std::vector<OpId>> want(1);
    std::vector<Resources> together;
    for (OpId id : w.topological_order()) {
      const Operator& op = w.op(id);
      // A product of two tensors that is summed.
      if (!w.reduction_loops(id).empty() && op.inputs.size() == 2 &&
          op.outputs.front().value.function == "mul") {
        const Resources own = o.schedules.at(op.name);
        std::vector<Resources> with = together;
        with.push_back(own);
        Resources most{.blocks = 0, .threads = 0, .registers = 0};
        std::int64_t registers = 0;  // of a block
        for (const Resources& r : with) {
          most.blocks = std::max(most.blocks, r.blocks);
          most.threads = std::max(most.threads, r.threads);
          registers = std::max(registers, r.threads * r.registers);
          most.shared = std::max(most.shared, r.shared);
        }
        // The block's registers as a whole: threads of one register each would not add up.
        Device rest = d;
        rest.registers = d.registers / std::max<std::int64_t>(1, registers);
        Resources unit = most;
        unit.registers = 0;
        const bool by_registers = most.blocks <= d.sms * rest.registers;
        if (by_registers && all_resident(d, unit, most.blocks)) {
          together = with;
        } else {
          if (!want.back().empty()) want.emplace_back();
          together = {own};
        }
      }
      want.back().push_back(id);
    }
    std::vector<std::vector<OpId>> got;
    for (const Subprogram& s : partition(w, a, d, o)) got.push_back(s.ops);
    EXPECT_EQ(got, want) << "seed " << seed;
    several += got.size() > 1;
  }
  EXPECT_GT(several, 50);
}

/// Every barrier is needed: without it resolve refuses the kernel, because a block would read what
/// another has not written. And none is missing: resolve takes the kernel as it is.
TEST(SouffleDrawn, BarriersOneLess) {
  const auto machine = std::make_shared<const Machine>(named_machine("a100"));
  int barriers = 0, spare = 0;
  std::vector<unsigned> seeds{
      667940};  // grids of two nests differ by a loop that a block has whole
  for (unsigned i = 0; i < 60; ++i) seeds.push_back(first_seed() + i);
  for (const unsigned seed : seeds) {
    const auto w = std::make_shared<const Workload>(workload_of(seed));
    Options o;
    o.units = seed % 4 == 0;
    const Result<Planned> p = planned({.workload = w, .machine = machine}, o);
    ASSERT_TRUE(p.ok()) << "seed " << seed;
    ASSERT_TRUE(resolve(p->plan, p->workload, machine).ok()) << "seed " << seed;
    for (std::size_t k = 0; k < p->plan.kernels.size(); ++k) {
      int syncs = 0;
      const std::vector<Node>& nodes = p->plan.kernels[k].tree.children;
      for (std::size_t n = 0; n < nodes.size(); ++n) {
        if (nodes[n].kind != Node::Kind::sync) continue;
        ++syncs;
        Plan less = p->plan;
        std::vector<Node>& left = less.kernels[k].tree.children;
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(n));
        bool taken = false;
        try {
          taken = resolve(less, p->workload, machine).ok();
        } catch (const InputError&) {
          taken = false;
        }
        if (taken) {
          ++spare;
          ADD_FAILURE() << "seed " << seed << " kernel " << k << ": barrier at " << n
                        << " is not needed: " << to_text(p->plan.kernels[k].tree);
        }
      }
      EXPECT_EQ(syncs, p->counts.kernels[k].phases - 1) << "seed " << seed;
      barriers += syncs;
    }
  }
  EXPECT_GT(barriers, 30);
}

}  // namespace
}  // namespace tilewright::souffle
