// The engine that knows every behaviour: one line at a time, by the words of CacheHierarchy.
#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/error.h"
#include "simulator/cache_bank.h"
#include "simulator/cache_engine.h"

namespace tilewright::cache {

namespace {

/// Bytes [first, last].
struct Span {
  std::uint64_t first = 0, last = 0;
  std::int64_t bytes() const { return static_cast<std::int64_t>(last - first + 1); }
};

/// The instances of one level: of each core, or one for all.
struct Tier {
  CacheGeometry geometry;
  CacheBehaviour behaviour;
  int line_shift = 6, sector_shift = 6;
  std::vector<Bank> banks;
  std::vector<Tally> tally;  ///< by tensor
  std::uint64_t generator = 1;

  Bank& bank(int core) { return banks[banks.size() == 1 ? 0 : static_cast<std::size_t>(core)]; }
  bool takes_victims() const {
    return behaviour.inclusion == Inclusion::exclusive || behaviour.inclusion == Inclusion::victim;
  }
  std::uint64_t line_of(std::uint64_t byte) const { return byte >> line_shift; }
  Span span_of(std::uint64_t line) const {
    return {line << line_shift, ((line + 1) << line_shift) - 1};
  }
  int sectors() const { return 1 << (line_shift - sector_shift); }
  std::uint64_t all() const { return ~std::uint64_t{0} >> (64 - sectors()); }
  /// Sectors of a line that a span within it touches.
  std::uint64_t touched(std::uint64_t line, Span s) const {
    const std::uint64_t base = line << line_shift;
    const int low = static_cast<int>((s.first - base) >> sector_shift);
    const int high = static_cast<int>((s.last - base) >> sector_shift);
    return (~std::uint64_t{0} >> (63 - (high - low))) << low;
  }
  /// Those that it covers.
  std::uint64_t covered(std::uint64_t line, Span s) const {
    const std::uint64_t base = line << line_shift, sector = std::uint64_t{1} << sector_shift;
    const std::uint64_t low = (s.first - base + sector - 1) >> sector_shift;
    const std::uint64_t end = (s.last - base + 1) >> sector_shift;
    if (end <= low) return 0;
    return (~std::uint64_t{0} >> (64 - (end - low))) << low;
  }
  /// f(span) for each run of sectors of a line.
  template <class F>
  void runs(std::uint64_t line, std::uint64_t sectors, F&& f) const {
    while (sectors != 0) {
      const int low = std::countr_zero(sectors);
      const int n = std::countr_one(sectors >> low);
      const std::uint64_t base = (line << line_shift) + (std::uint64_t{1} << sector_shift) * low;
      f(Span{base, base + (static_cast<std::uint64_t>(n) << sector_shift) - 1});
      sectors &= n == 64 ? 0 : ~(((std::uint64_t{1} << n) - 1) << low);
    }
  }
  std::int64_t bytes(std::uint64_t sectors) const {
    return std::int64_t{std::popcount(sectors)} << sector_shift;
  }
};

class GeneralEngine final : public Engine {
 public:
  GeneralEngine(const std::vector<CacheGeometry>& geometry, const CacheOptions& options)
      : cores_(options.cores),
        rows_(options.dram),
        open_(static_cast<std::size_t>(options.dram.banks), -1) {
    for (const CacheGeometry& g : geometry) {
      const Bytes sector = g.sector == Bytes(0) ? g.line : g.sector;
      Tier t{.geometry = g,
             .behaviour = g.behaviour,
             .line_shift = std::countr_zero(static_cast<std::uint64_t>(g.line.value)),
             .sector_shift = std::countr_zero(static_cast<std::uint64_t>(sector.value)),
             .generator = options.seed * 0x9E3779B97F4A7C15u + tiers_.size() + 1};
      for (int c = 0; c < (g.shared ? 1 : cores_); ++c)
        t.banks.emplace_back(
            g, options.seed + tiers_.size() + static_cast<std::uint64_t>(c) * geometry.size());
      t.tally.resize(static_cast<std::size_t>(options.tensors));
      if (!g.shared) private_ = tiers_.size() + 1;
      tiers_.push_back(std::move(t));
    }
  }

