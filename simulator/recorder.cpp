#include "simulator/recorder.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/units.h"

namespace tilewright {
namespace {

std::int64_t size_of(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// How many iterations from i on, this one included, stay on the pages that this one touches.
std::int64_t on_these_pages(std::span<const Stream> streams, std::int64_t i, std::int64_t page) {
  std::int64_t least = INT64_MAX;
  for (const Stream& s : streams) {
    if (s.stride == 0) continue;
    const std::int64_t in_page = (s.address + i * s.stride) & (page - 1);
    const std::int64_t room = s.stride > 0 ? page - 1 - in_page : in_page;
    least = std::min(least, room / size_of(s.stride) + 1);
  }
  return least;
}

}  // namespace

Recorder::Recorder(CacheHierarchy& caches, const RecorderOptions& options)
    : caches_(&caches), addresses_only_(options.addresses_only) {
  if (options.walks) walks_.emplace(*options.walks);
  captured_.reserve(64);
}

Recorder::Recorder(TraceWriter& trace) : trace_(&trace) {}
Recorder::Recorder(StackDistances& distances) : distances_(&distances) {}

int Recorder::tensors() const {
  if (caches_ != nullptr) return caches_->tensors();
  return trace_ != nullptr ? trace_->tensors() : distances_->tensors();
}

void Recorder::elsewhere(std::int64_t address, std::int64_t bytes, bool write, int tensor) {
  if (trace_ != nullptr)
    trace_->access(address, bytes, write, tensor);
  else
    distances_->access(address, bytes, tensor);
}

/// Takes the next addresses for an array.
std::int64_t Recorder::place(std::initializer_list<std::int64_t> extents, std::int64_t element) {
  constexpr std::int64_t kPage = 4096, kEnd = std::int64_t{1} << 52;
  const std::int64_t base = ceil_div(next_, kPage) * kPage;
  std::optional<std::int64_t> bytes = element;
  std::string text;
  for (const std::int64_t n : extents) {
    text += (text.empty() ? "" : " x ") + std::to_string(n);
    bytes = n > 0 && bytes ? checked_mul(*bytes, n) : std::nullopt;
  }
  if (!bytes || *bytes > kEnd - base)
    throw InputError({.field = "traced array",
                      .value = text,
                      .problem = "cannot be laid out",
                      .accepted = "positive sizes, 2^52 bytes together"});
  next_ = base + *bytes;
  return base;
}

/// `captured_` holds iterations 0, 1 and count - 1: makes all of them.
void Recorder::replay(std::int64_t count) {
  const std::size_t n = captured_.size() / 3;
  TW_CHECK(captured_.size() == 3 * n, "an affine loop whose iterations differ in length");
  for (std::size_t s = 0; s < n; ++s) {
    Stream& first = captured_[s];
    const Stream &second = captured_[n + s], &last = captured_[2 * n + s];
    first.stride = second.address - first.address;
    TW_CHECK(last.address == first.address + (count - 1) * first.stride &&
                 first.bytes == second.bytes && first.write == second.write &&
                 first.tensor == second.tensor && first.bytes == last.bytes &&
                 first.write == last.write && first.tensor == last.tensor,
             "an affine loop whose accesses are not affine");
  }
  const std::span<Stream> streams(captured_.data(), n);
  accesses_ += count * static_cast<std::int64_t>(n);
  if (walks_)
    replay_translated(streams, count);
  else
    caches_->streams(streams, count);
}

/// One iteration. Returns whether the first buffer had all of its pages.
bool Recorder::iterate(std::span<const Stream> streams, std::int64_t i) {
  bool had_all = true;
  for (const Stream& s : streams) {
    const std::int64_t at = s.address + i * s.stride;
    had_all = walks_->touch(*caches_, at) && had_all;
    caches_->access(at, s.bytes, s.write, s.tensor);
  }
  return had_all;
}

/// As long as the first buffer has every page that an iteration touches, touching them again in the
/// same order leaves it as it is: what stays on those pages needs no translation.
void Recorder::replay_translated(std::span<Stream> streams, std::int64_t count) {
  const std::int64_t page = std::int64_t{1} << walks_->page_shift();
  const bool strides = std::any_of(streams.begin(), streams.end(),
                                   [&](const Stream& s) { return 2 * size_of(s.stride) >= page; });
  for (std::int64_t i = 0; i < count;) {
    if (strides) {
      iterate(streams, i++);
      continue;
    }
    const std::int64_t until = i + std::min(count - i, on_these_pages(streams, i, page));
    while (i < until && !iterate(streams, i++)) {
    }
    if (i == until) continue;
    for (Stream& s : streams) s.address += i * s.stride;
    caches_->streams(streams, until - i);
    for (Stream& s : streams) s.address -= i * s.stride;
    i = until;
  }
}

}  // namespace tilewright
