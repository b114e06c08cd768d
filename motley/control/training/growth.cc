#include "motley/control/training/growth.h"

#include <fmt/format.h>

#include <utility>

#include "motley/control/planning/placing.h"
#include "motley/control/training/joiner.h"
#include "motley/run/hosts/here.h"
#include "motley/search/price/priced_identical.h"

namespace motley::control {
namespace {

class Growth {
 public:
  Growth(ChosenPlan& chosen, std::string profiles, Enforce enforce, const Workers& workers,
         Adaptation& adaptation)
      : chosen_(chosen),
        profiles_(std::move(profiles)),
        enforce_(enforce),
        workers_(workers),
        adaptation_(adaptation) {}

  /// `add` accepts any host if the job listens to others.
  Result<Grown> add(const cluster::Cluster& joiner);
  Result<Grown> add_known(const cluster::Cluster& joiner);
  std::string price(DeviceId device);

 private:
  Result<search::Costs> load(const std::vector<DeviceId>& devices) const;
  Result<std::string> find_costs(DeviceId device, search::Costs& costs) const;

  ChosenPlan& chosen_;
  std::string profiles_;
  Enforce enforce_;
  const Workers& workers_;
  Adaptation& adaptation_;
  bool is_lowered_anew_ = false;  // since there were prices
};

Result<Grown> Growth::add(const cluster::Cluster& joiner) {
  const std::string& host = joiner.nodes.front().host;
  if (adaptation_.standby_state.is_null() && !run::is_this_machine(host))
    return usage_error(
        "elastic.one-machine",
        "host " + host +
            ": all devices of this run's cluster are of one machine, which is all "
            "that it listens to; start it with a cluster file that has another host, "
            "which may be --absent");
  return add_known(joiner);
}

Result<Grown> Growth::add_known(const cluster::Cluster& joiner) {
  Inputs& inputs = chosen_.inputs;
  Grown grown;
  MOTLEY_ASSIGN(grown.joined, add_joiner(joiner, inputs.cluster));
  MOTLEY_ASSIGN(grown.device, cluster::find_device(inputs.cluster, device_name(joiner)));
  tell_processor(inputs.cluster, inputs.cluster.devices[grown.device.index()]);
  std::vector<DeviceId> all = cluster::all_devices(inputs.cluster);
  if (inputs.lowering.updates == plan::Updates::kNative &&
      !cluster::are_identical(inputs.cluster, all)) {
    inputs.lowering.updates = chosen_.planned.plan.updates = plan::Updates::kPortable;
    is_lowered_anew_ = true;
  }
  chosen_.planned.plan.cluster_hash = cluster::cluster_hash(inputs.cluster);
  const auto route =
      enforce_ == Enforce::kSpeedsAndLinks ? emulated_route(inputs.cluster, all) : std::nullopt;
  grown.worker = worker_device(inputs.cluster, grown.device, route);
  if (enforce_ == Enforce::kNothing) grown.worker.speed = 1.0;
  return grown;
}

Result<search::Costs> Growth::load(const std::vector<DeviceId>& devices) const {
  const Inputs& inputs = chosen_.inputs;
  MOTLEY_ASSIGN(const std::string torch, workers_.torch_version());
  MOTLEY_ASSIGN(const cost::ProfileStore store, open_store(profiles_));
  return search::load_costs(*inputs.model, inputs.cluster, store,
                            {.lowering = inputs.lowering,
                             .torch = engine_version(inputs, torch),
                             .global_batch = inputs.global_batch,
                             .devices = devices});
}

/// Adds the device's costs and returns an explanation.
Result<std::string> Growth::find_costs(DeviceId device, search::Costs& costs) const {
  const cluster::Cluster& cluster = chosen_.inputs.cluster;
  const std::string& name = cluster.device(device).name;
  if (auto own = load({device})) {
    costs.devices.insert_or_assign(name, own->devices.at(name));
    const auto take = [&](auto& all, auto& from) {
      if (const auto found = from.find(name); found != from.end())
        all.insert_or_assign(name, std::move(found->second));
    };
    take(costs.by_work, own->by_work);
    take(costs.full_speed, own->full_speed);
    take(costs.jitter, own->jitter);
    take(costs.grounds, own->grounds);
    return std::string("priced by what was measured of its kind");
  }
  const auto known = search::find_identical(costs, cluster, device);
  if (!known) return runtime_error("elastic.price", "no device of its kind is priced");
  search::price_identical(costs, cluster, device, *known);
  return "priced " + costs.grounds.at(name).text;
}

std::string Growth::price(DeviceId device) {
  const Inputs& inputs = chosen_.inputs;
  if (!chosen_.priced.costs) return "its share is that of the others, as nothing is priced";
  const auto made = [&]() -> Result<std::string> {
    search::Costs costs = *chosen_.priced.costs;
    if (is_lowered_anew_) {
      std::vector<DeviceId> priced;
      for (const DeviceId id : inputs.devices)
        if (costs.devices.contains(inputs.cluster.device(id).name)) priced.push_back(id);
      MOTLEY_ASSIGN(costs, load(priced));
    }
    MOTLEY_ASSIGN(std::string words, find_costs(device, costs));
    costs.collectives.reach(static_cast<int>(costs.devices.size()));
    const auto kept = std::make_shared<const search::Costs>(std::move(costs));
    MOTLEY_ASSIGN(
        chosen_.priced.evaluator,
        search::StepEvaluator::make(inputs.graph(), inputs.cluster, inputs.lowering, *kept));
    chosen_.priced.costs = adaptation_.costs = kept;
    is_lowered_anew_ = false;
    return words;
  }();
  if (made) return *made;
  chosen_.priced = {};
  adaptation_.costs = nullptr;
  return "plans are not priced from now on: " + made.error().message;
}

}  // namespace

void let_grow(ChosenPlan& chosen, const std::string& profiles, Enforce enforce,
              const Workers& workers, Adaptation& adaptation) {
  const auto growth = std::make_shared<Growth>(chosen, profiles, enforce, workers, adaptation);
  adaptation.grow = [growth](const cluster::Cluster& joiner) { return growth->add(joiner); };
  adaptation.price = [growth](DeviceId device) { return growth->price(device); };
}

Result<void> take_earlier(ChosenPlan& chosen, const std::vector<std::string>& joiners,
                          const std::string& profiles, Enforce enforce, const Outside& outside) {
  Adaptation none;
  Growth growth(chosen, profiles, enforce, outside.workers, none);
  for (const std::string& text : joiners) {
    MOTLEY_ASSIGN(const cluster::Cluster joiner, parse_joiner(text));
    if (cluster::find_device(chosen.inputs.cluster, device_name(joiner))) continue;
    MOTLEY_ASSIGN(const Grown grown, growth.add_known(joiner));
    chosen.inputs.devices.push_back(grown.device);
    outside.listener.note(fmt::format("{}, which came to this run: {}; {}", device_name(joiner),
                                      grown.joined, growth.price(grown.device)));
  }
  return {};
}

}  // namespace motley::control
