// HeteroG's table of four data-parallel variants (CoNEXT 2020): eight models on 8 and 12 unequal
// GPUs, in equal parts (EV) or with two replicas per V100 (CP), gradients summed by parameter
// servers (PS) or all-reduce (AR). The model and its sources are in heterog/README.md. In short, a
// step is
//
//   input: the samples of other machines leave the first machine, one stream
//   compute: on each GPU launches * 10 us + flops / (0.55 peak) + bytes / (0.75 bandwidth)
//   exchange: each gradient as soon as the slowest replica has it, first come first served
//     AR: delay + 2 (n-1)/n bytes / (share * NIC)
//     PS: sums at the machine where they are ready first; NICs are queues; each message has a delay
//   update of the parameters
//
// with four free constants, which come from the other seven models.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "bench/accuracy/row.h"
#include "motley/cluster/kinds.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

// Share of the peaks in single-GPU training: 142, 154 and 91.8 images/s of Inception-v3, VGG16 and
// ResNet-152 on one P100 (TensorFlow's own benchmarks of 2017) need 0.44, 0.69 and 0.57 of the
// arithmetic, at three quarters of the memory bandwidth and 10 us per launch.
constexpr double kArithmeticShare = 0.55, kMemoryShare = 0.75, kLaunch = 10e-6;
/// Share of Ethernet's rate for bulk transfers by RDMA.
constexpr double kServerShare = 0.9;
/// Momentum: reads gradient, parameter and velocity, writes the last two.
constexpr double kUpdateTransfers = 5;

/// The kind that gets two replicas in CP.
constexpr std::string_view kStronger = "v100-16g";

/// Free constants of the cluster and its runtime.
enum Free {
  kCollectiveShare,  ///< ring's share of the slowest NIC's rate
  kCollectiveDelay,  ///< s, per all-reduce
  kMessageDelay,     ///< s, per message of a machine to or from a server
  kInputRate,        ///< bytes/s of samples from the first machine
  kFreeCount
};
using Constants = std::array<double, kFreeCount>;
constexpr Constants kStart = {0.5, 335e-6, 100e-6, 1e9};

struct Segment {
  double launches = 0, flops = 0, fixed_bytes = 0, bytes = 0;  // flops and bytes: per sample
};

/// A variable and the work up to its gradient.
struct Variable {
  double bytes = 0;
  double looked_up_bytes = 0;  ///< per sample; 0 = the gradient is dense
  Segment forward, backward;
};

struct Training {
  std::string name;
  double input_bytes = 0;           ///< per sample
  std::vector<Variable> variables;  ///< in order of their gradients
};

struct Machine {
  cluster::PlanningKind kind;
  std::int64_t gpus = 0;
  double nic = 0;  ///< bytes/s each way
};

/// When each machine's NIC is free again, in and out.
struct Queues {
  std::vector<double> in, out;
};

/// A variable's gradients at its server.
struct Gathered {
  std::size_t server = 0;
  double ready = 0;  ///< s: at the slowest replica
  double end = 0;    ///< s: all received, without message delays
  double back = 0;   ///< bytes returned to each GPU
};

/// A published value with everything that does not depend on the free constants.
struct Measured {
  const Training* training = nullptr;
  bool is_all_reduce = false;
  std::vector<Machine> machines;
  std::vector<double> replicas;    ///< of each machine
  double batch = 0, samples = 0;   ///< of all; of a replica
  std::vector<double> ready;       ///< s from the start of compute to each variable's gradients
  std::vector<Gathered> gathered;  ///< with servers: by variable
  Queues queues;                   ///< with servers: after gathering
  double update = 0;               ///< s
  double seconds = 0;
};

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// --- reading -----------------------------------------------------------------------------------

Result<Segment> read_segment(const peers::CsvTable& table, std::size_t row,
                             const std::string& direction) {
  std::array<double, 4> values{};
  const std::array<const char*, 4> names = {"_launches", "_mflop", "_fixed_mb", "_mb"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    MOTLEY_ASSIGN(const std::size_t column, table.column(direction + names[i]));
    MOTLEY_ASSIGN(values[i], table.number(row, column));
  }
  return Segment{values[0], 1e6 * values[1], 1e6 * values[2], 1e6 * values[3]};
}

