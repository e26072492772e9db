// Reading GIR's text.
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/format.h"
#include "models/powerfusion/gir.h"

namespace tilewright::powerfusion {
namespace {

constexpr std::size_t kMostLines = 1 << 16;
constexpr std::size_t kMostRank = 16;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  // of a tensor, a loop, units
constexpr std::int64_t kMostOfWarp = std::int64_t{1} << 16;    // lanes times items
constexpr std::int64_t kMostDistance = std::int64_t{1} << 44;

template <class T>
std::optional<T> named(std::string_view text, int count) {
  for (int i = 0; i < count; ++i)
    if (name_of(static_cast<T>(i)) == text) return static_cast<T>(i);
  return {};
}

class GirReader {
 public:
  GirReader(std::string_view text, std::string_view where) : where_(where) {
    lines_ = lines_of(text);
    if (lines_.size() > kMostLines) fail("length", "a GIR of at most 65536 lines");
  }

  Gir read() {
    for (; line_ < lines_.size(); ++line_) {
      rest_ = lines_[line_];
      const std::string_view first = word();
      if (line_ == 0) {
        if (first != "gir") fail(first, "gir NAME blocks N warps N");
        header();
      } else if (first == "loop") {
        add_loop();
      } else if (first == "tensor") {
        add_tensor();
      } else if (first == "units") {
        add_units();
      } else if (first == "slice") {
        add_slice();
      } else {
        add_op(first);
      }
      if (const std::string_view more = word(); !more.empty()) fail(more, "the end of the line");
    }
    if (lines_.empty()) fail("", "gir NAME blocks N warps N");
    return std::move(g_);
  }

 private:
  [[noreturn]] void fail(std::string_view found, std::string accepted) const {
    constexpr std::size_t kShown = 32;
    std::string shown;
    for (char c : found.substr(0, kShown))
      shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    throw InputError({.where = where_,
                      .field = formatted("line {}", line_ + 1),
                      .value = shown.empty() ? "its end" : shown,
                      .problem = "is not accepted here",
                      .accepted = std::move(accepted)});
  }

  // ---- Words ------------------------------------------------------------------------------------

  void skip() {
    while (!rest_.empty() &&
           (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }
  std::string_view word() {
    skip();
    const std::size_t n = std::min(rest_.find_first_of(" \t\r"), rest_.size());
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(rest_.substr(0, 1), formatted("'{}'", c));
  }
  void expect_word(std::string_view w) {
    if (const std::string_view found = word(); found != w) fail(found, std::string(w));
  }
  /// Digits, with a sign where it may be negative.
  std::int64_t number_in(std::string_view& text, std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < low || value > high)
      fail(text, formatted("a whole number from {} to {}", low, high));
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  }
  std::int64_t number(std::int64_t low, std::int64_t high) {
    skip();
    return number_in(rest_, low, high);
  }
  std::string name(const char* what) {
    const std::string_view text = word();
    // Values of an operator's points are called after it, with a dot.
    std::string plain(text);
    std::erase(plain, '.');
    if (!is_identifier(plain)) fail(text, what);
    return std::string(text);
  }
  /// "s12" of so many.
  int reference(std::string_view text, char letter, std::size_t count) {
    if (count == 0) fail(text, formatted("{}0 of a line above, and there is none", letter));
    const std::string accepted = formatted("{}0 to {}{}", letter, letter, count - 1);
    std::int64_t at = -1;
    if (text.size() >= 2 && text.front() == letter && text[1] != '-') {
      const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), at);
      if (error != std::errc() || end != text.data() + text.size()) at = -1;
    }
    if (at < 0 || std::cmp_greater_equal(at, count)) fail(text, accepted);
    return static_cast<int>(at);
  }

  // ---- Lines ------------------------------------------------------------------------------------

  void header() {
    g_.name = name("a name");
    expect_word("blocks");
    g_.blocks = number(1, kMostElements);
    expect_word("warps");
    g_.warps = number(1, 1024);
  }

