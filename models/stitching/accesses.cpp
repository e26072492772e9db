#include "models/stitching/accesses.h"

#include <algorithm>
#include <array>
#include <map>

namespace tilewright::stitching {
namespace {

using lowering::kLanes;
using lowering::Linear;
using lowering::ProgramIndex;

constexpr std::int64_t kSector = 32, kLine = 128, kBanks = 32;
// Cycles of an SM for each line of which an instruction stores a part, however small: on an H200 L2
// takes 35 to 43 of these a cycle from all SMs, of 2 to 16 bytes each and whether L2 keeps them or
// not (h200-transposes.json).
constexpr double kStoredPart = 3.2;
constexpr std::int64_t kVector =
    4;  // elements of shared memory that a thread moves at once, at most

void only_different(std::vector<std::int64_t>& all) {
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

}  // namespace

std::int64_t AccessCounts::in_lane(const Linear& x, std::int64_t lane) const {
  std::int64_t value = x.constant;
  for (const auto& [id, c] : x.terms) {
    const ProgramIndex& i = p_.index(id);
    if (i.kind == ProgramIndex::Kind::unit && i.unit != Binding::warp)
      value += c * (lane / i.stride % i.size);
  }
  return value;
}

double AccessCounts::elements(const Linear& at, const std::vector<int>& dims) const {
  double n = 1;
  for (int id : dims)
    if (at.terms.contains(id)) n *= static_cast<double>(p_.index(id).count);
  return n;
}

bool AccessCounts::takes_part(std::int64_t lane, const std::vector<Linear>& inside) const {
  return std::ranges::none_of(inside, [&](const Linear& x) {
    return std::ranges::all_of(x.terms,
                               [&](const auto& term) {
                                 return p_.index(term.first).kind == ProgramIndex::Kind::unit;
                               }) &&
           in_lane(x, lane) <= 0;
  });
}

Accesses AccessCounts::home(TensorId t, const Linear& at, const std::vector<int>& dims,
                            std::int64_t width, const lowering::Copies& copies,
                            const std::vector<Linear>& inside, const std::vector<int>& loops,
                            bool stored) const {
  const std::int64_t bytes = size_of(p_.workload->tensor(t).dtype);
  std::vector<std::int64_t> sectors, lines, all, own;
  // A strip that is one access is no dimension of the address.
  const bool whole = std::ranges::none_of(dims, [&](int id) {
    const auto term = at.terms.find(id);
    return term != at.terms.end() && term->second == 1 &&
           p_.index(id).kind == ProgramIndex::Kind::element;
  });
  // Steps within a sector, together: what a lane goes through, and in how many accesses.
  constexpr std::int64_t kMost = 128 * kSector;
  std::int64_t span = 0;
  double times = 1;
  for (const std::vector<int>* group : {&dims, &loops})
    for (int id : *group) {
      const auto term = at.terms.find(id);
      if (stored || term == at.terms.end()) continue;
      const std::int64_t step = std::abs(term->second) * bytes, count = p_.index(id).count;
      if (step >= kSector || count <= 1) continue;
      const std::int64_t taken = std::min(count, std::max<std::int64_t>(1, kMost / step));
      span += (taken - 1) * step;
      times *= static_cast<double>(taken);
    }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    if (copies.lane && in_lane(*copies.lane, lane) != lane) continue;
    if (!takes_part(lane, inside)) continue;
    const std::int64_t first = (in_lane(at, lane) - at.constant) * bytes;
    for (std::int64_t b = first; b < first + width * bytes; b += std::min(bytes, kSector)) {
      sectors.push_back(b / kSector);
      lines.push_back(b / kLine);
      own.push_back(b);
    }
    for (std::int64_t b = first / kSector;
         span > 0 && b <= (first + span + (whole ? width : 1) * bytes - 1) / kSector; ++b)
      all.push_back(b);
  }
  for (std::vector<std::int64_t>* some : {&sectors, &lines, &all}) only_different(*some);
  Accesses x{.count = elements(at, dims)};
  if (!whole) x.count /= static_cast<double>(width);
  if (span > 0 && !sectors.empty())
    x.fresh = std::min(1.0, static_cast<double>(all.size()) /
                                (times * static_cast<double>(sectors.size())) *
                                (whole ? 1 : static_cast<double>(width)));
  x.sectors = x.count * static_cast<double>(sectors.size()) * x.fresh;
  double passes = static_cast<double>(lines.size());
  if (stored) {
    only_different(own);
    std::map<std::int64_t, std::int64_t> covered;
    for (const std::int64_t b : own) covered[b / kLine] += bytes;
    for (const auto& [line, of_it] : covered)
      if (of_it < kLine) passes += kStoredPart - 1;
  }
  x.wavefronts = x.count * passes;
  return x;
}

Accesses AccessCounts::staged(const lowering::Step& s) const {
  if (p_.brings_rows(s)) return staged_rows(s);
  const std::int64_t bytes = size_of(p_.workload->tensor(p_.value(s.values.front()).tensor).dtype);
  const int row = s.elements.empty() ? -1 : s.elements.back();
  const std::int64_t apart = row < 0 || !s.from.terms.contains(row) ? 0 : s.from.terms.at(row);
  const std::int64_t lanes = row < 0 ? 1 : std::min({p_.index(row).count, s.threads, kLanes});
  // Of lanes with tiles of their own each is somewhere else.
  std::int64_t others = 1;
  if (s.threads == 1) {
    others = 0;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) others += takes_part(lane, s.inside) ? 1 : 0;
  }
  const auto touched = [&](std::int64_t unit) {
    return static_cast<double>((std::max<std::int64_t>(1, lanes - 1) * apart * bytes) / unit + 1);
  };
  const double most = static_cast<double>(lanes * others);
  return {.count = 1,
          .sectors = std::min(most, touched(kSector) * static_cast<double>(others)),
          .wavefronts = 1 + std::min(most, touched(kLine) * static_cast<double>(others))};
}

