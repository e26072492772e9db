#include "simulator/gpu/dispatch.h"

#include <algorithm>

namespace tilewright::gpu {

namespace {

/// Uniform in [0, 1), by block: the same whoever asks, in whatever order.
double uniform(std::uint64_t seed, std::int64_t block) {
  std::uint64_t x = seed + 0x9E3779B97F4A7C15ULL * (static_cast<std::uint64_t>(block) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

Places::Places(const BlockList& blocks, const Dispatch& how, L2& l2)
    : blocks_(blocks), how_(how), l2_(l2) {
  const std::int64_t n = how.order == BlockOrder::serial ? 1 : how.resident;
  places_.resize(static_cast<std::size_t>(std::max<std::int64_t>(std::min(n, blocks.size()), 1)));
  double seconds = 0;
  std::size_t pieces = 0;
  for (const Shape& s : blocks.shapes()) {
    pieces += s.pieces.size();
    for (const Piece& p : s.pieces) seconds += p.seconds;
  }
  tick_ = seconds <= 0 ? 1 : seconds / static_cast<double>(pieces);
}

double Places::pace(std::int64_t block) const {
  return 1 + how_.jitter * (2 * uniform(how_.seed, block) - 1);
}

/// The first blocks are dealt to the SMs in turn, and so are the places; SMs lie on both sides in
/// turn (assumed).
int Places::side(std::size_t place) const {
  return how_.partitions == 1 ? 0
                              : static_cast<int>(static_cast<std::int64_t>(place) % how_.sms % 2);
}

/// The next block with anything to do.
bool Places::take(Place& p, std::int64_t last) {
  p.block = -1;
  while (next_ < last && blocks_.shape(next_).pieces.empty()) ++next_;
  if (next_ >= last) return false;
  p.block = next_++;
  p.piece = 0;
  p.time = std::max(p.time, now_ - tick_);  // a place that has been free has not saved up
  p.pace = pace(p.block);
  return true;
}

void Places::step(Place& p, int side) {
  const Shape& shape = blocks_.shape(p.block);
  const Piece& piece = shape.pieces[p.piece++];
  const auto s = static_cast<std::size_t>(piece.stream);
  const Stream& stream = shape.streams[s];
  l2_.rows(stream.how, blocks_.at(p.block)[s] + piece.offset, piece.bytes, piece.pitch, piece.rows,
           stream.tensor.value, side);
  p.time += piece.seconds * p.pace;
  if (p.piece < shape.pieces.size()) return;
  p.block = -1;
  --running_;
}

void Places::tick(std::int64_t last) {
  now_ += tick_;
  const bool timed = how_.order == BlockOrder::timed;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& p = places_[i];
    const int s = side(i);
    if (!timed) {
      if (p.block >= 0) step(p, s);
      continue;
    }
    while (p.time < now_) {
      if (p.block < 0) {
        if (!take(p, last)) break;
        ++running_;
      }
      step(p, s);
    }
  }
}

void Places::run(std::int64_t last, bool drain) {
  const bool timed = how_.order == BlockOrder::timed;
  for (;;) {
    if (!timed && running_ == 0)  // the next wave, or block
      for (Place& p : places_) running_ += take(p, last) ? 1 : 0;
    if (running_ == 0 && next_ >= last) return;
    if (timed && !drain && next_ >= last) return;
    tick(last);
  }
}

}  // namespace tilewright::gpu
