#include "motley/synth/state/mirrors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "motley/program/effects.h"

namespace motley::synth {
namespace {

using program::Buffer;
using program::BufferKind;

/// A tensor and the ranks that hold its rows.
struct KeptTensor {
  const Buffer* about = nullptr;  // on the first rank that has rows
  std::vector<std::optional<TensorRows>> held;
  std::vector<std::size_t> ranks;  // of `held`; one rank may also have mirrors
};
using KeptTensors = std::map<std::string, KeptTensor>;

Result<KeptTensors> gather_tensors(const program::Program& program) {
  KeptTensors tensors;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    if (program.devices[rank].is_elsewhere)
      return usage_error("synth.mirrors", fmt::format("what {} does is in another file",
                                                      program.devices[rank].device));
    for (const Buffer& buffer : program.devices[rank].buffers) {
      if (!program::is_persistent(buffer.kind) || buffer.kind == BufferKind::kConstant) continue;
      KeptTensor& tensor = tensors[buffer.tensor()];
      if (tensor.about == nullptr || tensor.about->kind == BufferKind::kMirror)
        tensor.about = &buffer;
      tensor.held.emplace_back(rows_of(buffer));
      tensor.ranks.push_back(rank);
      if (buffer.dtype != tensor.about->dtype ||
          whole_elements(rows_of(buffer)) != whole_elements(rows_of(*tensor.about)))
        return usage_error("synth.mirrors",
                           fmt::format("{}: found two dtypes or sizes", buffer.name));
    }
  }
  return tensors;
}

/// Returns the parameter of a state's name "PARAMETER/STATE", or none.
const KeptTensor* find_parameter(const KeptTensors& tensors, const std::string& state) {
  for (std::size_t end = state.rfind('/'); end != std::string::npos && end > 0;
       end = state.rfind('/', end - 1))
    if (const auto found = tensors.find(state.substr(0, end)); found != tensors.end())
      return &found->second;
  return nullptr;
}

/// Chooses keepers one by one.
class KeeperChoice {
 public:
  KeeperChoice(const MirrorOptions& options, std::size_t ranks)
      : options_(options), hosts_(options.hosts), kept_(ranks) {
    for (std::size_t rank = hosts_.size(); rank < ranks; ++rank)
      hosts_.push_back(std::to_string(rank));
  }

  /// Adds a keeper to a mirror with too few copies, if any device can be one.
  void add_keeper(Mirror& mirror) {
    if (static_cast<int>(mirror.holders.size() + mirror.keepers.size()) > options_.survive) return;
    std::set<std::size_t> devices;
    std::set<std::string_view> hosts;
    for (const auto* ranks : {&mirror.holders, &mirror.keepers})
      for (const Rank rank : *ranks) {
        devices.insert(rank.index());
        hosts.insert(hosts_[rank.index()]);
      }
    std::optional<std::tuple<bool, double, std::size_t>> best;
    for (std::size_t rank = 0; rank < kept_.size(); ++rank) {
      if (devices.contains(rank) || !has_room(rank, mirror.kept)) continue;
      const std::tuple one(hosts.contains(hosts_[rank]), load(rank, mirror.kept), rank);
      if (!best || one < *best) best = one;
    }
    if (!best) return;
    const std::size_t keeper = std::get<2>(*best);
    kept_[keeper] += mirror.kept;
    mirror.keepers.emplace_back(keeper);
  }

  std::size_t count_hosts(const Mirror& mirror) const {
    std::set<std::string_view> hosts;
    for (const auto* ranks : {&mirror.holders, &mirror.keepers})
      for (const Rank rank : *ranks) hosts.insert(hosts_[rank.index()]);
    return hosts.size();
  }

 private:
  bool has_room(std::size_t rank, Bytes more) const {
    return options_.room.empty() || kept_[rank] + more <= options_.room[rank];
  }
  /// Returns the load of a rank with `more` bytes.
  double load(std::size_t rank, Bytes more) const {
    const auto all = static_cast<double>((kept_[rank] + more).value);
    if (options_.room.empty()) return all;
    return all / std::max(1.0, static_cast<double>(options_.room[rank].value));
  }

