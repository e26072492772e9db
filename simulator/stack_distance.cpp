#include "simulator/stack_distance.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "simulator/cache_sets.h"

namespace tilewright {

namespace {

constexpr std::size_t kTop = 16;
constexpr std::uint64_t kNoLine = ~std::uint64_t{0};
constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

/// Lines in the order in which they came, any of which can be taken out again: a bit a place,
/// places counted in blocks by a Fenwick tree (Fenwick, "A new data structure for cumulative
/// frequency tables", 1994). Places run out and are then dealt anew.
class Queue {
 public:
  /// Where a line is put; `moved` tells whom a new deal puts elsewhere.
  template <class Moved>
  std::uint32_t push(std::uint64_t line, Moved&& moved) {
    if (next_ == lines_.size()) deal(moved);
    const std::uint32_t place = next_++;
    lines_[place] = line;
    bits_[place / 64] |= std::uint64_t{1} << (place % 64);
    add(place / kBlock, 1);
    ++live_;
    return place;
  }
  /// Takes a line out; returns how many that came after it are in.
  std::int64_t take(std::uint32_t place) {
    std::int64_t before = 0;
    for (std::size_t b = place / kBlock; b > 0; b &= b - 1) before += tree_[b];
    const std::size_t word = place / 64;
    for (std::size_t w = place / kBlock * kWords; w < word; ++w) before += std::popcount(bits_[w]);
    const std::uint64_t bit = std::uint64_t{1} << (place % 64);
    before += std::popcount(bits_[word] & (bit - 1));
    bits_[word] &= ~bit;
    add(place / kBlock, -1);
    return --live_ - before;
  }

 private:
  static constexpr std::size_t kWords = 16, kBlock = kWords * 64;

  void add(std::size_t block, std::int32_t by) {
    for (std::size_t b = block + 1; b < tree_.size(); b += b & (~b + 1)) tree_[b] += by;
  }

  /// At least as many free places as lines, and in the same order from the first place on.
  template <class Moved>
  void deal(Moved&& moved) {
    std::vector<std::uint64_t> kept;
    kept.reserve(static_cast<std::size_t>(live_));
    for (std::size_t w = 0; w < bits_.size(); ++w)
      for (std::uint64_t rest = bits_[w]; rest != 0; rest &= rest - 1)
        kept.push_back(lines_[w * 64 + static_cast<std::size_t>(std::countr_zero(rest))]);
    const std::size_t blocks = std::bit_ceil(2 * kept.size() / kBlock + 1);
    lines_.assign(blocks * kBlock, kNoLine);
    bits_.assign(blocks * kWords, 0);
    tree_.assign(blocks + 1, 0);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      lines_[i] = kept[i];
      bits_[i / 64] |= std::uint64_t{1} << (i % 64);
      add(i / kBlock, 1);
      moved(kept[i], static_cast<std::uint32_t>(i));
    }
    next_ = static_cast<std::uint32_t>(kept.size());
  }

  std::vector<std::uint64_t> lines_;  // by place
  std::vector<std::uint64_t> bits_;   // by place: in
  std::vector<std::int32_t> tree_;    // Fenwick's, by block from 1 on
  std::uint32_t next_ = 0;
  std::int64_t live_ = 0;
};

/// Line -> place; open addressing, linear probing, at most half full, nothing is ever taken out.
class Places {
 public:
  Places() : slots_(64) {}
  /// kNowhere where the line is new, or in no queue.
  std::uint32_t& operator[](std::uint64_t line) {
    std::size_t at = find(line);
    if (slots_[at].line == line) return slots_[at].place;
    if (2 * ++used_ > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size());
      old.swap(slots_);
      for (const Slot& s : old)
        if (s.line != kNoLine) slots_[find(s.line)] = s;
      at = find(line);
    }
    slots_[at].line = line;
    return slots_[at].place;
  }

 private:
  struct Slot {
    std::uint64_t line = kNoLine;
    std::uint32_t place = kNowhere;
  };
  std::size_t find(std::uint64_t line) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (line * 0x9E3779B97F4A7C15u >> 24) & mask;
    while (slots_[at].line != line && slots_[at].line != kNoLine) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

/// One set: the sixteen lines touched last in order, and all others in the order in which they left
/// these, which is that of the stack.
class Stack {
 public:
  static constexpr std::int64_t kNew = -1;
  Stack() { top_.fill(kNoLine); }

  /// The distance, or kNew.
  std::int64_t touch(std::uint64_t line) {
    std::uint64_t moving = line;
    for (std::size_t i = 0; i < kTop; ++i) {
      std::swap(moving, top_[i]);
      if (moving == line) return static_cast<std::int64_t>(i);
    }
    // `moving` has left the top, or there was room. The line was further down, or nowhere.
    const std::uint32_t place = std::exchange(places_[line], kNowhere);
    const std::int64_t distance =
        place == kNowhere ? kNew : static_cast<std::int64_t>(kTop) + queue_.take(place);
    if (moving != kNoLine) {
      const std::uint32_t put =
          queue_.push(moving, [this](std::uint64_t l, std::uint32_t to) { places_[l] = to; });
      places_[moving] = put;
    }
    return distance;
  }

 private:
  std::array<std::uint64_t, kTop> top_;
  Queue queue_;
  Places places_;
};

}  // namespace

std::int64_t DistanceCounts::touches() const { return misses(0); }

std::int64_t DistanceCounts::misses(std::int64_t ways) const {
  std::int64_t sum = first;
  for (std::size_t d = static_cast<std::size_t>(std::max<std::int64_t>(ways, 0)); d < at.size();
       ++d)
    sum += at[d];
  return sum;
}