Result<std::vector<Variable>> read_variables(const std::string& path) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t bytes, table.column("bytes"));
  MOTLEY_ASSIGN(const std::size_t looked_up, table.column("looked_up_bytes"));
  MOTLEY_ASSIGN(const std::size_t gradient, table.column("gradient"));
  std::vector<Variable> variables(table.rows());
  for (std::size_t i = 0; i < table.rows(); ++i) {
    MOTLEY_ASSIGN(const std::int64_t place, table.integer(i, gradient));
    if (place < 0 || static_cast<std::size_t>(place) >= table.rows())
      return table.fault(i, gradient, "a place in the order of the gradients");
    Variable& variable = variables[static_cast<std::size_t>(place)];
    MOTLEY_ASSIGN(variable.bytes, table.positive_number(i, bytes));
    MOTLEY_ASSIGN(variable.looked_up_bytes, table.number(i, looked_up));
    MOTLEY_ASSIGN(variable.forward, read_segment(table, i, "forward"));
    MOTLEY_ASSIGN(variable.backward, read_segment(table, i, "backward"));
  }
  return variables;
}

/// Names in the published table, and of the exported graph.
constexpr std::array<std::pair<const char*, const char*>, 8> kModels = {{
    {"VGG-19", "vgg19"},
    {"ResNet200", "resnet200"},
    {"Inception-v3", "inception_v3"},
    {"MobileNet-v2", "mobilenet_v2"},
    {"NasNet", "nasnet_mobile"},
    {"Transformer-6L", "transformer_base"},
    {"BERT-large-24L", "bert_large"},
    {"XLNet-large-24L", "xlnet_large"},
}};

Result<std::vector<Training>> read_trainings() {
  const std::string folder = MOTLEY_BENCH_FOLDER "/accuracy/heterog/";
  MOTLEY_ASSIGN(const peers::CsvTable models, peers::CsvTable::read(folder + "models.csv"));
  MOTLEY_ASSIGN(const std::size_t name, models.column("model"));
  MOTLEY_ASSIGN(const std::size_t input, models.column("input_bytes"));
  std::vector<Training> trainings;
  for (const auto& [published, graph] : kModels) {
    Training training{.name = published};
    for (std::size_t i = 0; i < models.rows(); ++i) {
      if (models.text(i, name) != graph) continue;
      MOTLEY_ASSIGN(training.input_bytes, models.positive_number(i, input));
    }
    MOTLEY_ASSIGN(training.variables, read_variables(folder + graph + ".csv"));
    trainings.push_back(std::move(training));
  }
  return trainings;
}

/// Names in the published table, and in the table of kinds.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kKinds = {{
    {"V100", kStronger},
    {"GTX1080Ti", "gtx1080ti"},
    {"P100", "p100-12g"},
}};

Result<std::vector<Machine>> read_machines(const std::string& path) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t gpu, table.column("gpu"));
  MOTLEY_ASSIGN(const std::size_t gpus, table.column("gpus"));
  MOTLEY_ASSIGN(const std::size_t nic, table.column("nic_gbe"));
  std::vector<Machine> machines;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& known) {
      return known.first == table.text(i, gpu);
    });
    if (kind == kKinds.end()) return table.fault(i, gpu, "V100, GTX1080Ti or P100");
    Machine machine;
    MOTLEY_ASSIGN(machine.kind, cluster::find_kind(kind->second));
    MOTLEY_ASSIGN(machine.gpus, table.positive_integer(i, gpus));
    MOTLEY_ASSIGN(const double gigabits, table.positive_number(i, nic));
    machine.nic = gigabits * 1e9 / 8;
    machines.push_back(machine);
  }
  return machines;
}

/// Returns the first `gpus` GPUs: all, or as the paper's 8 two of each machine; none if too few.
std::vector<Machine> first_gpus(std::vector<Machine> machines, std::int64_t gpus) {
  std::int64_t all = 0;
  for (const Machine& machine : machines) all += machine.gpus;
  if (gpus == all) return machines;
  const auto count = static_cast<std::size_t>(gpus / 2);
  if (gpus % 2 != 0 || count > machines.size()) return {};
  machines.resize(count);
  for (Machine& machine : machines) machine.gpus = 2;
  return machines;
}

// --- the model ---------------------------------------------------------------------------------

