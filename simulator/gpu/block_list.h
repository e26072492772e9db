// What each block of a kernel asks of L2, in its order: recorded from the access stream, kept once
// for all blocks that do the same at other addresses.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/plan/stream.h"
#include "simulator/gpu/l2.h"

namespace tilewright::gpu {

/// `rows` times `bytes`, `pitch` apart: at most kChunk bytes in all, or one row. Rows of a tile
/// that lie evenly are one piece; what the blocks of a moment ask for is interleaved piece by
/// piece.
struct Piece {
  std::int64_t offset = 0;  ///< from where its stream begins
  std::int64_t pitch = 0;
  std::int64_t bytes = 0;
  std::int64_t rows = 1;
  int stream = 0;
  double seconds = 0;  ///< until the block's next piece
  static constexpr std::int64_t kChunk = 4096;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Pieces that one node moves in one direction: between blocks they all move by the same distance.
struct Stream {
  NodeId node;
  BufferId buffer;
  TensorId tensor;
  L2::Touch how = L2::Touch::read;
  friend bool operator==(const Stream&, const Stream&) = default;
};

/// Bytes over boundaries that software moves data across.
struct Crossing {
  std::size_t boundary = 0;
  TensorId tensor;
  bool inward = true;
  friend auto operator<=>(const Crossing&, const Crossing&) = default;
};

/// All that a block does but where.
struct Shape {
  std::vector<Stream> streams;
  std::vector<Piece> pieces;
  std::map<Crossing, std::int64_t> bytes;
  std::vector<std::int64_t> operations;  ///< by operator; -1: never ran
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A block being recorded.
struct Draft {
  Shape shape;
  std::vector<std::int64_t> at;  ///< by stream: address of its first piece
  std::size_t step = 0;          ///< first piece of the step: those between two computes
  double step_seconds = 0;       ///< that the step's computes take
  bool computed = false;         ///< the step has had a compute: what moves next is another one

  /// The last piece grows where `address` goes on as its rows do.
  void touch(const Stream& stream, std::int64_t address, std::int64_t bytes, double rate);
  void compute(double seconds) {
    step_seconds += seconds;
    computed = true;
  }
  /// The step takes as long as its movement or its computes, whichever is longer.
  void close_step();

 private:
  int find(const Stream& stream, std::int64_t address);
  void put(int stream, std::int64_t offset, std::int64_t bytes, double rate);
};

/// Blocks in the order in which they are dispatched, each a shape and where its streams begin.
class BlockList {
 public:
  /// Cost: a comparison with each shape of as many pieces.
  void add(Draft&& draft);
  void add(int shape, const std::vector<std::int64_t>& at);
  std::int64_t size() const { return static_cast<std::int64_t>(shape_of_.size()); }
  int shape_index(std::int64_t block) const { return shape_of_[static_cast<std::size_t>(block)]; }
  const Shape& shape(std::int64_t block) const {
    return shapes_[static_cast<std::size_t>(shape_index(block))];
  }
  const std::int64_t* at(std::int64_t block) const {
    return at_.data() + first_[static_cast<std::size_t>(block)];
  }
  const std::vector<Shape>& shapes() const { return shapes_; }
  /// Blocks of each shape.
  std::vector<std::int64_t> counts() const;
  /// No block; the shapes stay.
  void clear_blocks();

 private:
  std::vector<Shape> shapes_;
  std::vector<int> shape_of_;       // by block
  std::vector<std::size_t> first_;  // by block, in at_
  std::vector<std::int64_t> at_;
};

}  // namespace tilewright::gpu
