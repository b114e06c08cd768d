#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/step/place.h"
#include "motley/synth/step/program_builder.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// Consecutive indices of a dimension.
struct Range {
  std::int64_t first = 0, count = 0;
};

/// A sharded step on one rank during lowering: instructions, values, local sizes, and conversions
/// between forms (lower_sharded.h), each made once. The functions in operators/ write to it.
class RankStep {
 public:
  /// All references must outlive it. `group`: the group of the step's devices.
  RankStep(const ShardedStep& step, Place& place, ProgramBuilder& builder,
           GroupId group = GroupId(0));

  const ShardedStep& step() const { return step_; }
  const graph::Graph& graph() const { return step_.graph; }
  /// Returns the builder, set to exchange within this step's group.
  ProgramBuilder& builder() {
    builder_.use_group(group_);
    return builder_;
  }
  std::size_t ranks() const { return step_.sharding.devices.size(); }

  // ---- sizes
  graph::Number evaluate(const graph::SizeExpr& expr);
  std::int64_t size(const graph::SizeExpr& expr);
  Shape whole_shape(ValueId id);
  std::int64_t whole_elements(ValueId id);
  /// The devices' parts of an extent, by rank; the local part's size and its begin.
  const Shape& parts_of(std::int64_t extent) { return place_.parts().of(extent); }
  std::int64_t own(std::int64_t extent) { return place_.own(extent); }
  std::int64_t begin(std::int64_t extent) { return place_.begin(extent); }
  /// Returns the local range of a dimension that is cut into consecutive parts.
  Range own_range(const graph::Form& form);
  Shape local_shape(ValueId id, const graph::Form& form);
  Shape shape_on(std::size_t rank, ValueId id, const graph::Form& form);

  // ---- values
  BufferId value(ValueId id) const { return values_[id.index()]; }
  void set_value(ValueId id, BufferId buffer) { values_[id.index()] = buffer; }
  /// Returns the value in a form; the next compute instruction waits for its exchange, if any.
  BufferId in_form(ValueId id, const graph::Form& form);
  /// Starts the exchange for a form, if any, so that computation hides it until the form is read.
  void start_conversion(ValueId id, const graph::Form& to);
  /// Sets a value that became whole by a shared exchange (shared_exchange.h).
  void set_whole(ValueId id, BufferId whole) { converted_[{id, graph::kWholeForm}] = whole; }
  /// Takes the local part, in a form, of a whole tensor of the value's shape.
  BufferId take_part(ValueId id, BufferId whole, const graph::Form& to, const std::string& label);
  /// Returns the buffer on the device with the largest share, zeros on the others.
  BufferId keep_once(BufferId whole, const std::string& label);
  bool is_keeper() { return place_.is_keeper(); }
  /// Returns the values of the device with the largest share, on all devices.
  BufferId take_keepers(BufferId whole, const std::string& label);
  /// Total weight of labels (operators/losses.h) by target, class weights, ignored class, and
  /// whether over all devices; none if not known yet. Losses over the same labels share it.
  using Labels = std::tuple<BufferId, BufferId, std::int64_t, bool>;
  BufferId& label_count(const Labels& labels) { return label_counts_[labels]; }

 private:
  /// Flat parts in flight, and the tensor that they are joined to.
  struct Arriving {
    BufferId flat;
    graph::Slab slab;
    Shape extents, shape;
  };
  Arriving gather(ValueId id, const graph::Form& from, const std::string& label);
  BufferId all_reduce(ValueId id, const std::string& label);
  Arriving reduce_scatter(ValueId id, const graph::Form& to, const std::string& label);
  /// Exchanges blocks between two dimensions: each device sends the receiver's part of its part.
  Arriving all_to_all(ValueId id, const graph::Form& from, const graph::Form& to,
                      const std::string& label);
  /// Does each device make the form from the whole value by itself?
  bool is_made_of_whole(ValueId id, const graph::Form& to) const;
  /// Returns the module that makes the value; for a source, its name.
  std::string label_of(ValueId id) const;

  using Converted = std::pair<ValueId, graph::Form>;

  const ShardedStep& step_;
  Place& place_;
  const graph::Sizes sizes_;  // global
  ProgramBuilder& builder_;
  const GroupId group_;
  std::vector<BufferId> values_;
  std::map<Converted, BufferId> converted_;
  std::map<Converted, Arriving> arriving_;
  std::map<Labels, BufferId> label_counts_;
  std::unordered_map<std::string, graph::Number> numbers_;  // by expression; few differ
};

}  // namespace motley::synth
