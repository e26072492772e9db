#include "simulator/cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "simulator/cache_engine.h"
#include "simulator/cache_sets.h"
#include "simulator/cache_walk.h"

namespace tilewright {

namespace {

constexpr int kMaxTensors = 32767;
constexpr int kMaxCores = 1024;
constexpr std::int64_t kMaxSectors = 64;

[[noreturn]] void refuse(const std::string& field, const std::string& value, const char* problem,
                         std::string accepted) {
  throw InputError(
      {.field = field, .value = value, .problem = problem, .accepted = std::move(accepted)});
}

void check_geometry(const CacheGeometry& g) {
  const auto bad = [&](const char* field, std::int64_t value, const char* accepted) {
    refuse("cache " + g.name + " " + field, std::to_string(value), "is not accepted", accepted);
  };
  if (g.line.value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(g.line.value)))
    bad("line", g.line.value, "a power of two");
  if (g.ways < 0) bad("ways", g.ways, "0 (fully associative) or more");
  const std::int64_t row = checked_mul(g.line.value, std::max<std::int64_t>(g.ways, 1)).value_or(0);
  if (row == 0 || g.capacity.value <= 0 || g.capacity.value % row != 0)
    bad("capacity", g.capacity.value, "a positive multiple of line * ways");
  const std::int64_t lines = g.capacity.value / g.line.value;
  if (lines > std::int64_t{1} << 31) bad("capacity", g.capacity.value, "at most 2^31 lines");
  if (g.sector.value != 0 &&
      (g.sector.value < 0 || !std::has_single_bit(static_cast<std::uint64_t>(g.sector.value)) ||
       g.sector > g.line || g.line.value / g.sector.value > kMaxSectors))
    bad("sector", g.sector.value, "a power of two, 1 to 64 of them a line");
  const auto policy = replacement_from_name(g.policy);
  if (!policy)
    refuse("cache " + g.name + " policy", g.policy, "is not a replacement policy",
           std::string(replacement_names()));
  const bool ordered =
      policy->kind == Replacement::Kind::lru || policy->kind == Replacement::Kind::fifo;
  if (!ordered && (g.ways == 0 ? lines : g.ways) > 64)
    bad("ways", g.ways, "at most 64, with policies other than lru and fifo");
}

void check_behaviour(const CacheGeometry& g) {
  const CacheBehaviour& b = g.behaviour;
  const std::string field = "cache " + g.name + " ";
  if (!(b.clean_victims >= 0 && b.clean_victims <= 1))
    refuse(field + "clean_victims", std::to_string(b.clean_victims), "is not a share", "0 to 1");
  const std::int64_t lines = g.capacity.value / g.line.value;
  const std::int64_t sets = g.ways == 0 ? 1 : lines / g.ways;
  if (b.index == Index::folded && !std::has_single_bit(static_cast<std::uint64_t>(sets)))
    refuse(field + "index", "folded", "needs a power of two of sets", "modulo or slices");
  if (b.slices < 1 || sets % b.slices != 0)
    refuse(field + "slices", std::to_string(b.slices), "do not divide the sets", "a divisor");
  for (const Prefetch& p : b.prefetch)
    if (p.degree < 1 || p.degree > 64)
      refuse(field + "prefetch", std::to_string(p.degree), "is not a degree", "1 to 64");
}

bool takes_victims(const CacheGeometry& g) {
  return g.behaviour.inclusion == Inclusion::exclusive ||
         g.behaviour.inclusion == Inclusion::victim;
}

Bytes sector_of(const CacheGeometry& g) { return g.sector == Bytes(0) ? g.line : g.sector; }

/// What has to fit together: levels inner to outer.
void check_together(const std::vector<CacheGeometry>& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const CacheGeometry& g = levels[i];
    check_geometry(g);
    check_behaviour(g);
    const std::string field = "cache " + g.name + " ";
    const std::string how(name_of(g.behaviour.inclusion));
    if (i > 0 && levels[i - 1].shared && !g.shared)
      refuse(field + "shared", "no", "is outside a shared level", "shared levels outermost");
    if (!takes_victims(g)) continue;
    if (i == 0) refuse(field + "inclusion", how, "has no level inside it", "non-inclusive");
    if (g.line != levels[i - 1].line || sector_of(g) != sector_of(levels[i - 1]))
      refuse(field + "line", to_text(g.line), "differs from the level's whose victims it takes",
             "the same line and sector");
    if (!g.behaviour.prefetch.empty())
      refuse(field + "prefetch", how, "is filled by victims only", "no prefetcher here");
  }
}

