// A workload's DAG in Boost.Graph's form, for its algorithms. It stands apart from workload.h
// because the headers of Boost.Graph cost a second of compile time each time they are read.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// Operators as vertices, one edge for each (producer, consumer, tensor).
using OperatorGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, OpId, TensorId>;

/// The graph of a checked workload; vertex i is operator i. Cost: linear in operators and reads.
OperatorGraph operator_graph(const Workload& w);
/// The same from its parts, which need not form a DAG: by tensor, who writes it (invalid: nobody)
/// and who reads it.
OperatorGraph operator_graph(std::size_t operators, std::span<const OpId> producer,
                             std::span<const std::vector<OpId>> consumers);

}  // namespace tilewright
