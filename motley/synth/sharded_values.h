#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/sharded_step.h"
#include "motley/synth/sharding.h"
#include "motley/synth/step_emitter.h"

namespace motley::synth {

/// The values of a sharded step on one rank: their local shapes, and their conversions between
/// forms (sharding.h), each made once.
class ShardedValues : protected StepEmitter {
 protected:
  ShardedValues(const graph::Graph& graph, const Sharding& sharding, const ShardedStep& step,
                std::size_t rank, const LowerOptions& options, program::DeviceProgram start);

  std::vector<std::int64_t> whole_shape(ValueId id);
  const std::vector<std::int64_t>& parts_of(std::int64_t extent);
  std::int64_t own(std::int64_t extent);
  std::int64_t begin(std::int64_t extent);
  std::vector<std::int64_t> local_shape(ValueId id, const graph::Form& form);
  std::vector<std::int64_t> shape_on(std::size_t rank, ValueId id, const graph::Form& form);
  static program::ArgumentList integers(const std::vector<std::int64_t>& values,
                                        std::int64_t times = 1);
  static program::Argument integer_list(const std::vector<std::int64_t>& values) {
    return {integers(values)};
  }
  static std::int64_t sum(const std::vector<std::int64_t>& values);
  /// The value's buffer in a form, which waits for the exchange that is needed for it.
  BufferId in_form(ValueId value, const graph::Form& form);
  BufferId make(std::string op, program::ArgumentList arguments, DType dtype,
                std::vector<std::int64_t> shape, const std::string& label);
  /// [before, extents, after] of a tensor as flat parts, one after the other.
  BufferId cut(BufferId from, const graph::Slab& slab, const std::vector<std::int64_t>& extents,
               const std::string& label);
  /// The inverse; a view of the flat parts where they lie as in the tensor.
  BufferId join(BufferId flat, const graph::Slab& slab, const std::vector<std::int64_t>& extents,
                std::vector<std::int64_t> shape, const std::string& label);
  /// Views of consecutive stretches of a flat buffer, with these shapes.
  std::vector<BufferId> unpack(BufferId flat, const std::vector<std::vector<std::int64_t>>& shapes,
                               const std::string& label);
  BufferId exchange(std::string op, BufferId from, std::vector<program::ArgumentList> counts,
                    std::int64_t elements, const std::string& label);
  /// Begins the exchange that brings the value into a form, if it needs one: what is computed until
  /// it is used in that form hides it.
  void start_conversion(ValueId value, const graph::Form& to);
  std::int64_t sum_of_elements(ValueId value);

  // ---- values that are exchanged together (sharded_buckets.cc)
  /// Packs what is here of a bucket's items and starts their exchange; its flat result.
  BufferId start_exchange(const Bucket& bucket, const std::string& label);
  /// The items as they are after the exchange, in their order.
  std::vector<BufferId> finish_exchange(const Bucket& bucket, BufferId flat,
                                        const std::string& label);
  /// A value that has become whole by an exchange with others.
  void set_whole(ValueId value, BufferId whole) { converted_[{value, graph::kWholeForm}] = whole; }

  const Sharding& sharding_;
  const ShardedStep& step_;
  const std::size_t rank_;
  SizeEvaluator sizes_;  ///< global

 private:
  /// Form that an item has after its exchange.
  graph::Form form_after(const Bucket& bucket, const BucketItem& item) const;
  BufferId pack(DType dtype, const std::vector<BufferId>& values, const std::string& label);
  std::vector<BufferId> views_of_parts(ValueId value, const graph::Form& form,
                                       const std::string& label);
  BufferId whole_of_parts(ValueId value, const std::vector<BufferId>& parts,
                          const std::string& label);
  std::vector<std::int64_t> part_shape(std::size_t rank, ValueId value, const graph::Form& form);
  program::ArgumentList counts_of(const Bucket& bucket);
  /// Flat parts that are on their way, and what they are joined to.
  struct Arriving {
    BufferId flat;
    graph::Slab slab;
    std::vector<std::int64_t> extents, shape;
  };
  Arriving gather(ValueId value, const graph::Form& from, const std::string& label);
  BufferId all_reduce(ValueId value, const std::string& label);
  Arriving reduce_scatter(ValueId value, const graph::Form& to, const std::string& label);
  /// Between two dimensions: each device sends the block of its part that is in the other's part.
  Arriving all_to_all(ValueId value, const graph::Form& from, const graph::Form& to,
                      const std::string& label);
  BufferId take_part(ValueId value, BufferId whole, const graph::Form& to,
                     const std::string& label);
  /// The value once in all: on the device with the largest share.
  BufferId keep_once(BufferId whole, const std::string& label);
  /// Is a form made of the whole value by each device for itself?
  bool is_made_of_whole(ValueId value, const graph::Form& to) const;
  /// Of the module that makes the value; of a source its name.
  std::string label_of(ValueId value) const;

  struct Converted {
    ValueId value;
    graph::Form form;
    auto operator<=>(const Converted&) const = default;
  };

  const std::size_t keeper_;  // the rank that keeps what must count once
  std::map<Converted, BufferId> converted_;
  std::map<Converted, Arriving> arriving_;
  std::map<std::int64_t, std::vector<std::int64_t>> parts_;  // by extent
};

}  // namespace motley::synth
