// Section 3: how many plans, schedules and accesses a second.
#include "bench/rates.h"


#include "bench/sections.h"
#include "core/base/format.h"

namespace tilewright::bench {
namespace {

constexpr int kSlowRounds = 3;

/// 5.01 M, 320 k, 12.3
std::string si(double x) {
  if (x >= 1e9) return formatted("{:.3g} G", x * 1e-9);
  if (x >= 1e6) return formatted("{:.3g} M", x * 1e-6);
  if (x >= 1e3) return formatted("{:.3g} k", x * 1e-3);
  return formatted("{:.3g}", x);
}

std::string time_text(double seconds) {
  if (seconds >= 1) return formatted("{:.3g} s", seconds);
  if (seconds >= 1e-3) return formatted("{:.3g} ms", seconds * 1e3);
  return formatted("{:.3g} us", seconds * 1e6);
}

std::vector<Samples> measure(const std::vector<Rate>& rows, const Settings& settings, bool slow) {
  std::vector<Contestant> contestants;
  for (const Rate& r : rows)
    if (r.slow == slow)
      contestants.push_back({.name = r.name,
                             .sample =
                                 [&r] {
                                   progress("rates: " + r.name);
                                   return seconds_of(r.call);
                                 },
                             .warm_up = !slow});
  return interleave(contestants,
                    {.rounds = slow ? std::min(kSlowRounds, settings.rounds) : settings.rounds,
                     .turn_seconds = slow ? 0 : settings.turn_seconds,
                     .most_seconds = 1e9});
}

Json row_json(const Rate& r, const Samples& s) {
  Json json = {{"name", r.name}, {"unit", r.unit}, {"per_call", r.per_call}};
  json.update(seconds_json(s));
  json["per_second"] = r.per_call / s.median();
  json["seconds_each"] = s.median() / r.per_call;
  json["beside"] = r.beside.empty() ? Json(nullptr) : Json(r.beside);
  return json;
}

}  // namespace

Json rates(const Settings& settings) {
  std::vector<Rate> rows = model_rates();
  for (Rate& r : simulator_rates()) rows.push_back(std::move(r));
  for (Rate& r : npu_rates()) rows.push_back(std::move(r));
  const std::vector<Samples> fast = measure(rows, settings, false);
  const std::vector<Samples> slow = measure(rows, settings, true);
  progress("");

  print(
      formatted("\nRates, one core, medians of {} interleaved turns (of {} where a call takes a "
                  "second)\n",
                  settings.rounds, std::min(kSlowRounds, settings.rounds)));
  Table table({"what", "median", "best", "", "beside (measured earlier on a 2-core Zen 5)"}, 3);
  Json json;
  json["rates"] = Json::array();
  std::size_t next[2] = {0, 0};
  for (const Rate& r : rows) {
    const Samples& s = r.slow ? slow[next[1]++] : fast[next[0]++];
    const auto text = [&r](double seconds) {
      return r.seconds ? time_text(seconds / r.per_call) : si(r.per_call / seconds);
    };
    table.add(
        {r.name, text(s.median()), text(s.least()), r.seconds ? "each" : r.unit + "/s", r.beside});
    json["rates"].push_back(row_json(r, s));
  }
  print(table.text());
  return json;
}

}  // namespace tilewright::bench