  bool range(std::uint64_t first, std::uint64_t last, bool write, int tensor,
             std::size_t entry) override {
    if (write)
      this->write(entry, {first, last}, tensor);
    else
      read(entry, {first, last}, tensor, false);
    return false;
  }

  void store_around(std::uint64_t first, std::uint64_t last, int tensor) override {
    const Span s{first, last};
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      Tier& t = tiers_[i];
      t.tally[static_cast<std::size_t>(tensor)].written_bytes += s.bytes();
      for (Bank& bank : t.banks)
        pieces(t, s, [&](std::uint64_t line, Span piece) {
          Held* const h = bank.find(line);
          if (h == nullptr) return;
          const Held gone = *h;
          bank.erase(*h);
          if (const std::uint64_t rest = gone.dirty & ~t.covered(line, piece); rest != 0)
            write_back(i, line, rest, gone.tensor);
        });
    }
    home(s, true);
  }

  void missed(int, std::span<const Miss>) override {
    TW_CHECK(false, "misses without touches");  // there is no quick().run here
  }
  void more_hits(int, std::int64_t, std::size_t) override {
    TW_CHECK(false, "hits without touches");  // nothing is settled here
  }
  bool settled(std::uint64_t, bool, int) const override { return false; }
  bool always_settled(std::size_t) const override { return false; }
  bool repeats() const override { return false; }
  std::int64_t innermost_misses() const override {
    std::int64_t sum = 0;
    for (const Tally& t : tiers_.front().tally) sum += t.misses;
    return sum;
  }
  void on_core(int core) override { core_ = core; }
  Quick quick() override { return {}; }
  std::vector<Tally> tallies(std::size_t level) const override { return tiers_[level].tally; }

  std::vector<std::int64_t> resident_dirty(std::size_t level) const override {
    const Tier& t = tiers_[level];
    std::vector<std::int64_t> bytes(t.tally.size(), 0);
    for (const Bank& bank : t.banks)
      for (std::uint64_t s = 0; s < bank.sets(); ++s)
        bank.each(s, [&](const Held& h) {
          bytes[static_cast<std::size_t>(h.tensor)] += t.bytes(h.dirty);
        });
    return bytes;
  }

  std::vector<std::int64_t> held(std::size_t level) const override {
    const Tier& t = tiers_[level];
    std::vector<std::int64_t> lines(t.tally.size(), 0);
    for (const Bank& bank : t.banks)
      for (std::uint64_t s = 0; s < bank.sets(); ++s)
        bank.each(s, [&](const Held& h) { ++lines[static_cast<std::size_t>(h.tensor)]; });
    return lines;
  }

  std::vector<std::vector<CacheLine>> contents(std::size_t level, int core) const override {
    const Tier& t = tiers_[level];
    const Bank& bank = t.banks[t.banks.size() == 1 ? 0 : static_cast<std::size_t>(core)];
    std::vector<std::vector<CacheLine>> all(bank.sets());
    for (std::uint64_t s = 0; s < bank.sets(); ++s)
      bank.each(s, [&](const Held& h) {
        all[s].push_back(
            {.line = static_cast<std::int64_t>(h.line), .tensor = h.tensor, .dirty = h.dirty != 0});
      });
    return all;
  }

  DramCount dram() const override { return dram_; }

 private:
  Tally& tally(std::size_t i, int tensor) {
    return tiers_[i].tally[static_cast<std::size_t>(tensor)];
  }

  void tell(std::size_t i, std::uint64_t line, std::uint64_t sectors, int tensor, bool missed) {
    if (blame_ == nullptr) return;
    const auto first = static_cast<std::uint64_t>(std::countr_zero(sectors));
    const std::uint64_t a_line = static_cast<std::uint64_t>(tiers_[i].sectors());
    blame_->touched(i, line, line * a_line + first, tensor, missed);
  }

  /// f(line, piece) for the pieces of a span that lie in one line each.
  template <class F>
  static void pieces(const Tier& t, Span s, F&& f) {
    for (std::uint64_t line = t.line_of(s.first); line <= t.line_of(s.last); ++line) {
      const Span whole = t.span_of(line);
      f(line, Span{std::max(s.first, whole.first), std::min(s.last, whole.last)});
    }
  }