class StackDistances::Impl {
 public:
  Impl(std::int64_t sets, int tensors)
      : set_of(static_cast<std::uint64_t>(sets)),
        stacks(static_cast<std::size_t>(sets)),
        counts(static_cast<std::size_t>(tensors)) {}
  cache::Modulus set_of;
  std::vector<Stack> stacks;
  std::vector<DistanceCounts> counts;
};

StackDistances::StackDistances(Bytes line, std::int64_t sets, int tensors) {
  const auto bad = [](const char* field, std::int64_t value, const char* accepted) {
    throw InputError({.field = std::string("stack distances: ") + field,
                      .value = std::to_string(value),
                      .problem = "is not accepted",
                      .accepted = accepted});
  };
  if (line.value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(line.value)))
    bad("line", line.value, "a power of two");
  if (sets < 1 || sets > 1 << 24) bad("sets", sets, "1 to 2^24");
  if (tensors < 1) bad("tensors", tensors, "1 and more");
  line_shift_ = std::countr_zero(static_cast<std::uint64_t>(line.value));
  again_.assign(static_cast<std::size_t>(tensors), 0);
  impl_ = std::make_unique<Impl>(sets, tensors);
}

StackDistances::~StackDistances() = default;
StackDistances::StackDistances(StackDistances&&) noexcept = default;

std::int64_t StackDistances::sets() const {
  return static_cast<std::int64_t>(impl_->set_of.divisor());
}

void StackDistances::touch(std::int64_t line, int tensor) {
  const auto t = static_cast<std::size_t>(tensor);
  if (line == last_) {
    ++again_[t];
    return;
  }
  last_ = line;
  const auto number = static_cast<std::uint64_t>(line);
  const std::int64_t distance = impl_->stacks[impl_->set_of(number)].touch(number);
  DistanceCounts& c = impl_->counts[t];
  if (distance == Stack::kNew) {
    ++c.first;
    return;
  }
  const auto d = static_cast<std::size_t>(distance);
  if (d >= c.at.size()) c.at.resize(std::max(d + 1, c.at.size() + c.at.size() / 2), 0);
  ++c.at[d];
}

void StackDistances::range(std::int64_t address, std::int64_t bytes, int tensor) {
  if (bytes <= 0) return;
  const std::int64_t last = (address + bytes - 1) >> line_shift_;
  for (std::int64_t line = address >> line_shift_; line <= last; ++line) touch(line, tensor);
}

void StackDistances::update(std::int64_t address, std::int64_t bytes, int tensor) {
  if (bytes <= 0) return;
  const std::int64_t last = (address + bytes - 1) >> line_shift_;
  for (std::int64_t line = address >> line_shift_; line <= last; ++line) touch(line, tensor);
  again_[static_cast<std::size_t>(tensor)] += last - (address >> line_shift_) + 1;
}

void StackDistances::elements(std::int64_t address, std::int64_t count, std::int64_t element,
                              int tensor) {
  const Stream one{.address = address, .stride = element, .bytes = element, .tensor = tensor};
  if (element > 0) streams({&one, 1}, count);
}

void StackDistances::streams(std::span<const Stream> streams, std::int64_t count) {
  const std::int64_t most = (std::int64_t{1} << line_shift_) - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t more = count - 1 - i;
    for (const Stream& s : streams) {
      const std::int64_t at = s.address + i * s.stride;
      access(at, s.bytes, s.tensor);
      if (s.stride == 0) continue;
      const std::int64_t first = at & most, last = (at + s.bytes - 1) & most;
      const std::int64_t room = s.stride > 0 ? most - std::max(first, last) : std::min(first, last);
      more = std::min(more, room / (s.stride > 0 ? s.stride : -s.stride));
    }
    if (more < 2) continue;
    repeat(streams, i + 1, more);
    i += more;
  }
}

/// `more` rounds from round i on, all on the lines of the round before: the first is counted as it
/// goes, the others are like it.
void StackDistances::repeat(std::span<const Stream> streams, std::int64_t i, std::int64_t more) {
  for (const Stream& s : streams) {
    const std::int64_t at = s.address + i * s.stride;
    const std::int64_t last = (at + s.bytes - 1) >> line_shift_;
    DistanceCounts& c = impl_->counts[static_cast<std::size_t>(s.tensor)];
    for (std::int64_t line = at >> line_shift_; line <= last; ++line) {
      if (line == last_) {
        again_[static_cast<std::size_t>(s.tensor)] += more;
        continue;
      }
      last_ = line;
      const auto number = static_cast<std::uint64_t>(line);
      const std::int64_t d = impl_->stacks[impl_->set_of(number)].touch(number);
      TW_CHECK(d >= 0, "a line of the round before that is new");
      if (static_cast<std::size_t>(d) >= c.at.size()) c.at.resize(static_cast<std::size_t>(d) + 1);
      c.at[static_cast<std::size_t>(d)] += more;
    }
  }
}

DistanceCounts StackDistances::counts(int tensor) const {
  const auto t = static_cast<std::size_t>(tensor);
  DistanceCounts c = impl_->counts[t];
  if (again_[t] != 0 && c.at.empty()) c.at.resize(1, 0);
  if (again_[t] != 0) c.at[0] += again_[t];
  while (!c.at.empty() && c.at.back() == 0) c.at.pop_back();
  return c;
}

DistanceCounts StackDistances::total() const {
  DistanceCounts sum;
  for (int t = 0; t < tensors(); ++t) {
    const DistanceCounts c = counts(t);
    sum.first += c.first;
    if (sum.at.size() < c.at.size()) sum.at.resize(c.at.size(), 0);
    for (std::size_t d = 0; d < c.at.size(); ++d) sum.at[d] += c.at[d];
  }
  return sum;
}

}  // namespace tilewright