int shift_of(Bytes line) { return std::countr_zero(static_cast<std::uint64_t>(line.value)); }

cache::Front nowhere;

/// How many further iterations touch exactly the lines that this one does.
std::int64_t same_lines(const Stream& s, std::int64_t address, int line_shift) {
  if (s.stride == 0) return std::numeric_limits<std::int64_t>::max() - 1;
  const std::int64_t most = (std::int64_t{1} << line_shift) - 1;
  const std::int64_t first = address & most, last = (address + s.bytes - 1) & most;
  const std::int64_t room = s.stride > 0 ? most - std::max(first, last) : std::min(first, last);
  const std::int64_t step = s.stride > 0 ? s.stride : -s.stride;
  if (step > room) return 0;
  return static_cast<std::uint32_t>(room) / static_cast<std::uint32_t>(step);  // both below a line
}

/// Lines that a span of bytes overlaps.
std::int64_t lines_of(std::int64_t address, std::int64_t bytes, int line_shift) {
  return ((address + bytes - 1) >> line_shift) - (address >> line_shift) + 1;
}

/// Touches of lines by `count` elements in a row, each touching the lines it lies in.
std::int64_t touches_of(std::int64_t address, std::int64_t count, std::int64_t element,
                        int line_shift) {
  const std::int64_t line = std::int64_t{1} << line_shift, end = address + count * element;
  const bool divides = (element & (element - 1)) == 0 && element <= line;
  if (divides && (address & (element - 1)) == 0) return count;
  std::int64_t touches = count;
  for (std::int64_t edge = ((address >> line_shift) + 1) << line_shift; edge < end; edge += line)
    if ((edge - address) % element != 0) ++touches;
  return touches;
}

}  // namespace

CacheGeometry geometry_of(const Level& level) {
  return {.name = level.name,
          .capacity = level.capacity,
          .ways = level.ways,
          .line = level.line,
          .sector = level.sector == level.line ? Bytes(0) : level.sector,
          .policy = level.policy,
          .behaviour = level.behaviour,
          .shared = level.private_to == Unit::machine};
}

CacheHierarchy::CacheHierarchy(std::vector<CacheGeometry> inner_to_outer,
                               const CacheOptions& options)
    : geometry_(std::move(inner_to_outer)), options_(options) {
  TW_CHECK(!geometry_.empty(), "a hierarchy has at least one level");
  if (options.tensors < 1 || options.tensors > kMaxTensors)
    refuse("tensors", std::to_string(options.tensors), "cannot be told apart in a cache",
           "1 to " + std::to_string(kMaxTensors));
  if (options.cores < 1 || options.cores > kMaxCores)
    refuse("cores", std::to_string(options.cores), "is not a number of cores",
           "1 to " + std::to_string(kMaxCores));
  check_together(geometry_);
  line_shift_ = shift_of(geometry_.front().line);
  engine_ = cache::is_plain(geometry_, options) ? cache::plain_engine(geometry_, options)
                                                : cache::general_engine(geometry_, options);
  if (options.attribute) {
    if (options.cores != 1)
      refuse("cores", std::to_string(options.cores), "are too many to say whose fault misses are",
             "1 with attribute");
    std::vector<cache::Attribution::LevelSize> sizes;
    for (const CacheGeometry& g : geometry_) sizes.push_back({g.capacity.value / g.line.value});
    attribution_ = std::make_unique<cache::Attribution>(sizes, options.tensors);
    engine_->observe(attribution_.get());
  }
  renew_quick();
}