  void add_loop() {
    Loop l{.name = name("a loop's name")};
    l.extent = number(1, kMostElements);
    if (!loops_.emplace(l.name, g_.loops.size()).second) fail(l.name, "a loop's name once");
    g_.loops.push_back(std::move(l));
  }

  void add_tensor() {
    Tensor t{.name = name("a tensor's name")};
    const std::string_view type = word();
    const auto dtype = dtype_from_name(type);
    if (!dtype) fail(type, "a type: f32, f16");
    t.dtype = *dtype;
    std::int64_t elements = 1;
    bool out = false;
    for (skip(); !rest_.empty() && !out; skip()) {
      if (rest_.front() == 'o') {
        expect_word("out");
        out = true;
        continue;
      }
      if (t.shape.size() == kMostRank) fail(rest_, "at most 16 dimensions");
      t.shape.push_back(number(1, kMostElements));
      if (__builtin_mul_overflow(elements, t.shape.back(), &elements) || elements > kMostElements)
        fail(t.name, "a tensor of at most 2^40 elements");
    }
    if (!tensors_.emplace(t.name, g_.tensors.size()).second) fail(t.name, "a tensor's name once");
    if (out) g_.leaving.push_back(static_cast<int>(g_.tensors.size()));
    g_.tensors.push_back(std::move(t));
  }

  void add_units() {
    if (const std::string_view id = word(); id != formatted("u{}", g_.maps.size()))
      fail(id, formatted("u{}", g_.maps.size()));
    UnitMap units;
    std::int64_t all = 1, of_warp = 1, lanes = 1;
    for (skip(); !rest_.empty(); skip()) {
      const std::string_view where = word();
      const auto place = named<Place>(where, 5);
      if (!place) fail(where, "block, warp, lane, trip or item");
      skip();
      const std::size_t slash = std::min(rest_.find('/'), rest_.size());
      const auto loop = loops_.find(std::string(rest_.substr(0, slash)));
      if (loop == loops_.end()) fail(rest_, "LOOP/STEP:COUNT of a loop above");
      rest_.remove_prefix(slash);
      expect('/');
      Digit d{.loop = static_cast<int>(loop->second), .place = *place};
      d.step = number(1, kMostElements);
      expect(':');
      d.count = number(1, kMostElements);
      if (__builtin_mul_overflow(all, d.count, &all) || all > kMostElements)
        fail(where, "units, trips and items of at most 2^40 in all");
      if (*place == Place::lane || *place == Place::item) of_warp *= d.count;
      if (*place == Place::lane) lanes *= d.count;
      if (of_warp > kMostOfWarp || lanes > kLanes)
        fail(where, "at most 32 lanes, 65536 items of a warp");
      units.push_back(d);
    }
    g_.maps.push_back(std::move(units));
  }

  Base base(const UnitMap& units) {
    Base b;
    if (take('?')) {
      b.looked_up = true;
      return b;
    }
    bool first = true;
    for (;;) {
      skip();
      if (!first && !take('+') && (rest_.empty() || rest_.front() != '-')) return b;
      const std::int64_t n = number(-kMostElements, kMostElements);
      if (!take('*')) {
        b.offset = n;
        return b;
      }
      const std::size_t end = std::min(rest_.find_first_of("+-,] \t\r"), rest_.size());
      const int digit = reference(rest_.substr(0, end), 'd', units.size());
      rest_.remove_prefix(end);
      if (n == 0 ||
          std::ranges::any_of(b.terms, [&](const BaseTerm& t) { return t.digit == digit; }))
        fail(rest_, "each digit once, not times 0");
      b.terms.push_back({digit, n});
      first = false;
    }
  }

