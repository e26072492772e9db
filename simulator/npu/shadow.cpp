#include "simulator/npu/shadow.h"

#include <algorithm>
#include <bit>

namespace tilewright::npu {
namespace {

constexpr int kPipeShift = 28;
constexpr std::int64_t kGranule = 32;

std::uint32_t who(const Actor& a) {
  return static_cast<std::uint32_t>(a.pipe) << kPipeShift | static_cast<std::uint32_t>(a.statement);
}
Pipe pipe_of(std::uint32_t who) { return static_cast<Pipe>(who >> kPipeShift); }
int statement_of(std::uint32_t who) {
  return static_cast<int>(who & ((std::uint32_t{1} << kPipeShift) - 1));
}

/// V reads UB and L0C, MTE3 UB, FIX L0C, M all L0s, MTE1 L1: no two of a memory share a slot.
std::size_t reader_slot(Pipe p) {
  if (p == Pipe::vector) return 0;
  return p == Pipe::mte3 || p == Pipe::fix ? 1 : 2;
}

/// Bits [from, to) of a granule's 32.
std::uint32_t bits(std::int64_t from, std::int64_t to) {
  const std::uint64_t all = (std::uint64_t{1} << to) - (std::uint64_t{1} << from);
  return static_cast<std::uint32_t>(all);
}

}  // namespace

LocalShadow::LocalShadow(Memory memory, std::int64_t capacity)
    : shift_(memory == Memory::l0a || memory == Memory::l0b ? 9 : 5) {
  const auto count = static_cast<std::size_t>(capacity >> shift_) + 1;
  granules_.reset(static_cast<Granule*>(std::calloc(count, sizeof(Granule))));
  if (granules_ == nullptr) throw std::bad_alloc();
}

std::optional<Conflict> LocalShadow::touch(Granule& g, std::uint32_t mask, bool write,
                                           const Actor& actor, std::int64_t address) const {
  if (g.generation != generation_) g = Granule{.generation = generation_};
  std::optional<Conflict> found;
  const auto collide = [&](const Access& other, Conflict::Kind kind) {
    const Pipe pipe = pipe_of(other.who);
    if (other.at == 0 || pipe == actor.pipe) return;
    if (other.at <= actor.seen[static_cast<std::size_t>(pipe)] || found) return;
    found = Conflict{kind, address, statement_of(other.who), pipe, actor.block};
  };
  if (write) {
    collide(g.writer, Conflict::Kind::write_after_write);
    for (const Access& reader : g.readers) collide(reader, Conflict::Kind::write_after_read);
    g.written |= mask;
    g.writer = {actor.now, who(actor)};
  } else {
    collide(g.writer, Conflict::Kind::read_after_write);
    if ((g.written & mask) != mask && !found) found = Conflict{.byte = address};
    g.readers[reader_slot(actor.pipe)] = {actor.now, who(actor)};
  }
  return found;
}

std::optional<Conflict> LocalShadow::touch(std::int64_t address, std::int64_t bytes, bool write,
                                           const Actor& actor) {
  std::optional<Conflict> first;
  const std::int64_t size = std::int64_t{1} << shift_, end = address + bytes;
  const std::int64_t bit = size / 32;  // bytes that one bit stands for
  for (std::int64_t at = address & -size; at < end; at += size) {
    const std::int64_t low = std::max(address - at, std::int64_t{0});
    const std::int64_t high = std::min(end - at, size);
    const std::uint32_t mask = bits(low / bit, ceil_div(high, bit));
    auto conflict =
        touch(granules_[static_cast<std::size_t>(at >> shift_)], mask, write, actor, at + low);
    if (conflict && !first) first = conflict;
  }
  return first;
}

GlobalShadow::GlobalShadow(std::int64_t bytes, bool written)
    : bytes_(bytes), granules_(static_cast<std::size_t>(ceil_div(bytes, kGranule))) {
  if (!written) return;
  for (Granule& g : granules_) g.written = ~std::uint32_t{0};
}

bool GlobalShadow::collides(const Access& before, std::uint32_t mask, const Actor& actor) {
  if (before.at == 0 || (before.mask & mask) == 0 || before.phase < actor.phase) return false;
  if (before.several || before.block != actor.block) return true;
  const Pipe pipe = pipe_of(before.who);
  return pipe != actor.pipe && before.at > actor.seen[static_cast<std::size_t>(pipe)];
}

const GlobalShadow::Access* GlobalShadow::collision(const Last& last, std::uint32_t mask, bool add,
                                                    const Actor& actor) {
  const auto meets = [&](const Access& a) { return !(add && a.add) && collides(a, mask, actor); };
  if (meets(last.one)) return &last.one;
  if (!last.more) return nullptr;
  const auto at = std::ranges::find_if(*last.more, meets);
  return at == last.more->end() ? nullptr : &*at;
}

void GlobalShadow::note(Last& last, std::uint32_t mask, bool write, bool add, const Actor& actor) {
  Access& one = last.one;
  const bool fresh = one.at == 0 || one.phase < actor.phase;
  const bool own = one.block == actor.block && !one.several;
  if (!last.more && (fresh || (one.mask & ~mask) == 0)) {  // all of its bytes are accessed again
    const bool replaced = fresh || (own && (write || pipe_of(one.who) == actor.pipe));
    if (replaced) {
      one = {actor.block, actor.phase, mask, who(actor), actor.now, add && (fresh || one.add)};
      return;
    }
    if (!own && one.mask == mask) {
      one.several = true;
      one.add = one.add && add;
      return;
    }
  }
  note_part(last, mask, write, add, actor);
}

/// Bytes that other blocks access, too, are those of several; of bytes that the block itself has
/// accessed before, the last access counts: of readers, the last of each pipe.
void GlobalShadow::note_part(Last& last, std::uint32_t mask, bool write, bool add,
                             const Actor& actor) {
  std::vector<Access> all;
  const auto keep = [&](const Access& a) {
    if (a.at != 0 && a.phase == actor.phase && a.mask != 0) all.push_back(a);
  };
  keep(last.one);
  if (last.more)
    for (const Access& a : *last.more) keep(a);
  Access now{actor.block, actor.phase, mask, who(actor), actor.now, add};
  Access shared = now;
  shared.mask = 0, shared.several = true;
  for (Access& a : all) {
    const std::uint32_t both = a.mask & mask;
    if (both == 0) continue;
    if (a.several || a.block != actor.block) {
      shared.mask |= both;
      shared.add = shared.add && a.add;
      a.mask &= ~both;
    } else if (write || pipe_of(a.who) == actor.pipe) {
      now.add = now.add && a.add;
      a.mask &= ~both;
    }
  }
  now.mask &= ~shared.mask;
  all.push_back(now);
  all.push_back(shared);
  std::erase_if(all, [](const Access& a) { return a.mask == 0; });
  last.one = all.back();
  all.pop_back();
  last.more = all.empty() ? nullptr : std::make_unique<std::vector<Access>>(std::move(all));
}

std::optional<Conflict> GlobalShadow::touch(std::int64_t offset, std::int64_t bytes, bool write,
                                            bool add, const Actor& actor) {
  std::optional<Conflict> first;
  const auto found = [&](Conflict::Kind kind, const Access& other, std::int64_t byte) {
    if (first) return;
    first = Conflict{kind, byte, statement_of(other.who), pipe_of(other.who),
                     other.several ? -1 : other.block};
  };
  const std::int64_t end = offset + bytes;
  for (std::int64_t at = offset & -kGranule; at < end; at += kGranule) {
    Granule& g = granules_[static_cast<std::size_t>(at / kGranule)];
    const std::int64_t low = std::max(offset - at, std::int64_t{0});
    const std::uint32_t mask = bits(low, std::min(end - at, kGranule));
    if (const Access* other = collision(g.writer, mask, add, actor))
      found(write ? Conflict::Kind::write_after_write : Conflict::Kind::read_after_write, *other,
            at + low);
    if (write)
      if (const Access* other = collision(g.reader, mask, false, actor))
        found(Conflict::Kind::write_after_read, *other, at + low);
    if ((!write || add) && (g.written & mask) != mask && !first) {
      first = Conflict{.byte = at + std::countr_zero(mask & ~g.written)};
    }
    if (write) {
      g.written |= mask;
      note(g.writer, mask, true, add, actor);
    } else {
      note(g.reader, mask, false, false, actor);
    }
  }
  return first;
}

std::int64_t GlobalShadow::unwritten() const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < granules_.size(); ++i) {
    const std::int64_t here = std::min(kGranule, bytes_ - static_cast<std::int64_t>(i) * kGranule);
    n += here - std::popcount(granules_[i].written & bits(0, here));
  }
  return n;
}

std::int64_t GlobalShadow::first_unwritten() const {
  for (std::size_t i = 0; i < granules_.size(); ++i) {
    const std::int64_t start = static_cast<std::int64_t>(i) * kGranule;
    const std::uint32_t missing =
        ~granules_[i].written & bits(0, std::min(kGranule, bytes_ - start));
    if (missing != 0) return start + std::countr_zero(missing);
  }
  return -1;
}

}  // namespace tilewright::npu