double compute_seconds(const Segment& segment, double samples, const cluster::PlanningKind& kind) {
  return segment.launches * kLaunch +
         segment.flops * samples / (kArithmeticShare * kind.peak.f32.value) +
         (segment.fixed_bytes + segment.bytes * samples) /
             (kMemoryShare * kind.memory_bandwidth.value);
}

/// Returns when the slowest replica has each gradient. Replicas of one GPU run one after another.
std::vector<double> ready_times(const Measured& measured) {
  std::vector<double> ready(measured.training->variables.size(), 0.0);
  for (std::size_t m = 0; m < measured.machines.size(); ++m) {
    const Machine& machine = measured.machines[m];
    const double turns = measured.replicas[m] / static_cast<double>(machine.gpus);
    double now = 0;
    for (const Variable& variable : measured.training->variables)
      now += turns * compute_seconds(variable.forward, measured.samples, machine.kind);
    for (std::size_t v = 0; v < ready.size(); ++v) {
      const Segment& segment = measured.training->variables[v].backward;
      now += turns * compute_seconds(segment, measured.samples, machine.kind);
      ready[v] = std::max(ready[v], now);
    }
  }
  return ready;
}

/// Returns the end of one queue of ring all-reduces. Gradients of look-ups are exchanged dense.
double all_reduce_end(const Measured& measured, const Constants& constants) {
  double gpus = 0, nic = measured.machines.front().nic;
  for (const Machine& machine : measured.machines) {
    gpus += static_cast<double>(machine.gpus);
    nic = std::min(nic, machine.nic);
  }
  const double rate = constants[kCollectiveShare] * nic * gpus / (2 * (gpus - 1));
  double end = 0;
  for (std::size_t v = 0; v < measured.ready.size(); ++v) {
    end = std::max(end, measured.ready[v]) + constants[kCollectiveDelay] +
          measured.training->variables[v].bytes / rate;
  }
  return end;
}

/// The machines' NICs, which carry one transfer at a time each way.
struct Nics {
  explicit Nics(const Measured& of) : measured(of), in(of.queues.in), out(of.queues.out) {}

  /// Returns when all replicas of other machines have sent `bytes` to `server`, from `ready` on.
  double gather_end(std::size_t server, double ready, double bytes) const {
    double end = received(server, ready, bytes);
    for (std::size_t m = 0; m < out.size(); ++m)
      if (m != server) end = std::max(end, sent(m, ready, bytes));
    return end;
  }

  void gather(std::size_t server, double ready, double bytes) {
    in[server] = received(server, ready, bytes);
    for (std::size_t m = 0; m < out.size(); ++m)
      if (m != server) out[m] = sent(m, ready, bytes);
  }

  /// Returns the end of sending `bytes` to each GPU of the other machines; its replicas share them.
  double scatter(std::size_t server, double ready, double bytes) {
    double end = 0, others = 0;
    for (std::size_t m = 0; m < in.size(); ++m) {
      if (m == server) continue;
      const auto gpus = static_cast<double>(measured.machines[m].gpus);
      others += gpus;
      in[m] = std::max(ready, in[m]) + gpus * bytes / rate(m);
      end = std::max(end, in[m]);
    }
    out[server] = std::max(ready, out[server]) + others * bytes / rate(server);
    return std::max(end, out[server]);
  }

  double rate(std::size_t m) const { return kServerShare * measured.machines[m].nic; }
  double received(std::size_t server, double ready, double bytes) const {
    const double others = sum(measured.replicas) - measured.replicas[server];
    return std::max(ready, in[server]) + others * bytes / rate(server);
  }
  double sent(std::size_t m, double ready, double bytes) const {
    return std::max(ready, out[m]) + measured.replicas[m] * bytes / rate(m);
  }

  const Measured& measured;
  std::vector<double> in, out;
};

