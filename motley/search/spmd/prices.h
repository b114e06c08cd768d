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

/// Seconds of a change of form: local copies by class of device, and what the network takes.
struct ConversionTime {
  std::vector<double> before, after;  ///< by class: copies before and after the exchange
  std::string_view op;                ///< of the exchange: "motley::all_gather"; empty: none
  double exchange = 0;
  ExchangeMethod method = ExchangeMethod::kNative;  ///< the fastest
  double copies() const;                            ///< of the slowest class
};

/// What no plan takes less than for a change of form.
struct LeastChange {
  double exchange = 0;
  /// Copies: of all of the value on each device, and of its parts, by class.
  std::vector<double> whole;
  struct Parts {
    std::int64_t extent = 0;
    std::vector<PartTime> times;
  };
  std::vector<Parts> parts;
};

/// What devices with given shares take for each way of each operator, and for each change of form,
/// by the costs' operator models and exchanges. Remembers what it was asked, so one object serves
/// one thread. All that it refers to must outlive it.
class SpmdPrices {
 public:
  /// `exchanges`: of the devices. Classes are those of the kinds.
  SpmdPrices(const graph::Graph& graph, const SpmdSpace& space, ExchangeTimes& exchanges,
             const DeviceKinds& kinds, const std::vector<DeviceId>& devices,
             std::vector<double> shares, Estimate estimate = Estimate::kUsual);

  /// How programs update parameters; native unless said.
  void set_updates(plan::Updates updates) { updates_ = updates; }
  /// Least changes are of any of some groups: these are the fewest devices, and so many the most.
  void set_most_devices(int most) { most_devices_ = most; }
  /// Of the buckets in which programs exchange gradients and parameters.
  void set_bucket(Bytes bytes) { bucket_ = static_cast<double>(bytes.value); }
  const std::vector<DeviceClass>& classes() const { return classes_; }
  /// Seconds of an operator by class.
  const std::vector<double>& compute(OpId op, const graph::Strategy& way);
  /// What parts of an operator take at least by class, when it is split in this way.
  const std::vector<PartTime>& part_times(OpId op, const graph::Strategy& way);
  /// The least that an operator takes on a class, however small its part.
  double launch(OpId op, std::size_t device_class) const;
  /// Exchanges within an operator (statistics of split batch norm, split vocabularies).
  double inner_exchanges(OpId op, const graph::Strategy& way);
  const ConversionTime& conversion(ValueId value, const graph::Form& from, const graph::Form& to);
  /// `in_bucket`: sent with others, up to a bucket of them or alone if it is more; what one takes
  /// is its part of that.
  const LeastChange& least_change(ValueId value, const graph::Form& from, const graph::Form& to,
                                  bool in_bucket);
  /// Update of a parameter kept so, by class.
  std::vector<double> update(ValueId parameter, const graph::Form& kept, int states);
  /// Bytes of a value in a form on the device of a class.
  double bytes(ValueId value, const graph::Form& form, std::size_t device_class);
  std::vector<std::int64_t> local_shape(ValueId value, const graph::Form& form, int rank);
  /// What a sharding takes of compute by class, and of exchanges, as if nothing overlapped.
  struct Totals {
    std::vector<double> compute;
    double exchange = 0;
    double once = 0;  ///< of these, of parameters and gradients: once, however many micro-batches
  };
  Totals total(const synth::Sharding& sharding);

 private:
  /// An operator of a kind run in a way: factor, outer, inner, and bits of partial operands.
  using WayKey = std::tuple<int, int, std::int64_t, std::int64_t, std::uint64_t>;
  using ConversionKey = std::tuple<int, graph::Form, graph::Form>;  // of a kind of value
  WayKey key_of(OpId op, const graph::Strategy& way) const;
  /// Of an operator whose operands and results have these shapes.
  template <typename ShapeOf>
  cost::OperatorWork work(OpId op, const graph::Strategy& way, const ShapeOf& shape_of) const;
  double seconds(OpId op, std::size_t device_class, const cost::OperatorWork& work) const;
  bool is_rewritten(OpId op, const graph::Strategy& way) const;
  const std::vector<std::int64_t>& parts_of(std::int64_t extent);
  double seconds(std::size_t device_class, std::string_view name, DType dtype,
                 const cost::OperatorWork& work) const;
  /// Reading and writing as many bytes.
  double copy(std::size_t device_class, std::string_view name, DType dtype, double bytes) const;
  /// The least that a part of an operator takes, by what it takes for parts of an extent (whole
  /// numbers of it, 0: any part).
  template <typename Seconds>
  PartTime part_time(const Seconds& seconds, std::int64_t extent, double launch) const;
  std::vector<PartTime> rewritten_parts(OpId op, const graph::Strategy& way);
  /// Seconds of all that a rewritten operator runs, by class, on these ranks of some with shares;
  /// notes what it exchanges.
  std::vector<double> rewritten(OpId op, const graph::Strategy& way,
                                const std::vector<double>& shares,
                                const std::vector<std::size_t>& ranks);
  void add_copy(const synth::LocalCopy& copy, ValueId value, LeastChange& change) const;
  /// Adds an exchange, carried out in the fastest way.
  void add_exchange(std::string_view op, const ExchangeBytes& bytes, ConversionTime& time);

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  ExchangeTimes& exchanges_;
  const DeviceKinds& kinds_;
  const std::vector<double> shares_;
  const Estimate estimate_;
  plan::Updates updates_ = plan::Updates::kNative;
  double bucket_ = 0;
  int most_devices_ = 0;  // 0: just these devices
  std::vector<DeviceClass> classes_;
  std::map<std::int64_t, std::vector<std::int64_t>> parts_;  // by extent
  std::map<WayKey, std::vector<double>> computed_;
  std::map<WayKey, double> inner_;  // exchanges of rewritten operators
  std::map<WayKey, std::vector<PartTime>> part_times_;
  std::map<ConversionKey, ConversionTime> converted_;
  std::map<std::pair<ConversionKey, bool>, LeastChange> least_changes_;
};

}  // namespace motley::search
