#include "motley/control/survey/host_finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "motley/base/json.h"
#include "motley/control/survey/link_survey.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/here.h"

namespace motley::control {
namespace {

constexpr double kAnswering = 30;  // seconds
constexpr double kTogether = 2.0;  // seconds for which loads are sent
constexpr double kTellEvery = 5;   // seconds

class WireMeasuring {
 public:
  WireMeasuring(run::Hosts& hosts, const std::vector<std::string>& names)
      : hosts_(hosts), names_(names), word_(run::random_word()) {}

  Result<void> listen() {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::set<std::string> addresses;
      for (std::size_t from = 0; from < names_.size(); ++from)
        if (from != i) addresses.insert(address({from, i}));
      // With several addresses it listens on all.
      const std::string at = addresses.size() == 1 ? *addresses.begin() : "";
      MOTLEY_ASSIGN(const run::Frame answer,
                    link(i).ask({{"do", "listen"}, {"address", at}, {"word", word_}}, "listening",
                                kAnswering));
      ports_.push_back(answer.head.value("port", 0));
    }
    return {};
  }

  Result<std::vector<Wire>> measure(const LinkSurvey::Batch& batch) {
    if (batch.what == LinkSurvey::Batch::What::kTogether) return send(batch.flows, "together");
    std::vector<WireFlow> back;
    for (const WireFlow& flow : batch.flows) back.push_back({flow.to, flow.from});
    MOTLEY_ASSIGN(const std::vector<Wire> pings, send(batch.flows, "ping"));
    MOTLEY_ASSIGN(const std::vector<Wire> there, send(batch.flows, "settle"));
    MOTLEY_ASSIGN(const std::vector<Wire> here, send(back, "settle"));
    std::vector<Wire> both;
    for (std::size_t i = 0; i < back.size(); ++i) {
      both.insert(both.end(), {there[i], here[i]});
      for (Wire* wire : {&both[2 * i], &both[2 * i + 1]}) wire->latency = pings[i].latency;
    }
    return both;
  }

 private:
  run::HostLink& link(std::size_t host) { return hosts_.on(names_[host]); }

  /// Returns the receiver's address as the sender sees it.
  std::string address(const WireFlow& flow) const {
    const std::string &from = names_[flow.from], &to = names_[flow.to];
    return run::is_this_machine(to) ? hosts_.way_to(from).coordinator : hosts_.way_to(to).host;
  }

  Result<std::vector<Wire>> send(const std::vector<WireFlow>& flows, const char* what) {
    for (std::size_t i = 0; i < flows.size(); ++i)
      MOTLEY_RETURN_IF_ERROR(link(flows[i].from)
                                 .send({{"do", "wire"},
                                        {"id", i},
                                        {"what", what},
                                        {"seconds", kTogether},
                                        {"address", address(flows[i])},
                                        {"port", ports_[flows[i].to]},
                                        {"word", word_}}));
    std::vector<Wire> wires(flows.size());
    for (const WireFlow& flow : flows) {  // a host may have several, in any order
      MOTLEY_ASSIGN(const run::Frame answer, link(flow.from).wait_for("wire", kAnswering));
      const std::size_t id = answer.head.value("id", flows.size());
      if (id >= flows.size())
        return runtime_error("host.wire", fmt::format("host {}: found answer {} of {}",
                                                      names_[flow.from], id, flows.size()));
      wires[id] = {flows[id], Seconds(answer.head.value("latency", 0.0)),
                   BytesPerSecond(answer.head.value("bandwidth", 0.0))};
    }
    return wires;
  }

  run::Hosts& hosts_;
  const std::vector<std::string>& names_;
  const std::string word_;
  std::vector<int> ports_;
};

Result<void> ask_facts(run::Hosts& hosts, FoundHosts& found) {
  for (const std::string& host : found.hosts)
    MOTLEY_RETURN_IF_ERROR(hosts.on(host).send({{"do", "probe"}}));
  for (const std::string& host : found.hosts) {
    MOTLEY_ASSIGN(const run::Frame answer, hosts.on(host).wait_for("probe", kAnswering));
    const Json& said = answer.head.at("host");
    MOTLEY_ASSIGN(found.clusters.emplace_back(),
                  cluster::parse_cluster(said.value("cluster", ""), host));
    HostFacts facts{.motley = hosts.hello(host).value("motley", ""),
                    .torch = hosts.hello(host).value("torch", ""),
                    .processor = said.value("processor", ""),
                    .instructions = said.value("instructions", ""),
                    .cores = said.value("cores", 0)};
    MOTLEY_ASSIGN(facts.clock_ahead, hosts.clock_ahead(host));
    found.facts.push_back(std::move(facts));
  }
  return {};
}

Result<void> measure_wires(run::Hosts& hosts, FoundHosts& found, const Workers::Tell& tell) {
  LinkSurvey survey(found.hosts.size());
  WireMeasuring measuring(hosts, found.hosts);
  MOTLEY_RETURN_IF_ERROR(measuring.listen());
  const auto begin = run::Clock::now();
  auto told = begin;
  while (const auto batch = survey.next()) {
    MOTLEY_ASSIGN(const std::vector<Wire> wires, measuring.measure(*batch));
    survey.take(*batch, wires);
    if (run::seconds_since(told) < kTellEvery) continue;
    told = run::Clock::now();
    tell(
        batch->what == LinkSurvey::Batch::What::kPairs
            ? fmt::format("probe: {} of {} pairs of hosts measured", survey.done(), survey.wanted())
            : fmt::format("probe: {} loads measured", survey.wires().loads.size()));
  }
  found.wires = survey.wires();
  tell(fmt::format("probe: {} pairs of hosts and {} loads measured in {:.0f} s", survey.done(),
                   found.wires.loads.size(), run::seconds_since(begin)));
  return {};
}

}  // namespace

Result<FoundHosts> ask_hosts(run::Hosts& hosts, const std::vector<std::string>& names,
                             const Workers::Tell& tell) {
  FoundHosts found;
  found.missing = hosts.reach_some({names.begin(), names.end()});
  for (const std::string& name : names)
    if (!found.missing.contains(name)) found.hosts.push_back(name);
  MOTLEY_RETURN_IF_ERROR(hosts.check_names());
  MOTLEY_RETURN_IF_ERROR(ask_facts(hosts, found));
  found.wires.hosts = found.hosts.size();
  if (found.hosts.size() > 1) MOTLEY_RETURN_IF_ERROR(measure_wires(hosts, found, tell));
  return found;
}

}  // namespace motley::control
