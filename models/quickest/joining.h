// Parts of a workload while they are joined.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "models/quickest/partition.h"

namespace tilewright::quickest {

/// Other operators that read a tensor which this one reads, where few do: none is a product.
inline std::vector<OpId> readers_beside(const Workload& w, const IsProduct& product, OpId op) {
  constexpr std::size_t kFew = 8;
  std::vector<OpId> all;
  if (product(op)) return all;
  for (const Access& x : w.op(op).inputs)
    if (const auto& readers = w.consumers(x.tensor); readers.size() <= kFew)
      for (OpId other : readers)
        if (other != op && !product(other)) all.push_back(other);
  return all;
}

/// Parts as nodes of a graph whose edges are tensors; parts are joined, and joined ones are dead.
class Joining {
 public:
  Joining(const Workload& w, const IsProduct& product, std::vector<Part> parts)
      : w_(w), product_(product), parts_(std::move(parts)), alive_(parts_.size(), true) {
    part_of_.resize(w.operators().size());
    for (std::size_t p = 0; p < parts_.size(); ++p) enter(p);
    for (std::size_t p = 0; p < parts_.size(); ++p) find_neighbours(p);
    rank();
  }

  const Part& part(std::size_t p) const { return parts_[p]; }
  bool alive(std::size_t p) const { return alive_[p]; }
  std::size_t size() const { return parts_.size(); }

  const std::set<std::size_t>& after(std::size_t p) const { return after_[p]; }
  const std::set<std::size_t>& before(std::size_t p) const { return before_[p]; }

  /// Parts that read what this one reads, contractions aside.
  std::set<std::size_t> beside(std::size_t p) const {
    std::set<std::size_t> all;
    for (OpId op : parts_[p])
      for (OpId other : readers_beside(w_, product_, op))
        if (part_of_[other.index()] != p) all.insert(part_of_[other.index()]);
    return all;
  }

  /// Parts that come next in an order in which none waits for a later one.
  std::vector<std::size_t> next(std::size_t p, std::size_t count) const {
    std::vector<std::size_t> all;
    for (std::size_t i = rank_[p] + 1; i < order_.size() && all.size() < count; ++i)
      all.push_back(order_[i]);
    return all;
  }

  /// Whether a way leads from a to b through another part: as one, they would wait for it.
  bool around(std::size_t a, std::size_t b) const {
    std::vector<std::size_t> open;
    std::set<std::size_t> seen{a, b};
    const auto meet = [&](std::size_t from) {
      for (std::size_t next : after(from)) {
        if (next == b && from != a) return true;
        // What has no lower rank does not lead to b. Places of operators say nothing: a part of
        // late and of early ones leads back.
        if (rank_[next] < rank_[b] && seen.insert(next).second) open.push_back(next);
      }
      return false;
    };
    if (meet(a)) return true;
    while (!open.empty()) {
      const std::size_t p = open.back();
      open.pop_back();
      if (meet(p)) return true;
    }
    return false;
  }

  std::size_t join(std::size_t a, std::size_t b, Part both) {
    alive_[a] = alive_[b] = false;
    parts_.push_back(std::move(both));
    alive_.push_back(true);
    const std::size_t p = parts_.size() - 1;
    enter(p);
    find_neighbours(p);
    const auto renew = [&](std::set<std::size_t>& of) {
      of.erase(a), of.erase(b);
      of.insert(p);
    };
    for (std::size_t x : before_[p]) renew(after_[x]);
    for (std::size_t x : after_[p]) renew(before_[x]);
    rank();
    return p;
  }

  std::vector<Part> left() const {
    std::vector<Part> all;
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (alive_[p]) all.push_back(parts_[p]);
    return all;
  }

 private:
  void enter(std::size_t p) {
    for (OpId op : parts_[p]) part_of_[op.index()] = p;
  }

  void find_neighbours(std::size_t p) {
    after_.resize(parts_.size());
    before_.resize(parts_.size());
    for (OpId op : parts_[p]) {
      for (const Output& o : w_.op(op).outputs)
        for (OpId reader : w_.consumers(o.target.tensor))
          if (part_of_[reader.index()] != p) after_[p].insert(part_of_[reader.index()]);
      for (const Access& x : w_.op(op).inputs)
        if (const OpId maker = w_.producer(x.tensor); maker.valid() && part_of_[maker.index()] != p)
          before_[p].insert(part_of_[maker.index()]);
    }
  }

  /// Every part before those that wait for it.
  void rank() {
    std::vector<std::size_t> waits(parts_.size(), 0), ready;
    rank_.assign(parts_.size(), 0);
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (alive_[p]) {
        waits[p] = before(p).size();
        if (waits[p] == 0) ready.push_back(p);
      }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      rank_[ready[i]] = i;
      for (std::size_t next : after(ready[i]))
        if (--waits[next] == 0) ready.push_back(next);
    }
    order_ = std::move(ready);
  }

  const Workload& w_;
  const IsProduct& product_;
  std::vector<Part> parts_;
  std::vector<bool> alive_;
  std::vector<std::size_t> part_of_, rank_, order_;
  std::vector<std::set<std::size_t>> before_, after_;  ///< of those that are alive
};

}  // namespace tilewright::quickest
