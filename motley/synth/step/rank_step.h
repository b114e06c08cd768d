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

/// Indices of a dimension that lie one after the other.
struct Range {
  std::int64_t first = 0, count = 0;
};

/// A sharded step on one rank while it is lowered: the instructions so far, the values that they
/// give, local sizes, and conversions between forms (lower_sharded.h), each made once. Operators
/// are written to it by the functions in operators/.
class RankStep {
 public:
  /// All three must outlive it. `group`: in which the step's devices exchange.
  RankStep(const ShardedStep& step, Place& place, ProgramBuilder& builder,
           GroupId group = GroupId(0));

  const ShardedStep& step() const { return step_; }
  const graph::Graph& graph() const { return step_.graph; }
  /// Exchanges that are written to it next are those of this step's devices.
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
  /// What the devices have of an extent, by rank; what is here of it; and where that begins.
  const Shape& parts_of(std::int64_t extent) { return place_.parts().of(extent); }
  std::int64_t own(std::int64_t extent) { return place_.own(extent); }
  std::int64_t begin(std::int64_t extent) { return place_.begin(extent); }
  /// What is here of a dimension that is cut into consecutive parts.
  Range own_range(const graph::Form& form);
  Shape local_shape(ValueId id, const graph::Form& form);
  Shape shape_on(std::size_t rank, ValueId id, const graph::Form& form);

  // ---- values
  /// The value as its operator gives it.
  BufferId value(ValueId id) const { return values_[id.index()]; }
  void set_value(ValueId id, BufferId buffer) { values_[id.index()] = buffer; }
  /// The value in a form; what is computed next waits for the exchange that is needed for it.
  BufferId in_form(ValueId id, const graph::Form& form);
  /// Begins the exchange that brings the value into a form, if it needs one: what is computed until
  /// it is used in that form hides it.
  void start_conversion(ValueId id, const graph::Form& to);
  /// A value that has become whole by an exchange with others (shared_exchange.h).
  void set_whole(ValueId id, BufferId whole) { converted_[{id, graph::kWholeForm}] = whole; }
  /// What is here, in a form, of a whole tensor of the value's shape.
  BufferId take_part(ValueId id, BufferId whole, const graph::Form& to, const std::string& label);
  /// What counts once in all: here, on the device with the largest share, or zeros.
  BufferId keep_once(BufferId whole, const std::string& label);
  bool is_keeper() { return place_.is_keeper(); }
  /// The numbers of the device with the largest share, on all, in place of each one's own.
  BufferId take_keepers(BufferId whole, const std::string& label);
  /// What labels are worth (operators/losses.h), by target, class weights, ignored class, and
  /// whether over all devices; none: not known yet. Losses over the same labels share it.
  using Labels = std::tuple<BufferId, BufferId, std::int64_t, bool>;
  BufferId& label_count(const Labels& labels) { return label_counts_[labels]; }

 private:
  /// Flat parts that are on their way, and what they are joined to.
  struct Arriving {
    BufferId flat;
    graph::Slab slab;
    Shape extents, shape;
  };
  Arriving gather(ValueId id, const graph::Form& from, const std::string& label);
  BufferId all_reduce(ValueId id, const std::string& label);
  Arriving reduce_scatter(ValueId id, const graph::Form& to, const std::string& label);
  /// Between two dimensions: each device sends the block of its part that is in the other's part.
  Arriving all_to_all(ValueId id, const graph::Form& from, const graph::Form& to,
                      const std::string& label);
  /// Is a form made of the whole value by each device for itself?
  bool is_made_of_whole(ValueId id, const graph::Form& to) const;
  /// Of the module that makes the value; of a source its name.
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
  std::unordered_map<std::string, graph::Number> numbers_;  // by expression: few are many times
};

}  // namespace motley::synth
