#include "motley/run/remote_job.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "motley/run/hosts/here.h"
#include "motley/run/rank_files.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr double kPatience = 60;  // seconds

/// Where a file of this machine is to lie; what is no file must be there.
Result<std::string> place_file(HostLink& link, const std::string& from, const std::string& name) {
  if (from.empty()) return std::string();
  std::error_code code;
  if (fs::is_regular_file(from, code)) {
    const std::string path = fmt::format("run/in/{}/{}", name, fs::path(from).filename().string());
    MOTLEY_RETURN_IF_ERROR(link.share(from, path));
    return link.scratch() + "/" + path;
  }
  MOTLEY_ASSIGN(const Frame found,
                link.ask({{"do", "exists"}, {"path", from}}, "exists", kPatience));
  if (found.head.value("there", false)) return from;
  return usage_error("host.data",
                     fmt::format("host {}: {} is not there; folders and what Python loads must lie "
                                 "at the same path on every host",
                                 link.host(), from));
}

Result<void> place_data(HostLink& link, data::DataSource& source, const std::string& name) {
  if (!data::is_loaded(source)) {
    MOTLEY_ASSIGN(source.path, place_file(link, source.path, name));
    return {};
  }
  // A Python file stands beside others, and a table beside its like.
  MOTLEY_ASSIGN(const Frame found,
                link.ask({{"do", "exists"}, {"path", source.path}}, "exists", kPatience));
  if (found.head.value("there", false)) return {};
  return usage_error("host.data",
                     fmt::format("host {}: {} is not there; what Python loads must lie "
                                 "at the same path on every host",
                                 link.host(), source.path));
}

/// The latest checkpoint, as a run directory has it.
Result<void> place_checkpoint(HostLink& link, const std::string& run_dir) {
  std::error_code code;
  const fs::path folder = fs::canonical(run_dir + "/checkpoint/latest", code);
  if (code) return {};  // none
  for (const auto& each : fs::directory_iterator(folder, code))
    MOTLEY_RETURN_IF_ERROR(link.share(
        each.path().string(), fmt::format("run/checkpoint/{}/{}", folder.filename().string(),
                                          each.path().filename().string())));
  return link.link("run/checkpoint/latest", folder.filename().string());
}

/// The machines of the job's devices other than this one.
std::set<std::string> remote_hosts(const Job& job) {
  std::set<std::string> hosts;
  for (const WorkerDevice& device : job.devices)
    if (!device.host.empty()) hosts.insert(device.host);
  return hosts;
}

/// By rank; "": this process.
std::vector<std::string> choose_agents(const Hosts& hosts, const Job& job) {
  std::map<std::string, int> ranks_of;
  std::vector<std::string> chosen;
  for (const WorkerDevice& device : job.devices) {
    std::vector<std::string> agents = hosts.agents_on(device.host);
    if (device.host.empty()) agents.insert(agents.begin(), "");
    chosen.push_back(*std::min_element(
        agents.begin(), agents.end(),
        [&](const std::string& a, const std::string& b) { return ranks_of[a] < ranks_of[b]; }));
    ++ranks_of[chosen.back()];
  }
  return chosen;
}

Result<void> choose_store(Hosts& hosts, Job& job) {
  const std::set<std::string> remote = remote_hosts(job);
  if (remote.empty() || job.devices.size() < 2) return {};
  const std::string& first = job.devices[0].host;
  if (first.empty()) {
    MOTLEY_ASSIGN(const int port, find_free_port());
    job.store = StoreAddress{hosts.way_to(*remote.begin()).lead, port, random_word()};
    return {};
  }
  MOTLEY_ASSIGN(const Frame answer, hosts.on(first).ask({{"do", "port"}}, "port", kPatience));
  job.store = StoreAddress{hosts.way_to(first).host, answer.head.value("port", 0), random_word()};
  return {};
}

