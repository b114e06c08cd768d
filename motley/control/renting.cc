#include "motley/control/renting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/elastic/deadline_policy.h"
#include "motley/run/notices/notice_hook.h"

namespace motley::control {
namespace {

using elastic::print_duration;

constexpr const char* kSchema = "motley.renting/1";
constexpr std::string_view kVariables = "MOTLEY_RENT_";
constexpr Seconds kReadEvery{1}, kWriteEvery{10};
constexpr double kTicks = 1000;  // between the beginning and the deadline, of a second at least

std::string describe(const cluster::Node& node, const std::string& kind) {
  return fmt::format("{} {} {}", kind, node.spot ? "spot" : "on demand", node.zone);
}

std::string describe_offers(const elastic::Market& market) {
  std::vector<std::string> names;
  for (const elastic::Offer& offer : market.offers) names.push_back(elastic::name_of(offer));
  return join(names, ", ");
}

/// Who was there before this market's machines: their times end where this run begins.
elastic::Lifetimes before(const elastic::Lifetimes& seen) {
  Seconds latest(0);
  for (const auto& [name, machine] : seen.machines())
    latest = std::max({latest, machine.start, machine.end.value_or(Seconds(0))});
  elastic::Lifetimes shifted(seen.options());
  for (auto [name, machine] : seen.machines()) {
    machine.start -= latest;
    machine.end = machine.end.value_or(latest) - latest;
    shifted.add("before: " + name, machine);
  }
  return shifted;
}

/// The offer of a node that says a zone.
Result<std::size_t> find_offer(const elastic::Market& market, const cluster::Node& node,
                               const std::vector<const cluster::Device*>& devices) {
  for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
    const elastic::Offer& each = market.offers[offer];
    if (each.zone != node.zone || each.is_spot != node.spot) continue;
    const bool fits = each.devices == static_cast<int>(devices.size()) &&
                      std::all_of(devices.begin(), devices.end(),
                                  [&](const auto* device) { return device->kind == each.kind; });
    if (fits) return offer;
  }
  const std::string count = devices.size() == 1 ? "" : fmt::format("{}x", devices.size());
  return usage_error(
      "market.node",
      fmt::format("node '{}': the market has no offer of {}{}; it has {}", node.name, count,
                  describe(node, devices.front()->kind), describe_offers(market)));
}

/// Beside other devices of this kind.
double speed_of(const cluster::Device& device) {
  return device.speed * device.threads * device.quota.value_or(1);
}

}  // namespace

Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent) {
  if (market.server)
    return usage_error("market.server",
                       "a market with [server] is of asynchronous workers, which run does not "
                       "train with; leave [server] out");
  for (const elastic::Offer& offer : market.offers)
    if (std::none_of(ids.begin(), ids.end(),
                     [&](DeviceId device) { return cluster.device(device).kind == offer.kind; }))
      return usage_error("market.offer", fmt::format("offer '{}': no device of the cluster is of "
                                                     "kind '{}'",
                                                     elastic::name_of(offer), offer.kind));
  std::vector<elastic::JobMachine> machines;
  bool rents = false;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const cluster::Node& node = cluster.nodes[n];
    std::vector<const cluster::Device*> devices;
    elastic::JobMachine machine{.name = node.name, .speed = 0};
    std::size_t away = 0;
    for (const DeviceId id : ids) {
      const cluster::Device& device = cluster.device(id);
      if (device.node.index() != n) continue;
      devices.push_back(&device);
      machine.devices.push_back(device.name);
      machine.speed += speed_of(device);
      away += std::find(absent.begin(), absent.end(), device.name) == absent.end() ? 0 : 1;
    }
    if (devices.empty()) continue;
    if (away > 0 && away < devices.size())
      return usage_error("market.absent", fmt::format("node '{}': {} of its {} devices are absent; "
                                                      "a rented machine is there or not",
                                                      node.name, away, devices.size()));
    machine.is_there = away == 0;
    if (!node.zone.empty()) {
      MOTLEY_ASSIGN(machine.offer, find_offer(market, node, devices));
      rents = true;
    }
    machines.push_back(std::move(machine));
  }
  if (rents) return machines;
  return usage_error("market.node",
                     "no [[node]] of the cluster says a zone, so none is rented; the market has " +
                         describe_offers(market));
}

