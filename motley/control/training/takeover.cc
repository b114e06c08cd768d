#include "motley/control/training/takeover.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/random.h"
#include "motley/control/run_directory.h"
#include "motley/control/training/joiner.h"
#include "motley/control/training/renting.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/run/hosts/here.h"

namespace motley::control {
namespace {

namespace fs = std::filesystem;
constexpr const char* kStore = "profiles.db";
constexpr int kHaltsOfALead = 1000000;  // more than one coordinator uses

/// Returns the processor type assumed for each device, which the cluster's text omits.
Json takings(const cluster::Cluster& cluster) {
  Json taken = Json::array();
  for (const cluster::Device& device : cluster.devices) taken.push_back(device.taken_for);
  return taken;
}

Result<cluster::Cluster> read_cluster(const Json& memory) {
  MOTLEY_ASSIGN(cluster::Cluster cluster,
                cluster::parse_cluster(memory.at("cluster").get<std::string>(), "cluster"));
  const Json& taken = memory.at("taken_for");
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    cluster.devices[i].taken_for = taken.at(i).get<std::string>();
  return cluster;
}

Result<TakenOver> read_known(const Json& memory, const cluster::Cluster& cluster) {
  TakenOver known;
  for (const Json& each : memory.at("plans")) {
    const std::string text = each.at("plan");
    MOTLEY_ASSIGN(plan::Plan plan, plan::parse_plan(text, "plan", cluster));
    known.plans.push_back(
        {each.at("number").get<int>(), std::move(plan), each.at("lr_factor").get<double>()});
  }
  for (const Json& each : memory.at("devices")) {
    MOTLEY_ASSIGN(const DeviceId id,
                  cluster::find_device(cluster, each.at("name").get<std::string>()));
    known.devices.push_back(id);
    known.hosts.push_back(each.at("host"));
  }
  known.living = memory.at("living").get<std::vector<std::string>>();
  known.saved_step = memory.at("saved_step").get<std::int64_t>();
  known.policy = memory.at("policy");
  known.numbers = (memory.at("epoch").get<int>() + 1) * kHaltsOfALead;
  if (known.plans.empty()) return runtime_error("succession.none", "the coordinator left no plan");
  return known;
}

/// Copies the profile store below the run directory and returns the folder; "": no store.
Result<std::string> copy_store(const std::string& store, const std::string& run_dir) {
  std::error_code code;
  if (!fs::exists(store, code)) return std::string();
  std::string folder = run_dir + "/profiles";
  fs::remove_all(folder, code);
  fs::create_directories(folder, code);
  MOTLEY_ASSIGN(const cost::ProfileStore from, cost::ProfileStore::open(store));
  MOTLEY_RETURN_IF_ERROR(from.copy_to(folder + "/" + kStore));
  return folder;
}

}  // namespace

void tell_cluster(const cluster::Cluster& cluster, Json& standby_state) {
  standby_state["cluster"] = cluster::print_cluster(cluster);
  standby_state["taken_for"] = takings(cluster);
}

Result<Json> make_standby_state(const std::vector<std::string>& arguments,
                                const std::string& run_dir, const std::string& store) {
  const std::string path = fs::absolute(run_dir).lexically_normal().string();
  MOTLEY_ASSIGN(const std::string profiles, copy_store(store, path));
  return Json{{"arguments", arguments},
              {"name", fmt::format("{}-{}", fs::path(path).filename().string(),
                                   hash_hex(run::own_host_name() + ":" + path).substr(0, 8))},
              {"host", run::own_host_name()},
              {"profiles", profiles}};
}

Result<TakeoverInputs> open_takeover(const run::TakeoverState& inherited) {
  const Json& memory = inherited.memory;
  try {
    TakeoverInputs made;
    const fs::path kept = fs::path(inherited.scratch).parent_path() / "led";
    made.run_dir = (kept / memory.at("name").get<std::string>()).string();
    std::error_code code;
    fs::remove_all(made.run_dir, code);
    fs::create_directories(made.run_dir, code);
    if (code) return runtime_error("cli.run-dir", made.run_dir + ": " + code.message());
    fs::copy_file(inherited.scratch + "/log.jsonl", made.run_dir + "/log.jsonl", code);
    const std::string job = inherited.scratch + "/run/job.json";
    MOTLEY_ASSIGN(const std::string text, read_file(job));
    MOTLEY_ASSIGN(const Json json, parse_json(text, job));
    MOTLEY_ASSIGN(made.job, run::job_from_json(json, job));
    MOTLEY_ASSIGN(made.cluster, read_cluster(memory));
    MOTLEY_ASSIGN(made.known, read_known(memory, made.cluster));
    made.known.alone = inherited.alone;
    if (const auto log = read_log({made.run_dir}); log && !log->steps.empty())
      made.known.done = log->steps.rbegin()->first + 1;
    for (const char* key : {"arguments", "name", "host"}) made.standby_state[key] = memory.at(key);
    const std::string left = inherited.scratch + "/left/profiles/store";
    if (fs::exists(left, code)) {
      const std::string folder = made.run_dir + "/profiles";
      fs::copy(left, folder, fs::copy_options::recursive, code);
      made.profiles = folder + "/" + kStore;
      made.standby_state["profiles"] = folder;
    }
    if (memory.contains("renting")) {
      MOTLEY_ASSIGN(made.market, open_left_market(memory.at("renting"), {made.run_dir}));
    }
    made.joiners = memory.at("newcomers").get<std::vector<std::string>>();
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(RunDirectory{made.run_dir}.joiners(), print_joiners(made.joiners)));
    for (std::size_t i = 0; i < made.known.devices.size(); ++i)
      if (!inherited.processes.contains(static_cast<int>(i)))
        made.absent.push_back(made.cluster.device(made.known.devices[i]).name);
    made.plan = made.run_dir + "/left_plan.json";
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(made.plan, memory.at("plans").back().at("plan").get<std::string>()));
    return made;
  } catch (const Json::exception& fault) {
    return runtime_error("succession.none",
                         std::string("what the coordinator left cannot be read: ") + fault.what());
  }
}

}  // namespace motley::control
