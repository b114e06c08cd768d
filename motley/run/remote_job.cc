#include "motley/run/remote_job.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/run/hosts/here.h"

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

}  // namespace

std::set<std::string> remote_hosts(const Job& job) {
  std::set<std::string> hosts;
  for (const WorkerDevice& device : job.devices)
    if (!device.host.empty()) hosts.insert(device.host);
  return hosts;
}

Result<void> choose_store(Hosts& hosts, Job& job) {
  const std::set<std::string> remote = remote_hosts(job);
  if (remote.empty() || job.devices.size() < 2) return {};
  const std::string& first = job.devices[0].host;
  if (first.empty()) {
    MOTLEY_ASSIGN(const int port, find_free_port());
    job.store = StoreAddress{hosts.way_to(*remote.begin()).lead, port};
    return {};
  }
  MOTLEY_ASSIGN(const Frame answer, hosts.at(first).ask({{"do", "port"}}, "port", kPatience));
  job.store = StoreAddress{hosts.way_to(first).host, answer.head.value("port", 0)};
  return {};
}

Result<void> place_job(HostLink& link, const Job& job) {
  MOTLEY_RETURN_IF_ERROR(link.send({{"do", "reset"}}));
  Job there = job;
  there.run_dir = link.scratch() + "/run";
  MOTLEY_ASSIGN(there.program_path, place_file(link, job.program_path, "program"));
  MOTLEY_ASSIGN(there.model_path, place_file(link, job.model_path, "model"));
  MOTLEY_RETURN_IF_ERROR(place_data(link, there.data, "data"));
  if (there.evaluation) {
    for (std::string& path : there.evaluation->programs) {
      MOTLEY_ASSIGN(path, place_file(link, path, "evaluation"));
    }
    MOTLEY_RETURN_IF_ERROR(place_data(link, there.evaluation->data, "eval-data"));
  }
  if (job.resume && !job.program_path.empty())
    MOTLEY_RETURN_IF_ERROR(place_checkpoint(link, job.run_dir));
  return link.put_text(job_to_json(there).dump(), "run/job.json");
}

Result<void> bring_results(HostLink& link, const Job& job) {
  constexpr double kBringing = 600;
  MOTLEY_RETURN_IF_ERROR(link.fetch("run/trace", job.run_dir + "/trace", kBringing));
  if (job.devices[0].host != link.host()) return {};
  MOTLEY_RETURN_IF_ERROR(link.fetch("run/checkpoint", job.run_dir + "/checkpoint", kBringing));
  return link.fetch("run/model.safetensors", job.run_dir, kBringing);
}

}  // namespace motley::run
