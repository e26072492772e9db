#include "simulator/npu/instruction.h"

#include <algorithm>

#include "core/npu/assembly.h"

namespace tilewright::npu {
namespace {

std::int64_t blocks_of(std::int64_t lanes, DType type) { return lanes * size_of(type) / kBlock; }

}  // namespace

Code::Code(const Program& program, const Machine& machine) : core_(*machine.npu_core) {
  add_objects(program);
  slot("block");
  slot("blocks");
  statements_.push_back(nullptr);  // statements are numbered from 1
  template_of_.push_back(-1);
  add_body(program.body);
  ops_.push_back({.kind = Op::Kind::end});
  // Hidden slots come after the named ones, of which there may be more by now than when a loop
  // was met.
  for (Op& op : ops_) op.hidden += static_cast<int>(slot_names_.size());
}

void Code::add_objects(const Program& program) {
  std::int64_t address = 0;
  for (const Tensor& t : program.tensors) {
    objects_.push_back({.name = t.name,
                        .memory = Memory::gm,
                        .type = t.type,
                        .address = address,
                        .bytes = t.elements() * size_of(t.type),
                        .tensor = tensor(t.name),
                        .role = t.role});
    address += ceil_div(objects_.back().bytes, 512) * 512;
  }
  for (const Buffer& b : program.buffers) {
    objects_.push_back({.name = b.name,
                        .memory = b.memory,
                        .type = b.type,
                        .address = b.address,
                        .bytes = b.bytes(),
                        .tensor = tensor(b.tensor)});
  }
}

int Code::tensor(const std::string& name) {
  const auto it = std::find(tensors_.begin(), tensors_.end(), name);
  if (it != tensors_.end()) return static_cast<int>(it - tensors_.begin());
  tensors_.push_back(name);
  return static_cast<int>(tensors_.size()) - 1;
}

int Code::slot(const std::string& name) {
  const auto it = std::find(slot_names_.begin(), slot_names_.end(), name);
  if (it != slot_names_.end()) return static_cast<int>(it - slot_names_.begin());
  slot_names_.push_back(name);
  return static_cast<int>(slot_names_.size()) - 1;
}

int Code::object(const Place& p) const {
  const auto it = std::find_if(objects_.begin(), objects_.end(),
                               [&](const Object& o) { return o.name == p.object; });
  TW_CHECK(it != objects_.end(), p.object);
  return static_cast<int>(it - objects_.begin());
}

std::pair<int, int> Code::compile(const IntExpr& e) {
  const int from = static_cast<int>(nodes_.size());
  for (const IntExpr::Node& n : e.code()) {
    nodes_.push_back({n.op, n.op == IntOp::scalar ? slot(n.scalar) : n.literal});
  }
  return {from, static_cast<int>(nodes_.size())};
}

void Code::add_body(const std::vector<Statement>& body) {
  for (const Statement& s : body) {
    ++number_;
    statements_.push_back(&s);
    template_of_.push_back(-1);
    add(s);
  }
}

void Code::add(const Statement& s) {
  const auto here = [&] { return static_cast<int>(ops_.size()); };
  if (const auto* a = std::get_if<Assign>(&s.action)) {
    ops_.push_back({.kind = Op::Kind::assign,
                    .statement = number_,
                    .slot = slot(a->name),
                    .code = {compile(a->value)}});
  } else if (const auto* l = std::get_if<Loop>(&s.action)) {
    Op op{.kind = Op::Kind::loop,
          .statement = number_,
          .slot = slot(l->counter),
          .hidden = hidden_,
          .code = {compile(l->from), compile(l->to), compile(l->step)}};
    hidden_ += 2;
    const int at = here();
    ops_.push_back(op);
    add_body(l->body);
    op.kind = Op::Kind::loop_end;
    op.target = at + 1;
    ops_.push_back(op);
    ops_[static_cast<std::size_t>(at)].target = here();
  } else if (const auto* b = std::get_if<Branch>(&s.action)) {
    const int at = here();
    ops_.push_back(
        {.kind = Op::Kind::branch, .statement = number_, .code = {compile(b->condition)}});
    add_body(b->then);
    const int jump = here();
    ops_.push_back({.kind = Op::Kind::jump});
    ops_[static_cast<std::size_t>(at)].target = here();
    add_body(b->otherwise);
    ops_[static_cast<std::size_t>(jump)].target = here();
  } else {
    std::visit([&](const auto& action) { add_instruction(action); }, s.action);
  }
}

template <class Action>
void Code::add_instruction(const Action& action) {
  if constexpr (requires(Template t) { fill(t, action); }) {
    Template t;
    t.statement = number_;
    fill(t, action);
    template_of_.back() = static_cast<int>(templates_.size());
    ops_.push_back({.kind = Op::Kind::issue,
                    .statement = number_,
                    .instruction = static_cast<int>(templates_.size())});
    templates_.push_back(std::move(t));
  }
}

void Code::fill(Template& t, const Copy& c) {
  t.kind = npu::Kind::copy;
  t.objects = {object(c.to.place), object(c.from.place)};
  const Memory to = objects_[static_cast<std::size_t>(t.objects[0])].memory;
  const Memory from = objects_[static_cast<std::size_t>(t.objects[1])].memory;
  t.path = path_between(core_, from, to);
  t.pipe = *copy_pipe(core_, from, to);
  t.to_layout = c.to.layout;
  t.from_layout = c.from.layout;
  t.transpose = c.transpose;
  t.add = c.add;
  for (const IntExpr* e : {&c.to.place.offset, &c.to.pitch, &c.from.place.offset, &c.from.pitch,
                           &c.rows, &c.columns}) {
    t.arguments.push_back(compile(*e));
  }
}

void Code::fill(Template& t, const Mad& m) {
  t.kind = npu::Kind::mad;
  t.pipe = Pipe::cube;
  t.objects = {object(m.c), object(m.a), object(m.b)};
  for (const IntExpr* e :
       {&m.c.offset, &m.a.offset, &m.b.offset, &m.m, &m.n, &m.k, &m.accumulate}) {
    t.arguments.push_back(compile(*e));
  }
}

void Code::vector_place(Template& t, const VectorPlace& p, bool element_step, std::int64_t full) {
  t.arguments.push_back(compile(p.place.offset));
  t.arguments.push_back(compile(p.repeat_stride.value_or(element_step ? 1 : full)));
  t.arguments.push_back(compile(p.block_stride.value_or(1)));
}

void Code::fill(Template& t, const Vector& v) {
  t.kind = npu::Kind::vector;
  t.pipe = Pipe::vector;
  t.op = v.op;
  t.immediate = v.immediate;
  const auto type = [&](const VectorPlace& p) {
    return objects_[static_cast<std::size_t>(object(p.place))].type;
  };
  const DType to = type(v.to), from = v.from.empty() ? to : type(v.from[0]);
  const std::int64_t lanes = lanes_of(v.op, to, from);
  const std::int64_t out = v.op == VectorOp::brcb ? lanes : blocks_of(lanes, to);
  t.objects[0] = object(v.to.place);
  vector_place(t, v.to, is_reduction(v.op), out);
  for (std::size_t i = 0; i < 3; ++i) {
    if (i < v.from.size()) {
      t.objects[i + 1] = object(v.from[i].place);
      vector_place(t, v.from[i], false, v.op == VectorOp::brcb ? lanes : blocks_of(lanes, from));
    } else {
      for (int a = 0; a < 3; ++a) t.arguments.push_back(compile(0));
    }
  }
  t.arguments.push_back(compile(v.repeat));
  t.arguments.push_back(compile(v.mask.value_or(lanes)));
}

void Code::fill(Template& t, const Move& m) {
  t.kind = npu::Kind::move;
  t.pipe = Pipe::scalar;
  t.statements = statements_of(m);
  t.objects = {object(m.to), object(m.from), -1, -1, -1};
  if (objects_[static_cast<std::size_t>(t.objects[1])].memory == Memory::gm)
    t.path = path_between(core_, Memory::gm, Memory::ub);
  t.arguments.push_back(compile(m.to.offset));
  t.arguments.push_back(compile(m.from.offset));
  for (std::size_t i = 0; i < m.by.size(); ++i) {
    t.objects[2 + i] = object(m.by[i].value);
    for (const IntExpr* e : {&m.by[i].value.offset, &m.by[i].step, &m.by[i].below})
      t.arguments.push_back(compile(*e));
  }
}

void Code::fill(Template& t, const Put& p) {
  t.kind = npu::Kind::put;
  t.pipe = Pipe::scalar;
  t.statements = statements_of(p);
  t.objects[0] = object(p.to);
  t.arguments.push_back(compile(p.to.offset));
  t.arguments.push_back(compile(p.value));
}

void Code::fill(Template& t, const SetFlag& f) {
  t.kind = npu::Kind::set_flag;
  t.pipe = t.flag_from = f.from;
  t.flag_to = f.to;
  t.arguments.push_back(compile(f.event));
}

void Code::fill(Template& t, const WaitFlag& f) {
  t.kind = npu::Kind::wait_flag;
  t.pipe = t.flag_to = f.to;
  t.flag_from = f.from;
  t.arguments.push_back(compile(f.event));
}

void Code::fill(Template& t, const Barrier& b) {
  t.kind = npu::Kind::barrier;
  t.scope = b.scope;
  t.pipe = b.scope == Barrier::Scope::pipe ? b.pipe : Pipe::scalar;
}

std::string Code::line(int statement) const {
  return to_line(*statements_[static_cast<std::size_t>(statement)]);
}

const Template* Code::of_statement(int statement) const {
  const int t = template_of_[static_cast<std::size_t>(statement)];
  return t < 0 ? nullptr : &templates_[static_cast<std::size_t>(t)];
}

// The scalar unit
// ----------------------------------------------------------------------------------

void Scalars::start(std::int64_t block, std::int64_t blocks) {
  std::fill(slots_.begin(), slots_.end(), 0);
  slots_[0] = block;
  slots_[1] = blocks;
  at_ = 0;
}

std::optional<std::int64_t> Scalars::value(std::pair<int, int> code) {
  stack_.clear();
  for (int i = code.first; i < code.second; ++i) {
    const Code::Node& n = code_.nodes_[static_cast<std::size_t>(i)];
    if (n.op == IntOp::literal) {
      stack_.push_back(n.value);
    } else if (n.op == IntOp::scalar) {
      stack_.push_back(slots_[static_cast<std::size_t>(n.value)]);
    } else {
      std::int64_t b = 0;
      if (n.op != IntOp::negate && n.op != IntOp::logical_not) {
        b = stack_.back();
        stack_.pop_back();
      }
      const auto r = apply(n.op, stack_.back(), b);
      if (!r) {
        problem_ = "computes an integer that " + r.reason();
        return std::nullopt;
      }
      stack_.back() = *r;
    }
  }
  return stack_.back();
}

Step Scalars::fault(const Code::Op& op) const {
  return {.kind = Step::Kind::fault, .statement = op.statement, .problem = problem_};
}

Step Scalars::issue(const Code::Op& op) {
  Step step{.kind = Step::Kind::issue, .statement = op.statement};
  const Template& t = code_.templates_[static_cast<std::size_t>(op.instruction)];
  step.instruction.of = &t;
  for (std::size_t i = 0; i < t.arguments.size(); ++i) {
    const auto v = value(t.arguments[i]);
    if (!v) return fault(op);
    step.instruction.v[i] = *v;
  }
  return step;
}

Step Scalars::enter(const Code::Op& op) {
  const auto from = value(op.code[0]), to = from ? value(op.code[1]) : from;
  const auto step = to ? value(op.code[2]) : to;
  if (!step) return fault(op);
  if (*step < 1) {
    problem_ = "has the step " + std::to_string(*step) + ", accepted: 1 up";
    return fault(op);
  }
  slots_[static_cast<std::size_t>(op.slot)] = *from;
  slots_[static_cast<std::size_t>(op.hidden)] = *to;
  slots_[static_cast<std::size_t>(op.hidden) + 1] = *step;
  if (*from >= *to) at_ = static_cast<std::size_t>(op.target);
  return {.kind = Step::Kind::scalar, .statement = op.statement};
}

Step Scalars::next() {
  const Code::Op* op = &code_.ops_[at_++];
  while (op->kind == Code::Op::Kind::jump) {
    at_ = static_cast<std::size_t>(op->target);
    op = &code_.ops_[at_++];
  }
  std::int64_t& slot = slots_[static_cast<std::size_t>(op->slot)];
  switch (op->kind) {
    case Code::Op::Kind::assign: {
      const auto v = value(op->code[0]);
      if (!v) return fault(*op);
      slot = *v;
      break;
    }
    case Code::Op::Kind::loop:
      return enter(*op);
    case Code::Op::Kind::loop_end: {
      const std::int64_t to = slots_[static_cast<std::size_t>(op->hidden)];
      const std::int64_t step = slots_[static_cast<std::size_t>(op->hidden) + 1];
      // to > slot here, so that the difference is positive, if it fits at all
      const auto left = static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(slot);
      if (left > static_cast<std::uint64_t>(step)) {
        slot += step;
        at_ = static_cast<std::size_t>(op->target);
      }
      break;
    }
    case Code::Op::Kind::branch: {
      const auto v = value(op->code[0]);
      if (!v) return fault(*op);
      if (*v == 0) at_ = static_cast<std::size_t>(op->target);
      break;
    }
    case Code::Op::Kind::issue:
      return issue(*op);
    case Code::Op::Kind::jump:
    case Code::Op::Kind::end:
      return {.kind = Step::Kind::end};
  }
  return {.kind = Step::Kind::scalar, .statement = op->statement};
}

}  // namespace tilewright::npu