  void add_slice() {
    if (const std::string_view id = word(); id != formatted("s{}", g_.slices.size()))
      fail(id, formatted("s{}", g_.slices.size()));
    const std::string of = name("a tensor's name");
    const auto tensor = tensors_.find(of);
    if (tensor == tensors_.end()) fail(of, "a tensor above");
    Slice s{.tensor = static_cast<int>(tensor->second)};
    // The units stand at the line's end, and the base is in their digits.
    const std::size_t last = rest_.find_last_not_of(" \t\r");
    const std::size_t from = last == std::string_view::npos ? 0 : rest_.find_last_of(" \t", last);
    if (from == std::string_view::npos || last == std::string_view::npos) fail(rest_, "units: u0");
    s.units = reference(rest_.substr(from + 1, last - from), 'u', g_.maps.size());
    const UnitMap& units = g_.maps[static_cast<std::size_t>(s.units)];
    expect('[');
    const std::size_t rank = g_.tensors[tensor->second].shape.size();
    for (std::size_t d = 0; d < rank; ++d) {
      if (d > 0) expect(',');
      s.base.push_back(base(units));
    }
    expect(']');
    check_distances(s);
    expect('(');
    const std::size_t comma = std::min(rest_.find(','), rest_.size());
    const auto tier = named<Tier>(rest_.substr(0, comma), 4);
    if (!tier) fail(rest_, "lane, warp, shared or dram");
    s.tier = *tier;
    rest_.remove_prefix(comma);
    SlicePattern p;
    for (std::int64_t* n : {&p.num, &p.width, &p.stride}) {
      expect(',');
      *n = number(0, std::numeric_limits<std::int64_t>::max());
    }
    if (take(',')) p.times = number(2, kMostOfWarp);
    expect(')');
    if (const SlicePattern has = pattern_of(g_, s); p != has)
      fail(of, formatted("num, width and stride as its base says: {}, {}, {}", has.num, has.width,
                         has.stride) +
                   (has.times > 1 ? formatted(", {}", has.times) : ""));
    word();
    g_.slices.push_back(std::move(s));
  }

  void check_distances(const Slice& s) const {
    const Tensor& t = g_.tensors[static_cast<std::size_t>(s.tensor)];
    for (std::size_t d = 0; d < s.base.size(); ++d)
      for (const BaseTerm& term : s.base[d].terms) {
        std::int64_t distance = 0;
        if (__builtin_mul_overflow(term.coefficient, stride_of(t, d), &distance) ||
            std::abs(distance) > kMostDistance / static_cast<std::int64_t>(kMostRank))
          fail(t.name, "elements less than 2^40 apart");
      }
  }

  void add_op(std::string_view kind_text) {
    const auto kind = named<GKind>(kind_text, 6);
    if (!kind)
      fail(kind_text, "loop, tensor, units, slice, move, ew, bcast, reduce, transpose or sync");
    GOp op{.kind = *kind};
    if (*kind != GKind::move && *kind != GKind::sync) op.name = name("an operator's name");
    if (*kind == GKind::reduce || *kind == GKind::sync) {
      const std::string_view text = word();
      const auto scope = named<Scope>(text, 4);
      if (!scope) fail(text, "lane, warp, block or device");
      op.scope = *scope;
    }
    for (;;) {
      const std::string_view text = word();
      if (text == "->") break;
      op.in.push_back(reference(text, 's', g_.slices.size()));
    }
    const bool one = *kind != GKind::elementwise && *kind != GKind::transpose;
    if (op.in.size() > 64 || (one && op.in.size() != 1))
      fail(kind_text, "as many inputs as it reads");
    op.out = reference(word(), 's', g_.slices.size());
    read_.insert(op.in.begin(), op.in.end());
    if (read_.contains(op.out) || !written_.insert(op.out).second)
      fail(formatted("s{}", op.out), "a slice that nothing has read or written before");
    g_.ops.push_back(std::move(op));
  }

  std::string where_;
  std::vector<std::string_view> lines_;
  std::size_t line_ = 0;
  std::string_view rest_;
  Gir g_;
  std::map<std::string, std::size_t> loops_, tensors_;
  std::set<int> written_, read_;
};

}  // namespace

Gir parse_gir(std::string_view text, std::string_view where) {
  return GirReader(text, where).read();
}

}  // namespace tilewright::powerfusion