  const MirrorOptions& options_;
  std::vector<std::string> hosts_;
  std::vector<Bytes> kept_;
};

/// Elements of a parameter in a mirror; a keeper receives their gradient.
struct GradientRows {
  DType dtype = DType::kF32;
  std::int64_t elements = 0;
};

/// Groups rows with too few copies by their holders. State without a gradient is sent itself.
std::vector<Mirror> group_by_holders(const KeptTensors& tensors, const MirrorOptions& options,
                                     std::vector<Mirror>& safe) {
  std::map<std::vector<std::size_t>, Mirror> mirrors;
  std::map<std::vector<std::size_t>, std::map<const KeptTensor*, GradientRows>> gradients;
  for (const auto& [name, tensor] : tensors) {
    if (whole_elements(rows_of(*tensor.about)) == 0) continue;
    std::vector<TensorRows> cuts;
    for (const auto& rows : tensor.held)
      if (rows) cuts.push_back(*rows);
    const TensorRows whole{{1, 0, whole_elements(cuts[0]), 1}, whole_elements(cuts[0])};
    const PartGrid grid(whole.part.extent, cuts);
    const bool is_parameter = tensor.about->kind == BufferKind::kParameter;
    const KeptTensor* parameter = is_parameter ? &tensor : find_parameter(tensors, name);
    std::map<std::vector<std::size_t>, std::int64_t> elements;
    for (const auto& [cell, holding] : find_held_cells(grid, tensor.held)) {
      if (holding.empty()) continue;  // held by a part of a program, or not needed
      std::vector<std::size_t> holders;
      for (const std::size_t held : holding) holders.push_back(tensor.ranks[held]);
      std::sort(holders.begin(), holders.end());
      holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
      Mirror& mirror = mirrors[holders];
      mirror.rows.push_back({name, grid.box_in(whole, cell), PartGrid::elements(cell)});
      program::Box same = mirror.rows.back().box;
      merge_sides(mirror.rows.back().box, same);
      mirror.kept += Bytes(PartGrid::elements(cell) * dtype_size(tensor.about->dtype));
      elements[holders] += PartGrid::elements(cell);
    }
    for (const auto& [holders, count] : elements) {
      GradientRows& rows = gradients[holders][parameter == nullptr ? &tensor : parameter];
      rows.dtype = parameter == nullptr ? tensor.about->dtype : parameter->about->dtype;
      rows.elements = std::max(rows.elements, count);
    }
  }
  std::vector<Mirror> short_of;
  for (auto& [holders, mirror] : mirrors) {
    for (const std::size_t holder : holders) mirror.holders.emplace_back(holder);
    for (const auto& [tensor, rows] : gradients[holders])
      mirror.per_step += Bytes(rows.elements * dtype_size(rows.dtype));
    const bool is_safe = static_cast<int>(holders.size()) > options.survive;
    (is_safe ? safe : short_of).push_back(std::move(mirror));
  }
  return short_of;
}

}  // namespace

Result<Mirrors> choose_mirrors(const program::Program& program, const MirrorOptions& options) {
  const std::size_t ranks = program.devices.size();
  if ((!options.hosts.empty() && options.hosts.size() != ranks) ||
      (!options.room.empty() && options.room.size() != ranks))
    return usage_error("synth.mirrors",
                       fmt::format("found hosts of {} and room of {} devices, wanted {} or none",
                                   options.hosts.size(), options.room.size(), ranks));
  MOTLEY_ASSIGN(const KeptTensors tensors, gather_tensors(program));
  std::vector<Mirror> safe;
  std::vector<Mirror> mirrors = group_by_holders(tensors, options, safe);
  std::vector<Mirror*> order;
  for (Mirror& mirror : mirrors) order.push_back(&mirror);
  std::stable_sort(order.begin(), order.end(),
                   [](const Mirror* a, const Mirror* b) { return a->kept > b->kept; });
  KeeperChoice choice(options, ranks);
  // One copy of all before the next: the last mirror would find only holders of something.
  for (int copy = 0; copy < options.survive; ++copy)
    for (Mirror* mirror : order) choice.add_keeper(*mirror);
  Mirrors found;
  found.kept.resize(ranks);
  found.sent.resize(ranks);
  found.received.resize(ranks);
  found.survives_devices = found.survives_hosts = options.survive;
  for (const auto* all : {&safe, &mirrors})
    for (const Mirror& mirror : *all) {
      const auto copies = static_cast<int>(mirror.holders.size() + mirror.keepers.size());
      found.survives_devices = std::min(found.survives_devices, copies - 1);
      found.survives_hosts =
          std::min(found.survives_hosts, static_cast<int>(choice.count_hosts(mirror)) - 1);
      for (const Rank keeper : mirror.keepers) {
        found.kept[keeper.index()] += mirror.kept;
        found.received[keeper.index()] += mirror.per_step;
        found.sent[mirror.holders[0].index()] += mirror.per_step;
      }
    }
  std::erase_if(mirrors, [](const Mirror& mirror) { return mirror.keepers.empty(); });
  found.mirrors = std::move(mirrors);
  return found;
}

}  // namespace motley::synth
