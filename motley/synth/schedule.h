#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"
#include "motley/synth/forms.h"

namespace motley::synth {

/// Something that is summed over the devices together with others: an output of the graph (loss,
/// gradient, buffer update) or the wish to stop.
struct BucketItem {
  static constexpr std::int64_t kStop = -1;
  std::int64_t output = kStop;  ///< position in the graph's outputs, or kStop
  ValueId value;                ///< none for kStop
};

/// Items of one dtype that travel as one flat buffer.
struct Bucket {
  DType dtype = DType::kF32;
  std::vector<BucketItem> items;
  std::int64_t ready = -1;  ///< position in the order of the last producer; -1: from the start
};

/// What is emitted in which order; the same for all devices of a group.
struct Schedule {
  std::vector<OpId> order;         ///< operators that anything wanted depends on
  std::size_t early = 0;           ///< how many of them, at the front, only prepare sums of inputs
  std::vector<OpId> early_counts;  ///< losses whose labels are ready then
  std::vector<char> summed;        ///< by value: its sum over the devices is wanted
  std::vector<char> in_place;      ///< by value: nobody needs the partial sum any more
  std::vector<Bucket> buckets;     ///< in the order in which they become ready
  std::vector<std::int64_t> direct;  ///< outputs that need no exchange, by position
};

/// For a device alone: graph order, nothing summed, all outputs direct.
Schedule schedule_alone(const graph::Graph& graph);

/// For a group: operators that only inputs feed and whose results are summed go first, so that the
/// exchange overlaps with the forward pass; partial outputs are put into buckets of about
/// `bucket_bytes` in the order in which they become ready. O(graph).
Schedule schedule_group(const graph::Graph& graph, const FormTable& forms, Bytes bucket_bytes);

}  // namespace motley::synth
