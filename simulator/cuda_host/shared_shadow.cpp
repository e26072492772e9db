#include "simulator/cuda_host/shared_shadow.h"

#include <algorithm>
#include <bit>

namespace tilewright::cuda_host {

void SharedShadow::reset(std::int64_t bytes, int components) {
  cells_.assign(static_cast<std::size_t>((bytes + kCellBytes - 1) / kCellBytes), Cell{});
  components_ = components;
  free_.clear();
  for (std::size_t i = 0; i < many_.size(); ++i) free_.push_back(static_cast<std::uint32_t>(i));
}

void SharedShadow::clear_readers(Cell& cell) {
  if (cell.readers == kMany) free_.push_back(cell.reader[0].clock);
  cell.readers = 0;
}

/// Those of the reader's lanes whose read is not known to one who has seen `seen`.
std::uint32_t SharedShadow::late_lanes(const Reader& reader, const Seen& seen) const {
  const int first = static_cast<int>(reader.group) * kGroup;
  const int lanes = std::min(kGroup, components_ - first);
  const Clock* const least = seen.at_least() + first;
  Clock perhaps = 0;  // of any lane: one branch where all is well
  for (int i = 0; i < lanes; ++i) perhaps |= static_cast<Clock>(least[i] < reader.clock);
  if (perhaps == 0) return 0;
  std::uint32_t late = 0;
  for (std::uint32_t rest = reader.lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (seen[static_cast<std::size_t>(first + lane)] < reader.clock) late |= 1u << lane;
  }
  return late;
}

/// Drops readers known to one who reads now: whoever is ordered after that read is ordered after
/// them. Returns how many stay.
int SharedShadow::keep_late(std::span<Reader> readers, const Seen& seen) const {
  int kept = 0;
  for (Reader r : readers) {
    r.lanes = late_lanes(r, seen);
    if (r.lanes != 0) readers[static_cast<std::size_t>(kept++)] = r;
  }
  return kept;
}

void SharedShadow::add_to_many(Many& many, const Reader& self, const Seen& seen) {
  for (auto r = many.readers.rbegin(); r != many.readers.rend(); ++r)
    if (r->group == self.group && r->clock == self.clock && r->place == self.place) {
      r->lanes |= self.lanes;
      return;
    }
  if (many.readers.size() >= many.limit) {
    many.readers.resize(static_cast<std::size_t>(keep_late(many.readers, seen)));
    many.limit = 2 * many.readers.size() + 8;
  }
  many.readers.push_back(self);
}

void SharedShadow::add_reader(Cell& cell, const Reader& self, const Seen& seen) {
  if (cell.readers == kMany) {
    add_to_many(many_[cell.reader[0].clock], self, seen);
    return;
  }
  for (int i = 0; i < cell.readers; ++i) {
    Reader& r = cell.reader[i];
    if (r.group == self.group && r.clock == self.clock && r.place == self.place) {
      r.lanes |= self.lanes;
      return;
    }
  }
  if (cell.readers == kInline)
    cell.readers = static_cast<std::uint8_t>(keep_late({cell.reader, kInline}, seen));
  if (cell.readers < kInline) {
    cell.reader[cell.readers++] = self;
    return;
  }
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(many_.size()));
    many_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Many& many = many_[index];
  many.readers.assign(cell.reader, cell.reader + kInline);
  many.readers.push_back(self);
  many.limit = 16;
  cell.readers = kMany;
  cell.reader[0].clock = index;
}

std::span<const SharedShadow::Reader> SharedShadow::readers(const Cell& cell) const {
  if (cell.readers == kMany) return many_[cell.reader[0].clock].readers;
  return {cell.reader, cell.readers};
}

Accessor SharedShadow::racing_reader(const Cell& cell, const Seen& seen) const {
  for (const Reader& r : readers(cell))
    if (const std::uint32_t late = late_lanes(r, seen))
      return {r.place, static_cast<int>(r.group) * kGroup + std::countr_zero(late)};
  return {};
}

SharedShadow::Outcome SharedShadow::read(std::int64_t offset, std::int64_t bytes, int component,
                                         Clock now, const Seen& seen, std::uint32_t place) {
  Outcome outcome;
  const auto c32 = static_cast<std::uint32_t>(component);
  const Reader self{now, place, c32 / kGroup, 1u << c32 % kGroup};
  const std::int64_t last = (offset + bytes - 1) / kCellBytes;
  for (std::int64_t c = offset / kCellBytes; c <= last; ++c) {
    Cell& cell = cells_[static_cast<std::size_t>(c)];
    if (cell.readers == 1 && cell.reader[0].clock == now && cell.reader[0].place == place &&
        cell.reader[0].group == self.group && (cell.reader[0].lanes & self.lanes) != 0)
      continue;
    if (cell.writer == kNobody) {
      if (!outcome.uninitialised && !outcome.other) outcome.offset = c * kCellBytes;
      outcome.uninitialised = true;
    } else if (cell.write_clock > seen[cell.writer]) {
      if (!outcome.other) {
        outcome.other = {cell.write_place, cell.writer};
        outcome.other_wrote = true;
        outcome.offset = c * kCellBytes;
      }
    }
    if (cell.barrier) outcome.barrier = true;
    add_reader(cell, self, seen);
  }
  return outcome;
}

SharedShadow::Outcome SharedShadow::write(std::int64_t offset, std::int64_t bytes, int component,
                                          Clock now, const Seen& seen, std::uint32_t place) {
  Outcome outcome;
  const std::int64_t last = (offset + bytes - 1) / kCellBytes;
  for (std::int64_t c = offset / kCellBytes; c <= last; ++c) {
    Cell& cell = cells_[static_cast<std::size_t>(c)];
    if (!outcome.other) {
      if (cell.writer != kNobody && cell.write_clock > seen[cell.writer]) {
        outcome.other = {cell.write_place, cell.writer};
        outcome.other_wrote = true;
        outcome.offset = c * kCellBytes;
      } else if (const Accessor reader = racing_reader(cell, seen)) {
        outcome.other = reader;
        outcome.other_wrote = false;
        outcome.offset = c * kCellBytes;
      }
    }
    if (cell.barrier) outcome.barrier = true;
    clear_readers(cell);
    cell.writer = static_cast<std::uint16_t>(component);
    cell.write_clock = now;
    cell.write_place = place;
  }
  return outcome;
}

Accessor SharedShadow::unfenced(std::int64_t offset, std::int64_t bytes,
                                std::span<const Clock> fenced) const {
  for (std::int64_t c = offset / kCellBytes; c <= (offset + bytes - 1) / kCellBytes; ++c) {
    const Cell& cell = cells_[static_cast<std::size_t>(c)];
    if (cell.writer < fenced.size() && cell.write_clock > fenced[cell.writer])
      return {cell.write_place, cell.writer};
  }
  return {};
}

void SharedShadow::mark_barrier(std::int64_t offset, bool is_barrier) {
  for (std::int64_t c = offset / kCellBytes; c < (offset + 8) / kCellBytes; ++c)
    cells_[static_cast<std::size_t>(c)].barrier = is_barrier;
}

SharedShadow::Outcome SharedShadow::barrier_use(std::int64_t offset, const Seen& seen) const {
  Outcome outcome;
  const Cell& cell = cells_[static_cast<std::size_t>(offset / kCellBytes)];
  if (cell.writer != kNobody && cell.write_clock > seen[cell.writer]) {
    outcome.other = {cell.write_place, cell.writer};
    outcome.other_wrote = true;
    outcome.offset = offset;
  }
  return outcome;
}

}  // namespace tilewright::cuda_host
