#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json.h"
#include "motley/cli/context/verb.h"
#include "motley/cluster/probe.h"
#include "motley/control/survey/worker_build.h"
#include "motley/graph/layers.h"
#include "motley/graph/model_file.h"
#include "motley/graph/work.h"

namespace motley::cli {
namespace {

struct DoctorOptions {
  std::string cluster, model;
};

std::vector<Flag> doctor_flags(DoctorOptions& options) {
  return {{"-C,--cluster", &options.cluster, "cluster file (TOML)"},
          {"-m,--model", &options.model, "model file"}};
}

struct Finding {
  std::string code, severity, message;
};

bool has_error(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    if (finding.severity == "error") return true;
  return false;
}

int count_devices(const cluster::ProbeReport& here, const std::string& kind) {
  return static_cast<int>(std::ranges::count_if(
      here.cluster.devices, [&](const auto& device) { return device.kind == kind; }));
}

void check_worker(const Context& context, std::vector<Finding>& findings) {
  const auto version = context.workers->torch_version();
  if (!version) {
    findings.push_back({version.error().code, "error", version.error().message});
    return;
  }
  findings.push_back({"worker.version", "ok", "motley-worker runs PyTorch " + *version});
}

/// Reports whether this build runs CUDA devices; that is no fault where there are none.
void check_cuda(const cluster::ProbeReport& here, const std::string& program,
                std::vector<Finding>& findings) {
  const std::string reason = control::read_worker_build(control::worker_of(program)).cuda_left_out;
  if (!reason.empty())
    findings.push_back({"cuda.left-out", count_devices(here, "cuda") > 0 ? "warning" : "ok",
                        "this build runs no cuda devices: " + reason});
  else
    findings.push_back({"cuda.built", "ok", "this build runs cuda devices"});
}

void check_model(const std::string& path, std::vector<Finding>& findings) {
  const auto model = graph::read_model(path);
  if (!model) {
    findings.push_back({model.error().code, "error", model.error().message});
    return;
  }
  std::int64_t parameters = 0;
  for (const ValueId id : graph::values_with_role(model->graph, graph::ValueRole::kParameter))
    parameters += graph::value_elements(model->graph.value(id), {{"batch", 1}});
  findings.push_back(
      {"model.read", "ok",
       fmt::format("{}: {} operators, {} layers, {} parameters, {:.3g} GFLOP a sample{}", path,
                   model->graph.ops.size(), graph::find_layers(model->graph).size(), parameters,
                   graph::total_work(model->graph, {{"batch", 1}}).flops.value / 1e9,
                   model->weights ? "" : ", no weights (plan only)")});
}

/// Compares a cluster's devices with this machine; nodes without a host are this machine.
void check_cluster(const std::string& path, const cluster::ProbeReport& here,
                   std::vector<Finding>& findings) {
  const auto cluster = cluster::read_cluster(path);
  if (!cluster) {
    findings.push_back({cluster.error().code, "error", cluster.error().message});
    return;
  }
  const int cuda_here = count_devices(here, "cuda");
  int threads_here = 0;
  for (const cluster::Device& device : here.cluster.devices)
    if (device.kind == "cpu") threads_here += device.threads;
  double cores_wanted = 0;
  for (const cluster::Device& device : cluster->devices) {
    const std::string& host = cluster->node(device.node).host;
    if (!host.empty() && host != "127.0.0.1" && host != "localhost") continue;
    if (device.kind == "cpu") cores_wanted += device.threads * device.speed;
    if (device.kind == "cuda" && device.local_index >= cuda_here)
      findings.push_back({"cluster.device-missing", "error",
                          fmt::format("{}: device {} is CUDA device {}, this machine has {}", path,
                                      device.name, device.local_index, cuda_here)});
    if (device.kind != "cpu" && device.kind != "cuda")
      findings.push_back({"cluster.planning-kind", "warning",
                          fmt::format("{}: device {} of kind {} can be planned for, not run here",
                                      path, device.name, device.kind)});
  }
  if (cores_wanted > threads_here)
    findings.push_back({"cluster.oversubscribed", "warning",
                        fmt::format("{}: its CPU devices want {:.1f} cores of this machine, it has "
                                    "{}; they will slow each other down",
                                    path, cores_wanted, threads_here)});
  findings.push_back({"cluster.read", "ok",
                      fmt::format("{}: {} devices on {} nodes", path, cluster->devices.size(),
                                  cluster->nodes.size())});
}

Result<int> examine(const DoctorOptions& options, const Context& context) {
  std::vector<Finding> findings;
  check_worker(context, findings);
  MOTLEY_ASSIGN(const cluster::ProbeReport here, cluster::probe_this_machine());
  check_cuda(here, context.program, findings);
  for (const std::string& note : here.notes) findings.push_back({"machine", "ok", note});
  if (!options.cluster.empty()) check_cluster(options.cluster, here, findings);
  if (!options.model.empty()) check_model(options.model, findings);
  std::string text;
  Json object = {{"findings", Json::array()}};
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}  [{}]\n", finding.severity, finding.message, finding.code);
    object["findings"].push_back(
        {{"code", finding.code}, {"severity", finding.severity}, {"message", finding.message}});
  }
  context.result(text, object);
  return has_error(findings) ? kCheckFailed : kDone;
}

}  // namespace

Verb doctor_verb() {
  return make_verb("doctor", "check this machine, the cluster, the model and the versions",
                   doctor_flags, examine);
}

}  // namespace motley::cli