std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state) {
  elastic::Mix mix{std::vector<int>(question.market.offers.size(), 0)};
  for (const elastic::JobMachine& machine : machines) {
    if (!machine.is_there) continue;
    if (!machine.offer) return std::nullopt;
    ++mix.machines[*machine.offer];
  }
  const Seconds every =
      elastic::save_interval(question.market, mix, before(question.lifetimes).forecast(Seconds(0)),
                             elastic::checkpoint_time(question.market, state));
  const double steps = every / step;
  if (!(steps < 1e12)) return std::nullopt;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
}

Renting::Renting(RentChoices choices, elastic::JobRenting policy, const Place& place, Seconds began)
    : choices_(std::move(choices)),
      policy_(std::move(policy)),
      place_(place),
      began_(began),
      steady_began_(place.clock.steady() - (place.clock.calendar() - began)) {
  std::error_code code;
  changed_ = std::filesystem::last_write_time(choices_.market, code);
}

Result<std::unique_ptr<Renting>> Renting::start(const RentChoices& choices, const Inputs& inputs,
                                                const run::Job& job, std::optional<Seconds> step,
                                                const Place& place) {
  MOTLEY_ASSIGN(const MarketQuestion question, read_market_question(choices.market));
  elastic::RentingJob renting{.market = question.market,
                              .steps = job.steps,
                              .step = step,
                              .deadline = choices.deadline,
                              .budget = choices.budget};
  renting.tick = std::max(renting.tick, choices.deadline / kTicks);
  const std::vector<std::string> absent =
      job.changes ? job.changes->absent : std::vector<std::string>();
  MOTLEY_ASSIGN(renting.machines,
                find_machines(question.market, inputs.cluster, inputs.devices, absent));
  elastic::JobRenting policy(std::move(renting), before(question.lifetimes));
  const Seconds now = place.clock.calendar();
  Seconds began = now;
  const std::string path = place.directory.renting();
  if (job.resume && std::filesystem::exists(path)) {
    MOTLEY_ASSIGN(const std::string text, read_file(path));
    MOTLEY_ASSIGN(const Json json, parse_json(text, path));
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, path));
    MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
    if (schema != kSchema)
      return usage_error("market.schema",
                         fmt::format("{}: schema '{}', wanted '{}'", path, schema, kSchema));
    MOTLEY_ASSIGN(began.value, object.number("began"));
    MOTLEY_ASSIGN(const Json* state, object.member("state"));
    MOTLEY_RETURN_IF_ERROR(policy.restore(*state, path));
  }
  if (now - began >= choices.deadline)
    return usage_error(
        "market.deadline",
        fmt::format("the run of {} began {} ago, and its deadline is {} after that: "
                    "it is past; give a later --deadline, or --resume never to begin "
                    "anew",
                    place.directory.path, print_duration(now - began),
                    print_duration(choices.deadline)));
  if (policy.is_spent())
    return usage_error("market.budget",
                       fmt::format("the run of {} has paid {:.3g} of {:.3g}: its "
                                   "budget is spent; give a larger --budget",
                                   place.directory.path, policy.paid(), *choices.budget));
  return std::unique_ptr<Renting>(new Renting(choices, std::move(policy), place, began));
}

Seconds Renting::now() const { return place_.clock.steady() - steady_began_; }

Wish Renting::step(const StepReport& report) {
  const Wish wish = place_.listener.step(report);
  if (has_ended_) return wish;
  trains_ = true;
  policy::StepSeen seen;
  seen.step = report.step;
  seen.at = now();
  seen.took = Seconds(report.logged.step_s);
  observe(seen);
  return is_spent_ ? Wish::kStop : wish;
}

void Renting::hear(const run::Notice& notice) {
  if (!trains_ || !notice.is_certain) return;
  for (const std::string& device : notice.devices)
    for (const elastic::JobMachine& machine : policy_.job().machines)
      if (std::find(machine.devices.begin(), machine.devices.end(), device) !=
              machine.devices.end() &&
          noticed_.insert(machine.name).second)
        observe(policy::NoticeSeen{device, now(), notice.left});
}

void Renting::on_event(const run::WorkerEvent& event) {
  const bool ends = event.event == "done" || event.event == "signal" || is_spent_;
  has_ended_ = has_ended_ || ends;
  trains_ = trains_ && !has_ended_;
}

Wish Renting::look() {
  if (is_spent_) return Wish::kStop;
  if (!trains_) return Wish::kGoOn;
  see_machines();
  if (now() - read_ >= kReadEvery) {
    read_ = now();
    see_prices();
  }
  if (now() - written_ >= kWriteEvery) write();
  return is_spent_ ? Wish::kStop : Wish::kGoOn;
}

