#include "motley/search/spmd/prices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "motley/graph/work.h"
#include "motley/plan/shares.h"
#include "motley/program/parts.h"
#include "motley/search/spmd/form_changes.h"
#include "motley/synth/ranks/lower_operator.h"
#include "motley/synth/step/conversion.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

/// Parts of an operator at which its curve is evaluated. If it is convex, the last suffices.
constexpr double kParts[] = {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2, 1023.0 / 1024};
constexpr int kBucketHalvings = 30;  // from the largest bucket down to almost nothing

double product(const std::vector<std::int64_t>& shape) {
  double elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<double>(size);
  return elements;
}

/// Returns a lower bound for parts, from times at parts of an extent (whole numbers; 0: any).
template <typename Seconds>
PartTime part_time(const Seconds& seconds, std::int64_t extent, double launch) {
  const double whole = seconds(1.0);
  PartTime time{whole, whole, std::min(whole, launch)};
  // The line through the whole that is below the curve at every part.
  for (const double wanted : kParts) {
    const auto all = static_cast<double>(extent);
    const double part = extent > 0 ? std::round(wanted * all) / all : wanted;
    if (part > 0 && part < 1)
      time.fixed = std::min(time.fixed, (seconds(part) - part * whole) / (1 - part));
  }
  time.fixed = std::max(0.0, time.fixed);
  return time;
}

}  // namespace

double ConversionTime::copies() const {
  double most = 0;
  for (std::size_t c = 0; c < before.size(); ++c) most = std::max(most, before[c] + after[c]);
  return most;
}

SpmdPrices::SpmdPrices(const graph::Graph& graph, const SpmdSpace& space, ExchangeTimes& exchanges,
                       const DeviceKinds& kinds, const std::vector<DeviceId>& devices,
                       std::vector<double> shares, Estimate estimate)
    : graph_(graph),
      space_(space),
      exchanges_(exchanges),
      kinds_(kinds),
      shares_(std::move(shares)),
      estimate_(estimate) {
  classes_ = kinds.classes(devices, shares_).all;
}

const std::vector<std::int64_t>& SpmdPrices::parts_of(std::int64_t extent) {
  std::vector<std::int64_t>& parts = parts_[extent];
  if (parts.empty()) parts = plan::round_shares(shares_, extent);
  return parts;
}

std::vector<std::int64_t> SpmdPrices::local_shape(ValueId value, const Form& form, int rank) {
  std::vector<std::int64_t> shape = space_.shapes[value.index()];
  if (form.kind == FormKind::kSharded)
    shape[static_cast<std::size_t>(form.dim)] =
        form.outer * parts_of(form.extent)[static_cast<std::size_t>(rank)] * form.inner;
  return shape;
}

double SpmdPrices::bytes(ValueId value, const Form& form, std::size_t device_class) {
  const graph::Value& about = graph_.value(value);
  return product(local_shape(value, form, classes_[device_class].rank)) *
         static_cast<double>(dtype_size(about.dtype));
}

double SpmdPrices::seconds(std::size_t device_class, std::string_view name, DType dtype,
                           const cost::OperatorWork& work) const {
  return kinds_.at(classes_[device_class].kind).seconds(estimate_, name, dtype, work);
}

double SpmdPrices::copy(std::size_t device_class, std::string_view name, DType dtype,
                        double bytes) const {
  return seconds(device_class, name, dtype, {0, bytes, 1});
}

void SpmdPrices::add_exchange(std::string_view op, const ExchangeBytes& bytes,
                              ConversionTime& time) {
  const FastestExchange fastest = exchanges_.fastest(op, bytes);
  time.op = op;
  time.exchange += fastest.seconds;
  time.method = fastest.method;
}

SpmdPrices::WayKey SpmdPrices::key_of(OpId op, const Strategy& way) const {
  std::uint64_t partial = 0;
  if (way.factor < 0)
    for (std::size_t o = 0; o < way.operands.size(); ++o)
      if (way.operands[o].kind == FormKind::kPartial) partial |= std::uint64_t{1} << (o % 64);
  return {space_.kind_of[op.index()], way.factor, way.outer, way.inner, partial};
}

