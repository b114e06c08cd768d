#include "motley/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "motley/base/check.h"
#include "motley/base/text.h"
#include "motley/plan/shares.h"

namespace motley::plan {
namespace {

bool is_shared(const Replica& replica) {
  return std::any_of(replica.regions.begin(), replica.regions.end(),
                     [](const Region& region) { return region.devices.size() > 1; });
}

}  // namespace

std::string_view batch_norm_name(BatchNormMode mode) {
  return mode == BatchNormMode::kGlobal ? "global" : "local";
}

Plan in_micro_batches(Plan plan, std::int64_t micro_batches) {
  const std::int64_t before = plan.replicas.front().micro_batches;
  plan.global_batch = plan.global_batch / before * micro_batches;
  for (Replica& replica : plan.replicas) {
    replica.samples = replica.samples / before * micro_batches;
    replica.micro_batches = micro_batches;
    replica.turns = std::min(replica.turns, micro_batches);
  }
  return plan;
}

std::string_view batch_norm_span_name(BatchNormSpan span) {
  return span == BatchNormSpan::kStep ? "step" : "micro_batch";
}

std::string_view updates_name(Updates updates) {
  return updates == Updates::kNative ? "native" : "portable";
}

Result<Updates> parse_updates(std::string_view name) {
  for (const Updates updates : {Updates::kNative, Updates::kPortable})
    if (updates_name(updates) == name) return updates;
  return usage_error("plan.updates",
                     fmt::format("found '{}', wanted 'native' or 'portable'", name));
}

bool splits_operators(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), is_shared);
}

std::vector<Stretch> find_stretches(const Replica& replica, std::int64_t first) {
  const std::int64_t least = replica.samples / replica.micro_batches;
  const std::int64_t more = replica.samples % replica.micro_batches;
  std::vector<Stretch> stretches;
  for (std::int64_t m = 0; m < replica.micro_batches; ++m) {
    stretches.push_back({first, least + (m < more ? 1 : 0)});
    first += stretches.back().count;
  }
  return stretches;
}

bool has_stages(const Plan& plan) {
  if (!plan.owners.empty()) return true;
  const std::int64_t times = plan.replicas.front().micro_batches;
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), [&](const Replica& replica) {
    return replica.regions.size() > 1 || replica.micro_batches != times ||
           replica.samples % times != 0 || (is_shared(replica) && plan.replicas.size() > 1) ||
           replica.regions.front().recomputes != plan.replicas.front().regions.front().recomputes;
  });
}

std::vector<Member> members(const Plan& plan) {
  std::vector<Member> ranks;
  if (has_stages(plan)) {
    std::set<DeviceId> seen;
    for (const Replica& replica : plan.replicas)
      for (const Region& region : replica.regions)
        for (const DeviceId device : region.devices)
          if (seen.insert(device).second) ranks.push_back({device, replica.samples});
    return ranks;
  }
  for (const Replica& replica : plan.replicas) {
    const Region& region = replica.regions.front();
    const std::int64_t times = replica.micro_batches;
    const std::vector<std::int64_t> samples = round_shares(region.shares, replica.samples / times);
    for (std::size_t i = 0; i < samples.size(); ++i)
      ranks.push_back({region.devices[i], times * samples[i]});
  }
  return ranks;
}

std::vector<Replica> make_replicas(const std::vector<DeviceId>& devices,
                                   const std::vector<std::int64_t>& samples) {
  MOTLEY_CHECK(devices.size() == samples.size());
  std::vector<Replica> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    // A device with no samples is idle: it takes no part in exchanges, so it is no replica.
    if (samples[i] > 0) replicas.push_back({samples[i], {Region{{devices[i]}, {1.0}}}});
  }
  return replicas;
}

std::int64_t shown_micro_batches(const Plan& plan) {
  const bool is_shown =
      plan.batch_norm_span == BatchNormSpan::kMicroBatch && !plan.replicas.empty();
  return is_shown ? plan.replicas.front().micro_batches : 1;
}

Plan split_instead(Plan plan, const std::vector<DeviceId>& devices,
                   const std::vector<std::int64_t>& samples) {
  const std::int64_t micro_batches = shown_micro_batches(plan);
  plan.replicas = make_replicas(devices, samples);
  for (Replica& replica : plan.replicas) replica.micro_batches = micro_batches;
  plan.owners.clear();
  return plan;
}

namespace {

// Collects all faults of the replicas, one clause each: a plan edited by hand often has several.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(const cluster::Cluster& cluster) : cluster_(cluster) {}

