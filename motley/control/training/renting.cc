#include "motley/control/training/renting.h"

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
      place_(place),
      rented_(std::move(policy), *this, place.adapting),
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
  MOTLEY_ASSIGN(elastic::Market market, elastic::parse_market(left.at("market").get<std::string>(),
                                                              "the coordinator's market"));
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
  rented_.observe(seen);
  after_decisions();
  return is_spent_ ? Wish::kStop : wish;
}

void Renting::hear(const run::Notice& notice) {
  if (!trains_ || !notice.is_certain) return;
  for (const std::string& device : notice.devices) rented_.hear(device, now(), notice.left);
  after_decisions();
}

void Renting::on_event(const run::WorkerEvent& event) {
  const bool ends = event.event == "done" || event.event == "signal" || is_spent_;
  has_ended_ = has_ended_ || ends;
  trains_ = trains_ && !has_ended_;
}

Wish Renting::look() {
  if (is_spent_) return Wish::kStop;
  if (!trains_) return Wish::kGoOn;
  rented_.see_machines(now());
  after_decisions();
  if (now() - read_ >= kReadEvery) {
    read_ = now();
    see_prices();
  }
  if (now() - written_ >= kWriteEvery) write();
  return is_spent_ ? Wish::kStop : Wish::kGoOn;
}

/// Saves new decisions. Stops training once the budget is spent.
void Renting::after_decisions() {
  const std::size_t decisions = rented_.decisions();
  if (std::exchange(decisions_, decisions) != decisions) write();
  if (!rented_.is_spent() || std::exchange(is_spent_, true)) return;
  note(fmt::format("the budget of {:.3g} is spent: stopping, with a checkpoint", *choices_.budget));
}

void Renting::ask(const std::vector<const elastic::JobMachine*>& machines, Seconds) {
  if (choices_.hook.empty())
    note(fmt::format("nobody is asked for {}: there is no --rent-hook; they may join at {}",
                     join(names_of(machines), ", "), place_.control_socket));
  else
    start_hook(choices_.hook, machines);
}

void Renting::go(std::size_t machine, Went went) {
  if (went == Went::kGivenBack)
    start_hook(choices_.return_hook, {&rented_.policy().job().machines[machine]});
}

void Renting::start_hook(const std::string& command,
                         const std::vector<const elastic::JobMachine*>& machines) {
  std::vector<std::string> devices;
  for (const elastic::JobMachine* machine : machines)
    devices.insert(devices.end(), machine->devices.begin(), machine->devices.end());
  const std::size_t offer = *machines.front()->offer;
  const elastic::Offer& of = rented_.policy().job().market.offers[offer];
  const auto variable = [](std::string_view name, const auto& value) {
    return fmt::format("{}{}={}", kVariables, name, value);
  };
  const auto started = run::start_hook(
      command,
      {variable("KIND", of.kind), variable("ZONE", of.zone), variable("SPOT", of.is_spot ? 1 : 0),
       variable("COUNT", machines.size()), variable("NODES", join(names_of(machines), " ")),
       variable("DEVICES", join(devices, " ")), variable("JOIN", place_.control_socket),
       variable("PRICE_PER_HOUR", rented_.policy().price_of(offer)),
       variable("LEFT_S", fmt::format("{:.1f}", (choices_.deadline - now()).value)),
       variable("RUN_DIR", place_.directory.path)},
      kVariables);
  if (!started) note("warning: " + started.error().message);
}

/// Reads changed prices. Offers no longer in the market are unavailable.
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
  const std::vector<elastic::Offer> offers = rented_.policy().job().market.offers;
  for (const elastic::Offer& offer : offers) {
    double price = policy::kNotOffered;
    for (const elastic::Offer& each : market->offers)
      if (elastic::name_of(each) == elastic::name_of(offer)) price = each.price_per_hour;
    rented_.observe(policy::PriceSeen{offer.kind, offer.zone, now(), price, offer.is_spot});
  }
  after_decisions();
}

Json Renting::to_json() const {
  return {{"schema", kSchema},
          {"began", began_.value},
          {"deadline_s", choices_.deadline.value},
          {"state", rented_.policy().state()}};
}

void Renting::write() {
  written_ = now();
  auto done = write_file_atomic(place_.directory.renting(), to_json().dump(1));
  if (done)
    done = write_file_atomic(place_.directory.lifetimes(),
                             rented_.policy().lifetimes().to_json().dump(1));
  if (!done) note("warning: " + done.error().message);
}

RentedRun Renting::end() {
  write();
  return {rented_.policy().paid(), choices_.deadline - now(), rented_.asked()};
}

}  // namespace motley::control
