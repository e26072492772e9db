#include "simulator/cuda_host/global_memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <utility>

namespace tilewright::cuda_host {

namespace {

constexpr std::int64_t kAlignment = 256;  // as cudaMalloc's
constexpr std::int64_t kRedZone = 1 << 20;

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

}  // namespace

LazyMemory::LazyMemory(std::int64_t bytes) : bytes_(std::max<std::int64_t>(bytes, 1)) {
  void* const p = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) data_ = static_cast<unsigned char*>(p);
}
LazyMemory::~LazyMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}
LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
LazyMemory& LazyMemory::operator=(LazyMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::optional<Reason> GlobalMemory::lay_out(std::span<const Tensor> tensors,
                                            std::int64_t workspace_bytes) {
  std::int64_t at = kRedZone;
  std::size_t cells = 0;
  const auto place = [&](const std::string& name, std::int64_t bytes, int element_bytes,
                         bool initialised) {
    const int shift = std::countr_zero(static_cast<unsigned>(element_bytes));
    regions_.push_back({name, static_cast<std::uintptr_t>(at), bytes, cells, shift, initialised});
    // An odd multiple of the alignment: no kernel may count on more.
    at = round_up(at + bytes + kRedZone, 2 * kAlignment) + kAlignment;
    cells += static_cast<std::size_t>((bytes + element_bytes - 1) / element_bytes);
  };
  at += kAlignment;
  for (const Tensor& t : tensors) place(t.name, t.bytes, t.element_bytes, t.initialised);
  if (workspace_bytes > 0) place("workspace", workspace_bytes, 2, true);
  memory_ = LazyMemory(at + kRedZone);
  shadow_ = LazyMemory(static_cast<std::int64_t>(cells * sizeof(Cell)));
  if (!memory_.ok() || !shadow_.ok())
    return Reason{"no room for " + std::to_string(at) +
                  " bytes of tensors and what is noted of them"};
  base_ = reinterpret_cast<std::uintptr_t>(memory_.data());
  extent_ = static_cast<std::uintptr_t>(at + kRedZone);
  written_.assign(regions_.size(), false);
  by_launch_.assign(regions_.size(), true);
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    regions_[i].base += base_;
    if (i < tensors.size()) by_launch_[i] = tensors[i].written_before;
    if (i < tensors.size() && tensors[i].bytes > 0)
      std::memcpy(reinterpret_cast<void*>(regions_[i].base), tensors[i].data,
                  static_cast<std::size_t>(tensors[i].bytes));
  }
  return std::nullopt;
}

void GlobalMemory::launch_begins() {
  by_launch_before_ = by_launch_;
  by_launch_.assign(regions_.size(), false);
}

void GlobalMemory::copy_back(std::span<const Tensor> tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (written_[i])
      std::memcpy(tensors[i].data, reinterpret_cast<const void*>(regions_[i].base),
                  static_cast<std::size_t>(tensors[i].bytes));
}

int GlobalMemory::find(std::uintptr_t p) const {
  const auto inside = [&](int i) {
    const Region& r = regions_[static_cast<std::size_t>(i)];
    return p - r.base < static_cast<std::uintptr_t>(r.bytes);
  };
  if (regions_.empty()) return -1;
  if (inside(last_)) return last_;
  for (int i = 0; i < static_cast<int>(regions_.size()); ++i)
    if (inside(i)) return last_ = i;
  return -1;
}

int GlobalMemory::nearest(std::uintptr_t p) const {
  if (!holds(p)) return -1;
  int best = -1;
  std::uintptr_t distance = 0;
  for (int i = 0; i < static_cast<int>(regions_.size()); ++i) {
    const Region& r = regions_[static_cast<std::size_t>(i)];
    const std::uintptr_t end = r.base + static_cast<std::uintptr_t>(r.bytes);
    const std::uintptr_t d = p < r.base ? r.base - p : p < end ? 0 : p - end + 1;
    if (best < 0 || d < distance) {
      best = i;
      distance = d;
    }
  }
  return best;
}

bool GlobalMemory::unordered(const Record& r, const GlobalAccess& by) {
  if (r.phase != by.phase) return false;
  if (r.who >> 32 != by.block) return true;
  return r.clock > by.seen[(r.who & 0xffffffffu) >> 1];
}

/// Of a last writer that may stand for atomics of several blocks.
bool GlobalMemory::races(const Record& writer, const GlobalAccess& by) {
  return unordered(writer, by) || (writer.phase == by.phase && (writer.more & kBlocks) != 0);
}

void GlobalMemory::note(Outcome& outcome, const Record& r, const GlobalAccess& by, bool wrote,
                        std::int64_t offset) {
  if (outcome.race) return;
  outcome.race = true;
  outcome.other_block = static_cast<std::uint32_t>(r.who >> 32);
  outcome.other_component = static_cast<std::uint32_t>((r.who & 0xffffffffu) >> 1);
  outcome.between_blocks = (wrote && (r.more & kBlocks) != 0) || outcome.other_block != by.block;
  outcome.other_wrote = wrote;
  outcome.other_place = r.place;
  outcome.offset = offset;
}

