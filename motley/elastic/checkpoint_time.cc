#include "motley/elastic/checkpoint_time.h"

namespace motley::elastic {

Seconds estimate_checkpoint(const CheckpointTime& model, const CheckpointSize& size) {
  return model.fixed + model.per_weight_byte * static_cast<double>(size.weights.value) +
         model.per_graph_byte * static_cast<double>(size.graph.value);
}

}  // namespace motley::elastic
