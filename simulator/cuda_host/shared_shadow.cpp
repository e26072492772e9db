#include "simulator/cuda_host/shared_shadow.h"

namespace tilewright::cuda_host {

namespace {

/// Memory for cells with more readers than fit in them.
constexpr std::size_t kManyBytes = std::size_t{512} << 20;

}  // namespace

void SharedShadow::reset(std::int64_t bytes, int components) {
  cells_.assign(static_cast<std::size_t>((bytes + kCellBytes - 1) / kCellBytes), Cell{});
  if (components != components_) many_.clear();
  components_ = components;
  free_.clear();
  for (std::size_t i = 0; i < many_.size(); ++i) free_.push_back(static_cast<std::uint32_t>(i));
  most_many_ = kManyBytes / (8 * static_cast<std::size_t>(std::max(components, 1)));
}

void SharedShadow::clear_readers(Cell& cell) {
  if (cell.readers == kMany) free_.push_back(cell.reader[0].clock);
  cell.readers = 0;
}

void SharedShadow::inflate(Cell& cell, const Reader& extra) {
  if (free_.empty()) {
    if (many_.size() >= most_many_) {
      cell.reader[kInline - 1] = extra;
      ++forgotten_;
      return;
    }
    free_.push_back(static_cast<std::uint32_t>(many_.size()));
    many_.push_back(std::make_unique<Many>());
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Many& many = *many_[index];
  many.clock.assign(static_cast<std::size_t>(components_), 0);
  many.place.resize(static_cast<std::size_t>(components_));
  const auto put = [&](const Reader& r) {
    many.clock[r.component] = r.clock;
    many.place[r.component] = r.place;
  };
  for (const Reader& r : cell.reader) put(r);
  put(extra);
  cell.readers = kMany;
  cell.reader[0].clock = index;
}

/// Keeps readers that `component` has not seen: one that is ordered before another needs no entry,
/// since whoever is ordered after the other is ordered after it.
void SharedShadow::add_reader(Cell& cell, int component, Clock now, const Clock* seen,
                              std::uint32_t place) {
  const Reader self{now, place, static_cast<std::uint32_t>(component)};
  if (cell.readers == kMany) {
    Many& many = *many_[cell.reader[0].clock];
    many.clock[self.component] = now;
    many.place[self.component] = place;
    return;
  }
  int kept = 0;
  for (int i = 0; i < cell.readers; ++i) {
    const Reader r = cell.reader[i];
    if (r.component == self.component || r.clock <= seen[r.component]) continue;
    cell.reader[kept++] = r;
  }
  if (kept < kInline) {
    cell.reader[kept] = self;
    cell.readers = static_cast<std::uint8_t>(kept + 1);
  } else {
    inflate(cell, self);
  }
}

Accessor SharedShadow::racing_reader(const Cell& cell, const Clock* seen) const {
  if (cell.readers != kMany) {
    for (int i = 0; i < cell.readers; ++i)
      if (cell.reader[i].clock > seen[cell.reader[i].component])
        return {cell.reader[i].place, static_cast<int>(cell.reader[i].component)};
    return {};
  }
  const Many& many = *many_[cell.reader[0].clock];
  Clock late = 0;  // one branch for all: races are rare
  for (int i = 0; i < components_; ++i) late |= static_cast<Clock>(many.clock[i] > seen[i]);
  if (late == 0) return {};
  for (int i = 0; i < components_; ++i)
    if (many.clock[i] > seen[i]) return {many.place[i], i};
  return {};
}

SharedShadow::Outcome SharedShadow::read(std::int64_t offset, std::int64_t bytes, int component,
                                         Clock now, const Clock* seen, std::uint32_t place) {
  Outcome outcome;
  const std::int64_t last = (offset + bytes - 1) / kCellBytes;
  for (std::int64_t c = offset / kCellBytes; c <= last; ++c) {
    Cell& cell = cells_[static_cast<std::size_t>(c)];
    if (cell.readers == 1 && cell.reader[0].component == static_cast<std::uint32_t>(component) &&
        cell.reader[0].clock == now && cell.reader[0].place == place)
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
    add_reader(cell, component, now, seen, place);
  }
  return outcome;
}

SharedShadow::Outcome SharedShadow::write(std::int64_t offset, std::int64_t bytes, int component,
                                          Clock now, const Clock* seen, std::uint32_t place) {
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

void SharedShadow::mark_barrier(std::int64_t offset, bool is_barrier) {
  for (std::int64_t c = offset / kCellBytes; c < (offset + 8) / kCellBytes; ++c)
    cells_[static_cast<std::size_t>(c)].barrier = is_barrier;
}

SharedShadow::Outcome SharedShadow::barrier_use(std::int64_t offset, const Clock* seen) const {
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