  void home(Span s, bool write) {
    // Outermost lines are what DRAM is asked for.
    pieces(tiers_.back(), s, [&](std::uint64_t, Span piece) {
      ++(write ? dram_.writes : dram_.reads);
      if (rows_.row_bytes == 0) return;
      const auto row = static_cast<std::int64_t>(piece.first) / rows_.row_bytes;
      std::int64_t& open = open_[static_cast<std::size_t>(row % rows_.banks)];
      ++(open == row ? dram_.row_hits : open < 0 ? dram_.row_misses : dram_.row_conflicts);
      open = row;
    });
  }

  /// Reads a span at level i for the one within it. Returns the dirty sectors of its line that move
  /// inwards with it, which an exclusive level may have (its lines are those of the level within).
  std::uint64_t read(std::size_t i, Span s, int tensor, bool prefetch) {
    if (i == private_ && cores_ > 1) clean_others(s);
    if (i == tiers_.size()) {
      home(s, false);
      return 0;
    }
    std::uint64_t moved = 0;
    pieces(tiers_[i], s, [&](std::uint64_t line, Span piece) {
      moved |= read_line(i, line, piece, tensor, prefetch);
    });
    return moved;
  }

  std::uint64_t read_line(std::size_t i, std::uint64_t line, Span s, int tensor, bool prefetch) {
    Tier& t = tiers_[i];
    Bank& bank = t.bank(core_);
    const std::uint64_t need = t.touched(line, s);
    Held* h = bank.find(line);
    const bool hit = h != nullptr && (h->valid & need) == need;
    if (!prefetch) tell(i, line, need, tensor, !hit);
    if (hit) {
      if (t.behaviour.inclusion == Inclusion::exclusive) {
        if (!prefetch) ++tally(i, tensor).hits;
        const std::uint64_t dirty = h->dirty;
        bank.erase(*h);
        return dirty;
      }
      found(i, *h, tensor, prefetch);
      return 0;
    }
    if (!prefetch) ++tally(i, tensor).misses;
    if (t.takes_victims()) {  // what it has of the line is as good as nothing
      const std::uint64_t dirty = h != nullptr && t.behaviour.inclusion == Inclusion::exclusive
                                      ? std::exchange(h->dirty, 0)
                                      : 0;
      if (h != nullptr && t.behaviour.inclusion == Inclusion::exclusive) bank.erase(*h);
      tally(i, tensor).read_bytes += s.bytes();
      return dirty | read(i + 1, s, tensor, prefetch);
    }
    fill(i, line, need, tensor, prefetch, need);
    if (!prefetch) train(i, line, tensor, true);
    return 0;
  }

  /// A hit: the policy, the counts, the prefetchers.
  void found(std::size_t i, Held& h, int tensor, bool prefetch) {
    tiers_[i].bank(core_).touch(h);
    if (prefetch) return;
    Tally& counts = tally(i, tensor);
    ++counts.hits;
    const bool first = std::exchange(h.prefetched, false);
    if (first) ++counts.useful_prefetches;
    train(i, h.line, tensor, first);
  }

  /// Gets the sectors of `need` that are not there from the next level, and returns the line with
  /// `hold` there, what whoever asks is about to write included. Null where making room has driven
  /// it out again, which takes an inclusive level further out that lines find no place in together.
  Held* fill(std::size_t i, std::uint64_t line, std::uint64_t need, int tensor, bool prefetch,
             std::uint64_t hold) {
    Tier& t = tiers_[i];
    Bank& bank = t.bank(core_);
    const Held* const before = bank.find(line);
    const std::uint64_t missing = need & ~(before == nullptr ? 0 : before->valid);
    std::uint64_t moved = 0;
    t.runs(line, missing, [&](Span s) {
      tally(i, tensor).read_bytes += s.bytes();
      moved |= read(i + 1, s, tensor, prefetch);
    });
    Held* h = bank.find(line);  // what happened further out may have taken it away
    if (h != nullptr) {
      bank.touch(*h);
    } else {
      Held victim;
      h = &bank.insert(line, tensor, victim);
      h->valid = hold | moved;
      h->dirty = moved;
      if (victim.valid == 0) return h;
      if (blame_ != nullptr) blame_->evicted(i, tensor, victim.tensor);
      evict(i, victim);
      return bank.find(line);
    }
    h->valid |= hold | moved;
    h->dirty |= moved;
    return h;
  }

