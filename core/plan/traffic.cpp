#include "core/plan/traffic.h"

#include <algorithm>
#include <set>

namespace tilewright {
namespace {

void add(TrafficEntry& to, const TrafficEntry& e, std::int64_t sign) {
  to.read += e.read * sign;
  to.written += e.written * sign;
  to.hits += e.hits * sign;
  to.misses += e.misses * sign;
  to.resident_dirty += e.resident_dirty * sign;
}

std::vector<std::string> tensors_at(const Traffic& t, const std::string& boundary) {
  std::vector<std::string> names;
  for (const TrafficEntry& e : t.entries) {
    if (e.boundary == boundary) names.push_back(e.tensor);
  }
  return names;
}

std::string describe(const Counts& c) {
  std::string s = c.write_allocate ? "with write-allocate fills" : "without write-allocate fills";
  s += c.write_back ? ", with write-backs" : ", without write-backs";
  return s + (c.prefetch ? ", with prefetches" : ", without prefetches");
}

/// Why two counts of one boundary cannot be told apart tensor by tensor.
std::optional<Reason> mismatch(const Traffic& a, const Traffic& b, const std::string& boundary) {
  const auto in_a = tensors_at(a, boundary);
  const auto in_b = tensors_at(b, boundary);
  if (in_a.empty() || in_b.empty()) return std::nullopt;
  const bool shared = std::any_of(in_a.begin(), in_a.end(), [&](const std::string& name) {
    return std::find(in_b.begin(), in_b.end(), name) != in_b.end();
  });
  if (shared) return std::nullopt;
  return Reason{"at " + boundary + " one counts " + join(in_a) + ", the other " + join(in_b) +
                ": no tensor in common"};
}

/// The entry of (tensor, boundary), made after the last of its boundary where there is none.
TrafficEntry& entry_of(std::vector<TrafficEntry>& entries, const TrafficEntry& like) {
  auto place = entries.end();
  for (auto it = entries.begin(); it != entries.end(); ++it) {
    if (it->boundary != like.boundary) continue;
    if (it->tensor == like.tensor) return *it;
    place = it + 1;
  }
  TrafficEntry made;
  made.tensor = like.tensor;
  made.boundary = like.boundary;
  return *entries.insert(place, std::move(made));
}

template <class T>
void subtract_map(std::map<std::string, T>& a, const std::map<std::string, T>& b) {
  for (const auto& [key, value] : b) a[key] -= value;
}

}  // namespace

std::string_view name_of(Source s) {
  switch (s) {
    case Source::predicted:
      return "predicted";
    case Source::simulated:
      return "simulated";
    case Source::measured:
      return "measured";
    case Source::paper:
      return "paper";
  }
  return "predicted";
}

std::optional<Source> source_from_name(std::string_view name) {
  for (Source s : {Source::predicted, Source::simulated, Source::measured, Source::paper}) {
    if (name_of(s) == name) return s;
  }
  return std::nullopt;
}

TrafficEntry Traffic::total(const std::string& boundary) const {
  TrafficEntry sum;
  sum.tensor = "total";
  sum.boundary = boundary;
  for (const TrafficEntry& e : entries) {
    if (e.boundary == boundary) add(sum, e, 1);
  }
  return sum;
}

TrafficEntry Traffic::at(const std::string& tensor, const std::string& boundary) const {
  for (const TrafficEntry& e : entries) {
    if (e.tensor == tensor && e.boundary == boundary) return e;
  }
  TrafficEntry zeros;
  zeros.tensor = tensor;
  zeros.boundary = boundary;
  return zeros;
}

Result<Traffic> subtract(const Traffic& a, const Traffic& b) {
  if (a.counts != b.counts) {
    return Reason{"they count different things: " + a.by + " " + describe(a.counts) + "; " + b.by +
                  " " + describe(b.counts)};
  }
  Traffic r = a;
  r.by = a.by + " - " + b.by;
  if (a.machine != b.machine) r.machine = a.machine + " - " + b.machine;
  for (const auto& [boundary, why] : b.unavailable) r.unavailable.emplace(boundary, why);
  const auto missing = [&](const TrafficEntry& e) { return r.unavailable.contains(e.boundary); };
  std::erase_if(r.entries, missing);
  std::set<std::string> compared;
  for (const TrafficEntry& e : b.entries) {
    if (missing(e)) continue;
    if (compared.insert(e.boundary).second) {
      if (auto reason = mismatch(a, b, e.boundary)) return *reason;
    }
    add(entry_of(r.entries, e), e, -1);
  }
  subtract_map(r.memory, b.memory);
  subtract_map(r.operations, b.operations);
  if (a.seconds && b.seconds) {
    r.seconds = *a.seconds - *b.seconds;
  } else {
    r.seconds.reset();
  }
  return r;
}

}  // namespace tilewright
