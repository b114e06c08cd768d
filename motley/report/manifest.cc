#include "motley/report/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "motley/base/text.h"

namespace motley::report {
namespace {

constexpr int kPort = 29400;

/// Writes a text as one shell word, quoted where necessary.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "%+,-./:=@_";
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
  if (is_plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line = "motley";
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

/// Writes a text in double quotes, valid in YAML and JSON.
std::string yaml_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

/// Makes a Kubernetes name: at most 63 of a-z, 0-9 and hyphens, no hyphen at either end.
std::string label(const std::string& text) {
  std::string made;
  for (const char c : text.substr(0, text.find('.'))) {
    const auto letter = static_cast<unsigned char>(c);
    made += std::isalnum(letter) != 0 ? static_cast<char>(std::tolower(letter)) : '-';
  }
  made = made.substr(0, 63);
  const auto first = made.find_first_not_of('-');
  if (first == std::string::npos) return "job";
  return made.substr(first, made.find_last_not_of('-') - first + 1);
}

struct Holdings {
  int gpus = 0;
  int cores = 0;  ///< of CPU devices; one for each GPU's process
  std::string gpu_model;
  bool operator==(const Holdings&) const = default;
};

std::vector<Holdings> find_holdings(const cluster::Cluster& cluster) {
  std::vector<Holdings> holdings(cluster.nodes.size());
  for (const cluster::Device& device : cluster.devices) {
    Holdings& node = holdings[device.node.index()];
    node.cores += device.threads;
    if (device.kind == "cpu") continue;
    ++node.gpus;
    node.gpu_model = device.model.empty() ? device.kind : device.model;
  }
  return holdings;
}

Result<void> check_hosts(const cluster::Cluster& cluster) {
  for (const cluster::Node& node : cluster.nodes)
    if (node.host.empty())
      return usage_error("manifest.host",
                         fmt::format("node '{}' names no host, so no scheduler can be told of it; "
                                     "wanted host = \"NAME\" in the cluster file",
                                     node.name));
  return {};
}

/// Requests whole nodes, so that the cluster file describes their devices correctly.
std::string print_slurm(const cluster::Cluster& cluster, const ManifestOptions& options) {
  std::vector<std::string> hosts;
  for (const cluster::Node& node : cluster.nodes) hosts.push_back(node.host);
  const std::vector<Holdings> holdings = find_holdings(cluster);
  std::string text = "#!/bin/bash\n";
  text += fmt::format("#SBATCH --job-name={}\n", label(cluster.name));
  text +=
      fmt::format("#SBATCH --nodes={}\n#SBATCH --nodelist={}\n", hosts.size(), join(hosts, ","));
  text += "#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\n#SBATCH --mem=0\n";
  const bool are_as_many = std::all_of(holdings.begin(), holdings.end(), [&](const Holdings& node) {
    return node.gpus == holdings.front().gpus;
  });
  // SLURM's option cannot express unequal numbers; whole nodes come with their GPUs.
  if (are_as_many && holdings.front().gpus > 0)
    text += fmt::format("#SBATCH --gpus-per-node={}\n", holdings.front().gpus);
  if (!options.time.empty()) text += fmt::format("#SBATCH --time={}\n", options.time);
  // A signal first, so that a checkpoint exists when the time is over.
  text += "#SBATCH --signal=TERM@120\n\n";
  text += "export MOTLEY_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n";
  text += "exec srun --ntasks-per-node=1 --cpu-bind=none \\\n  " + shell_line(options.words) + "\n";
  return text;
}

std::string print_service(const std::string& job) {
  return fmt::format(
      "# Once, before: kubectl create secret generic {0} --from-literal=secret=$(openssl rand -hex "
      "16)\n"
      "apiVersion: v1\nkind: Service\nmetadata:\n  name: {0}\nspec:\n  clusterIP: None\n"
      "  publishNotReadyAddresses: true\n  selector:\n    motley-job: {0}\n",
      job);
}

/// Pods get the host names of the cluster file: ranks find their devices by them.
std::string print_rank(const cluster::Cluster& cluster, std::size_t rank, const Holdings& holdings,
                       const ManifestOptions& options) {
  const std::string job = label(cluster.name);
  const std::string host = cluster.nodes[rank].host;
  std::string text = fmt::format(
      "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {0}-{1}\nspec:\n  backoffLimit: 0\n"
      "  template:\n    metadata:\n      labels:\n        motley-job: {0}\n    spec:\n"
      "      restartPolicy: Never\n      terminationGracePeriodSeconds: 120\n"
      "      hostname: {2}\n      subdomain: {0}\n"
      "      nodeSelector:\n        kubernetes.io/hostname: {3}\n"
      "      containers:\n        - name: motley\n          image: {4}\n",
      job, rank, label(host), yaml_text(host), yaml_text(options.image));
  std::vector<std::string> words = {yaml_text("motley")};
  for (const std::string& word : options.words) words.push_back(yaml_text(word));
  text += fmt::format("          command: [{}]\n          env:\n", join(words, ", "));
  const std::map<std::string, std::string> variables = {
      {"RANK", fmt::format("{}", rank)},
      {"WORLD_SIZE", fmt::format("{}", cluster.nodes.size())},
      {"MASTER_ADDR", fmt::format("{}.{}", label(cluster.nodes[0].host), job)},
      {"MASTER_PORT", fmt::format("{}", kPort)}};
  for (const auto& [name, value] : variables)
    text += fmt::format("            - {{name: {}, value: {}}}\n", name, yaml_text(value));
  text += fmt::format(
      "            - name: MOTLEY_SECRET\n              valueFrom:\n                secretKeyRef: "
      "{{name: {}, key: secret}}\n",
      job);
  const std::string gpus =
      holdings.gpus == 0
          ? ""
          : fmt::format("\n            limits: {{nvidia.com/gpu: {}}}", holdings.gpus);
  text += fmt::format("          resources:\n            requests: {{cpu: {}}}{}\n",
                      std::max(1, holdings.cores), gpus);
  // Ranks of one machine exchange in shared memory; a container's default is too small.
  text += "          volumeMounts:\n            - {name: shared-memory, mountPath: /dev/shm}\n";
  if (!options.claim.empty())
    text += "            - {name: job, mountPath: /job}\n          workingDir: /job\n";
  text += "      volumes:\n        - {name: shared-memory, emptyDir: {medium: Memory}}\n";
  if (!options.claim.empty())
    text += fmt::format("        - {{name: job, persistentVolumeClaim: {{claimName: {}}}}}\n",
                        yaml_text(options.claim));
  return text;
}

std::string print_kubernetes(const cluster::Cluster& cluster, const ManifestOptions& options) {
  const std::vector<Holdings> holdings = find_holdings(cluster);
  std::string text = print_service(label(cluster.name));
  for (std::size_t rank = 0; rank < cluster.nodes.size(); ++rank)
    text += print_rank(cluster, rank, holdings[rank], options);
  return text;
}

/// Maps "NVIDIA H100 80GB HBM3" to SkyPilot's "H100".
std::string accelerator_name(const std::string& model) {
  const std::vector<std::string_view> words = split(model, ' ');
  for (const std::string_view word : words)
    if (word != "NVIDIA" && word != "Tesla" && word != "AMD")
      return std::string(word.substr(0, word.find('-')));
  return model;
}

/// The nodes are unknown until the task has them, so the job first describes them.
Result<std::string> print_skypilot(const cluster::Cluster& cluster,
                                   const ManifestOptions& options) {
  const std::vector<Holdings> holdings = find_holdings(cluster);
  for (std::size_t node = 1; node < holdings.size(); ++node)
    if (holdings[node] != holdings[0])
      return usage_error(
          "manifest.unlike",
          fmt::format("skypilot: nodes '{}' and '{}' are not alike, and its tasks "
                      "have identical nodes only; start the nodes by it and the job by "
                      "ssh (motley probe --hosts)",
                      cluster.nodes[0].name, cluster.nodes[node].name));
  std::string text = fmt::format("name: {}\nnum_nodes: {}\nworkdir: .\n", label(cluster.name),
                                 cluster.nodes.size());
  text += "resources:\n";
  if (holdings[0].gpus > 0)
    text += fmt::format("  accelerators: {}:{}\n", accelerator_name(holdings[0].gpu_model),
                        holdings[0].gpus);
  else
    text += fmt::format("  cpus: {}+\n", holdings[0].cores);
  if (cluster.nodes[0].spot) text += "  use_spot: true\n";
  text += "# sky launch --secret MOTLEY_SECRET=$(openssl rand -hex 16) FILE\nsecrets:\n";
  text += "  MOTLEY_SECRET: null\n";
  text += fmt::format(
      "run: |\n"
      "  export RANK=$SKYPILOT_NODE_RANK WORLD_SIZE=$SKYPILOT_NUM_NODES MASTER_PORT={}\n"
      "  export MASTER_ADDR=$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)\n"
      "  motley probe -o {}\n  {}\n",
      kPort, shell_word(options.cluster_file), shell_line(options.words));
  return text;
}

}  // namespace

Result<std::string> print_manifest(std::string_view scheduler, const cluster::Cluster& cluster,
                                   const ManifestOptions& options) {
  if (scheduler == "skypilot") return print_skypilot(cluster, options);
  if (scheduler != "slurm" && scheduler != "kubernetes")
    return usage_error("manifest.scheduler",
                       fmt::format("found '{}', wanted slurm, kubernetes or skypilot", scheduler));
  MOTLEY_RETURN_IF_ERROR(check_hosts(cluster));
  if (scheduler == "slurm") return print_slurm(cluster, options);
  if (options.image.empty())
    return usage_error("manifest.image",
                       "kubernetes: found no --image, wanted the container that has Motley");
  return print_kubernetes(cluster, options);
}

}  // namespace motley::report
