// Rates of the models: Chimera's Algorithm 1 and its searches, resolve, exact.
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "bench/lstm_chain.h"
#include "bench/rates.h"
#include "core/machine/machine.h"
#include "core/plan/schedule.h"
#include "harness/request.h"
#include "harness/verbs.h"
#include "models/chimera/chimera.h"
#include "models/chimera/levels.h"
#include "models/exact/exact.h"

namespace tilewright::bench {
namespace {

constexpr const char* kChain = "gemm-chain:m=512,n=64,k=64,l=512";
constexpr const char* kMachine = "epyc-zen5";  // a fixed one: the same work wherever it runs

std::shared_ptr<const Workload> workload(const std::string& name) {
  return harness::workload_of({.subject = name}).workload;
}

/// Seeded tilings, each loop's tile uniform in [1, extent].
std::vector<chimera::Tiles> tilings(const Workload& w, std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<chimera::Tiles> out(count);
  for (chimera::Tiles& tiles : out)
    for (const Loop& loop : w.loops())
      tiles.push_back(
          1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(loop.extent)));
  return out;
}

/// Algorithm 1 on 4096 tilings under each of the orders.
Rate pricing(const std::string& name, const std::string& subject, const std::string& order,
             const chimera::Options& options) {
  const auto w = workload(subject);
  std::vector<chimera::Order> orders;
  if (order == "all")
    orders = chimera::all_orders(*w);
  else
    orders = {chimera::parse_order(*w, order)};
  auto pricers = std::make_shared<std::vector<chimera::Pricer>>();
  for (const chimera::Order& o : orders) pricers->emplace_back(*w, o, options);
  constexpr std::size_t kTilings = 4096;
  const auto all = std::make_shared<std::vector<chimera::Tiles>>(tilings(*w, kTilings));
  return {.name = name,
          .unit = "plans",
          .per_call = static_cast<double>(kTilings * orders.size()),
          .call = [pricers, all, w] {
            std::int64_t volume = 0;
            for (const chimera::Pricer& pricer : *pricers)
              for (const chimera::Tiles& tiles : *all) volume ^= pricer.quick(tiles).volume;
            asm volatile("" : : "r"(volume));
          }};
}

/// All 24 orders of each workload with their best tiles.
Rate searching(const std::string& name, const std::vector<std::string>& subjects) {
  std::vector<std::shared_ptr<const Workload>> all;
  for (const std::string& s : subjects) all.push_back(workload(s));
  return {.name = name,
          .unit = "searches",
          .per_call = static_cast<double>(all.size()),
          .call =
              [all] {
                constexpr Elements kCapacity{262144};  // 1 MiB of float32
                for (const auto& w : all)
                  if (chimera::search(*w, kCapacity, {}).ranked.empty())
                    throw std::runtime_error("a search found nothing");
              },
          .seconds = true};
}

/// Tiles and orders at every level of a machine.
Rate searching_levels(const std::string& name, const std::vector<std::string>& subjects) {
  std::vector<std::shared_ptr<const Workload>> all;
  for (const std::string& s : subjects) all.push_back(workload(s));
  const auto machine = std::make_shared<const Machine>(named_machine("xeon-gold-6240"));
  return {.name = name,
          .unit = "searches",
          .per_call = static_cast<double>(all.size()),
          .call =
              [all, machine] {
                for (const auto& w : all)
                  if (const auto found = chimera::best_levels(*w, *machine, {}); !found)
                    throw std::runtime_error(w->name() + ": " + found.reason());
              },
          .seconds = true,
          .slow = true};
}

/// What `resolve` and `exact` work on: chimera's best plan of each row, at a software-managed L2.
struct Planned {
  std::shared_ptr<const Workload> workload;
  std::shared_ptr<const Machine> machine;
  Plan plan;
  std::shared_ptr<const Schedule> schedule;
};

Planned planned(const std::string& subject) {
  harness::Setting s = harness::setting_of({.subject = subject, .machine = "scratchpad:1M"});
  const auto best = chimera::best_plan(*s.workload, *s.machine, s.machine->default_level(), {});
  if (!best) throw std::runtime_error(subject + ": " + best.reason());
  Result<Schedule> schedule = resolve(best->plan, s.workload, s.machine);
  if (!schedule) throw std::runtime_error(subject + ": " + schedule.reason());
  return {s.workload, s.machine, best->plan,
          std::make_shared<const Schedule>(std::move(schedule).value())};
}

std::vector<std::string> table_rows(const std::string& letter = "G", int count = 12) {
  std::vector<std::string> rows;
  for (int i = 1; i <= count; ++i) rows.push_back("chimera/" + letter + std::to_string(i));
  return rows;
}

}  // namespace

