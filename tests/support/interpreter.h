// What a schedule computes, by the simplest means: every node of the access stream in order, on
// buffers that hold one tile each and nothing else. What is not held is NaN, so that a value that
// is read where the plan does not have it spoils the result. For one level under home and no
// !atomic.
#pragma once

#include <limits>
#include <map>
#include <vector>

#include "core/plan/stream.h"
#include "core/workload/reference/operators.h"

namespace tilewright::testing {

class Interpreter {
 public:
  Interpreter(const Schedule& s, TensorValues inputs) : s_(s), home_(std::move(inputs)) {
    home_.resize(s.workload->tensors().size());
    for (std::size_t t = 0; t < home_.size(); ++t)
      if (home_[t].empty()) home_[t] = nothing(TensorId(t));
    walk(s, [&](const AccessEvent& e) { take(e); });
  }
  /// Every tensor as it is at home at the end.
  const TensorValues& values() const { return home_; }

 private:
  struct Content {
    Box tile;
    bool valid = false, changed = false;
    std::vector<double> data = {};
  };

  std::vector<double> nothing(TensorId t) const {
    return std::vector<double>(static_cast<std::size_t>(s_.workload->tensor(t).elements().value),
                               std::numeric_limits<double>::quiet_NaN());
  }
  /// The elements of `box`.
  void copy(TensorId t, const Box& box, const std::vector<double>& from, std::vector<double>& to) {
    const std::vector<std::int64_t>& shape = s_.workload->tensor(t).shape;
    std::vector<std::int64_t> at;
    for (const Interval& i : box) at.push_back(i.lo);
    if (box.empty()) return;
    for (;;) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d) flat = flat * shape[d] + at[d];
      to[static_cast<std::size_t>(flat)] = from[static_cast<std::size_t>(flat)];
      int d = box.rank() - 1;
      for (; d >= 0; --d) {
        if (++at[static_cast<std::size_t>(d)] < box[d].hi) break;
        at[static_cast<std::size_t>(d)] = box[d].lo;
      }
      if (d < 0) return;
    }
  }

  Content& content(BufferId b, std::int64_t instance) { return held_[{b, instance}]; }
  const Buffer& buffer(BufferId b) const {
    return s_.kernels[static_cast<std::size_t>(kernel_)].buffer(b);
  }
  void write_home(BufferId b, Content& c) {
    if (!c.changed) return;
    copy(buffer(b).tensor, c.tile, c.data, home_[buffer(b).tensor.index()]);
    c.changed = false;
  }
  bool moves(BufferId b) const { return buffer(b).role == BufferRole::output || buffer(b).leaves; }

  void take(const AccessEvent& e) {
    switch (e.kind) {
      case AccessKind::kernel_begin:
        kernel_ = e.kernel;
        held_.clear();
        combined_.clear();
        return;
      case AccessKind::kernel_end:
        for (auto& [key, c] : held_)
          if (moves(key.first)) write_home(key.first, c);
        return;
      case AccessKind::load: {
        Content& c = content(e.buffer, e.instance);
        if (c.valid && c.tile == e.tile) return;
        c = {.tile = e.tile, .valid = true, .data = nothing(e.tensor)};
        return copy(e.tensor, e.tile, home_[e.tensor.index()], c.data);
      }
      case AccessKind::flush:
      case AccessKind::store:
        return write_home(e.buffer, content(e.buffer, e.instance));
      case AccessKind::compute:
        ranges_ = *e.ranges;
        now_.assign(s_.workload->tensors().size(), {});
        return;
      case AccessKind::read: {
        const Content& c = content(e.buffer, e.instance);
        now_[e.tensor.index()] = c.valid && c.tile == e.tile ? c.data : nothing(e.tensor);
        return;
      }
      case AccessKind::gather:
        now_[e.tensor.index()] = home_[e.tensor.index()];
        return;
      case AccessKind::drop:
        std::erase_if(held_, [&](const auto& held) {
          return held.first.first == e.buffer &&
                 (e.instance == kEveryInstance || held.first.second == e.instance);
        });
        return;
      case AccessKind::update:
        return update(e);
      default:
        return;
    }
  }

  void update(const AccessEvent& e) {
    Content& c = content(e.buffer, e.instance);
    if (!c.valid || !(c.tile == e.tile)) {
      if (moves(e.buffer)) write_home(e.buffer, c);
      c = {.tile = e.tile, .valid = true, .data = nothing(e.tensor)};
      if (!e.initialises && buffer(e.buffer).role == BufferRole::output)
        copy(e.tensor, e.tile, home_[e.tensor.index()], c.data);
    }
    now_[e.tensor.index()] = c.data;
    outputs_.push_back(e);
    const Operator& op = s_.workload->op(e.op);
    if (outputs_.size() < op.outputs.size()) return;
    run(op);
    outputs_.clear();
  }

  void run(const Operator& op) {
    const AccessEvent& e = outputs_.front();
    const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(kernel_)];
    for (const Access& a : op.inputs)
      if (now_[a.tensor.index()].empty()) now_[a.tensor.index()] = nothing(a.tensor);
    const auto span = ranges_of(s_, k, ranges_, e.op);
    const std::vector<Interval> ranges(span.begin(), span.end());
    // A block of a reduction is combined in once, however often a loop that the operator does not
    // have goes over it.
    std::vector<Interval> reduced;
    for (LoopId l : s_.workload->reduction_loops(e.op))
      reduced.push_back(ranges[static_cast<std::size_t>(s_.workload->local_index(e.op, l))]);
    std::vector<Interval> box(e.box.begin(), e.box.end());
    auto& last = combined_[{e.buffer, e.instance, key(box)}];
    const bool again = !e.initialises && last == key(reduced);
    last = key(reduced);
    if (again) return;
    reference::run_operator(*s_.workload, e.op, ranges, e.initialises, now_, 1);
    for (const AccessEvent& out : outputs_) {
      Content& c = content(out.buffer, out.instance);
      c.data = now_[out.tensor.index()];
      c.changed = true;
    }
  }
  static std::vector<std::int64_t> key(const std::vector<Interval>& of) {
    std::vector<std::int64_t> values{1};
    for (const Interval& i : of) values.push_back(i.lo), values.push_back(i.hi);
    return values;
  }

  const Schedule& s_;
  TensorValues home_, now_;
  int kernel_ = 0;
  Ranges ranges_;
  std::vector<AccessEvent> outputs_;  // of the compute that is running
  std::map<std::pair<BufferId, std::int64_t>, Content> held_;
  std::map<std::tuple<BufferId, std::int64_t, std::vector<std::int64_t>>, std::vector<std::int64_t>>
      combined_;
};

}  // namespace tilewright::testing