/// Assigns each variable to the machine that has its gradients first. Look-up gradients are sent as
/// the rows of the replica's samples, and return as those of the whole batch.
void gather_all(Measured& measured) {
  measured.queues.in.assign(measured.machines.size(), 0.0);
  measured.queues.out = measured.queues.in;
  Nics nics(measured);
  for (std::size_t v = 0; v < measured.ready.size(); ++v) {
    const Variable& variable = measured.training->variables[v];
    const double rows = variable.looked_up_bytes;
    const double bytes =
        rows > 0 ? std::min(variable.bytes, rows * measured.samples) : variable.bytes;
    Gathered best;
    for (std::size_t m = 0; m < measured.machines.size(); ++m) {
      const double end = nics.gather_end(m, measured.ready[v], bytes);
      if (m == 0 || end < best.end) best = {.server = m, .ready = measured.ready[v], .end = end};
    }
    best.back = rows > 0 ? std::min(variable.bytes, rows * measured.batch) : variable.bytes;
    nics.gather(best.server, best.ready, bytes);
    measured.gathered.push_back(best);
  }
  measured.queues = {nics.in, nics.out};
}

/// Returns the end of all messages: each variable's gradients in from each replica, its value back
/// to each GPU. The machines handle them in parallel, each in order.
double servers_end(const Measured& measured, const Constants& constants) {
  double messages = sum(measured.replicas);
  for (const Machine& machine : measured.machines) messages += static_cast<double>(machine.gpus);
  const double handling =
      constants[kMessageDelay] * messages / static_cast<double>(measured.machines.size());
  std::vector<Gathered> gathered = measured.gathered;
  double handled = 0;
  for (Gathered& each : gathered) {
    handled = std::max(handled, each.ready) + handling;
    each.end = std::max(each.end, handled);
  }
  std::stable_sort(gathered.begin(), gathered.end(),
                   [](const Gathered& a, const Gathered& b) { return a.end < b.end; });
  Nics nics(measured);
  double end = 0;
  for (const Gathered& each : gathered)
    end = std::max(end, nics.scatter(each.server, each.end, each.back));
  return end;
}

double predict(const Measured& measured, const Constants& constants) {
  const double here = measured.replicas.front() / sum(measured.replicas);
  const double input =
      measured.batch * measured.training->input_bytes * (1 - here) / constants[kInputRate];
  const double exchanged = measured.is_all_reduce ? all_reduce_end(measured, constants)
                                                  : servers_end(measured, constants);
  return input + exchanged + measured.update;
}

// --- the cases ---------------------------------------------------------------------------------

constexpr std::array<const char*, 4> kVariants = {"ev_ps_s", "ev_ar_s", "cp_ps_s", "cp_ar_s"};

Measured make_case(const Training& training, const std::vector<Machine>& machines, double batch,
                   std::size_t variant) {
  Measured measured{.training = &training, .machines = machines};
  double parameters = 0, slowest = 1e30;
  for (const Machine& machine : machines) {
    const bool is_double = variant >= 2 && machine.kind.name == kStronger;
    measured.replicas.push_back(static_cast<double>(machine.gpus) * (is_double ? 2 : 1));
    slowest = std::min(slowest, machine.kind.memory_bandwidth.value);
  }
  for (const Variable& variable : training.variables) parameters += variable.bytes;
  measured.is_all_reduce = variant % 2 == 1;
  measured.batch = batch;
  measured.samples = batch / sum(measured.replicas);
  measured.ready = ready_times(measured);
  if (!measured.is_all_reduce) gather_all(measured);
  measured.update = kUpdateTransfers * parameters / (kMemoryShare * slowest);
  return measured;
}

Result<std::vector<Measured>> read_cases(const std::string& folder,
                                         const std::vector<Training>& trainings) {
  MOTLEY_ASSIGN(const std::vector<Machine> machines, read_machines(folder + "cluster.csv"));
  MOTLEY_ASSIGN(const peers::CsvTable table,
                peers::CsvTable::read(folder + "iteration_seconds.csv"));
  MOTLEY_ASSIGN(const std::size_t gpus, table.column("gpus"));
  MOTLEY_ASSIGN(const std::size_t model, table.column("model"));
  MOTLEY_ASSIGN(const std::size_t batch, table.column("global_batch"));
  std::vector<Measured> cases;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto training = std::find_if(trainings.begin(), trainings.end(), [&](const Training& t) {
      return t.name == table.text(i, model);
    });
    if (training == trainings.end()) return table.fault(i, model, "one of the eight models");
    MOTLEY_ASSIGN(const std::int64_t count, table.positive_integer(i, gpus));
    const std::vector<Machine> used = first_gpus(machines, count);
    if (used.empty()) return table.fault(i, gpus, "8 or 12");
    MOTLEY_ASSIGN(const double samples, table.positive_number(i, batch));
    for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
      MOTLEY_ASSIGN(const std::size_t column, table.column(kVariants[variant]));
      cases.push_back(make_case(*training, used, samples, variant));
      MOTLEY_ASSIGN(cases.back().seconds, table.positive_number(i, column));
    }
  }
  return cases;
}