  void add(std::size_t index, const Replica& replica) {
    const std::string where = fmt::format("replica {}", index);
    if (replica.samples <= 0) {
      fault("{}: found {} samples, wanted at least 1", where, replica.samples);
    }
    if (replica.micro_batches < 1 ||
        replica.micro_batches > std::max<std::int64_t>(1, replica.samples)) {
      fault("{}: {} samples cannot be done in {} micro-batches", where, replica.samples,
            replica.micro_batches);
    }
    if (replica.turns < 1 || replica.turns > std::max<std::int64_t>(1, replica.micro_batches))
      fault("{}: {} of {} micro-batches cannot take turns", where, replica.turns,
            replica.micro_batches);
    if (replica.turns > 1) takes_turns = true;
    if (replica.regions.empty()) fault("{}: found no region, wanted at least 1", where);
    for (std::size_t r = 0; r < replica.regions.size(); ++r) {
      const Region& region = replica.regions[r];
      const std::string place =
          replica.regions.size() == 1 ? where : fmt::format("{}: region {}", where, r);
      if (region.devices.empty()) fault("{}: found no device, wanted at least 1", place);
      if (region.devices.size() == 1) add_one_device(place, region);
      if (region.devices.size() > 1) add_shared(place, region);
      if (region.ahead < 0) fault("{}: ahead is {}, wanted 0 or more", place, region.ahead);
      if (!(region.speed > 0) || !std::isfinite(region.speed))
        fault("{}: speed is {}, wanted more than 0", place, region.speed);
      if (!(region.lag >= 0) || !std::isfinite(region.lag))
        fault("{}: lag is {}, wanted 0 or more", place, region.lag);
      add_turns(place, region);
      add_recomputes(place, region);
      std::set<DeviceId> own;
      for (const DeviceId device : region.devices) {
        if (!own.insert(device).second && is_known(device))
          fault("device {} is twice in {}", cluster_.device(device).name, place);
        else
          add_use(index, device);
      }
    }
    if (replica.regions.size() > 1) add_covers(where, replica);
  }

  bool has_shared_region = false, takes_turns = false;
  std::string turning;  ///< the first region with interleaved tasks

  std::vector<std::string> faults;

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void add_order(const std::string& where, const std::vector<OpRange>& ranges) {
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].end)
        fault("{}: operators {} are not behind those before", where, ranges[i].first);
  }

  /// Checks that a region recomputes only its own operators.
  void add_recomputes(const std::string& where, const Region& region) {
    add_order(where + ": recompute", region.recomputes);
    for (const OpRange& range : region.recomputes) {
      const bool is_own =
          region.covers.empty() ||
          std::any_of(region.covers.begin(), region.covers.end(), [&](const OpRange& own) {
            return own.first <= range.first && range.end <= own.end;
          });
      if (!is_own)
        fault("{}: operators {}-{} are to be done again and not all are covered", where,
              range.first, range.end - 1);
    }
  }

  /// Checks `turns`: at most two tasks interleave, and only on devices that exchange something.
  void add_turns(const std::string& where, const Region& region) {
    if (region.turns == 1) return;
    if (region.turns != 2) fault("{}: turns is {}, wanted 1 or 2", where, region.turns);
    if (region.devices.size() == 1) fault("{}: one device takes no turns", where);
    if (turning.empty()) turning = where;
  }

  /// Checks that every region lists its operators and that none is in two.
  void add_covers(const std::string& where, const Replica& replica) {
    std::vector<OpRange> ranges;
    for (std::size_t r = 0; r < replica.regions.size(); ++r) {
      const std::vector<OpRange>& covers = replica.regions[r].covers;
      if (covers.empty()) fault("{}: region {} does not say which operators it covers", where, r);
      add_order(fmt::format("{}: region {}", where, r), covers);
      ranges.insert(ranges.end(), covers.begin(), covers.end());
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const OpRange& a, const OpRange& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].end)
        fault("{}: operator {} is in two regions", where, ranges[i].first);
  }

  void add_one_device(const std::string& where, const Region& region) {
    if (region.shares != std::vector<double>{1.0}) {
      fault("{}: the share of its only device must be 1", where);
    }
    if (!region.operators.empty() || !region.parameters.empty()) {
      fault("{}: one device splits no operators", where);
    }
  }

  void add_shared(const std::string& where, const Region& region) {
    has_shared_region = true;
    if (region.operators.empty()) {
      fault("{}: found {} devices, but not how they split the operators", where,
            region.devices.size());
    }
    if (region.shares.size() != region.devices.size()) {
      fault("{}: found {} shares for {} devices", where, region.shares.size(),
            region.devices.size());
      return;
    }
    // `!(share >= 0)` also refuses NaN.
    double total = 0;
    for (const double share : region.shares) {
      if (!(share >= 0)) fault("{}: found a share of {}, wanted 0 or more", where, share);
      total += share;
    }
    if (!(total > 0) || !std::isfinite(total)) {
      fault("{}: the shares sum to {}, wanted a number above 0", where, total);
    }
  }

  bool is_known(DeviceId device) const {
    return !device.is_none() && device.index() < cluster_.devices.size();
  }

  void add_use(std::size_t index, DeviceId device) {
    if (!is_known(device)) {
      fault("replica {}: the cluster has no device number {}", index, device.value);
      return;
    }
    const auto [first, added] = user_.emplace(device, index);
    if (!added && first->second != index) {
      fault("device {} is used by replicas {} and {}", cluster_.device(device).name, first->second,
            index);
    }
  }

  const cluster::Cluster& cluster_;
  std::map<DeviceId, std::size_t> user_;
};

