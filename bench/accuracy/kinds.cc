// Device kinds never measured: forward operators of transformer blocks (Sailor's operator times,
// f16 and f32) on six GPU kinds, each predicted from its data sheet with the efficiencies that fit
// the five others.
#include "motley/cluster/kinds.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <tuple>

#include "bench/accuracy/row.h"
#include "motley/base/csv.h"
#include "motley/cost/kind_times.h"

namespace motley::bench {
namespace {

struct GpuName {
  const char *in_data, *kind;
};
constexpr std::array kGpus = {GpuName{"A100-40", "a100-40g"},   GpuName{"V100-16", "v100-16g"},
                              GpuName{"GH-96", "gh200-96g"},    GpuName{"Titan-RTX", "titanrtx"},
                              GpuName{"RTX-2080", "rtx2080ti"}, GpuName{"RTX-3090", "rtx3090"}};

struct Model {
  const char* name;
  double hidden, heads;
};
constexpr std::array kModels = {Model{"OPT-350", 1024, 16}, Model{"GPT-Neo-2.7", 2560, 32},
                                Model{"OPT-30", 7168, 56}};
constexpr double kSequence = 2048;
constexpr std::size_t kOperators = 13;  // of a block

/// Work of an operator of a block at one micro-batch; `width`: bytes an element.
std::optional<cost::OperatorWork> operator_work(const std::string& name, double samples,
                                                const Model& model, double width) {
  const double tokens = samples * kSequence, h = model.hidden;
  const double scores = samples * model.heads * kSequence * kSequence;
  const auto product = [&](double n, double k) {
    return cost::OperatorWork{2 * tokens * n * k, width * (tokens * k + n * k + tokens * n), 1};
  };
  const cost::OperatorWork attention{2 * samples * kSequence * kSequence * h,
                                     width * (2 * tokens * h + scores), 1};
  const auto moves = [](double bytes) { return cost::OperatorWork{0, bytes, 1}; };
  if (name == "enc-attention-qkv") return product(3 * h, h);
  if (name == "enc-attention-score" || name == "enc-attention-context") return attention;
  if (name == "enc-attention-dense") return product(h, h);
  if (name == "enc-MLP-GEMM-1") return product(4 * h, h);
  if (name == "enc-MLP-GEMM-2") return product(h, 4 * h);
  if (name == "enc-attention-softmax") return moves(width * 2 * scores);
  if (name == "enc-attention-dropout") return moves(width * 2 * scores + scores);  // 1-byte mask
  if (name == "enc-1st-layernorm" || name == "enc-2nd-layernorm")
    return moves(width * 2 * tokens * h);
  if (name == "enc-MLP-gelu") return moves(width * 8 * tokens * h);
  if (name == "enc-post-attention-dropout" || name == "enc-post-MLP-dropout")
    return moves(width * 3 * tokens * h + tokens * h);
  return std::nullopt;
}

/// One block on one kind; complete when all its operators were measured.
struct Block {
  cost::KindSample sample;
  std::size_t operators = 0;
};
using Blocks = std::map<std::tuple<std::string, std::string, double, bool>, Block>;  // kind first

/// Matrix units compute f32 as tf32 in the programs that were measured.
double matrix_rate(const cluster::PlanningKind& kind, bool is_half) {
  if (is_half) return kind.peak.f16.value_or(kind.peak.f32).value;
  return kind.peak.tf32.value_or(kind.peak.f32).value;
}

template <typename Entry, std::size_t kCount>
const Entry* find_name(const std::array<Entry, kCount>& entries, const std::string& name,
                       const char* const Entry::*member) {
  for (const Entry& entry : entries)
    if (name == entry.*member) return &entry;
  return nullptr;
}

Result<void> read_blocks(const std::string& path, bool is_half, Blocks& blocks) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  std::map<std::string, std::size_t> columns;
  for (const char* name : {"gpu", "model", "mbs", "tp", "algo", "op_name", "forward-compute"}) {
    MOTLEY_ASSIGN(columns[name], table.column(name));
  }
  for (std::size_t row = 0; row < table.rows(); ++row) {
    // Operators of several devices hold the sums between them.
    if (table.text(row, columns["tp"]) != "1" || table.text(row, columns["algo"]) != "0") continue;
    const GpuName* gpu = find_name(kGpus, table.text(row, columns["gpu"]), &GpuName::in_data);
    const Model* model = find_name(kModels, table.text(row, columns["model"]), &Model::name);
    if (gpu == nullptr || model == nullptr) return table.fault(row, columns["gpu"], "a known name");
    MOTLEY_ASSIGN(const double samples, table.positive_number(row, columns["mbs"]));
    MOTLEY_ASSIGN(const double us, table.positive_number(row, columns["forward-compute"]));
    const auto work =
        operator_work(table.text(row, columns["op_name"]), samples, *model, is_half ? 2 : 4);
    if (!work) continue;  // embedding, head, last norm
    MOTLEY_ASSIGN(const cluster::PlanningKind kind, cluster::find_kind(gpu->kind));
    Block& block = blocks[{gpu->kind, model->name, samples, is_half}];
    block.sample.launches += work->launches;
    block.sample.flop_seconds += work->flops / matrix_rate(kind, is_half);
    block.sample.byte_seconds += work->bytes / kind.memory_bandwidth.value;
    block.sample.measured += Seconds(us * 1e-6);
    ++block.operators;
  }
  return {};
}

double predict(const cost::KindSample& sample, const cost::KindEfficiency& efficiency) {
  return sample.launches * efficiency.launch.value + sample.flop_seconds / efficiency.flops +
         sample.byte_seconds / efficiency.bytes;
}

/// Residuals of each kind among `others` when it is left out too: what an interval may rest on.
Result<std::vector<double>> inner_residuals(
    const std::map<std::string, std::vector<cost::KindSample>>& by_kind,
    const std::string& left_out) {
  std::vector<double> residuals;
  for (const auto& [inner, samples] : by_kind) {
    if (inner == left_out) continue;
    std::vector<cost::KindSample> fitted_on;
    for (const auto& [kind, others] : by_kind)
      if (kind != left_out && kind != inner)
        fitted_on.insert(fitted_on.end(), others.begin(), others.end());
    MOTLEY_ASSIGN(const auto efficiency, cost::fit_efficiency(fitted_on));
    for (const cost::KindSample& sample : samples)
      residuals.push_back(sample.measured.value / predict(sample, efficiency) - 1);
  }
  return residuals;
}

}  // namespace

