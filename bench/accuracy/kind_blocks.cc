#include "bench/accuracy/kind_blocks.h"

#include <fmt/format.h>

#include <array>

#include "motley/cluster/kinds.h"
#include "peers/import/csv.h"

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
constexpr std::size_t kOperators = 13;  // per block

/// Returns the work of a block's operator at one micro-batch; `width`: bytes per element.
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

/// Returns the matrix rate; the measured programs compute f32 as tf32 in matrix units.
double matrix_rate(const cluster::PlanningKind& kind, bool is_half) {
  if (is_half) return kind.peak.f16.value_or(kind.peak.f32).value;
  return kind.peak.tf32.value_or(kind.peak.f32).value;
}

peers::KindSample sample_of(const cost::OperatorWork& work, const cluster::PlanningKind& kind,
                            bool is_half, double seconds) {
  return {work.flops / matrix_rate(kind, is_half), work.bytes / kind.memory_bandwidth.value,
          work.launches, Seconds(seconds)};
}

template <typename Entry, std::size_t kCount>
const Entry* find_name(const std::array<Entry, kCount>& entries, const std::string& name,
                       const char* const Entry::*member) {
  for (const Entry& entry : entries)
    if (name == entry.*member) return &entry;
  return nullptr;
}

Result<void> read_blocks(const std::string& path, bool is_half, KindBlocks& blocks) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(path));
  std::map<std::string, std::size_t> columns;
  for (const char* name :
       {"gpu", "model", "mbs", "tp", "algo", "op_name", "forward-compute", "backward-compute"}) {
    MOTLEY_ASSIGN(columns[name], table.column(name));
  }
  for (std::size_t row = 0; row < table.rows(); ++row) {
    // Operators of several devices include the sums between them.
    if (table.text(row, columns["tp"]) != "1" || table.text(row, columns["algo"]) != "0") continue;
    const GpuName* gpu = find_name(kGpus, table.text(row, columns["gpu"]), &GpuName::in_data);
    const Model* model = find_name(kModels, table.text(row, columns["model"]), &Model::name);
    if (gpu == nullptr || model == nullptr) return table.fault(row, columns["gpu"], "a known name");
    MOTLEY_ASSIGN(const double samples, table.positive_number(row, columns["mbs"]));
    const auto work =
        operator_work(table.text(row, columns["op_name"]), samples, *model, is_half ? 2 : 4);
    if (!work) continue;  // embedding, head, last norm
    MOTLEY_ASSIGN(const cluster::PlanningKind kind, cluster::find_kind(gpu->kind));
    MOTLEY_ASSIGN(const double forward, table.positive_number(row, columns["forward-compute"]));
    MOTLEY_ASSIGN(const double backward, table.positive_number(row, columns["backward-compute"]));
    blocks[gpu->kind][{model->name, samples, is_half}]
        .operators[table.text(row, columns["op_name"])] = {
        sample_of(*work, kind, is_half, forward * 1e-6),
        sample_of(*work, kind, is_half, backward * 1e-6)};
  }
  return {};
}

}  // namespace

peers::KindSample Block::forward() const {
  peers::KindSample sum;
  for (const auto& [name, op] : operators) {
    sum.launches += op.forward.launches;
    sum.flop_seconds += op.forward.flop_seconds;
    sum.byte_seconds += op.forward.byte_seconds;
    sum.measured += op.forward.measured;
  }
  return sum;
}

Result<KindBlocks> read_kind_blocks(const std::string& data) {
  KindBlocks blocks;
  for (const bool is_half : {true, false})
    MOTLEY_RETURN_IF_ERROR(
        read_blocks(fmt::format("{}/sailor/ops/op_times_{}.csv", data, is_half ? "fp16" : "fp32"),
                    is_half, blocks));
  for (auto& [kind, of_kind] : blocks)
    std::erase_if(of_kind,
                  [](const auto& entry) { return entry.second.operators.size() < kOperators; });
  return blocks;
}

}  // namespace motley::bench