CacheHierarchy::~CacheHierarchy() = default;
CacheHierarchy::CacheHierarchy(CacheHierarchy&&) noexcept = default;
CacheHierarchy& CacheHierarchy::operator=(CacheHierarchy&&) noexcept = default;

void CacheHierarchy::renew_quick() {
  quick_ = engine_->quick();
  if (quick_.fronts == nullptr) quick_.fronts = &nowhere;
}

/// An access that is not to the front of its set.
void CacheHierarchy::touch(std::int64_t address, std::int64_t bytes, bool write, int tensor) {
  const auto a = static_cast<std::uint64_t>(address);
  if (quick_.words != nullptr && static_cast<std::uint64_t>(bytes) - 1 <= (~a & quick_.in_line)) {
    const std::uint64_t set = ((a >> quick_.row_shift) & quick_.rows) / sizeof(cache::Front);
    std::uint32_t* const row = quick_.words + (set << quick_.row_words);
    const std::uint64_t word = ((a >> quick_.word_shift) + 1) << std::bit_width(quick_.meta);
    if ((row[1] ^ word) <= quick_.meta) {  // two lines that take turns
      const auto now =
          static_cast<std::uint32_t>(word | static_cast<std::uint32_t>(tensor) << 1 | 1);
      const std::uint32_t there = row[1];
      row[1] = row[0];
      row[0] = write ? now : there;
      quick_.fronts[set] = {a & ~std::uint64_t{quick_.in_line}, row[0] & quick_.meta};
      ++quick_.tally[tensor].hits;
      return;
    }
  }
  if (!walk(address, bytes, write, tensor, 1, 0)) lines(address, bytes, write, tensor, 1);
}

void CacheHierarchy::long_range(std::int64_t address, std::int64_t bytes, bool write, int tensor,
                                std::size_t entry) {
  if (bytes <= 0) return;
  if (entry == 0) return lines(address, bytes, write, tensor, 1);
  if (engine_->range(static_cast<std::uint64_t>(address),
                     static_cast<std::uint64_t>(address + bytes - 1), write, tensor, entry))
    renew_quick();
}

/// A range of the innermost level, each line touched `times` before the next one or, where lines
/// settle, `touches` of them in all.
void CacheHierarchy::lines(std::int64_t address, std::int64_t bytes, bool write, int tensor,
                           std::int64_t times, std::int64_t touches) {
  const auto first = static_cast<std::uint64_t>(address);
  const std::uint64_t last = first + static_cast<std::uint64_t>(bytes) - 1;
  const std::uint64_t line = first >> line_shift_;
  const std::size_t n = (last >> line_shift_) - line + 1;
  if (touches == 0) touches = static_cast<std::int64_t>(n) * times;
  if (n > cache::Quick::kMost || line + n > quick_.limit) {
    if (engine_->range(first, last, write, tensor, 0)) renew_quick();
    const std::int64_t more = touches - static_cast<std::int64_t>(n);
    if (more != 0) engine_->more_hits(tensor, more, 0);
  } else if (quick_.walk != nullptr) {
    quick_.walk(*quick_.through, cache::entry_of(line, tensor, write), n, touches);
  } else {
    run(cache::entry_of(line, tensor, write), n, times, touches);
  }
}

void CacheHierarchy::run(std::uint64_t first, std::size_t n, std::int64_t times,
                         std::int64_t touches) {
  cache::Miss misses[cache::Quick::kMost];
  const std::size_t missed = quick_.run(quick_.sets, first, n, misses, times);
  const int tensor = cache::tensor_of(first);
  cache::Tally& tally = quick_.tally[tensor];
  tally.hits += touches - static_cast<std::int64_t>(missed);
  if (missed == 0) return;
  tally.misses += static_cast<std::int64_t>(missed);
  engine_->missed(tensor, {misses, missed});
}

