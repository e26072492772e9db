#include "simulator/gpu/block_list.h"

#include <algorithm>
#include <utility>

namespace tilewright::gpu {

int Draft::find(const Stream& stream, std::int64_t address) {
  auto& all = shape.streams;
  const auto found = std::find(all.begin(), all.end(), stream);
  if (found != all.end()) return static_cast<int>(found - all.begin());
  all.push_back(stream);
  at.push_back(address);
  return static_cast<int>(all.size()) - 1;
}

void Draft::touch(const Stream& stream, std::int64_t address, std::int64_t bytes, double rate) {
  if (computed) close_step();
  const int s = find(stream, address);
  const std::int64_t offset = address - at[static_cast<std::size_t>(s)];
  for (std::int64_t done = 0; done < bytes; done += Piece::kChunk)
    put(s, offset + done, std::min(bytes - done, Piece::kChunk), rate);
}

void Draft::put(int stream, std::int64_t offset, std::int64_t bytes, double rate) {
  const double seconds = static_cast<double>(bytes) / rate;
  if (shape.pieces.size() > step) {
    Piece& last = shape.pieces.back();
    const std::int64_t pitch = offset - (last.offset + (last.rows - 1) * last.pitch);
    if (last.stream == stream && last.bytes == bytes && pitch > 0 &&
        (last.rows == 1 || pitch == last.pitch) && (last.rows + 1) * bytes <= Piece::kChunk) {
      last.pitch = pitch;
      ++last.rows;
      last.seconds += seconds;
      return;
    }
  }
  shape.pieces.push_back({.offset = offset, .bytes = bytes, .stream = stream, .seconds = seconds});
}

void Draft::close_step() {
  double moving = 0;
  for (std::size_t p = step; p < shape.pieces.size(); ++p) moving += shape.pieces[p].seconds;
  if (moving > 0 && step_seconds > moving) {
    for (std::size_t p = step; p < shape.pieces.size(); ++p)
      shape.pieces[p].seconds *= step_seconds / moving;
  } else if (moving == 0 && !shape.pieces.empty()) {
    shape.pieces.back().seconds += step_seconds;  // data are held: computes follow the last piece
  }
  step = shape.pieces.size();
  step_seconds = 0;
  computed = false;
}

void BlockList::add(Draft&& draft) {
  draft.close_step();
  std::size_t s = 0;
  while (s < shapes_.size() && !(shapes_[s] == draft.shape)) ++s;
  if (s == shapes_.size()) shapes_.push_back(std::move(draft.shape));
  add(static_cast<int>(s), draft.at);
}

void BlockList::add(int shape, const std::vector<std::int64_t>& at) {
  shape_of_.push_back(shape);
  first_.push_back(at_.size());
  at_.insert(at_.end(), at.begin(), at.end());
}

std::vector<std::int64_t> BlockList::counts() const {
  std::vector<std::int64_t> all(shapes_.size(), 0);
  for (const int s : shape_of_) ++all[static_cast<std::size_t>(s)];
  return all;
}

void BlockList::clear_blocks() {
  shape_of_.clear();
  first_.clear();
  at_.clear();
}

}  // namespace tilewright::gpu