  /// A store, or what a level within passes through or around it.
  void write(std::size_t i, Span s, int tensor) {
    if (i < private_ && cores_ > 1) take_from_others(s);
    if (i == tiers_.size()) return home(s, true);
    pieces(tiers_[i], s,
           [&](std::uint64_t line, Span piece) { write_line(i, line, piece, tensor); });
  }

  void pass_on(std::size_t i, Span s, int tensor) {
    tally(i, tensor).written_bytes += s.bytes();
    write(i + 1, s, tensor);
  }

  void write_line(std::size_t i, std::uint64_t line, Span s, int tensor) {
    Tier& t = tiers_[i];
    Bank& bank = t.bank(core_);
    const std::uint64_t need = t.touched(line, s);
    Held* h = bank.find(line);
    const bool back = t.behaviour.write == WriteHit::back;
    bool missed = false;
    tell(i, line, need, tensor, h == nullptr || (h->valid & need) != need);
    if (h != nullptr && (h->valid & need) == need) {
      mark(*h, need, tensor, back);
      found(i, *h, tensor, false);
    } else {
      missed = true;
      ++tally(i, tensor).misses;
      const WriteMiss how = t.takes_victims() ? WriteMiss::around : t.behaviour.write_miss;
      if (how == WriteMiss::around) {
        pass_on(i, s, tensor);
        train(i, line, tensor, true);
        return;
      }
      const std::uint64_t whole = how == WriteMiss::validate ? t.covered(line, s) : 0;
      h = fill(i, line, need & ~whole, tensor, false, need);
      if (h != nullptr) mark(*h, need, tensor, back);
    }
    if (!back || h == nullptr) pass_on(i, s, tensor);
    if (missed) train(i, line, tensor, true);
  }

  static void mark(Held& h, std::uint64_t sectors, int tensor, bool dirty) {
    h.valid |= sectors;
    if (!dirty) return;
    h.dirty |= sectors;
    h.tensor = tensor;
  }

  /// What a level within evicted, dirty.
  void put(std::size_t i, Span s, int tensor) {
    if (i == tiers_.size()) return home(s, true);
    pieces(tiers_[i], s, [&](std::uint64_t line, Span piece) {
      Tier& t = tiers_[i];
      Bank& bank = t.bank(core_);
      const bool back = t.behaviour.write == WriteHit::back;
      const std::uint64_t need = t.touched(line, piece);
      const std::uint64_t part = need & ~t.covered(line, piece);
      Held* h = bank.find(line);
      if (h == nullptr && t.behaviour.write_miss == WriteMiss::around && !t.takes_victims())
        return pass_on(i, piece, tensor);
      if (blame_ != nullptr) blame_->put(i, line);
      if (h != nullptr && (part & ~h->valid) == 0) {
        bank.touch(*h);
      } else {
        const std::uint64_t fetched = part & ~(h == nullptr ? 0 : h->valid);
        if (fetched != 0) {
          ++tally(i, tensor).misses;
          tell(i, line, fetched, tensor, true);
        }
        h = fill(i, line, part, tensor, false, need);
      }
      if (h != nullptr) mark(*h, need, tensor, back);
      if (!back || h == nullptr) pass_on(i, piece, tensor);
    });
  }

