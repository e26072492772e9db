// Sets of up to 32 ways of packed 32-bit words in order of use.
#include <algorithm>
#include <bit>

#include "simulator/cache_sets.h"

namespace tilewright::cache {

constexpr std::size_t kWordsOfVector = 16;

Tags::Tags(std::uint64_t sets, std::int64_t ways, int tensors, Instructions most)
    : packing_(sets, tensors),
      ways_(static_cast<std::size_t>(ways)),
      stride_((ways_ + kWordsOfVector - 1) / kWordsOfVector * kWordsOfVector),
      words_(sets * stride_, kNobody) {
  choose(most);
}

void Tags::keep_fronts(int line_shift) {
  fronts_.assign(sets(), Front{});
  line_shift_ = line_shift;
}

/// Of a power of two of sets.
void Tags::add_words(Quick& q, int line_shift) {
  if (ways_ < 2) return;
  q.words = words_.data();
  q.row_words = std::countr_zero(stride_);
  q.word_shift = line_shift + packing_.set_of().shift();
  q.meta = packing_.meta();
}

void Tags::assign(std::uint64_t set, const Entry* in) {
  for (std::size_t i = 0; i < ways_; ++i)
    words_[set * stride_ + i] =
        in[i] == kEmpty ? kNobody : packing_.word(packing_.place(line_of(in[i])).tag, in[i]);
  if (!fronts_.empty()) fronts_[set] = {line_of(in[0]) << line_shift_, in[0] & kMeta};
}

Answer Tags::touch_plain(void* sets, Entry now) {
  Tags& t = *static_cast<Tags*>(sets);
  const auto [set, tag] = t.packing_.place(line_of(now));
  const std::uint32_t wanted = t.packing_.word(tag, now), meta = t.packing_.meta();
  std::uint32_t* const row = &t.words_[set * t.stride_];
  std::uint32_t* const end = row + t.ways_;
  std::uint32_t* const at =
      std::find_if(row, end, [&](std::uint32_t w) { return (w ^ wanted) <= meta; });
  std::uint32_t* const last = at == end ? end - 1 : at;
  const std::uint32_t out = *last;
  std::move_backward(row, last, last + 1);
  if (at != end) {
    row[0] = (now & 1) != 0 ? wanted : out;
    return {};
  }
  row[0] = wanted;
  return {.victim = t.packing_.entry(set, out), .missed = true};
}

std::size_t Tags::run_plain(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t) {
  std::size_t missed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    const Answer a = touch_plain(sets, now);
    if (a.missed) misses[missed++] = {line_of(now), a.victim};
  }
  return missed;
}

}  // namespace tilewright::cache
