// Loop trees by hand and as canonical text (design/plan.md, "Nodes"); plan_parse.cpp reads it back.
#include "core/plan/plan.h"

#include <array>
#include <utility>

namespace tilewright {
namespace {

constexpr std::array<std::pair<Binding, std::string_view>, 8> kBindings = {{
    {Binding::seq, "seq"},
    {Binding::grid, "grid"},
    {Binding::cluster, "cluster"},
    {Binding::warp, "warp"},
    {Binding::lane, "lane"},
    {Binding::thread, "thread"},
    {Binding::vector, "vector"},
    {Binding::unroll, "unroll"},
}};

void write(const Node& node, std::string& out);

void write_parts(const std::vector<Node>& parts, std::string_view separator, std::string& out) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    write(parts[i], out);
  }
}

/// A part of a pack: a sequence there needs no parentheses of its own.
void write_bare(const Node& node, std::string& out) {
  if (node.kind == Node::Kind::sequence) {
    write_parts(node.children, " ", out);
  } else {
    write(node, out);
  }
}

void write_pack(const Node& node, std::string& out) {
  out += "( ";
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    if (i > 0) out += " | ";
    if (node.children[i].first_block) out += std::to_string(*node.children[i].first_block) + ": ";
    write_bare(node.children[i], out);
  }
  out += " )";
}

void write_loop(const Node& node, std::string& out) {
  out += node.name;
  if (node.step > 0) out += "/" + std::to_string(node.step);
  if (node.binding != Binding::seq) out += "@" + std::string(name_of(node.binding));
  for (const Node& body : node.children) {
    const bool closed = body.kind == Node::Kind::loop || body.kind == Node::Kind::sequence ||
                        body.kind == Node::Kind::pack;
    out += closed ? " " : " ( ";
    write(body, out);
    if (!closed) out += " )";
  }
}

void write(const Node& node, std::string& out) {
  switch (node.kind) {
    case Node::Kind::loop:
      return write_loop(node, out);
    case Node::Kind::pack:
      return write_pack(node, out);
    case Node::Kind::sequence:
      out += "( ";
      write_parts(node.children, " ", out);
      out += " )";
      return;
    case Node::Kind::load:
      out += "L." + node.name;
      if (!node.level.empty() || node.copies != 1) out += "@" + node.level;
      if (node.copies != 1) out += "x" + std::to_string(node.copies);
      return;
    case Node::Kind::compute:
      out += "C." + node.name;
      if (node.once) out += "!once";
      return;
    case Node::Kind::store:
      out += "S." + node.name;
      if (!node.level.empty()) out += "@" + node.level;
      if (node.atomic) out += "!atomic";
      return;
    case Node::Kind::sync:
      out += "Y." + node.name;
      return;
    case Node::Kind::drop:
      out += "D." + node.name;
      if (!node.level.empty()) out += "@" + node.level;
      return;
  }
}

}  // namespace

std::string_view name_of(Binding b) {
  for (const auto& [binding, name] : kBindings) {
    if (binding == b) return name;
  }
  return "seq";
}

std::optional<Binding> binding_from_name(std::string_view name) {
  for (const auto& [binding, known] : kBindings) {
    if (known == name) return binding;
  }
  return std::nullopt;
}

std::string to_text(const Node& tree) {
  std::string out;
  write_bare(tree, out);
  return out;
}

Node loop(std::string name, Node body, std::int64_t step, Binding binding) {
  Node node;
  node.kind = Node::Kind::loop;
  node.name = std::move(name);
  node.step = step;
  node.binding = binding;
  node.children.push_back(std::move(body));
  return node;
}

Node sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  Node node;
  node.kind = Node::Kind::sequence;
  node.children = std::move(parts);
  return node;
}

Node load(std::string tensor, std::string level, int copies) {
  Node node;
  node.kind = Node::Kind::load;
  node.name = std::move(tensor);
  node.level = std::move(level);
  node.copies = copies;
  return node;
}

Node compute(std::string op, bool once) {
  Node node;
  node.kind = Node::Kind::compute;
  node.name = std::move(op);
  node.once = once;
  return node;
}

Node store(std::string tensor, std::string level, bool atomic) {
  Node node;
  node.kind = Node::Kind::store;
  node.name = std::move(tensor);
  node.level = std::move(level);
  node.atomic = atomic;
  return node;
}

Node sync(std::string scope) {
  Node node;
  node.kind = Node::Kind::sync;
  node.name = std::move(scope);
  return node;
}

Node drop(std::string tensor, std::string level) {
  Node node;
  node.kind = Node::Kind::drop;
  node.name = std::move(tensor);
  node.level = std::move(level);
  return node;
}

}  // namespace tilewright