  /// A victim of level i: its copies further in where it is inclusive, then what is dirty goes out,
  /// and what is clean to a level that takes victims.
  void evict(std::size_t i, Held v) {
    Tier& t = tiers_[i];
    if (t.behaviour.inclusion == Inclusion::inclusive) take_from_within(i, v);
    const bool last = i + 1 == tiers_.size();
    if (last || !tiers_[i + 1].takes_victims()) {
      if (v.dirty != 0) write_back(i, v.line, v.dirty, v.tensor);
      return;
    }
    Tier& outer = tiers_[i + 1];
    const double share = outer.behaviour.clean_victims;
    if (v.dirty == 0 && share < 1 &&
        static_cast<double>(draw(outer.generator)) >= share * 4294967296.0)
      return;
    tally(i, v.tensor).written_bytes += t.bytes(v.dirty);
    tally(i, v.tensor).handed_bytes += t.bytes(v.valid & ~v.dirty);
    hand_over(i + 1, v);
  }

  /// A whole line to a level that takes victims.
  void hand_over(std::size_t i, const Held& v) {
    Bank& bank = tiers_[i].bank(core_);
    Held* h = bank.find(v.line);
    Held gone;
    if (h != nullptr)
      bank.touch(*h);
    else
      h = &bank.insert(v.line, v.tensor, gone);
    h->valid |= v.valid;
    const bool back = tiers_[i].behaviour.write == WriteHit::back;
    if (back) h->dirty |= v.dirty;
    if (v.dirty != 0) h->tensor = v.tensor;
    if (blame_ != nullptr) {
      blame_->put(i, v.line);
      if (gone.valid != 0) blame_->evicted(i, v.tensor, gone.tensor);
    }
    if (gone.valid != 0) evict(i, gone);
    if (!back && v.dirty != 0) write_back(i, v.line, v.dirty, v.tensor);
  }

  void write_back(std::size_t i, std::uint64_t line, std::uint64_t sectors, int tensor) {
    tiers_[i].runs(line, sectors, [&](Span s) {
      tally(i, tensor).written_bytes += s.bytes();
      put(i + 1, s, tensor);
    });
  }

  /// Level i evicts `v`: levels within it lose it. What they have dirty of it crosses every
  /// boundary out to level i, once.
  void take_from_within(std::size_t i, Held& v) {
    const Tier& t = tiers_[i];
    const Span whole = t.span_of(v.line);
    const bool all_cores = i >= private_;
    std::vector<Span> dirty;
    for (int core = all_cores ? 0 : core_; core < (all_cores ? cores_ : core_ + 1); ++core) {
      std::vector<Span> own;
      for (std::size_t j = 0; j < std::min(i, private_); ++j)
        own = take(j, core, whole, own, v.tensor);
      for (const Span s : own) add(dirty, s);
    }
    for (std::size_t j = private_; j < i; ++j) dirty = take(j, core_, whole, dirty, v.tensor);
    for (const Span s : dirty) {
      // A longer line within goes whole; what lies beyond the victim is its neighbours'.
      const Span in{std::max(s.first, whole.first), std::min(s.last, whole.last)};
      if (in.first <= in.last) v.dirty |= t.touched(v.line, in);
      if (s.first < whole.first) put(i, {s.first, std::min(s.last, whole.first - 1)}, v.tensor);
      if (s.last > whole.last) put(i, {std::max(s.first, whole.last + 1), s.last}, v.tensor);
    }
    v.valid |= v.dirty;
  }

  /// Takes a span out of one core's level j. `inner` is dirty further in; returns what is dirty out
  /// of level j, having counted it across the boundary outwards. The owner of what is dirty is
  /// told.
  std::vector<Span> take(std::size_t j, int core, Span s, std::vector<Span> inner, int& owner) {
    Tier& t = tiers_[j];
    Bank& bank = t.bank(core);
    pieces(t, s, [&](std::uint64_t line, Span) {
      Held* const h = bank.find(line);
      if (h == nullptr) return;
      const Held gone = *h;
      bank.erase(*h);
      ++tally(j, gone.tensor).invalidations;
      if (gone.dirty != 0) owner = gone.tensor;
      t.runs(line, gone.dirty, [&](Span d) { add(inner, d); });
    });
    for (const Span d : inner) tally(j, owner).written_bytes += d.bytes();
    return inner;
  }

