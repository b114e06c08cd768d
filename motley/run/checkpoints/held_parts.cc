#include "motley/run/checkpoints/held_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/run/checkpoints/checkpoint.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr double kHeldPatience = 60;  // seconds without a byte

tl::unexpected<Error> away(const std::string& host, const std::vector<std::string>& names,
                           const std::string& why) {
  return runtime_error("run.held",
                       fmt::format("host {} keeps {}: {}", host, fmt::join(names, ", "), why));
}

Result<void> gather_from(HostLink& link, const HeldFiles& held,
                         const std::vector<std::string>& names, const std::string& checkpoint) {
  for (const std::string& name : names) {
    const std::string path = held.at(name).folder + "/" + name, into = checkpoint + "/" + name;
    const auto come = link.fetch_kept(path, checkpoint, kHeldPatience);
    if (!come) return away(link.host(), names, come.error().message);
    std::error_code code;
    if (!fs::exists(into, code)) return away(link.host(), names, path + " is missing");
  }
  return {};
}

}  // namespace

std::string kept_name(const std::string& run, const program::Program& program, const Job& job) {
  std::string cut;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    cut += "rank on " + job.devices[rank].host + "\n";
    for (const program::Buffer& buffer : program.devices[rank].buffers)
      if (buffer.part)
        cut += fmt::format("{} {} {} {} {}\n", buffer.name, buffer.part->before, buffer.part->begin,
                           buffer.part->extent, buffer.part->after);
  }
  return run + "/" + hash_hex(cut);
}

Result<void> gather_held(Hosts& hosts, const std::string& checkpoint) {
  MOTLEY_ASSIGN(const HeldFiles held, held_files(checkpoint));
  if (held.empty()) return {};
  std::set<std::string> wanted;
  const auto names = names_by_host(held);
  for (const auto& [host, files] : names) wanted.insert(host);
  const std::map<std::string, Error> missing = hosts.reach_some(wanted);
  if (!missing.empty()) {
    const auto& [host, error] = *missing.begin();
    return away(host, names.at(host), error.message);
  }
  for (const auto& [host, files] : names)
    MOTLEY_RETURN_IF_ERROR(gather_from(hosts.on(host), held, files, checkpoint));
  return settle_held(checkpoint);
}

Result<void> gather_for(Hosts& hosts, const Job& job, const std::string& kept) {
  const std::string latest = CheckpointStore(job.run_dir).latest();
  if (!job.resume || latest.empty()) return {};
  MOTLEY_ASSIGN(const HeldFiles held, held_files(latest));
  const bool is_same =
      !kept.empty() && std::all_of(held.begin(), held.end(), [&](const auto& each) {
        return each.second.folder.starts_with(kept + "/");
      });
  return is_same ? Result<void>() : gather_held(hosts, latest);
}

Result<void> retain_held(Hosts& hosts, const Job& job) {
  std::set<std::int64_t> steps;
  std::error_code code;
  for (const auto& each : fs::directory_iterator(job.run_dir + "/checkpoint", code)) {
    const std::string name = each.path().filename();
    const auto step = name.starts_with("step-") ? find_integer(name.substr(5)) : std::nullopt;
    if (step) steps.insert(*step);
  }
  const std::string run = job.kept.substr(0, job.kept.find('/'));
  for (const std::string& host : remote_hosts(job))
    MOTLEY_RETURN_IF_ERROR(
        hosts.on(host).send({{"do", "retain"}, {"kept", run}, {"steps", steps}}));
  return {};
}

}  // namespace motley::run
