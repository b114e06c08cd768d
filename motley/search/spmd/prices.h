#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/cost/measured/operator_work.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/search/price/exchange_times.h"
#include "motley/search/spmd/device_kinds.h"
#include "motley/search/spmd/mean_time.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/step/conversion.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// Seconds of a change of form: local copies by class, and the exchange.
struct ConversionTime {
  std::vector<double> before, after;  ///< by class: copies before and after the exchange
  std::string_view op;                ///< of the exchange: "motley::all_gather"; empty: none
  double exchange = 0;
  ExchangeMethod method = ExchangeMethod::kNative;  ///< the fastest
  double copies() const;                            ///< of the slowest class
};

/// A lower bound of a change of form over all plans.
struct LeastChange {
  double exchange = 0;
  /// Copies of the whole value on each device, and of parts, by class.
  std::vector<double> whole;
  struct Parts {
    std::int64_t extent = 0;
    std::vector<PartTime> times;
  };
  std::vector<Parts> parts;
};

/// Seconds of each way of each operator, and of each change of form, on devices with given shares,
/// by the costs' operator models and exchanges. Caches results, so one object serves one thread.
/// All references must outlive it.
class SpmdPrices {
 public:
  /// `exchanges`: of the devices.
  SpmdPrices(const graph::Graph& graph, const SpmdSpace& space, ExchangeTimes& exchanges,
             const DeviceKinds& kinds, const std::vector<DeviceId>& devices,
             std::vector<double> shares, Estimate estimate = Estimate::kUsual);

  /// Sets how programs update parameters; native by default.
  void set_updates(plan::Updates updates) { updates_ = updates; }
  /// Makes least changes cover groups from these devices up to `most` devices.
  void set_most_devices(int most) { most_devices_ = most; }
  void set_bucket(Bytes bytes) { bucket_ = static_cast<double>(bytes.value); }
  const std::vector<DeviceClass>& classes() const { return classes_; }
  const std::vector<double>& compute(OpId op, const graph::Strategy& way);
  /// Returns, by class, lower bounds for parts of an operator that is split in this way.
  const std::vector<PartTime>& part_times(OpId op, const graph::Strategy& way);
  /// Returns the least time of an operator on a class, for any part.
  double launch(OpId op, std::size_t device_class) const;
  /// Returns seconds of an operator's inner exchanges (batch norm statistics, split vocabularies).
  double inner_exchanges(OpId op, const graph::Strategy& way);
  const ConversionTime& conversion(ValueId value, const graph::Form& from, const graph::Form& to);
  /// Returns the least cost of a change. `in_bucket`: its part of a bucket's exchange, or its own
  /// if it is larger than a bucket.
  const LeastChange& least_change(ValueId value, const graph::Form& from, const graph::Form& to,
                                  bool in_bucket);
  /// Returns the seconds of updating a parameter in this form, by class.
  std::vector<double> update(ValueId parameter, const graph::Form& kept, int states);
  double bytes(ValueId value, const graph::Form& form, std::size_t device_class);
  std::vector<std::int64_t> local_shape(ValueId value, const graph::Form& form, int rank);

 private:
  /// A kind of operator with a way: factor, outer, inner, and bits of partial operands.
  using WayKey = std::tuple<int, int, std::int64_t, std::int64_t, std::uint64_t>;
  using ConversionKey = std::tuple<int, graph::Form, graph::Form>;  // of a kind of value
  WayKey key_of(OpId op, const graph::Strategy& way) const;
  /// Returns the work of an operator with operands and results of these shapes.
  template <typename ShapeOf>
  cost::OperatorWork work(OpId op, const graph::Strategy& way, const ShapeOf& shape_of) const;
  double seconds(OpId op, std::size_t device_class, const cost::OperatorWork& work) const;
  bool is_rewritten(OpId op, const graph::Strategy& way) const;
  const std::vector<std::int64_t>& parts_of(std::int64_t extent);
  double seconds(std::size_t device_class, std::string_view name, DType dtype,
                 const cost::OperatorWork& work) const;
  double copy(std::size_t device_class, std::string_view name, DType dtype, double bytes) const;
  std::vector<PartTime> rewritten_parts(OpId op, const graph::Strategy& way);
  /// Returns a rewritten operator's seconds, by class, on some ranks; records its exchanges.
  std::vector<double> rewritten(OpId op, const graph::Strategy& way,
                                const std::vector<double>& shares,
                                const std::vector<std::size_t>& ranks);
  void add_copy(const synth::LocalCopy& copy, ValueId value, LeastChange& change) const;
  void add_exchange(std::string_view op, const ExchangeBytes& bytes, ConversionTime& time);

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  ExchangeTimes& exchanges_;
  const DeviceKinds& kinds_;
  const std::vector<double> shares_;
  const Estimate estimate_;
  plan::Updates updates_ = plan::Updates::kNative;
  double bucket_ = 0;
  int most_devices_ = 0;  // 0: only these devices
  std::vector<DeviceClass> classes_;
  std::map<std::int64_t, std::vector<std::int64_t>> parts_;  // by extent
  std::map<WayKey, std::vector<double>> computed_;
  std::map<WayKey, double> inner_;  // exchanges of rewritten operators
  std::map<WayKey, std::vector<PartTime>> part_times_;
  std::map<ConversionKey, ConversionTime> converted_;
  std::map<std::pair<ConversionKey, bool>, LeastChange> least_changes_;
};

/// A sharding's compute by class, and its exchanges, without overlap.
struct SpmdTotals {
  std::vector<double> compute;
  double exchange = 0;
  double once = 0;  ///< part for parameters and gradients: once per step
};
SpmdTotals add_up(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                  const synth::Sharding& sharding);

}  // namespace motley::search