template <typename ShapeOf>
cost::OperatorWork SpmdPrices::work(OpId op, const Strategy& way, const ShapeOf& shape_of) const {
  const graph::Op& about = graph_.op(op);
  const graph::ShardingRule& rule = space_.rules[op.index()];
  const auto place = [](const std::vector<ValueId>& values, ValueId value) {
    return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) -
                                    values.begin());
  };
  const graph::Work work = graph::op_work(graph_, op, [&](ValueId value) {
    if (const std::size_t o = place(rule.operands, value); o < rule.operands.size())
      return shape_of(value, way.operands[o]);
    if (const std::size_t r = place(about.outputs, value); r < about.outputs.size())
      return shape_of(value, way.results[r]);
    return space_.shapes[value.index()];
  });
  return {work.flops.value, static_cast<double>((work.bytes_read + work.bytes_written).value),
          graph::is_view(about.name) ? 0 : 1};
}

double SpmdPrices::seconds(OpId op, std::size_t device_class,
                           const cost::OperatorWork& work) const {
  const graph::Op& about = graph_.op(op);
  return seconds(device_class, about.full_name(), graph_.value(about.outputs[0]).dtype, work);
}

bool SpmdPrices::is_rewritten(OpId op, const Strategy& way) const {
  return way.factor >= 0 &&
         space_.rules[op.index()].factors[static_cast<std::size_t>(way.factor)].split ==
             graph::Split::kRewritten;
}

std::vector<double> SpmdPrices::rewritten(OpId op, const Strategy& way,
                                          const std::vector<double>& shares,
                                          const std::vector<std::size_t>& ranks) {
  const synth::LoweredOperator made =
      synth::lower_operator(graph_, op, way, space_.global_batch, shares, ranks);
  std::vector<double> sums;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const program::DeviceProgram& device = made.ranks[ranks.size() == 1 ? 0 : c];
    const std::vector<cost::OperatorWork> works = cost::instruction_work(device, made.graph);
    double& sum = sums.emplace_back(0);
    for (std::size_t i = 0; i < works.size(); ++i)
      sum += seconds(c, device.instructions[i].full_name(),
                     cost::instruction_dtype(device, device.instructions[i]), works[i]);
  }
  double& inner = inner_[key_of(op, way)] = 0;
  for (const synth::InnerExchange& each : made.exchanges) {
    const auto bytes = static_cast<double>(each.bytes.value);
    inner += exchanges_.fastest(each.op, {bytes, bytes}).seconds;
  }
  return sums;
}

const std::vector<double>& SpmdPrices::compute(OpId op, const Strategy& way) {
  const auto [known, is_new] = computed_.try_emplace(key_of(op, way));
  if (!is_new) return known->second;
  if (is_rewritten(op, way)) {
    std::vector<std::size_t> ranks;
    for (const DeviceClass& each : classes_) ranks.push_back(static_cast<std::size_t>(each.rank));
    return known->second = rewritten(op, way, shares_, ranks);
  }
  for (std::size_t c = 0; c < classes_.size(); ++c)
    known->second.push_back(seconds(op, c, work(op, way, [&](ValueId value, const Form& form) {
                                      return local_shape(value, form, classes_[c].rank);
                                    })));
  return known->second;
}

/// Prices as on one of two devices.
std::vector<PartTime> SpmdPrices::rewritten_parts(OpId op, const Strategy& way) {
  const std::int64_t extent = extent_of(space_, op, way);
  std::map<double, std::vector<double>> at;  // by part
  std::vector<PartTime> times;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    times.push_back(part_time(
        [&](double part) {
          std::vector<double>& known = at[part];
          if (known.empty()) known = rewritten(op, way, {part, 1 - part}, {0});
          return known[c];
        },
        extent, launch(op, c)));
  return times;
}