/// Checks which interleaves: the replica of one shared region, or the regions of a plan of stages.
void add_turns(const Plan& plan, const ReplicaCheck& check, std::vector<std::string>& faults) {
  const bool is_one_region = plan.replicas.size() == 1 && splits_operators(plan);
  if (check.takes_turns && (!is_one_region || has_stages(plan)))
    faults.push_back(
        "micro-batches take turns: only those of one replica whose one region several devices "
        "share do, in equal parts");
  if (!check.turning.empty() && !has_stages(plan))
    faults.push_back(fmt::format(
        "{}: regions take turns in plans of stages; in this one the replica does", check.turning));
}

/// Checks shares of owners; find_owners checks their patterns.
void add_owners(const Plan& plan, const cluster::Cluster& cluster,
                std::vector<std::string>& faults) {
  std::set<DeviceId> used;
  for (const Replica& replica : plan.replicas)
    for (const Region& region : replica.regions)
      used.insert(region.devices.begin(), region.devices.end());
  for (std::size_t i = 0; i < plan.owners.size(); ++i) {
    double all = 0;
    for (const auto& [device, share] : plan.owners[i].shares) {
      if (!(share >= 0) || !std::isfinite(share))
        faults.push_back(fmt::format("owners {}: found a share of {}, wanted 0 or more", i, share));
      all += share;
      if (!used.contains(device) && !device.is_none() && device.index() < cluster.devices.size())
        faults.push_back(
            fmt::format("owners {}: device {} is in no replica", i, cluster.device(device).name));
    }
    if (!(all > 0)) faults.push_back(fmt::format("owners {}: no share is above 0", i));
    if (plan.owners[i].parameters.empty())
      faults.push_back(fmt::format("owners {}: no parameters", i));
  }
}

}  // namespace

Result<void> verify_plan(const Plan& plan, const std::string& model_hash,
                         const cluster::Cluster& cluster) {
  ReplicaCheck check(cluster);
  // Sums wrap like unsigned numbers: a file may hold any integers, which other clauses refuse.
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < plan.replicas.size(); ++i) {
    check.add(i, plan.replicas[i]);
    total += static_cast<std::uint64_t>(plan.replicas[i].samples);
  }
  std::vector<std::string> faults = std::move(check.faults);
  if (check.has_shared_region && plan.batch_norm == BatchNormMode::kLocal)
    faults.push_back("batch_norm is local: where operators are split it can only be global");
  add_turns(plan, check, faults);
  const auto samples = static_cast<std::int64_t>(total);
  if (plan.replicas.empty()) faults.push_back("no replicas, wanted at least 1");
  if (!plan.replicas.empty() && samples != plan.global_batch) {
    faults.push_back(fmt::format("the replicas have {} samples together, the global batch is {}",
                                 samples, plan.global_batch));
  }
  add_owners(plan, cluster, faults);
  if (plan.bucket_bytes.value <= 0) {
    faults.push_back(fmt::format("bucket_bytes is {}, wanted at least 1", plan.bucket_bytes.value));
  }
  if (!(plan.carried.exchanges >= 0) || plan.carried.skipped < 0)
    faults.push_back(fmt::format("carried is {} and carried_skip {}, wanted at least 0",
                                 plan.carried.exchanges, plan.carried.skipped));
  const bool invalid = !faults.empty();
  if (plan.model_hash != model_hash) {
    faults.push_back(fmt::format("made for model {}, this model is {}; plan again", plan.model_hash,
                                 model_hash));
  }
  const std::string hash = cluster::cluster_hash(cluster);
  if (plan.cluster_hash != hash) {
    faults.push_back(fmt::format("made for cluster {}, this cluster is {}; plan again",
                                 plan.cluster_hash, hash));
  }
  if (faults.empty()) return {};
  std::string message = "plan: " + join(faults, "; ");
  if (invalid) return usage_error("plan.invalid", std::move(message));
  return stale_error("plan.stale", std::move(message));
}

}  // namespace motley::plan
