#include "motley/synth/state/move_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "motley/program/effects.h"

namespace motley::synth {
namespace {

using program::Buffer;
using program::BufferKind;
using program::DeviceProgram;

/// A piece whose source is not chosen yet.
struct OpenPiece {
  std::size_t tensor = 0, wanted = 0;
  PartGrid::Cell cell;
  std::vector<std::size_t> holders;  // indices in the tensor's `held`
};

/// Cuts a cell into cells of at most `most` > 0 elements, along digits from `digit` on.
void cut_cell(const PartGrid::Cell& cell, std::int64_t most, std::vector<PartGrid::Cell>& cut,
              std::size_t digit = 0) {
  const std::int64_t all = PartGrid::elements(cell);
  if (all <= most) return cut.push_back(cell);
  PartGrid::Cell row = cell;
  for (std::size_t above = 0; above <= digit; ++above) row[above] = {0, 1};
  const std::int64_t step = std::max<std::int64_t>(1, most / PartGrid::elements(row));
  for (std::int64_t at = cell[digit].first; at < cell[digit].second; at += step) {
    PartGrid::Cell next = cell;
    next[digit] = {at, std::min(at + step, cell[digit].second)};
    cut_cell(next, most, cut, digit + 1);
  }
}

std::vector<TensorRows> cuts_of(const MovedTensor& tensor) {
  std::vector<TensorRows> cuts;
  for (const auto* side : {&tensor.held, &tensor.wanted})
    for (const HeldRows& each : *side) cuts.push_back(each.rows);
  return cuts;
}

std::vector<std::optional<TensorRows>> held_rows(const MovedTensor& tensor) {
  std::vector<std::optional<TensorRows>> rows;
  for (const HeldRows& each : tensor.held) rows.emplace_back(each.rows);
  return rows;
}

/// Finds the possible sources of one tensor's rows.
class TensorMove {
 public:
  explicit TensorMove(const MovedTensor& tensor)
      : tensor_(tensor),
        grid_(tensor.elements, cuts_of(tensor)),
        cells_(find_held_cells(grid_, held_rows(tensor))) {}

  const PartGrid& grid() const { return grid_; }

  /// Does the rank have exactly the wanted rows in a buffer of that name?
  bool is_kept(const HeldRows& wanted) const {
    return std::any_of(tensor_.held.begin(), tensor_.held.end(), [&](const HeldRows& held) {
      return held.rank == wanted.rank && held.buffer == wanted.buffer &&
             held.rows.elements() == wanted.rows.elements() &&
             subtract(grid_.cells_of(wanted.rows), held).empty();
    });
  }

  /// Returns the wanted cells and their holders (indices in `held`): the rank itself alone if it
  /// holds a cell; none if the cell is lost.
  std::vector<HeldCell> find(const HeldRows& wanted) const {
    std::vector<HeldCell> found;
    std::vector<PartGrid::Cell> left = grid_.cells_of(wanted.rows);
    for (std::size_t h = 0; h < tensor_.held.size(); ++h) {
      const HeldRows& held = tensor_.held[h];
      if (held.rank != wanted.rank) continue;
      for (const PartGrid::Cell& each : left)
        for (const PartGrid::Cell& own : grid_.cells_of(held.rows))
          if (auto both = PartGrid::intersect(each, own)) found.push_back({std::move(*both), {h}});
      left = subtract(std::move(left), held);
    }
    for (const PartGrid::Cell& lack : left)
      for (const auto& [cell, holders] : cells_)
        if (auto both = PartGrid::intersect(lack, cell))
          found.push_back({std::move(*both), holders});
    return found;
  }

 private:
  std::vector<PartGrid::Cell> subtract(std::vector<PartGrid::Cell> left,
                                       const HeldRows& held) const {
    for (const PartGrid::Cell& own : grid_.cells_of(held.rows)) {
      std::vector<PartGrid::Cell> next;
      for (const PartGrid::Cell& each : left)
        for (PartGrid::Cell& rest : PartGrid::subtract(each, own)) next.push_back(std::move(rest));
      left = std::move(next);
    }
    return left;
  }

  const MovedTensor& tensor_;
  const PartGrid grid_;
  const std::vector<HeldCell> cells_;
};

/// The tensors of both programs.
class TensorTable {
 public:
  /// Adds rows that device `rank` of the new program wants.
  Result<void> want(const Buffer& buffer, std::size_t rank) {
    const auto [at, is_new] = places_.emplace(buffer.tensor(), tensors.size());
    if (is_new) {
      MovedTensor& made = tensors.emplace_back();
      made.name = at->first;
      made.dtype = buffer.dtype;
      made.elements = whole_elements(rows_of(buffer));
    }
    MovedTensor& tensor = tensors[at->second];
    if (is_new || buffer.kind != BufferKind::kMirror) tensor.kind = buffer.kind;
    tensor.wanted.push_back(held_by(rank, buffer));
    return check(tensor, buffer);
  }

