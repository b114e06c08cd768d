#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"

namespace motley::report {

/// What a job file is made of, beside the cluster.
struct ManifestOptions {
  std::vector<std::string> words;  ///< of motley: {"run", "-m", "cnn.motley", "-C", ...}
  std::string cluster_file;        ///< as the words name it
  std::string time;                ///< most the job may take, as SLURM writes it; "": not said
  std::string image;               ///< of a container that has Motley: Kubernetes
  std::string claim;  ///< PersistentVolumeClaim with the job's files, mounted at /job; "": none
};

/// The file that has a scheduler start `motley WORDS` on the nodes of a cluster, a process each,
/// of which the first does the work and the others are its agents (docs/clusters.md).
/// - "slurm": a batch script for the nodes by name, whole;
/// - "kubernetes": a Service and a Job for each node, held to the node by its name, with its GPUs;
/// - "skypilot": a task of as many identical nodes, which it describes anew before it runs.
/// Usage errors: an unknown scheduler; a node that names no host, Kubernetes without an image,
/// SkyPilot with nodes that are not alike (it has none).
Result<std::string> print_manifest(std::string_view scheduler, const cluster::Cluster& cluster,
                                   const ManifestOptions& options);

}  // namespace motley::report