const std::vector<PartTime>& SpmdPrices::part_times(OpId op, const Strategy& way) {
  const auto [known, is_new] = part_times_.try_emplace(key_of(op, way));
  if (!is_new) return known->second;
  if (is_rewritten(op, way)) {
    compute(op, way);  // records its exchanges over all devices
    const double inner = inner_.at(key_of(op, way));
    known->second = rewritten_parts(op, way);
    inner_.at(key_of(op, way)) = inner;
    return known->second;
  }
  const auto scaled = [&](std::int64_t part) {
    return work(op, way, [&](ValueId value, const Form& form) {
      std::vector<std::int64_t> shape = space_.shapes[value.index()];
      if (form.kind == FormKind::kSharded) shape[static_cast<std::size_t>(form.dim)] *= part;
      return shape;
    });
  };
  const cost::OperatorWork none = scaled(0), all = scaled(1);
  for (std::size_t c = 0; c < classes_.size(); ++c)
    known->second.push_back(part_time(
        [&](double part) {
          return seconds(op, c,
                         {none.flops + part * (all.flops - none.flops),
                          none.bytes + part * (all.bytes - none.bytes), all.launches});
        },
        0, launch(op, c)));
  return known->second;
}

double SpmdPrices::launch(OpId op, std::size_t device_class) const {
  return seconds(op, device_class, {0, 0, graph::is_view(graph_.op(op).name) ? 0 : 1});
}

double SpmdPrices::inner_exchanges(OpId op, const Strategy& way) {
  if (!is_rewritten(op, way)) return 0;
  compute(op, way);
  return inner_.at(key_of(op, way));
}

const ConversionTime& SpmdPrices::conversion(ValueId value, const Form& from, const Form& to) {
  const auto [known, is_new] = converted_.try_emplace({space_.value_kind[value.index()], from, to});
  ConversionTime& time = known->second;
  if (!is_new) return time;
  const std::vector<std::int64_t>& shape = space_.shapes[value.index()];
  const DType dtype = graph_.value(value).dtype;
  const std::size_t classes = classes_.size();
  time.before.assign(classes, 0);
  time.after.assign(classes, 0);
  if (from == to) return time;
  const double whole = product(shape) * static_cast<double>(dtype_size(dtype));
  const auto exchanged = [&](const synth::Conversion& step) {
    if (step.exchange == program::kAllReduce) return ExchangeBytes{whole, whole};
    if (step.exchange == program::kAllToAll) {
      double most = 0;
      for (std::size_t c = 0; c < classes; ++c)
        most = std::max({most, bytes(value, from, c), bytes(value, to, c)});
      return ExchangeBytes{most, most};
    }
    const auto& parts = parts_of(step.travels.extent);
    const double width = whole / static_cast<double>(step.travels.extent);
    const auto moved = [&](ExchangeMethod method) {
      constexpr std::int64_t kFine = 4096;  // even_bytes rounds to whole numbers
      return width * static_cast<double>(program::even_bytes(method, parts, kFine).value) / kFine;
    };
    return ExchangeBytes{moved(ExchangeMethod::kNative), moved(ExchangeMethod::kGrouped)};
  };
  const auto copied = [&](const synth::LocalCopy& local, std::size_t c) {
    return local.op.empty() ? 0.0
                            : copy(c, local.op, dtype, local.times * bytes(value, local.of, c));
  };
  for (const synth::Conversion& step : synth::find_conversions(shape, from, to)) {
    if (!step.exchange.empty()) add_exchange(step.exchange, exchanged(step), time);
    for (std::size_t c = 0; c < classes; ++c) {
      time.before[c] += copied(step.before, c);
      time.after[c] += copied(step.after, c);
    }
  }
  return time;
}

void SpmdPrices::add_copy(const synth::LocalCopy& copied, ValueId value,
                          LeastChange& change) const {
  if (copied.op.empty()) return;
  const DType dtype = graph_.value(value).dtype;
  const double bytes =
      copied.times * product(space_.shapes[value.index()]) * static_cast<double>(dtype_size(dtype));
  const bool is_part = copied.of.kind == FormKind::kSharded;
  LeastChange::Parts parts{copied.of.extent, {}};
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const auto at = [&](double part) { return copy(c, copied.op, dtype, part * bytes); };
    if (is_part)
      parts.times.push_back(part_time(at, 0, at(0)));
    else
      change.whole[c] += at(1);
  }
  if (is_part) change.parts.push_back(std::move(parts));
}

