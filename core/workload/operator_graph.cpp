#include "core/workload/operator_graph.h"

namespace tilewright {

OperatorGraph operator_graph(std::size_t operators, std::span<const OpId> producer,
                             std::span<const std::vector<OpId>> consumers) {
  OperatorGraph graph;
  for (std::size_t i = 0; i < operators; ++i) boost::add_vertex(OpId(i), graph);
  for (std::size_t t = 0; t < producer.size(); ++t)
    if (producer[t].valid())
      for (OpId reader : consumers[t])
        boost::add_edge(producer[t].index(), reader.index(), TensorId(t), graph);
  return graph;
}

OperatorGraph operator_graph(const Workload& w) {
  std::vector<OpId> producer;
  std::vector<std::vector<OpId>> consumers;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    producer.push_back(w.producer(TensorId(t)));
    const std::span<const OpId> readers = w.consumers(TensorId(t));
    consumers.emplace_back(readers.begin(), readers.end());
  }
  return operator_graph(w.operators().size(), producer, consumers);
}

}  // namespace tilewright
