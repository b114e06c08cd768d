#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/context.h"
#include "motley/plan/optimizer.h"

namespace motley::cli {

/// A layer profile of another tool, in place of a model.
struct LayerOptions {
  std::vector<std::string> times;  ///< Sailor's form: "KIND=profile.json"
  std::string sizes;               ///< llm_info.json
  std::string model;               ///< its name in there: "OPT-350"
  std::string network;             ///< network fits, for pipelines
  int devices_per_host = 4;
  std::vector<std::string> metis;  ///< Metis' form: one file a kind, degree and micro-batch
  bool is_given() const { return !times.empty() || !metis.empty(); }
};

/// A workload of HAP's authors in place of a model, for the planners that are HAP itself.
struct HapFlags {
  std::string model;                    ///< "bert12"
  std::string cluster = "v100-p100:8";  ///< theirs; a cluster file takes its place
};

/// What verbs that plan have in common. Strings are as given on the command line; "" = not given.
struct PlanningOptions {
  std::string model, cluster, profiles;
  std::string planner = "auto";
  std::string batch_split;           ///< "24,12,4"
  std::vector<std::string> exclude;  ///< device names
  std::int64_t global_batch = 0;
  std::uint64_t seed = 0;
  std::optional<double> time_limit;  ///< of the search, in seconds
  std::string batch_norm = "global";
  std::string bucket = "4MiB";
  std::string profile = "auto";  ///< what is missing: auto, never, model
  std::string optimizer = "sgd";
  double lr = -1, momentum = 0, weight_decay = -1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool nesterov = false;
  std::string output;  ///< plan.json
  LayerOptions layers;
  HapFlags hap;
};

struct ProfileOptions {
  PlanningOptions planning;
  std::string from_run;  ///< run directory whose measured trace corrects the store; else measure
};

struct RunOptions {
  PlanningOptions planning;
  std::string plan;  ///< plan.json; else model and cluster are planned first
  std::string data;
  std::string tokens = "u16";
  std::int64_t seq = 0;
  std::string shuffle = "none";
  std::int64_t steps = 0;
  std::string run_dir;
  std::string resume = "auto";
  std::int64_t checkpoint_every = 0;
  double timeout = 30;
  std::string transport = "auto";
  std::int64_t trace_steps = 5;
  std::string enforce = "worker";  ///< what the workers hold devices to: worker, speeds, outside
};

struct ProbeOptions {
  std::string output;
};

struct SimulateOptions {
  PlanningOptions planning;
  std::string plan;
  std::string trace;  ///< Chrome trace to write
  int steps = 3;
  std::string conditions;  ///< file of what varies; "" = nothing does
  int runs = 100;          ///< under these conditions
};

struct ReportOptions {
  std::string run_dir;
  std::string output;
};

struct ConsolidateOptions {
  std::string path;    ///< run directory, or one checkpoint
  std::string output;  ///< folder; "" = the checkpoint itself
};

struct DemoOptions {
  std::string python = "python3";
  std::string examples = "examples";
  std::string directory = "motley-demo";
};

/// Each verb returns its exit code, or the fault to be reported.
Result<int> probe_verb(const ProbeOptions& options, const Context& context);
Result<int> doctor_verb(const PlanningOptions& options, const Context& context);
Result<int> profile_verb(const ProfileOptions& options, const Context& context);
Result<int> plan_verb(const PlanningOptions& options, const Context& context);
Result<int> simulate_verb(const SimulateOptions& options, const Context& context);
Result<int> run_verb(const RunOptions& options, const Context& context);
Result<int> verify_verb(const RunOptions& options, const Context& context);
Result<int> report_verb(const ReportOptions& options, const Context& context);
Result<int> trace_verb(const ReportOptions& options, const Context& context);
Result<int> consolidate_verb(const ConsolidateOptions& options, const Context& context);
Result<int> demo_verb(const DemoOptions& options, const Context& context);

}  // namespace motley::cli