  /// Adds rows that a device of the old program has; without a rank they are lost.
  Result<void> hold(const Buffer& buffer, std::optional<std::size_t> rank) {
    const auto at = places_.find(buffer.tensor());
    if (at == places_.end()) return {};
    MovedTensor& tensor = tensors[at->second];
    tensor.is_known = true;
    if (rank) tensor.held.push_back(held_by(*rank, buffer));
    return check(tensor, buffer);
  }

  std::vector<MovedTensor> tensors;

 private:
  static Result<void> check(const MovedTensor& tensor, const Buffer& buffer) {
    const std::int64_t elements = whole_elements(rows_of(buffer));
    if (buffer.dtype == tensor.dtype && elements == tensor.elements) return {};
    return usage_error(
        "synth.move-form",
        fmt::format("{}: found {} elements of {}, and {} of {}", tensor.name, tensor.elements,
                    dtype_name(tensor.dtype), elements, dtype_name(buffer.dtype)));
  }

  static HeldRows held_by(std::size_t rank, const Buffer& buffer) {
    return {Rank(rank), buffer.name, rows_of(buffer)};
  }

  std::map<std::string, std::size_t> places_;
};

Result<std::vector<MovedTensor>> find_tensors(const program::Program& from,
                                              const MovedDevices& devices) {
  TensorTable table;
  for (std::size_t rank = 0; rank < devices.to.size(); ++rank)
    if (devices.to[rank] != nullptr)
      for (const Buffer& buffer : devices.to[rank]->buffers)
        if (program::is_persistent(buffer.kind)) MOTLEY_RETURN_IF_ERROR(table.want(buffer, rank));
  for (const DeviceProgram& device : from.devices) {
    const auto at = std::find(devices.from.begin(), devices.from.end(), &device);
    const auto rank = at == devices.from.end()
                          ? std::nullopt
                          : std::optional(static_cast<std::size_t>(at - devices.from.begin()));
    for (const Buffer& buffer : device.buffers)
      if (program::is_persistent(buffer.kind)) MOTLEY_RETURN_IF_ERROR(table.hold(buffer, rank));
  }
  return std::move(table.tensors);
}

/// Chooses sources: pieces with few holders first, then large ones.
std::vector<std::size_t> choose_sources(const std::vector<OpenPiece>& pieces,
                                        const std::vector<MovedTensor>& tensors,
                                        const MoveOptions& options) {
  const auto bytes = [&](const OpenPiece& piece) {
    return PartGrid::elements(piece.cell) * dtype_size(tensors[piece.tensor].dtype);
  };
  std::vector<std::string> hosts(options.devices.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (options.host_of) hosts[rank] = options.host_of(options.devices[rank]);
  std::vector<std::vector<std::size_t>> candidates;
  std::vector<std::tuple<std::size_t, std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const OpenPiece& piece = pieces[i];
    std::vector<std::size_t>& near = candidates.emplace_back();
    const MovedTensor& tensor = tensors[piece.tensor];
    const std::string& host = hosts[tensor.wanted[piece.wanted].rank.index()];
    for (const std::size_t holder : piece.holders)
      if (hosts[tensor.held[holder].rank.index()] == host) near.push_back(holder);
    if (near.empty()) near = piece.holders;
    order.emplace_back(near.size(), -bytes(piece), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> sent(options.devices.size());
  std::vector<std::size_t> sources(pieces.size());
  for (const auto& [count, size, i] : order) {
    const std::vector<std::size_t>& near = candidates[i];
    const MovedTensor& tensor = tensors[pieces[i].tensor];
    const auto sent_by = [&](std::size_t held) { return sent[tensor.held[held].rank.index()]; };
    sources[i] = *std::min_element(near.begin(), near.end(), [&](std::size_t a, std::size_t b) {
      return sent_by(a) < sent_by(b);
    });
    const Rank source = tensor.held[sources[i]].rank;
    if (source != tensor.wanted[pieces[i].wanted].rank) sent[source.index()] -= size;
  }
  return sources;
}

tl::unexpected<Error> lost_range(const MovedTensor& tensor, const std::string& device,
                                 std::pair<std::int64_t, std::int64_t> bounds) {
  return usage_error(
      "synth.move-lost",
      fmt::format("nobody has elements {} to {} of {} ({} in all), which {} needs; go on from a "
                  "checkpoint",
                  bounds.first, bounds.second, tensor.name, tensor.elements, device));
}

}  // namespace

std::int64_t most_elements(const MoveOptions& options, DType dtype) {
  return std::max<std::int64_t>(
      1, options.message.value / std::max<std::int64_t>(1, dtype_size(dtype)));
}

Result<MovedDevices> find_moved_devices(const program::Program& from, const program::Program& to,
                                        const MoveOptions& options) {
  if (from.model_hash != to.model_hash)
    return stale_error("synth.move-model",
                       fmt::format("the old program is of model {}, the new one of {}",
                                   from.model_hash, to.model_hash));
  std::map<std::string, std::size_t> ranks;
  for (const std::string& device : options.devices)
    if (!ranks.emplace(device, ranks.size()).second)
      return usage_error("synth.move-devices", fmt::format("the move has device {} twice", device));
  MovedDevices found;
  found.from.resize(ranks.size());
  found.to.resize(ranks.size());
  for (const auto& [program, places] : {std::pair(&from, &found.from), std::pair(&to, &found.to)})
    for (const DeviceProgram& device : program->devices) {
      const auto rank = ranks.find(device.device);
      if (device.is_elsewhere)
        return usage_error("synth.move-devices",
                           fmt::format("what {} does is in another file", device.device));
      if (rank == ranks.end() && program == &to)
        return usage_error("synth.move-devices",
                           fmt::format("the move has no device {}", device.device));
      if (rank == ranks.end() || (program == &from && options.lost.contains(device.device)))
        continue;
      (*places)[rank->second] = &device;
    }
  return found;
}

Result<MovePieces> find_move_pieces(const program::Program& from, const program::Program& to,
                                    const MoveOptions& options) {
  MOTLEY_ASSIGN(const MovedDevices devices, find_moved_devices(from, to, options));
  MovePieces found;
  const std::size_t ranks = options.devices.size();
  found.kept.resize(ranks);
  found.fresh.resize(ranks);
  MOTLEY_ASSIGN(found.tensors, find_tensors(from, devices));
  std::vector<OpenPiece> open;
  std::map<std::size_t, PartGrid> grids;  // by tensor
  for (std::size_t t = 0; t < found.tensors.size(); ++t) {
    const MovedTensor& tensor = found.tensors[t];
    if (tensor.elements == 0) continue;
    const std::int64_t most = most_elements(options, tensor.dtype);
    const bool is_fresh = !tensor.is_known && tensor.kind == BufferKind::kState;
    const TensorMove move(tensor);
    grids.emplace(t, move.grid());
    for (std::size_t w = 0; w < tensor.wanted.size(); ++w) {
      const HeldRows& wanted = tensor.wanted[w];
      const std::size_t rank = wanted.rank.index();
      const bool is_kept = move.is_kept(wanted);
      if (is_kept) found.kept[rank].push_back(wanted.buffer);
      if (is_fresh) found.fresh[rank].push_back(wanted.buffer);
      if (is_kept || is_fresh || tensor.kind == BufferKind::kConstant) continue;
      for (const auto& [cell, holders] : move.find(wanted)) {
        if (holders.empty())
          return lost_range(tensor, options.devices[rank], move.grid().bounds(cell));
        std::vector<PartGrid::Cell> cut;
        cut_cell(cell, most, cut);
        for (PartGrid::Cell& piece : cut) open.push_back({t, w, std::move(piece), holders});
      }
    }
  }
  const std::vector<std::size_t> sources = choose_sources(open, found.tensors, options);
  for (std::size_t i = 0; i < open.size(); ++i) {
    const auto& [t, w, cell, holders] = open[i];
    const PartGrid& grid = grids.at(t);
    const HeldRows& held = found.tensors[t].held[sources[i]];
    const HeldRows& wanted = found.tensors[t].wanted[w];
    MovePiece& piece = found.pieces.emplace_back();
    piece.tensor = t;
    piece.held = sources[i];
    piece.wanted = w;
    piece.source = held.rank;
    piece.target = wanted.rank;
    piece.from = grid.box_in(held.rows, cell);
    piece.into = grid.box_in(wanted.rows, cell);
    piece.elements = PartGrid::elements(cell);
    merge_sides(piece.from, piece.into);
  }
  return found;
}

}  // namespace motley::synth