// --- fitting -----------------------------------------------------------------------------------

using Names = std::set<std::string>;

/// Returns the mean |ln(predicted / measured)| of models not left out: outliers count linearly.
double loss(const std::vector<Measured>& cases, const Constants& constants, const Names& left_out) {
  double total = 0, count = 0;
  for (const Measured& measured : cases) {
    if (left_out.contains(measured.training->name)) continue;
    total += std::abs(std::log(predict(measured, constants) / measured.seconds));
    ++count;
  }
  return total / count;
}

/// Moves constants singly by factors from 1.5 to 1.01 while it helps (Hooke and Jeeves, 1961).
Constants fit(const std::vector<Measured>& cases, const Names& left_out) {
  Constants best = kStart;
  double least = loss(cases, best, left_out);
  for (double step = std::log(1.5); step > 0.01;) {
    bool is_better = false;
    for (std::size_t i = 0; i < 2 * best.size(); ++i) {
      Constants next = best;
      next[i / 2] *= std::exp(i % 2 == 0 ? step : -step);
      const double value = loss(cases, next, left_out);
      if (value >= least) continue;
      least = value;
      best = next;
      is_better = true;
    }
    if (!is_better) step /= 2;
  }
  return best;
}

/// Returns measured / predicted - 1 of the other models, each left out together with `name`.
std::vector<double> residuals_without(const std::vector<Measured>& cases, const std::string& name) {
  std::vector<double> residuals;
  for (const auto& [other, graph] : kModels) {
    if (other == name) continue;
    const Constants constants = fit(cases, {name, other});
    for (const Measured& measured : cases) {
      if (measured.training->name == other)
        residuals.push_back(measured.seconds / predict(measured, constants) - 1);
    }
  }
  return residuals;
}

/// Predicts each case by constants of the other seven models.
std::vector<Case> leave_one_out(const std::vector<Measured>& cases) {
  std::vector<Case> predicted(cases.size());
  for (const auto& [name, graph] : kModels) {
    const Constants constants = fit(cases, {name});
    const std::vector<double> residuals = residuals_without(cases, name);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].training->name != name) continue;
      predicted[i] = {cost::conformal_interval(predict(cases[i], constants), residuals),
                      cases[i].seconds};
    }
  }
  return predicted;
}

/// Orders a row's variants, fastest first, by measurement or prediction.
template <typename Value>
std::array<std::size_t, 4> order_of(std::size_t first, const Value& value) {
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return value(first + a) < value(first + b);
  });
  return order;
}

}  // namespace

Rows heterog_rows(const std::string& data) {
  MOTLEY_ASSIGN(const std::vector<Training> trainings, read_trainings());
  MOTLEY_ASSIGN(const std::vector<Measured> cases,
                read_cases(data + "/published/heterog/", trainings));
  const std::vector<Case> predicted = leave_one_out(cases);
  Row time{.set = "HeteroG: four variants",
           .metric = "time",
           .protocol =
               "graphs exported from public definitions, table of device kinds; four "
               "constants of the cluster fitted on seven models predict the eighth",
           .published = "",
           .to_reach = 0.20,
           .cases = predicted};
  Row fastest{.set = "HeteroG: fastest of four variants", .metric = "wrong", .to_reach = 0.25};
  std::size_t in_order = 0;
  for (std::size_t i = 0; i < cases.size(); i += kVariants.size()) {
    const auto said = order_of(i, [&](std::size_t c) { return predicted[c].predicted.value; });
    const auto seen = order_of(i, [&](std::size_t c) { return cases[c].seconds; });
    const double right = said.front() == seen.front() ? 1 : 0;
    fastest.cases.push_back({{right, right, right}, 1});
    in_order += said == seen ? 1 : 0;
  }
  fastest.protocol = fmt::format(
      "as above; which of the four variants is fastest, 16 times; all "
      "four in the right order in {}",
      in_order);
  return std::vector<Row>{time, fastest};
}

}  // namespace motley::bench