void CacheHierarchy::long_update(std::int64_t address, std::int64_t bytes, int tensor,
                                 std::size_t entry) {
  if (bytes <= 0) return;
  const int shift = entry == 0 ? line_shift_ : shift_of(geometry_[entry].line);
  if (entry == 0 && quick_.settles) return lines(address, bytes, true, tensor, 2);
  if (engine_->always_settled(entry)) {
    // A line that was just read is the last one touched: its write is one more hit and makes it
    // dirty, which a write in place of the read would have done as well.
    range(address, bytes, true, tensor, entry);
    engine_->more_hits(tensor, lines_of(address, bytes, shift), entry);
    return;
  }
  const std::int64_t end = address + bytes;
  for (std::int64_t a = address; a < end;) {
    const std::int64_t next = std::min(((a >> shift) + 1) << shift, end);
    range(a, next - a, false, tensor, entry);
    range(a, next - a, true, tensor, entry);
    a = next;
  }
}

void CacheHierarchy::all_elements(std::int64_t address, std::int64_t count, std::int64_t element,
                                  bool write, int tensor) {
  if (count <= 0 || element <= 0) return;
  if (!quick_.settles && !engine_->always_settled(0))
    return line_by_line(address, count, element, write, tensor, 1);
  const std::int64_t touches = touches_of(address, count, element, line_shift_);
  lines(address, count * element, write, tensor, 1, touches);
}

void CacheHierarchy::update_all_elements(std::int64_t address, std::int64_t count,
                                         std::int64_t element, int tensor) {
  if (count <= 0 || element <= 0) return;
  const bool settles = quick_.settles || engine_->always_settled(0);
  const bool apart = touches_of(address, count, element, line_shift_) == count;
  if (!settles && apart && quick_.run != nullptr)
    return line_by_line(address, count, element, true, tensor, 2);
  if (!settles) {
    const std::array<Stream, 2> both{
        Stream{.address = address, .stride = element, .bytes = element, .tensor = tensor},
        Stream{.address = address,
               .stride = element,
               .bytes = element,
               .write = true,
               .tensor = tensor}};
    return streams(both, count);
  }
  const std::int64_t bytes = count * element;
  if (!apart) {  // such an element is read in two lines before either is written
    for (std::int64_t a = address; a < address + bytes; a += element) {
      access(a, element, false, tensor);
      access(a, element, true, tensor);
    }
    return;
  }
  lines(address, bytes, true, tensor, 1, 2 * count);
}

/// elements() of policies with which a line is not settled once it is touched; with `times` 2, a
/// read and a write each.
void CacheHierarchy::line_by_line(std::int64_t address, std::int64_t count, std::int64_t element,
                                  bool write, int tensor, std::int64_t times) {
  const std::int64_t line = std::int64_t{1} << line_shift_;
  const bool divides = (element & (element - 1)) == 0 && element <= line;
  if (times == 1 && (quick_.run == nullptr || !divides || (address & (element - 1)) != 0))
    return each_element(address, count, element, write, tensor);
  while (count > 0) {
    // Up to a line's end, then whole lines, then what is left. Elements do not straddle lines.
    const std::int64_t rest = (line - (address & (line - 1))) / element;
    const std::int64_t each = std::min(rest, count);
    std::int64_t whole = 1;
    if (rest * element == line && count >= rest)
      whole = std::min<std::int64_t>(count / rest, cache::Quick::kMost);
    const std::int64_t touches = each * times;
    lines(address, whole * each * element, write, tensor, touches);
    address += whole * each * element;
    count -= whole * each;
  }
}

/// Of policies with which a line is not settled once it is touched.
void CacheHierarchy::each_element(std::int64_t address, std::int64_t count, std::int64_t element,
                                  bool write, int tensor) {
  const Stream one{
      .address = address, .stride = element, .bytes = element, .write = write, .tensor = tensor};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = address + i * element;
    access(at, element, write, tensor);
    const std::int64_t more = std::min(count - 1 - i, same_lines(one, at, line_shift_));
    if (more == 0 || lines_of(at, element, line_shift_) != 1) continue;
    if (!engine_->settled(static_cast<std::uint64_t>(at), write, tensor)) continue;
    more_hits(tensor, more);
    i += more;
  }
}

void CacheHierarchy::more_hits(int tensor, std::int64_t n) {
  if (quick_.tally != nullptr)
    quick_.tally[tensor].hits += n;
  else
    engine_->more_hits(tensor, n, 0);
}

