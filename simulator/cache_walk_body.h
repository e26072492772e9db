// How sets of packed words in order of use are touched, and two levels of them walked: included
// once for each set of instructions (TILEWRIGHT_SET, one of cache_vectors.h, and
// TILEWRIGHT_TARGET), because a function is only inlined into others that may use what it uses. No
// include guard on purpose.

template <>
struct Tags::Fast<TILEWRIGHT_SET> {
  using Set = TILEWRIGHT_SET;

  /// Moves `wanted` to the front of a row, whether it was there or not: there are no branches on
  /// it, which nobody could predict. Returns which way held it, as a bit; `last` was the last way.
  template <int kVectors>
  TILEWRIGHT_TARGET __attribute__((always_inline)) static std::uint32_t to_the_front(
      std::uint32_t* row, std::uint32_t wanted, std::uint32_t meta, bool write, std::size_t ways,
      std::uint32_t& last) {
    Set::Vector held[kVectors];
    const std::uint32_t found = Set::find<kVectors>(row, Set::all(wanted), Set::all(meta), held);
    last = row[ways - 1];
    // Ways up to the one found, or all of them.
    const std::uint32_t moves = (found ^ (found - 1)) & (~std::uint32_t{0} >> (32 - ways));
    std::uint32_t now = wanted;
    if (!write) {  // a hit keeps what was known of the line
      const std::uint32_t there = row[__builtin_ctz(found | 1u << (16 * kVectors - 1))];
      now = found != 0 ? there : wanted;
    }
    Set::rotate<kVectors>(row, held, moves, now);
    return found;
  }

  template <int kVectors>
  TILEWRIGHT_TARGET static Answer touch(void* sets, Entry now) {
    Tags& t = *static_cast<Tags*>(sets);
    const auto [set, tag] = t.packing_.place(line_of(now));
    std::uint32_t* const row = t.words_.data() + set * (kVectors * kVector);
    std::uint32_t last = 0;
    const std::uint32_t found = to_the_front<kVectors>(
        row, t.packing_.word(tag, now), t.packing_.meta(), (now & 1) != 0, t.ways_, last);
    const Entry victim = t.packing_.entry(set, last);
    return {.victim = found != 0 ? kEmpty : victim, .missed = found == 0};
  }

  template <int kVectors>
  TILEWRIGHT_TARGET static std::size_t run(void* sets, Entry first, std::size_t n, Miss* misses,
                                           std::int64_t) {
    std::size_t missed = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Entry now = first + (i << kMetaBits);
      const Answer a = touch<kVectors>(sets, now);
      if (a.missed) misses[missed++] = {line_of(now), a.victim};
    }
    return missed;
  }
};

template <>
struct Walk::Fast<TILEWRIGHT_SET> {
  using Set = TILEWRIGHT_SET;

  /// Vectors a row: kIn and, of the outer level, kOut; 0 without one.
  template <int kIn, int kOut>
  TILEWRIGHT_TARGET static void walk(Walk& w, Entry first, std::size_t n, std::int64_t touches) {
    const Tags& t = *w.inner;
    const auto [set, tag] = t.packing_.place(line_of(first));
    std::size_t missed = 0;
    if (n > t.sets() - set) [[unlikely]]
      missed = around<kIn, kOut>(w, set, tag, first, n);
    else
      missed = part<kIn, kOut>(w, set, tag, first, n);
    w.count(first, touches, missed);
  }

 private:
  /// A line that the outer level is asked for or, dirty, is to take.
  template <int kOut, bool kDirty>
  TILEWRIGHT_TARGET __attribute__((always_inline)) static void outer(Walk& w, Entry now) {
    if constexpr (kOut == 0) {
      w.ask(now);
    } else {
      Tags& t = *w.outer;
      const auto [set, tag] = t.packing_.place(line_of(now));
      std::uint32_t last = 0;
      const std::uint32_t found = Tags::Fast<Set>::to_the_front<kOut>(
          t.words_.data() + set * (kOut * kVector), t.packing_.word(tag, now), t.packing_.meta(),
          kDirty, t.ways_, last);
      if constexpr (!kDirty) {
        Tally& tally = w.outer_tally[tensor_of(now)];
        tally.hits += found != 0 ? 1 : 0;
        tally.misses += found != 0 ? 0 : 1;
      }
      if (found != 0) return;
      if constexpr (!kDirty) w.ask(now);
      if ((last & 1) != 0) w.put_out(t.packing_.entry(set, last), w.outer_tally);
    }
  }

  /// What `n` misses of sets from `set` on ask of the outer level.
  template <int kOut>
  TILEWRIGHT_TARGET static void rest(Walk& w, std::uint64_t set, Entry first, std::size_t n) {
    first &= ~Entry{1};
    if constexpr (kOut != 0) {
      const auto there = w.outer->packing_.place(line_of(first));
      if (there.set + Quick::kMost <= w.outer->sets())
        return rest_in_a_row<kOut>(w, set, first, n, there.set,
                                   w.outer->packing_.word(there.tag, first));
    }
    for (std::size_t i = 0; i < n; ++i) {
      outer<kOut, false>(w, first + (static_cast<Entry>(w.out[i].line) << kMetaBits));
      if ((w.out[i].word & 1) != 0) put_out<kOut>(w, set, w.out[i]);
    }
  }

