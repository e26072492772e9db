#include "simulator/cache_bank.h"

#include <algorithm>
#include <bit>

namespace tilewright::cache {

namespace {

constexpr std::size_t kMostLookedThrough = 64;

/// A hash of a whole line number: the finaliser of MurmurHash3 (Appleby, public domain). The hash
/// that a processor uses to choose slices is not documented.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDu;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace

std::optional<std::int64_t> Strides::train(std::uint64_t page, std::int64_t line) {
  ++clock_;
  auto at = std::find_if(pages_.begin(), pages_.end(),
                         [&](const Page& p) { return p.used != 0 && p.page == page; });
  if (at == pages_.end()) {
    at = std::min_element(pages_.begin(), pages_.end(),
                          [](const Page& a, const Page& b) { return a.used < b.used; });
    *at = {.page = page, .last = line, .used = clock_};
    return std::nullopt;
  }
  at->used = clock_;
  const std::int64_t step = line - at->last;
  if (step == 0) return std::nullopt;
  const bool again = step == at->step;
  at->last = line;
  at->step = step;
  if (!again) return std::nullopt;
  return step;
}

Bank::Bank(const CacheGeometry& g, std::uint64_t seed)
    : sets_of_(
          static_cast<std::uint64_t>(g.ways == 0 ? 1 : g.capacity.value / (g.line.value * g.ways))),
      ways_(static_cast<std::size_t>(g.ways == 0 ? g.capacity.value / g.line.value : g.ways)),
      index_(g.behaviour.index),
      slices_(static_cast<std::uint64_t>(g.behaviour.slices)) {
  const Replacement r = *replacement_from_name(g.policy);
  kind_ = r.kind;
  held_.resize(sets() * ways_);
  if (kind_ == Replacement::Kind::lru || kind_ == Replacement::Kind::fifo) {
    stamps_.assign(held_.size(), 0);
    if (ways_ > kMostLookedThrough) {
      order_.resize(held_.size() + sets());
      for (std::uint64_t s = 0; s < sets(); ++s) {
        order_[held_.size() + s] = {held_.size() + s, held_.size() + s};
        for (std::size_t w = 0; w < ways_; ++w) link(s * ways_ + w, order_[held_.size() + s].older);
      }
    }
    return;
  }
  policy_.emplace(r, static_cast<int>(ways_));
  for (std::uint64_t s = 0; s < sets(); ++s) states_.push_back(policy_->start(seed, s));
}

std::uint64_t Bank::set_of(std::uint64_t line) const {
  switch (index_) {
    case Index::modulo:
      return sets_of_(line);
    case Index::folded: {
      std::uint64_t set = 0;
      if (sets() == 1) return 0;
      for (; line != 0; line >>= sets_of_.shift()) set ^= line & (sets() - 1);
      return set;
    }
    case Index::slices: {
      const std::uint64_t slice = sets() / slices_;
      return mix(line) % slices_ * slice + line % slice;
    }
  }
  return 0;
}

Held* Bank::find(std::uint64_t line) {
  if (ways_ > kMostLookedThrough) {
    const auto at = where_.find(line);
    return at == where_.end() ? nullptr : &held_[at->second];
  }
  Held* const row = &held_[set_of(line) * ways_];
  for (std::size_t w = 0; w < ways_; ++w)
    if (row[w].valid != 0 && row[w].line == line) return &row[w];
  return nullptr;
}

void Bank::touch(const Held& held) {
  const auto at = static_cast<std::size_t>(&held - held_.data());
  if (kind_ == Replacement::Kind::lru) stamp(at, ++clock_);
  if (!policy_) return;
  with_kind(kind_, [&]<Replacement::Kind K>() {
    policy_->hit<K>(states_[at / ways_], static_cast<int>(at % ways_));
  });
}

void Bank::link(std::size_t at, std::size_t after) {
  order_[at] = {.older = after, .newer = order_[after].newer};
  order_[order_[at].newer].older = at;
  order_[after].newer = at;
}

/// Of now, or 0: older than any.
void Bank::stamp(std::size_t at, std::uint64_t now) {
  stamps_[at] = now;
  if (order_.empty()) return;
  order_[order_[at].older].newer = order_[at].newer;
  order_[order_[at].newer].older = order_[at].older;
  const std::size_t ends = held_.size() + at / ways_;
  link(at, now == 0 ? ends : order_[ends].older);
}

/// The way that a line that is not there takes, and the policy's state after.
std::size_t Bank::place(std::uint64_t set) {
  const Held* const row = &held_[set * ways_];
  if (policy_) {
    std::uint64_t held = 0;
    for (std::size_t w = 0; w < ways_; ++w) held |= std::uint64_t{row[w].valid != 0} << w;
    return static_cast<std::size_t>(with_kind(
        kind_, [&]<Replacement::Kind K>() { return policy_->fill<K>(states_[set], held); }));
  }
  if (!order_.empty()) return order_[held_.size() + set].newer - set * ways_;
  // Empty ways bear stamp 0, older than any.
  const auto stamps = stamps_.begin() + static_cast<std::ptrdiff_t>(set * ways_);
  return static_cast<std::size_t>(
      std::min_element(stamps, stamps + static_cast<std::ptrdiff_t>(ways_)) - stamps);
}

Held& Bank::insert(std::uint64_t line, int tensor, Held& victim) {
  const std::uint64_t set = set_of(line);
  const std::size_t at = set * ways_ + place(set);
  victim = held_[at];
  if (!policy_) stamp(at, ++clock_);
  if (ways_ > kMostLookedThrough) {
    if (victim.valid != 0) where_.erase(victim.line);
    where_[line] = at;
  }
  held_[at] = {.line = line, .tensor = tensor};
  return held_[at];
}

void Bank::erase(Held& held) {
  const auto at = static_cast<std::size_t>(&held - held_.data());
  if (ways_ > kMostLookedThrough) where_.erase(held.line);
  held = {};
  if (!policy_) {
    stamp(at, 0);
    return;
  }
  with_kind(kind_, [&]<Replacement::Kind K>() {
    policy_->erase<K>(states_[at / ways_], static_cast<int>(at % ways_));
  });
}

std::vector<const Held*> Bank::in_order(std::uint64_t set) const {
  std::vector<const Held*> all;
  for (std::size_t w = 0; w < ways_; ++w)
    if (held_[set * ways_ + w].valid != 0) all.push_back(&held_[set * ways_ + w]);
  if (!policy_)
    std::sort(all.begin(), all.end(), [this](const Held* a, const Held* b) {
      return stamps_[static_cast<std::size_t>(a - held_.data())] >
             stamps_[static_cast<std::size_t>(b - held_.data())];
    });
  return all;
}

}  // namespace tilewright::cache