Accesses AccessCounts::staged_rows(const lowering::Step& s) const {
  const std::int64_t bytes = size_of(p_.workload->tensor(p_.value(s.values.front()).tensor).dtype);
  const std::int64_t width = std::max<std::int64_t>(1, p_.value(s.values.front()).padded);
  const lowering::ThreadProgram::Rows rows = p_.rows_of(s);
  const auto step = [&](std::size_t from_last) {
    const int id = s.elements[s.elements.size() - 1 - from_last];
    const auto term = s.from.terms.find(id);
    return term == s.from.terms.end() ? 0 : term->second;
  };
  const std::int64_t row = s.elements.size() > 1 ? step(1) : 0;
  std::vector<std::int64_t> sectors, lines;
  for (std::int64_t lane = 0; lane < std::min(kLanes, s.threads); ++lane) {
    const std::int64_t at = lane % rows.threads;
    if (at >= p_.index(s.elements.back()).count) continue;
    const std::int64_t first = (at * step(0) + lane / rows.threads * row) * bytes;
    for (std::int64_t b = first; b < first + width * bytes; b += bytes) {
      sectors.push_back(b / kSector);
      lines.push_back(b / kLine);
    }
  }
  only_different(sectors);
  only_different(lines);
  return {.count = 1,
          .sectors = static_cast<double>(sectors.size()),
          .wavefronts = static_cast<double>(lines.size() + static_cast<std::size_t>(width))};
}

Accesses AccessCounts::window(const Linear& at, const std::vector<int>& dims,
                              const std::vector<int>& loops, std::int64_t width) const {
  std::vector<std::int64_t> places{0};
  for (const std::vector<int>* ids : {&dims, &loops})
    for (int id : *ids) {
      const auto term = at.terms.find(id);
      if (term == at.terms.end()) continue;
      std::vector<std::int64_t> more;
      for (std::int64_t place : places)
        for (std::int64_t i = 0; i < p_.index(id).count; ++i)
          more.push_back((place + i * term->second) / width * width);
      places = std::move(more);
      only_different(places);
    }
  // As many lanes at a time as fill the banks.
  std::size_t passes = 0;
  for (std::int64_t first = 0; first < kLanes; first += kLanes / width) {
    std::array<std::vector<std::int64_t>, kBanks> banks;
    for (std::int64_t lane = first; lane < first + kLanes / width; ++lane)
      for (std::int64_t w = 0; w < width; ++w) {
        const std::int64_t word = in_lane(at, lane) - at.constant + w;
        banks[static_cast<std::size_t>((word % kBanks + kBanks) % kBanks)].push_back(word);
      }
    std::size_t most = 1;
    for (auto& all : banks) {
      only_different(all);
      most = std::max(most, all.size());
    }
    passes += most;
  }
  const auto count = static_cast<double>(places.size());
  return {.count = count, .wavefronts = count * static_cast<double>(passes)};
}

Accesses AccessCounts::shared(const Linear& at, const std::vector<int>& dims) const {
  std::int64_t width = 1;
  for (int id : dims) {
    const auto term = at.terms.find(id);
    if (term == at.terms.end() || term->second != 1) continue;
    while (width < kVector && p_.index(id).count % (2 * width) == 0) width *= 2;
  }
  const std::int64_t words = p_.element_bytes() / 4;
  std::array<std::vector<std::int64_t>, kBanks> banks;
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    for (std::int64_t w = 0; w < width * words; ++w) {
      const std::int64_t word = (in_lane(at, lane) - at.constant) * words + w;
      banks[static_cast<std::size_t>((word % kBanks + kBanks) % kBanks)].push_back(word);
    }
  std::size_t most = 1;
  for (auto& all : banks) {
    only_different(all);
    most = std::max(most, all.size());
  }
  Accesses x{.count = elements(at, dims) / static_cast<double>(width)};
  x.wavefronts = x.count * static_cast<double>(most);
  return x;
}

double AccessCounts::of_block(const Linear& at, const std::vector<int>& dims) const {
  double n = 1;
  for (int id : dims) n *= static_cast<double>(p_.index(id).count);
  for (const auto& [id, c] : at.terms)
    if (p_.index(id).kind == ProgramIndex::Kind::unit) n *= static_cast<double>(p_.index(id).count);
  return n;
}

Linear AccessCounts::row_of(const lowering::Read& by, std::int64_t stride) const {
  Linear at = by.at;
  if (by.from == lowering::Read::From::registers)
    for (const Linear& x : p_.value(by.value).key) at = at + x;
  Linear rows;
  for (const auto& [id, c] : at.terms)
    if (p_.index(id).kind == ProgramIndex::Kind::unit) rows.terms[id] = stride;
  return rows;
}

}  // namespace tilewright::stitching
