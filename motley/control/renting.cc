#include "motley/control/renting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/notices/notice_hook.h"

namespace motley::control {
namespace {

using elastic::print_duration;

constexpr const char* kSchema = "motley.renting/1";
constexpr const char* kLeft = "renting";
constexpr std::string_view kVariables = "MOTLEY_RENT_";
constexpr Seconds kReadEvery{1}, kWriteEvery{10};

std::vector<std::string> names_of(const std::vector<const elastic::JobMachine*>& machines) {
  std::vector<std::string> names;
  for (const elastic::JobMachine* machine : machines) names.push_back(machine->name);
  return names;
}

}  // namespace

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
  const std::vector<std::string> absent =
      job.changes ? job.changes->absent : std::vector<std::string>();
  MOTLEY_ASSIGN(auto machines,
                find_machines(question.market, inputs.cluster, inputs.devices, absent));
  elastic::JobRenting policy =
      make_renting(question, std::move(machines), choices, job.steps, step);
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
  std::unique_ptr<Renting> made(new Renting(choices, std::move(policy), place, began));
  Json left{{"market", elastic::print_market(question.market)},
            {"lifetimes", question.lifetimes.to_json()}};
  place.adapting.leave_also(kLeft, [renting = made.get(), left] {
    Json what = left;
    what["state"] = renting->to_json();
    return what;
  });
  return made;
}

Renting::~Renting() { place_.adapting.leave_also(kLeft, nullptr); }

Result<std::string> open_left_market(const Json& left, const RunDirectory& directory) {
  const std::string path = directory.path + "/market.toml", lifetimes = "lifetimes_before.json";
  MOTLEY_ASSIGN(elastic::Market market,
                elastic::parse_market(left.at("market").get<std::string>(), "the lead's market"));
  if (!market.lifetimes.empty()) {
    market.lifetimes = lifetimes;
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(directory.path + "/" + lifetimes, left.at("lifetimes").dump()));
  }
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(path, elastic::print_market(market)));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory.renting(), left.at("state").dump(1)));
  return path;
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
  const auto* rent = std::get_if<policy::Rent>(&choice.action);
  if (rent != nullptr && rent->count > 0) ask(*rent);
  if (rent != nullptr && rent->count < 0) give_back(*rent);
}

void Renting::ask(const policy::Rent& rent) {
  asked_ += rent.count;
  const std::vector<const elastic::JobMachine*> machines = policy_.asked_for(rent);
  if (choices_.hook.empty())
    note(fmt::format("nobody is asked for {}: there is no --rent-hook; they may join at {}",
                     join(names_of(machines), ", "), place_.door));
  else
    start_hook(choices_.hook, machines);
}

/// The training goes on without it; when it has left (see_machines) it is given back.
void Renting::give_back(const policy::Rent& rent) {
  for (const elastic::JobMachine* machine : policy_.asked_for(rent)) {
    returning_.insert(machine->name);
    for (const std::string& device : machine->devices) {
      const auto released = place_.adapting.release(device);
      if (released) continue;
      note(fmt::format("warning: {} stays: {}", machine->name, released.error().message));
      returning_.erase(machine->name);
      kept_.push_back(machine->devices.front());
      break;
    }
  }
}

void Renting::start_hook(const std::string& command,
                         const std::vector<const elastic::JobMachine*>& machines) {
  std::vector<std::string> devices;
  for (const elastic::JobMachine* machine : machines)
    devices.insert(devices.end(), machine->devices.begin(), machine->devices.end());
  const std::size_t offer = *machines.front()->offer;
  const elastic::Offer& of = policy_.job().market.offers[offer];
  const auto variable = [](std::string_view name, const auto& value) {
    return fmt::format("{}{}={}", kVariables, name, value);
  };
  const auto started = run::start_hook(
      command,
      {variable("KIND", of.kind), variable("ZONE", of.zone), variable("SPOT", of.is_spot ? 1 : 0),
       variable("COUNT", machines.size()), variable("NODES", join(names_of(machines), " ")),
       variable("DEVICES", join(devices, " ")), variable("JOIN", place_.door),
       variable("PRICE_PER_HOUR", policy_.price_of(offer)),
       variable("LEFT_S", fmt::format("{:.1f}", (choices_.deadline - now()).value)),
       variable("RUN_DIR", place_.directory.path)},
      kVariables);
  if (!started) note("warning: " + started.error().message);
}

/// Of whom the training says that they are there, or not any more.
void Renting::see_machines() {
  std::map<std::string, std::string> states;
  for (job::DeviceStatus& each : place_.adapting.device_states())
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
    if (!lives && returning_.erase(name) > 0) start_hook(choices_.return_hook, {&machines[m]});
  }
  for (const std::string& device : std::exchange(kept_, {}))
    observe(policy::ArrivalSeen{device, now()});
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
    double price = policy::kNotOffered;
    for (const elastic::Offer& each : market->offers)
      if (elastic::name_of(each) == elastic::name_of(offer)) price = each.price_per_hour;
    observe(policy::PriceSeen{offer.kind, offer.zone, now(), price, offer.is_spot});
  }
}

Json Renting::to_json() const {
  return {{"schema", kSchema},
          {"began", began_.value},
          {"deadline_s", choices_.deadline.value},
          {"state", policy_.state()}};
}

void Renting::write() {
  written_ = now();
  auto done = write_file_atomic(place_.directory.renting(), to_json().dump(1));
  if (done)
    done = write_file_atomic(place_.directory.lifetimes(), policy_.lifetimes().to_json().dump(1));
  if (!done) note("warning: " + done.error().message);
}

RentedRun Renting::end() {
  write();
  return {policy_.paid(), choices_.deadline - now(), asked_};
}

}  // namespace motley::control