void Renting::observe(const policy::Observation& seen) {
  const std::vector<policy::Choice> choices = policy_.observe(seen);
  for (const policy::Choice& choice : choices) carry_out(choice);
  if (!choices.empty()) write();
  if (!policy_.is_spent() || std::exchange(is_spent_, true)) return;
  note(fmt::format("the budget of {:.3g} is spent: stopping, with a checkpoint", *choices_.budget));
}

void Renting::carry_out(const policy::Choice& choice) {
  if (said_ != choice.why)
    note(fmt::format("step {}: {}", place_.adapting.steps_done(), choice.why));
  said_ = choice.why;
  place_.adapting.record({.policy = std::string(policy_.name()), .choice = choice});
  if (const auto* rent = std::get_if<policy::Rent>(&choice.action)) ask(*rent);
}

void Renting::ask(const policy::Rent& rent) {
  asked_ += rent.count;
  std::vector<std::string> devices, nodes;
  double price = 0;
  for (const elastic::JobMachine* machine : policy_.asked_for(rent)) {
    nodes.push_back(machine->name);
    devices.insert(devices.end(), machine->devices.begin(), machine->devices.end());
    price = policy_.price_of(*machine->offer);
  }
  if (choices_.hook.empty()) {
    note(fmt::format("nobody is asked for {}: there is no --rent-hook; they may join at {}",
                     join(nodes, ", "), place_.door));
    return;
  }
  const auto variable = [](std::string_view name, const auto& value) {
    return fmt::format("{}{}={}", kVariables, name, value);
  };
  const auto started =
      run::start_hook(choices_.hook,
                      {variable("KIND", rent.kind), variable("ZONE", rent.zone),
                       variable("SPOT", rent.spot ? 1 : 0), variable("COUNT", rent.count),
                       variable("NODES", join(nodes, " ")), variable("DEVICES", join(devices, " ")),
                       variable("JOIN", place_.door), variable("PRICE_PER_HOUR", price),
                       variable("LEFT_S", fmt::format("{:.1f}", (choices_.deadline - now()).value)),
                       variable("RUN_DIR", place_.directory.path)},
                      kVariables);
  if (!started) note("warning: " + started.error().message);
}

/// Of whom the training says that they are there, or not any more.
void Renting::see_machines() {
  std::map<std::string, std::string> states;
  for (DeviceState& each : place_.adapting.device_states())
    states[each.name] = std::move(each.state);
  const std::vector<elastic::JobMachine> machines = policy_.job().machines;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    bool lives = false, leaves = true;
    for (const std::string& device : machines[m].devices) {
      const std::string& state = states[device];
      lives = lives || state == "training" || state == "idle" || state == "leaving";
      leaves = leaves && state == "leaving";
    }
    const std::string& name = machines[m].name;
    const std::string& device = machines[m].devices.front();
    if (leaves) leaving_.insert(name);
    if (lives == policy_.is_there(m)) continue;
    const bool was_left = leaving_.erase(name) > 0, was_noticed = noticed_.erase(name) > 0;
    if (lives)
      observe(policy::ArrivalSeen{device, now()});
    else
      observe(policy::LossSeen{device, now(), was_left && !was_noticed});
  }
}

/// Offers that are not in the market any more are not to be had.
void Renting::see_prices() {
  std::error_code code;
  const auto changed = std::filesystem::last_write_time(choices_.market, code);
  if (code || changed == changed_) return;
  changed_ = changed;
  const auto market = elastic::read_market(choices_.market);
  if (!market) {
    note("warning: the prices stay as they were: " + market.error().message);
    return;
  }
  const std::vector<elastic::Offer> offers = policy_.job().market.offers;
  for (const elastic::Offer& offer : offers) {
    double price = elastic::kNotOffered;
    for (const elastic::Offer& each : market->offers)
      if (elastic::name_of(each) == elastic::name_of(offer)) price = each.price_per_hour;
    observe(policy::PriceSeen{offer.kind, offer.zone, now(), price, offer.is_spot});
  }
}

void Renting::write() {
  written_ = now();
  const Json json{{"schema", kSchema},
                  {"began", began_.value},
                  {"deadline_s", choices_.deadline.value},
                  {"state", policy_.state()}};
  auto done = write_file_atomic(place_.directory.renting(), json.dump(1));
  if (done)
    done = write_file_atomic(place_.directory.lifetimes(), policy_.lifetimes().to_json().dump(1));
  if (!done) note("warning: " + done.error().message);
}

RentedRun Renting::end() {
  write();
  return {policy_.paid(), choices_.deadline - now(), asked_};
}

}  // namespace motley::control