/// Files that are written to be sent, and then gone.
class Outbox {
 public:
  Outbox() {
    std::string name = (fs::temp_directory_path() / "motley-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~Outbox() {
    std::error_code code;
    if (!folder_.empty()) fs::remove_all(folder_, code);
  }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  std::string file() const { return folder_ + "/model.safetensors"; }

 private:
  std::string folder_;
};

/// What each rank on the host needs alone. Where rank 0 is, the model file is whole.
Result<void> place_rank_files(HostLink& link, const RankFiles& files, const std::string& host,
                              const Job& job) {
  const Outbox outbox;
  const bool has_model = job.devices[0].host == host;
  for (std::size_t i = 0; i < job.devices.size(); ++i) {
    if (job.devices[i].host != host) continue;
    const auto number = static_cast<int>(i);
    const RankFolder there("run/ranks", number);
    MOTLEY_RETURN_IF_ERROR(link.put_text(files.program(Rank(number)), there.program()));
    for (std::size_t k = 0; k < files.evaluations(); ++k)
      MOTLEY_RETURN_IF_ERROR(link.put_text(files.evaluation(k, Rank(number)), there.evaluation(k)));
    if (has_model) continue;
    MOTLEY_RETURN_IF_ERROR(files.write_weights(Rank(number), outbox.file()));
    MOTLEY_RETURN_IF_ERROR(link.put(outbox.file(), there.weights()));
  }
  if (has_model) return {};
  MOTLEY_RETURN_IF_ERROR(files.write_model(outbox.file()));
  return link.put(outbox.file(), "run/in/model/model.safetensors");
}

/// The job's path there. `files`: null for a job without a program.
Result<std::string> place_files(HostLink& link, const RankFiles* files, const std::string& host,
                                const Job& job) {
  MOTLEY_RETURN_IF_ERROR(link.send({{"do", "reset"}}));
  Job there = job;
  there.run_dir = link.scratch() + "/run";
  if (files != nullptr) {
    const bool leads = job.devices[0].host == host;
    MOTLEY_RETURN_IF_ERROR(place_rank_files(link, *files, host, job));
    there.rank_files = there.run_dir + "/ranks";
    there.model_path = there.run_dir + "/in/model/model.safetensors";
    if (leads) {
      MOTLEY_ASSIGN(there.model_path, place_file(link, job.model_path, "model"));
    }
    if (leads && job.resume) MOTLEY_RETURN_IF_ERROR(place_checkpoint(link, job.run_dir));
    MOTLEY_RETURN_IF_ERROR(place_data(link, there.data, "data"));
  }
  if (there.evaluation)
    MOTLEY_RETURN_IF_ERROR(place_data(link, there.evaluation->data, "eval-data"));
  MOTLEY_RETURN_IF_ERROR(link.put_text(job_to_json(there).dump(), "run/job.json"));
  return there.run_dir + "/job.json";
}

}  // namespace

Result<std::vector<Seat>> place_job(Hosts& hosts, const std::string& path, Job& job) {
  const std::set<std::string> remote = remote_hosts(job);
  MOTLEY_RETURN_IF_ERROR(hosts.reach(remote));
  MOTLEY_RETURN_IF_ERROR(choose_store(hosts, job));
  std::map<std::string, std::string> paths = {{"", path}};  // by host
  std::optional<RankFiles> files;
  if (!remote.empty() && !job.program_path.empty()) {
    MOTLEY_ASSIGN(files, RankFiles::open(job));
  }
  for (const std::string& host : remote) {
    MOTLEY_ASSIGN(paths[host], place_files(hosts.on(host), files ? &*files : nullptr, host, job));
  }
  std::vector<Seat> seats;
  std::set<std::string> reset = {""};
  for (const std::string& agent : choose_agents(hosts, job)) {
    const std::string& host = job.devices[seats.size()].host;
    seats.push_back({agent, paths.at(host)});
    if (!host.empty()) reset.insert(hosts.agents_on(host).front());  // it has the files
    if (!reset.insert(agent).second) continue;
    const std::string folder = fs::path(seats.back().job).parent_path().string();
    MOTLEY_RETURN_IF_ERROR(hosts.at(agent).send({{"do", "reset"}, {"run", folder}}));
  }
  return seats;
}

Result<void> bring_results(Hosts& hosts, const Job& job) {
  constexpr double kBringing = 600;
  for (const std::string& host : remote_hosts(job)) {
    HostLink& link = hosts.on(host);
    MOTLEY_RETURN_IF_ERROR(link.fetch("run/trace", job.run_dir + "/trace", kBringing));
    if (job.devices[0].host != host) continue;
    MOTLEY_RETURN_IF_ERROR(link.fetch("run/checkpoint", job.run_dir + "/checkpoint", kBringing));
    MOTLEY_RETURN_IF_ERROR(link.fetch("run/model.safetensors", job.run_dir, kBringing));
  }
  return {};
}

}  // namespace motley::run
