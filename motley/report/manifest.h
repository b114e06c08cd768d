#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"

namespace motley::report {

/// The settings of a job file, beside the cluster.
struct ManifestOptions {
  std::vector<std::string> words;  ///< motley's arguments: {"run", "-m", "cnn.motley", "-C", ...}
  std::string cluster_file;        ///< the cluster file's name in `words`
  std::string time;                ///< time limit in SLURM's notation; "": none given
  std::string image;               ///< container image with Motley, for Kubernetes
  std::string claim;  ///< PersistentVolumeClaim with the job's files, mounted at /job; "": none
};

/// Returns the file with which a scheduler starts `motley WORDS` on a cluster's nodes, one process
/// per node. The first does the work; the others are its agents (docs/clusters.md).
/// - "slurm": a batch script for the named nodes, whole;
/// - "kubernetes": a Service, and for each node a Job that is bound to it by name, with its GPUs;
/// - "skypilot": a task of identical nodes, which describes them anew before it runs.
/// Usage errors: unknown scheduler; a node without a host; Kubernetes without an image; SkyPilot
/// with unequal nodes, which it does not support.
Result<std::string> print_manifest(std::string_view scheduler, const cluster::Cluster& cluster,
                                   const ManifestOptions& options);

}  // namespace motley::report