Rows kind_rows(const std::string& data) {
  Blocks blocks;
  for (const bool is_half : {true, false})
    MOTLEY_RETURN_IF_ERROR(
        read_blocks(fmt::format("{}/sailor/ops/op_times_{}.csv", data, is_half ? "fp16" : "fp32"),
                    is_half, blocks));
  std::map<std::string, std::vector<cost::KindSample>> by_kind;
  for (const auto& [key, block] : blocks)
    if (block.operators == kOperators) by_kind[std::get<0>(key)].push_back(block.sample);
  Row row{.set = "device kinds never measured",
          .metric = "time",
          .protocol =
              "forward operators of transformer blocks on 6 GPU kinds; launch cost and two "
              "efficiencies fitted on 5, the sixth predicted from its data sheet"};
  row.to_reach = 0.2;
  for (const auto& [kind, samples] : by_kind) {
    std::vector<cost::KindSample> others;
    for (const auto& [other, theirs] : by_kind)
      if (other != kind) others.insert(others.end(), theirs.begin(), theirs.end());
    MOTLEY_ASSIGN(const auto efficiency, cost::fit_efficiency(others));
    MOTLEY_ASSIGN(const auto residuals, inner_residuals(by_kind, kind));
    for (const cost::KindSample& sample : samples)
      row.cases.push_back({cost::conformal_interval(predict(sample, efficiency), residuals),
                           sample.measured.value});
  }
  return std::vector<Row>{row};
}

}  // namespace motley::bench
