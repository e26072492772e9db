// How ways are touched: included once for each set of instructions (`kVectors`: AVX-512), because a
// function is only inlined into others that may use what it uses. No include guard on purpose.

template <class Word>
struct WaysBody<Word, TILEWRIGHT_VECTORS> {
  using Kind = Replacement::Kind;
  using Sets = WaysOf<Word>;

  /// A first touch: `way` is where the line lies from now on.
  template <Kind K>
  __attribute__((always_inline)) static Answer look(Sets& w, std::uint64_t set, Word word,
                                                    int& way) {
    Word* const row = w.words_.data() + set * w.stride_;
    const Found found = find_in(row, w.stride_, word, w.packing_.meta());
    if (found.line != 0) {
      way = std::countr_zero(found.line);
      if ((word & 1) != 0) row[way] = word;
      return {};
    }
    PolicyState& state = w.states_[set];
    if constexpr (K == Kind::fifo) {  // ways are filled in turn: the oldest is the next
      way = static_cast<int>(state.a);
      state.a = way + 1 == w.ways_ ? 0 : state.a + 1;
    } else {
      way = w.policy_.template fill<K>(state, w.all_ & ~found.nothing);
    }
    const Entry victim = w.packing_.entry(set, row[way]);
    row[way] = word;
    return {.victim = victim, .missed = true};
  }

  /// So many hits of a way, one after the other. Returns whether one more would change nothing.
  template <Kind K>
  __attribute__((always_inline)) static bool hits(const Sets& w, PolicyState& state, int way,
                                                  std::int64_t times) {
    bool settled = true;
    if constexpr (K == Kind::ages) {
      PolicyState now{.a = state.a, .b = state.b};  // in registers; hits draw nothing
      while (!(settled = w.policy_.settled(now, way)) && times-- > 0)
        w.policy_.template hit<K>(now, way);
      state.a = now.a;
      state.b = now.b;
    } else if constexpr (K != Kind::fifo && K != Kind::random) {
      if (times > 0) w.policy_.template hit<K>(state, way);  // the first is as good as many
    }
    return settled;
  }

  template <Kind K>
  static Answer touch(void* sets, Entry now) {
    Sets& w = *static_cast<Sets*>(sets);
    const auto [set, tag] = w.packing_.place(line_of(now));
    int way = 0;
    const Answer answer = look<K>(w, set, w.packing_.word(tag, now), way);
    if (!answer.missed) hits<K>(w, w.states_[set], way, 1);
    return answer;
  }

  template <Kind K>
  static std::size_t run(void* of, Entry first, std::size_t n, Miss* misses, std::int64_t times) {
    Sets& w = *static_cast<Sets*>(of);
    const bool fronts = !w.fronts_.empty();
    const std::uint64_t sets = w.sets();
    std::size_t missed = 0;
    auto [set, tag] = w.packing_.place(line_of(first));
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t here = set;
      const Word word = w.packing_.word(tag, first);
      if (++set == sets) set = 0, ++tag;
      const Entry now = first + (i << kMetaBits);
      if (fronts && w.is_front(w.fronts_[here], now)) continue;
      int way = 0;
      const Answer answer = look<K>(w, here, word, way);
      if (answer.missed) misses[missed++] = {line_of(now), answer.victim};
      const bool settled = hits<K>(w, w.states_[here], way, answer.missed ? times - 1 : times);
      if (!fronts) continue;
      Front& front = w.fronts_[here];
      front.address = settled ? line_of(now) << w.line_shift_ : Front::kNowhere;
      front.meta = w.words_[here * w.stride_ + static_cast<std::size_t>(way)] & w.packing_.meta();
    }
    return missed;
  }

 private:
  /// A bit for each way: which hold the line asked for, and which hold nothing.
  struct Found {
    std::uint64_t line = 0, nothing = 0;
  };

  __attribute__((always_inline)) static Found find_in(const Word* row, std::size_t words,
                                                      Word wanted, Word meta) {
    Found found;
#if TILEWRIGHT_VECTORS
    const __m512i nobody = _mm512_setzero_si512();
    for (std::size_t at = 0; at < words; at += Sets::kVector) {
      const __m512i held = _mm512_load_si512(row + at);
      std::uint64_t line = 0, nothing = 0;
      if constexpr (sizeof(Word) == 4) {
        const __m512i differs = _mm512_xor_si512(held, _mm512_set1_epi32(static_cast<int>(wanted)));
        line = _mm512_cmple_epu32_mask(differs, _mm512_set1_epi32(static_cast<int>(meta)));
        nothing = _mm512_cmpeq_epi32_mask(held, nobody);
      } else {
        const __m512i differs =
            _mm512_xor_si512(held, _mm512_set1_epi64(static_cast<long long>(wanted)));
        line = _mm512_cmple_epu64_mask(differs, _mm512_set1_epi64(static_cast<long long>(meta)));
        nothing = _mm512_cmpeq_epi64_mask(held, nobody);
      }
      found.line |= line << at;
      found.nothing |= nothing << at;
    }
#else
    for (std::size_t i = 0; i < words; ++i) {
      found.line |= std::uint64_t{static_cast<Word>(row[i] ^ wanted) <= meta} << i;
      found.nothing |= std::uint64_t{row[i] == Sets::kNobody} << i;
    }
#endif
    return found;
  }
};
