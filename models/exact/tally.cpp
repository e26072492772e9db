#include "models/exact/tally.h"

#include <algorithm>

namespace tilewright::exact_model {

Tally::Tally(const Schedule& s) : machine_(*s.machine), tensors_(s.workload->tensors().size()) {
  for (std::size_t i = 0; i < machine_.levels.size(); ++i)
    for (const std::string& name : machine_.levels[i].filled_by)
      if (const auto from = machine_.find(name))
        boundaries_.push_back(std::minmax(*from, LevelId(i)));
  std::sort(boundaries_.begin(), boundaries_.end());
  boundaries_.erase(std::unique(boundaries_.begin(), boundaries_.end()), boundaries_.end());
  ops_ = 2 * boundaries_.size() * tensors_;
  values_.assign(ops_ + s.workload->operators().size(), 0);
}

std::vector<std::size_t> Tally::crossed(LevelId from, LevelId to) const {
  std::vector<std::size_t> indices;
  for (const auto& [a, b] : machine_.path(from, to)) {
    const std::pair<LevelId, LevelId> step = std::minmax(a, b);
    const auto at = std::lower_bound(boundaries_.begin(), boundaries_.end(), step);
    TW_CHECK(at != boundaries_.end() && *at == step, "a path takes a step that no level lists");
    indices.push_back(static_cast<std::size_t>(at - boundaries_.begin()));
  }
  return indices;
}

void Tally::undo(Mark to) {
  for (; added_.size() > to; added_.pop_back())
    values_[added_.back().first] -= added_.back().second;
}

void Tally::repeat(Mark from, Mark to, std::int64_t times) {
  for (Mark i = from; i < to; ++i) {
    const auto [slot, value] = added_[i];
    std::int64_t more = 0, sum = 0;
    if (__builtin_mul_overflow(value, times, &more) ||
        __builtin_add_overflow(values_[slot], more, &sum))
      throw InputError({.where = "plan",
                        .field = slot < ops_ ? "bytes moved" : "operations",
                        .problem = "do not fit 64 bits",
                        .accepted = "a smaller workload, or a plan that repeats less"});
    add(slot, more);
  }
}

void Tally::join(Mark from) {
  const auto begin = added_.begin() + static_cast<std::ptrdiff_t>(from);
  std::sort(begin, added_.end());
  auto end = begin;
  for (auto i = begin; i != added_.end(); ++i) {
    if (end != begin && (end - 1)->first == i->first)
      (end - 1)->second += i->second;
    else
      *end++ = *i;
  }
  added_.erase(end, added_.end());
}

}  // namespace tilewright::exact_model
