// What is known of each byte: whether it was written, and which accesses of it nothing has ordered
// yet.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "simulator/npu/instruction.h"

namespace tilewright::npu {

/// Who touches.
struct Actor {
  std::int64_t block = 0;
  Pipe pipe = Pipe::scalar;
  int statement = 0;
  Clock now = 0;            ///< of its pipe
  Seen seen;                ///< by pipe: what it comes after in its block
  std::uint32_t phase = 0;  ///< grid barriers passed
};

/// What a touch collides with.
struct Conflict {
  enum class Kind : std::uint8_t {
    unwritten,
    read_after_write,
    write_after_read,
    write_after_write
  };
  Kind kind = Kind::unwritten;
  std::int64_t byte = 0;  ///< of the memory or tensor: the first at fault, or its granule
  int other_statement = 0;
  Pipe other_pipe = Pipe::scalar;
  std::int64_t other_block = -1;  ///< -1: several
};

/// Of one of a core's memories. A granule is 32 bytes, or a fractal of L0A and L0B.
class LocalShadow {
 public:
  LocalShadow(Memory memory, std::int64_t capacity);
  /// Forgets everything: a new block.
  void reset() { ++generation_; }
  /// The first conflict of the range, which is touched all the same.
  std::optional<Conflict> touch(std::int64_t address, std::int64_t bytes, bool write,
                                const Actor& actor);

 private:
  /// Statements with the pipe that executes them.
  struct Access {
    Clock at = 0;
    std::uint32_t who = 0;
  };
  /// One reader a slot: the pipes that read one memory have slots of their own.
  static constexpr std::size_t kReaders = 3;
  struct Granule {
    std::uint32_t generation;
    std::uint32_t written;  ///< bytes, or parts, one bit each
    Access writer;
    Access readers[kReaders];
  };
  struct Free {
    void operator()(Granule* p) const { std::free(p); }
  };

  std::optional<Conflict> touch(Granule& g, std::uint32_t mask, bool write, const Actor& actor,
                                std::int64_t address) const;

  int shift_;  ///< log2 of a granule's bytes
  std::uint32_t generation_ = 1;
  /// From calloc: pages that no one touches cost nothing.
  std::unique_ptr<Granule[], Free> granules_;
};

/// Of one tensor in global memory, by granules of 32 bytes.
class GlobalShadow {
 public:
  GlobalShadow(std::int64_t bytes, bool written);
  /// As LocalShadow's; `add`: an atomic addition, which does not collide with others.
  std::optional<Conflict> touch(std::int64_t offset, std::int64_t bytes, bool write, bool add,
                                const Actor& actor);
  /// The first byte that nothing has written, or -1; and how many there are.
  std::int64_t first_unwritten() const;
  std::int64_t unwritten() const;

 private:
  struct Access {
    std::int64_t block = -1;
    std::uint32_t phase = 0, mask = 0, who = 0;
    Clock at = 0;
    bool add = false, several = false;
  };
  /// The last accesses of a granule's bytes: one most often, more where parts of it are accessed
  /// apart.
  struct Last {
    Access one;
    std::unique_ptr<std::vector<Access>> more;
  };
  struct Granule {
    std::uint32_t written = 0;
    Last writer, reader;
  };
  static bool collides(const Access& before, std::uint32_t mask, const Actor& actor);
  /// The first access that a touch of these bytes collides with; null: none. `add`: but for adds.
  static const Access* collision(const Last& last, std::uint32_t mask, bool add,
                                 const Actor& actor);
  static void note(Last& last, std::uint32_t mask, bool write, bool add, const Actor& actor);
  static void note_part(Last& last, std::uint32_t mask, bool write, bool add, const Actor& actor);

  std::int64_t bytes_;
  std::vector<Granule> granules_;
};

}  // namespace tilewright::npu