void CacheHierarchy::tile(std::int64_t address, std::int64_t rows, std::int64_t pitch,
                          std::int64_t count, std::int64_t element, bool write, int tensor) {
  for (std::int64_t r = 0; r < rows; ++r)
    elements(address + r * pitch, count, element, write, tensor);
}

void CacheHierarchy::streams(std::span<const Stream> streams, std::int64_t count) {
  const bool repeats = engine_->repeats();
  for (std::int64_t i = 0; i < count; ++i) {
    bool hit = true;
    for (const Stream& s : streams) {
      const std::int64_t at = s.address + i * s.stride;
      if (s.bytes <= 0 || quick(at, s.bytes, s.write, s.tensor)) continue;
      const std::int64_t before = engine_->innermost_misses();
      range(at, s.bytes, s.write, s.tensor);
      hit = hit && engine_->innermost_misses() == before;
    }
    if (!hit || !repeats) continue;
    // All hit: so they will, and leave everything as it is, for as long as they stay on these
    // lines.
    std::int64_t more = count - 1 - i;
    for (const Stream& s : streams)
      more = std::min(more, same_lines(s, s.address + i * s.stride, line_shift_));
    if (more == 0) continue;
    for (const Stream& s : streams)
      more_hits(s.tensor, more * lines_of(s.address + i * s.stride, s.bytes, line_shift_));
    i += more;
  }
}

void CacheHierarchy::store_around(std::int64_t address, std::int64_t bytes, int tensor) {
  if (bytes <= 0) return;
  engine_->store_around(static_cast<std::uint64_t>(address),
                        static_cast<std::uint64_t>(address + bytes - 1), tensor);
}

void CacheHierarchy::on_core(int core) {
  TW_CHECK(core >= 0 && core < options_.cores, "a core that is not there");
  engine_->on_core(core);
}

const cache::Engine& CacheHierarchy::settled() const {
  engine_->settle();
  return *engine_;
}

std::vector<CacheCount> CacheHierarchy::counts(std::size_t level) const {
  std::vector<CacheCount> counts;
  for (const cache::Tally& t : settled().tallies(level))
    counts.push_back({.hits = t.hits,
                      .misses = t.misses,
                      .read = Bytes(t.read_bytes),
                      .written = Bytes(t.written_bytes),
                      .handed = Bytes(t.handed_bytes),
                      .prefetches = t.prefetches,
                      .useful_prefetches = t.useful_prefetches,
                      .invalidations = t.invalidations});
  const auto dirty = settled().resident_dirty(level);
  for (std::size_t t = 0; t < counts.size(); ++t) counts[t].resident_dirty = Bytes(dirty[t]);
  return counts;
}

CacheCount& CacheCount::operator+=(const CacheCount& more) {
  hits += more.hits;
  misses += more.misses;
  read += more.read;
  written += more.written;
  resident_dirty += more.resident_dirty;
  handed += more.handed;
  prefetches += more.prefetches;
  useful_prefetches += more.useful_prefetches;
  invalidations += more.invalidations;
  return *this;
}

CacheCount CacheHierarchy::total(std::size_t level) const {
  CacheCount sum;
  for (const CacheCount& c : counts(level)) sum += c;
  return sum;
}

std::vector<std::vector<CacheLine>> CacheHierarchy::contents(std::size_t level, int core) const {
  return settled().contents(level, core);
}

std::vector<std::int64_t> CacheHierarchy::held(std::size_t level) const {
  return settled().held(level);
}

bool CacheHierarchy::has_image() const { return engine_->has_image(); }
void CacheHierarchy::image(cache::Image& out) const { settled().image(out); }
void CacheHierarchy::assign(const cache::Image& image) {
  engine_->settle();
  engine_->assign(image);
  renew_quick();
}

const LevelBlame& CacheHierarchy::blame(std::size_t level) const {
  TW_CHECK(attribution_ != nullptr, "blame without CacheOptions::attribute");
  return attribution_->level(level);
}

DramCount CacheHierarchy::dram() const { return settled().dram(); }

}  // namespace tilewright