  template <int kOut>
  TILEWRIGHT_TARGET static void put_out(Walk& w, std::uint64_t set, const Out& out) {
    const Entry victim = w.inner->packing_.entry(set + out.line, out.word);
    ++w.inner_tally[tensor_of(victim)].written_bytes;
    outer<kOut, true>(w, victim);
  }

  /// The same where all lines have one `word` in sets from `begin` on of the outer level.
  template <int kOut>
  TILEWRIGHT_TARGET __attribute__((always_inline)) static void rest_in_a_row(
      Walk& w, std::uint64_t set, Entry first, std::size_t n, std::uint64_t begin,
      std::uint32_t word) {
    constexpr std::size_t kRow = kOut * kVector;
    const Tags& t = *w.outer;
    const std::size_t ways = t.ways_;
    const std::uint32_t all = ~std::uint32_t{0} >> (32 - ways);
    const Set::Vector same = Set::all(word);
    const Set::Vector meta = Set::all(t.packing_.meta());
    std::uint32_t* const rows = w.outer->words_.data() + begin * kRow;
    std::int64_t missed = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Out out = w.out[i];
      std::uint32_t* const row = rows + out.line * kRow;
      Set::Vector held[kOut];
      const std::uint32_t found = Set::find<kOut>(row, same, meta, held);
      if (found != 0) {  // a hit keeps what was known of the line
        Set::rotate<kOut>(row, held, found ^ (found - 1), row[__builtin_ctz(found)]);
      } else {
        const std::uint32_t last = row[ways - 1];
        Set::rotate<kOut>(row, held, all, word);
        ++missed;
        w.ask(first + (static_cast<Entry>(out.line) << kMetaBits));
        if ((last & 1) != 0) w.put_out(t.packing_.entry(begin + out.line, last), w.outer_tally);
      }
      if ((out.word & 1) != 0) [[unlikely]]
        put_out<kOut>(w, set, out);
    }
    Tally& tally = w.outer_tally[tensor_of(first)];
    tally.misses += missed;
    tally.hits += static_cast<std::int64_t>(n) - missed;
  }

  /// Up to the last set, and on with the next tag.
  template <int kIn, int kOut>
  TILEWRIGHT_TARGET static std::size_t around(Walk& w, std::uint64_t set, std::uint64_t tag,
                                              Entry first, std::size_t n) {
    std::size_t missed = 0;
    for (; n != 0; set = 0, ++tag) {
      const std::size_t some = std::min<std::size_t>(n, w.inner->sets() - set);
      missed += part<kIn, kOut>(w, set, tag, first, some);
      first += some << kMetaBits;
      n -= some;
    }
    return missed;
  }

  template <int kIn, int kOut>
  TILEWRIGHT_TARGET __attribute__((always_inline)) static std::size_t part(
      Walk& w, std::uint64_t set, std::uint64_t tag, Entry first, std::size_t n) {
    const std::uint32_t word = w.inner->packing_.word(tag, first);
    const std::size_t missed = (first & 1) != 0 ? sets_in_a_row<kIn, true>(w, set, n, word, first)
                                                : sets_in_a_row<kIn, false>(w, set, n, word, first);
    if (missed != 0) rest<kOut>(w, set, first, missed);
    return missed;
  }

  /// `n` sets from `set` on, whose lines have the same tag, and so the same word. Lists in `out`
  /// what was not there, and returns how many.
  template <int kIn, bool kWrite>
  TILEWRIGHT_TARGET __attribute__((always_inline)) static std::size_t sets_in_a_row(
      Walk& w, std::uint64_t set, std::size_t n, std::uint32_t word, Entry first) {
    constexpr std::size_t kRow = kIn * kVector;
    const Tags& t = *w.inner;
    const std::size_t ways = t.ways_;
    const std::uint32_t all = ~std::uint32_t{0} >> (32 - ways);
    const std::uint32_t meta = t.packing_.meta();
    const Set::Vector same = Set::all(word);
    const Set::Vector rest = Set::all(meta);
    std::uint32_t* row = w.inner->words_.data() + set * kRow;
    Front* front = w.inner->fronts_.data() + set;
    const std::uint64_t line_bytes = std::uint64_t{1} << t.line_shift_;
    std::uint64_t address = line_of(first) << t.line_shift_;
    std::size_t missed = 0;
    for (std::size_t i = 0; i != n; ++i, row += kRow, ++front, address += line_bytes) {
      if ((row[0] ^ word) <= meta) {
        if (kWrite && row[0] != word) {
          row[0] = word;
          front->meta = word & meta;
        }
        continue;
      }
      Set::Vector held[kIn];
      const std::uint32_t found = Set::find<kIn>(row, same, rest, held);
      std::uint32_t now = word;
      if (found != 0) {
        if (!kWrite) now = row[__builtin_ctz(found)];  // a hit keeps what was known of the line
        Set::rotate<kIn>(row, held, found ^ (found - 1), now);
      } else {
        w.out[missed++] = {static_cast<std::uint32_t>(i), row[ways - 1]};
        Set::rotate<kIn>(row, held, all, word);
      }
      *front = {address, now & meta};
    }
    return missed;
  }
};