void GlobalMemory::read_cell(Cell& cell, std::int64_t offset, bool initialised,
                             const GlobalAccess& by, Outcome& outcome) {
  const Record self{by.phase, by.place, std::uint64_t{by.block} << 32 | by.component << 1, by.now,
                    0};
  if (cell.writer.phase == 0) {
    if (!initialised && !outcome.uninitialised) {
      outcome.uninitialised = true;
      if (!outcome.race) outcome.offset = offset;
    }
  } else {
    note_writer(cell, by, offset, outcome);
  }
  Record& mine = cell.reader;
  const bool same_block = mine.phase == by.phase && mine.who >> 32 == by.block;
  if (mine.phase != by.phase || mine.who == self.who || !unordered(mine, by)) {
    const std::uint32_t more = same_block ? mine.more : 0;
    mine = self;
    mine.more = more;
  } else if (!same_block) {
    cell.other_reader = self;  // two blocks read it: whoever writes it in this phase races
  } else {
    mine.more = kOthers;
    remember(readers_[&cell], self, by);
  }
}

std::uint32_t GlobalMemory::late_lanes(const Lanes& o, const Seen& seen) {
  std::uint32_t late = 0;
  for (std::uint32_t rest = o.lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (o.clock > seen[o.group * 32 + static_cast<std::uint32_t>(lane)]) late |= 1u << lane;
  }
  return late;
}

/// Adds an access of the block of `by` that it does not know of, or its own.
void GlobalMemory::remember(Others& others, const Record& r, const GlobalAccess& by) {
  if (others.phase != by.phase || others.block != by.block) others = {by.phase, by.block};
  const auto component = static_cast<std::uint32_t>((r.who & 0xffffffffu) >> 1);
  const Lanes self{component / 32, 1u << component % 32, r.place, r.clock};
  for (auto o = others.all.rbegin(); o != others.all.rend(); ++o)
    if (o->group == self.group && o->clock == self.clock && o->place == self.place) {
      o->lanes |= self.lanes;
      return;
    }
  if (others.all.size() >= others.limit) {
    std::erase_if(others.all, [&](const Lanes& o) { return late_lanes(o, by.seen) == 0; });
    others.limit = 2 * others.all.size() + 8;
  }
  others.all.push_back(self);
}

/// Of those beside the one that the cell remembers.
void GlobalMemory::note_others(const Others& others, const GlobalAccess& by, bool wrote,
                               std::int64_t offset, Outcome& outcome) {
  if (others.phase != by.phase) return;
  for (const Lanes& o : others.all) {
    const std::uint32_t late = others.block == by.block ? late_lanes(o, by.seen) : o.lanes;
    if (late == 0) continue;
    const std::uint64_t component =
        o.group * 32 + static_cast<std::uint32_t>(std::countr_zero(late));
    const std::uint64_t who = std::uint64_t{others.block} << 32 | component << 1;
    return note(outcome, {by.phase, o.place, who, o.clock, 0}, by, wrote, offset);
  }
}

void GlobalMemory::note_writer(const Cell& cell, const GlobalAccess& by, std::int64_t offset,
                               Outcome& outcome) {
  if (races(cell.writer, by)) note(outcome, cell.writer, by, true, offset);
  if (cell.writer.phase == by.phase && (cell.writer.more & kOthers) != 0)
    note_others(adders_.at(&cell), by, true, offset, outcome);
}

void GlobalMemory::write_cell(Cell& cell, std::int64_t offset, bool atomic, const GlobalAccess& by,
                              Outcome& outcome) {
  Record self{by.phase, by.place,
              std::uint64_t{by.block} << 32 | by.component << 1 | (atomic ? 1u : 0u), by.now, 0};
  const bool both_atomic = atomic && (cell.writer.who & 1u) != 0;
  if (!both_atomic && cell.writer.phase != 0) note_writer(cell, by, offset, outcome);
  if (unordered(cell.reader, by)) note(outcome, cell.reader, by, false, offset);
  if (unordered(cell.other_reader, by)) note(outcome, cell.other_reader, by, false, offset);
  if (cell.reader.phase == by.phase && (cell.reader.more & kOthers) != 0) {
    Others& others = readers_.at(&cell);
    note_others(others, by, false, offset, outcome);
    others.all.clear();
  }
  if (both_atomic && cell.writer.phase == by.phase) {
    self.more = cell.writer.more;
    if (cell.writer.who >> 32 != by.block) {
      self.more |= kBlocks;
    } else if (unordered(cell.writer, by)) {
      Others& others = adders_[&cell];
      if ((self.more & kOthers) == 0) others.all.clear();
      remember(others, cell.writer, by);
      self.more |= kOthers;
    }
  }
  cell.writer = self;
  cell.reader.phase = cell.other_reader.phase = 0;
}

GlobalMemory::Outcome GlobalMemory::access(int region, std::int64_t offset, std::int64_t bytes,
                                           Kind kind, const GlobalAccess& by) {
  const Region& r = regions_[static_cast<std::size_t>(region)];
  Cell* const cells = reinterpret_cast<Cell*>(shadow_.data()) + r.first_cell;
  Outcome outcome;
  const std::int64_t last = (offset + bytes - 1) >> r.cell_shift;
  for (std::int64_t c = offset >> r.cell_shift; c <= last; ++c) {
    if (kind == Kind::read)
      read_cell(cells[c], c << r.cell_shift, r.initialised, by, outcome);
    else
      write_cell(cells[c], c << r.cell_shift, kind == Kind::atomic, by, outcome);
  }
  return outcome;
}

}  // namespace tilewright::cuda_host