std::vector<Rate> model_rates() {
  std::vector<Rate> rows;
  rows.push_back(pricing("Algorithm 1, chain 512, mlkn", kChain, "mlkn", {}));
  rows.back().beside = "Timeloop: about 275 valid mappings/s on 2 threads";
  rows.push_back(pricing("Algorithm 1, chain 512, mlkn, exact edges", kChain, "mlkn",
                         {.edges = chimera::Edges::exact}));
  rows.push_back(
      pricing("Algorithm 1, chimera/G2 with batch, all 24 orders", "chimera/G2", "all", {}));
  rows.push_back(searching("search of 24 orders, chain 512", {kChain}));
  rows.push_back(searching("search of 24 orders, chimera/G1 to G12", table_rows()));
  rows.push_back(searching_levels("search of three levels, chimera/G1 to G12", table_rows()));
  rows.push_back(
      searching_levels("search of three levels, ten loops, chimera/C1 to C8", table_rows("C", 8)));
  rows.push_back(
      {.name = "plan verb, chain 512",
       .unit = "plans",
       .call =
           [] {
             if (!harness::plan({.subject = kChain, .machine = kMachine, .model = "chimera"}).ok())
               throw std::runtime_error("no plan");
           },
       .seconds = true,
       .beside = "TileFlow: 24 s, 2.75 times the bytes"});
  auto plans = std::make_shared<std::vector<Planned>>();
  for (const std::string& row : table_rows()) plans->push_back(planned(row));
  const auto count = static_cast<double>(plans->size());
  rows.push_back({.name = "resolve, best plans of chimera/G1 to G12",
                  .unit = "plans",
                  .per_call = count,
                  .call = [plans] {
                    for (const Planned& p : *plans)
                      if (!resolve(p.plan, p.workload, p.machine))
                        throw std::runtime_error("a plan does not resolve");
                  }});
  rows.push_back({.name = "exact, schedules of chimera/G1 to G12",
                  .unit = "schedules",
                  .per_call = count,
                  .call = [plans] {
                    for (const Planned& p : *plans)
                      if (exact(*p.schedule).entries.empty())
                        throw std::runtime_error("a plan that moves nothing");
                  }});
  const auto room = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1G"));
  // Four times the operators: what takes more than four times as long grows faster than they do.
  for (const int cells : {250, 1000}) {
    const auto chain = std::make_shared<const LstmChain>(lstm_chain(cells));
    const auto w = std::make_shared<const Workload>(chain->workload);
    const std::string what = std::to_string(cells) + " LSTM cells (" +
                             std::to_string(w->operators().size()) + " operators)";
    rows.push_back({.name = "resolve, " + what,
                    .unit = "plans",
                    .call =
                        [=] {
                          if (!resolve(chain->plan, w, room))
                            throw std::runtime_error("the chain does not resolve");
                        },
                    .seconds = true,
                    .slow = true});
    rows.push_back(
        {.name = "exact, " + what,
         .unit = "schedules",
         .call =
             [s = std::make_shared<const Schedule>(resolve(chain->plan, w, room).value())] {
               if (exact(*s).entries.empty()) throw std::runtime_error("a plan that moves nothing");
             },
         .seconds = true,
         .slow = true});
  }
  return rows;
}

}  // namespace tilewright::bench