  /// Adds what of `d` is not in the list yet.
  static void add(std::vector<Span>& list, Span d) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Span s = list[i];  // a copy: what is added moves the list
      if (d.last < s.first || d.first > s.last) continue;
      if (d.first < s.first) add(list, {d.first, s.first - 1});
      if (d.last > s.last) add(list, {s.last + 1, d.last});
      return;
    }
    list.push_back(d);
  }

  /// This core writes: the others' private levels lose the span, dirty data to the first shared
  /// one.
  void take_from_others(Span s) {
    for (std::size_t j = 0; j < private_; ++j)  // whole lines, the longest
      s = {tiers_[j].span_of(tiers_[j].line_of(s.first)).first,
           tiers_[j].span_of(tiers_[j].line_of(s.last)).last};
    for (int core = 0; core < cores_; ++core) {
      if (core == core_) continue;
      std::vector<Span> dirty;
      int owner = 0;
      for (std::size_t j = 0; j < private_; ++j) {
        dirty = take(j, core, s, dirty, owner);
      }
      for (const Span d : dirty) put(private_, d, owner);
    }
  }

  /// This core's read leaves its private levels: what others have dirty is written to the first
  /// shared one, and stays with them, clean.
  void clean_others(Span s) {
    for (int core = 0; core < cores_; ++core) {
      if (core == core_) continue;
      std::vector<Span> dirty;
      int owner = 0;
      for (std::size_t j = 0; j < private_; ++j) {
        Tier& t = tiers_[j];
        pieces(t, s, [&](std::uint64_t line, Span) {
          Held* const h = t.bank(core).find(line);
          if (h == nullptr || h->dirty == 0) return;
          owner = h->tensor;
          t.runs(line, std::exchange(h->dirty, 0), [&](Span d) { add(dirty, d); });
        });
        for (const Span d : dirty) tally(j, owner).written_bytes += d.bytes();
      }
      for (const Span d : dirty) put(private_, d, owner);
    }
  }

  /// Prefetchers of a level, after a touch from within. `event`: it missed, or found what had been
  /// prefetched for the first time.
  void train(std::size_t i, std::uint64_t line, int tensor, bool event) {
    const Tier& t = tiers_[i];
    for (const Prefetch& p : t.behaviour.prefetch) {
      switch (p.kind) {
        case PrefetchKind::next_line:
          for (std::int64_t k = 1; event && k <= p.degree; ++k) prefetch(i, line, k, tensor);
          break;
        case PrefetchKind::adjacent:
          if (event) prefetch(i, line, (line & 1) == 0 ? 1 : -1, tensor);
          break;
        case PrefetchKind::stride: {
          const int in_page = std::max(kPageShift - t.line_shift, 0);
          const auto step =
              tiers_[i].bank(core_).strides.train(line >> in_page, static_cast<std::int64_t>(line));
          for (std::int64_t k = 1; step && k <= p.degree; ++k) prefetch(i, line, k * *step, tensor);
          break;
        }
      }
    }
  }

  void prefetch(std::size_t i, std::uint64_t line, std::int64_t away, int tensor) {
    const Tier& t = tiers_[i];
    const auto wanted = static_cast<std::uint64_t>(static_cast<std::int64_t>(line) + away);
    const int in_page = std::max(kPageShift - t.line_shift, 0);
    if (wanted >> in_page != line >> in_page) return;
    if (const Held* h = tiers_[i].bank(core_).find(wanted); h != nullptr && h->valid == t.all())
      return;
    ++tally(i, tensor).prefetches;
    if (Held* h = fill(i, wanted, t.all(), tensor, true, t.all()); h != nullptr)
      h->prefetched = true;
  }

  static constexpr int kPageShift = 12;

  int cores_;
  int core_ = 0;
  std::size_t private_ = 0;  // levels that each core has its own of
  std::vector<Tier> tiers_;
  DramRows rows_;
  std::vector<std::int64_t> open_;  // by bank: row, or -1
  DramCount dram_;
};

}  // namespace

std::unique_ptr<Engine> general_engine(const std::vector<CacheGeometry>& levels,
                                       const CacheOptions& options) {
  return std::make_unique<GeneralEngine>(levels, options);
}

}  // namespace tilewright::cache