const LeastChange& SpmdPrices::least_change(ValueId value, const Form& from, const Form& to,
                                            bool in_bucket) {
  const ConversionKey key{space_.value_kind[value.index()], from, to};
  const auto [known, is_new] = least_changes_.try_emplace({key, in_bucket});
  LeastChange& change = known->second;
  if (!is_new) return change;
  change.whole.assign(classes_.size(), 0);
  if (from == to) return change;
  const std::vector<std::int64_t>& shape = space_.shapes[value.index()];
  const DType dtype = graph_.value(value).dtype;
  const double bytes = product(shape) * static_cast<double>(dtype_size(dtype));
  const std::string_view shared = synth::find_exchange(from, to);
  const bool over_whole = synth::goes_over_whole(from, to);
  const bool is_sent = !shared.empty() || over_whole;
  if (!in_bucket || !is_sent || shared == program::kAllToAll || bytes == 0) {
    if (most_devices_ == 0) change.exchange = conversion(value, from, to).exchange;
    for (const synth::Conversion& step : synth::find_conversions(shape, from, to)) {
      if (most_devices_ > 0 && !step.exchange.empty()) {
        const bool is_all_to_all = step.exchange == program::kAllToAll;
        const double moved = is_all_to_all ? bytes / most_devices_ : bytes;
        change.exchange += exchanges_.fastest(step.exchange, {moved, moved}).seconds;
      }
      // A sum may overwrite its terms.
      if (step.exchange != program::kAllReduce) add_copy(step.before, value, change);
      add_copy(step.after, value, change);
    }
    return change;
  }
  // Its part of the bucket with the least time per byte, over all buckets it may be in.
  const double most = std::max(bytes, bucket_);
  const auto share = [&](const auto& seconds) {
    double least = std::numeric_limits<double>::infinity();
    for (int halved = 0; halved <= kBucketHalvings; ++halved) {
      const double all = std::ldexp(most, -halved);
      least = std::min(least, seconds(all) / all);
    }
    return bytes * least;
  };
  const std::string_view op = over_whole ? program::kAllGather : shared;
  change.exchange = share([&](double all) { return exchanges_.fastest(op, {all, all}).seconds; });
  const bool is_gathered = op == program::kAllGather;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    change.whole[c] =
        is_gathered ? copy(c, "aten::cat", dtype, 2 * bytes)
                    : share([&](double all) { return copy(c, "motley::pack", dtype, 2 * all); });
  return change;
}

std::vector<double> SpmdPrices::update(ValueId parameter, const Form& kept, int states) {
  std::vector<double> times;
  const std::string_view name =
      updates_ == plan::Updates::kNative ? "motley::update" : "motley::update.portable";
  const DType dtype = graph_.value(parameter).dtype;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    // The share of one parameter in an update of many: its bytes, without a launch.
    const double read = bytes(parameter, kept, c) * (2.0 + states);
    const double both = seconds(c, name, dtype, {read, 2 * read, 1});
    const double none = seconds(c, name, dtype, {0, 0, 1});
    times.push_back(std::max(0.0, both - none));
  }
  return times;
}

SpmdTotals add_up(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                  const synth::Sharding& sharding) {
  SpmdTotals totals{std::vector<double>(prices.classes().size(), 0.0), 0};
  for (std::size_t i = 0; i < sharding.ops.size(); ++i) {
    if (!space.is_needed[i]) continue;
    const OpId op(static_cast<std::int64_t>(i));
    const std::vector<double>& seconds = prices.compute(op, sharding.ops[i]);
    const double count = space.op_count[i];
    for (std::size_t c = 0; c < seconds.size(); ++c) totals.compute[c] += count * seconds[c];
    totals.exchange += count * prices.inner_exchanges(op, sharding.ops[i]);
  }
  for (const FormChange& change : find_changes(graph, space, sharding)) {
    const ConversionTime& time = prices.conversion(change.value, change.from, change.to);
    const double count = space.value_count[change.value.index()];
    const bool is_once = change.reader.op.is_none() ||
                         graph.value(change.value).role == graph::ValueRole::kParameter;
    totals.exchange += count * time.exchange;
    if (is_once) totals.once += count * time.exchange;
    for (std::size_t c = 0; c < totals.compute.size(); ++c)
      totals.compute[c] += count * (time.before[c] + time.after[c]);
  }
  return totals;
}

}  // namespace motley::search
