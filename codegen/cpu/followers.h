// Operators that take another's values from its registers, as they are made, instead of passing
// over its tile afterwards: what stands element-wise behind a product (its epilogue), sums and
// extremes of rows, and what stands behind those. What else these read is made beside, where it is
// element-wise and has the same points.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/points.h"

namespace tilewright::cpu {

/// One of them: an element-wise operator, or one that joins the elements of each row.
class KernelEmitter::Follower : PointText {
 public:
  /// `names`: by loop, as the producer has them; `values`: by input, those in registers.
  Follower(KernelEmitter& e, NodeId id, const SymRanges& ranges, int number, int vector,
           std::vector<std::string> names, std::vector<std::string> values);
  /// Declares its arrays; what rows are joined into starts from nothing where the reduction does.
  void begin();
  /// `chains`: lanes that are joined at the end of the row, which need not wait for one another.
  void begin_row(int chains);
  /// Its value at a point, or at a vector of them, from those of `values`.
  void point(Width width, int chain);
  void fetch();
  void end_row(int chains);
  /// Lanes are joined where the reduction ends.
  void end();
  /// What its result is called at a point.
  const std::string& value() const { return value_; }
  bool reduces() const { return reduces_; }
  bool is_light() const { return tilewright::is_light(output(0).value); }
  /// Everybody who reads its result follows, too.
  void only_in_registers() { stores_ = false; }
  BufferId result_buffer() const { return n_.writes[0].buffer; }
  std::string shifted_row() const {
    return stores_ && !reduces_ ? PointText::shifted_row(0) : std::string();
  }

 private:
  std::string lanes_of_row() const;
  std::string in_chain(int chain) const {
    return value_ + (chain > 0 ? "_" + std::to_string(chain) : "");
  }
  void over_rows(const std::string& condition, const std::function<std::string()>& statement);

  std::vector<std::string> values_;  ///< by input: in a register, under this name; empty: loaded
  std::string value_;
  bool reduces_;
  bool stores_ = true;
};

/// All that follow one compute, in order.
class KernelEmitter::Followers {
 public:
  /// `names`: the producer's loops where its values are made; vectors of them run along `columns`.
  /// Those that wait for the producer and have its very points are taken, and not emitted again
  /// where they stand.
  /// `outer`: a loop (-1: none) whose iterations the columns' index counts through, `width` each:
  /// what follows must lie so.
  Followers(KernelEmitter& e, NodeId producer, int columns, const SymRanges& ranges,
            const std::vector<std::string>& names, int outer = -1, std::int64_t width = 0);
  bool empty() const { return all_.empty(); }
  /// Whether the producer's tile is read by others too.
  bool stores() const { return stores_; }
  /// The producer's value at a point goes by this name.
  static constexpr const char* kValue = "v";
  /// PointText::shifted_row of the first that has one.
  std::string shifted_row() const;
  void begin();
  /// Of a row of so many points, of a producer that is `light`, into how many chains sums along it
  /// are worth to be cut: an addition waits four cycles for the one before it.
  int chains(std::int64_t points, bool light) const;
  void begin_row(int chains = 1);
  void point(Width width, int chain = 0);
  void fetch();
  void end_row(int chains = 1);
  void end();

 private:
  struct Known;
  bool take(const Waiting& next, std::vector<Known>& known);
  bool complete(NodeId producer, const SymRanges& ranges) const;
  bool leaves_registers(BufferId id, const std::set<NodeId>& taken) const;
  bool fits_vectors(const ScheduleNode& n, int vector,
                    const std::vector<std::string>& values) const;

  KernelEmitter& e_;
  std::vector<std::unique_ptr<Follower>> all_;
  std::vector<bool> flat_;  ///< by follower: its result lies row after row
  std::vector<TensorId> written_;
  bool is_flat(const Operator& op, const Access& a, BufferId b, int column,
               const std::vector<std::string>& names) const;
  bool reads_flat(const ScheduleNode& n, int column, const std::vector<std::string>& names,
                  const std::vector<std::string>& values) const;
  bool stores_flat(const ScheduleNode& n, int column, const std::vector<std::string>& names) const;
  std::string column_;  ///< the index that vectors run along
  std::string outer_;   ///< the index of the loop that it counts through; empty: none
  std::int64_t width_ = 0;
  bool stores_ = true;
};

}  // namespace tilewright::cpu
