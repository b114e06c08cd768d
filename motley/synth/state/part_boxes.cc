#include "motley/synth/state/part_boxes.h"

#include <algorithm>
#include <functional>

namespace motley::synth {
namespace {

std::int64_t period_of(const TensorRows& rows) { return rows.part.extent * rows.part.after; }

}  // namespace

TensorRows rows_of(const program::Buffer& buffer) {
  const std::int64_t elements = buffer.elements();
  if (!buffer.part) return {{1, 0, elements, 1}, elements};
  program::Part part = *buffer.part;
  part.is_copy = false;
  const std::int64_t row = part.before * part.after;
  return {part, row == 0 ? 0 : elements / row};
}

std::int64_t whole_elements(const TensorRows& rows) {
  return rows.part.before * rows.part.extent * rows.part.after;
}

PartGrid::PartGrid(std::int64_t elements, const std::vector<TensorRows>& cuts)
    : elements_(elements) {
  std::vector<std::int64_t> periods;
  for (const TensorRows& cut : cuts) periods.push_back(period_of(cut));
  std::sort(periods.begin(), periods.end(), std::greater<>());
  std::int64_t last = elements;
  for (const std::int64_t period : periods) {
    if (last % period != 0) {
      strides_.clear();
      last = 1;
      break;
    }
    if (period < last) strides_.push_back(period);
    last = period;
  }
  if (strides_.empty() || last > 1) strides_.push_back(1);
}

PartGrid::Cell PartGrid::whole() const {
  Cell cell;
  std::int64_t above = elements_;
  for (const std::int64_t stride : strides_) {
    cell.emplace_back(0, above / stride);
    above = stride;
  }
  return cell;
}

/// Appends elements [begin, end) within `begun`, whose digits are already fixed.
void PartGrid::append_range(std::vector<Cell>& cells, Cell begun, std::int64_t begin,
                            std::int64_t end) const {
  if (begin >= end) return;
  const std::size_t digit = begun.size();
  if (digit == strides_.size()) {
    cells.push_back(std::move(begun));
    return;
  }
  const std::int64_t stride = strides_[digit];
  std::int64_t first = begin / stride, last = (end - 1) / stride;
  const std::int64_t into = begin % stride, rest = (end - 1) % stride + 1;
  const auto append = [&](std::int64_t from, std::int64_t to, std::int64_t low, std::int64_t high) {
    Cell next = begun;
    next.emplace_back(from, to + 1);
    append_range(cells, std::move(next), low, high);
  };
  if (first == last) return append(first, last, into, rest);
  if (into > 0) {
    append(first, first, into, stride);
    ++first;
  }
  const bool is_cut = rest < stride;
  if (const std::int64_t full = is_cut ? last - 1 : last; first <= full)
    append(first, full, 0, stride);
  if (is_cut) append(last, last, 0, rest);
}

std::vector<PartGrid::Cell> PartGrid::cells_of(const TensorRows& rows) const {
  const std::int64_t period = period_of(rows);
  const std::int64_t begin = rows.part.begin * rows.part.after;
  const std::int64_t end = begin + rows.count * rows.part.after;
  Cell free;  // digits that count periods
  const Cell all = whole();
  for (std::size_t digit = 0; digit < strides_.size() && strides_[digit] % period == 0; ++digit)
    free.push_back(all[digit]);
  const std::int64_t unit = free.empty() ? elements_ : strides_[free.size() - 1];
  std::vector<Cell> cells;
  // A single pass if the periods are digits.
  for (std::int64_t block = 0; block < unit; block += period)
    append_range(cells, free, block + begin, block + end);
  return cells;
}

program::Box PartGrid::box_in(const TensorRows& rows, const Cell& cell) const {
  const std::int64_t period = period_of(rows), kept = rows.count * rows.part.after;
  const std::int64_t first = bounds(cell).first;
  program::Box box;
  box.begin = first / period * kept + first % period - rows.part.begin * rows.part.after;
  for (std::size_t digit = 0; digit < cell.size(); ++digit) {
    const std::int64_t stride = strides_[digit];
    box.sides.push_back({cell[digit].second - cell[digit].first,
                         stride % period == 0 ? stride / period * kept : stride});
  }
  return box;
}

std::pair<std::int64_t, std::int64_t> PartGrid::bounds(const Cell& cell) const {
  std::int64_t first = 0, last = 0;
  for (std::size_t digit = 0; digit < cell.size(); ++digit) {
    first += cell[digit].first * strides_[digit];
    last += (cell[digit].second - 1) * strides_[digit];
  }
  return {first, last};
}

std::int64_t PartGrid::elements(const Cell& cell) {
  std::int64_t count = 1;
  for (const auto& [begin, end] : cell) count *= end - begin;
  return count;
}

std::optional<PartGrid::Cell> PartGrid::intersect(const Cell& one, const Cell& other) {
  Cell both = one;
  for (std::size_t digit = 0; digit < both.size(); ++digit) {
    auto& [begin, end] = both[digit];
    begin = std::max(begin, other[digit].first);
    end = std::min(end, other[digit].second);
    if (begin >= end) return std::nullopt;
  }
  return both;
}

std::vector<PartGrid::Cell> PartGrid::subtract(const Cell& from, const Cell& other) {
  const auto both = intersect(from, other);
  if (!both) return {from};
  std::vector<Cell> left;
  Cell rest = from;  // shrinks to the intersection, digit by digit
  for (std::size_t digit = 0; digit < from.size(); ++digit) {
    const auto [begin, end] = (*both)[digit];
    for (const auto& side :
         {std::pair(rest[digit].first, begin), std::pair(end, rest[digit].second)}) {
      if (side.first >= side.second) continue;
      left.push_back(rest);
      left.back()[digit] = side;
    }
    rest[digit] = {begin, end};
  }
  return left;
}

std::vector<HeldCell> find_held_cells(const PartGrid& grid,
                                      const std::vector<std::optional<TensorRows>>& held) {
  std::vector<HeldCell> cells{{grid.whole(), {}}};
  for (std::size_t first = 0; first < held.size(); ++first) {
    const auto here = held.begin() + static_cast<std::ptrdiff_t>(first);
    if (!*here || std::find(held.begin(), here, *here) != here) continue;
    for (const PartGrid::Cell& own : grid.cells_of(*held[first])) {
      std::vector<HeldCell> next;
      for (HeldCell& each : cells) {
        for (PartGrid::Cell& rest : PartGrid::subtract(each.cell, own))
          next.push_back({std::move(rest), each.holders});
        auto both = PartGrid::intersect(each.cell, own);
        if (!both) continue;
        for (std::size_t rank = first; rank < held.size(); ++rank)
          if (held[rank] == held[first]) each.holders.push_back(rank);
        next.push_back({std::move(*both), std::move(each.holders)});
      }
      cells = std::move(next);
    }
  }
  for (HeldCell& each : cells) std::sort(each.holders.begin(), each.holders.end());
  return cells;
}

void merge_sides(program::Box& one, program::Box& other) {
  std::vector<program::Box::Side> merged, others;
  for (std::size_t i = 0; i < one.sides.size(); ++i) {
    const program::Box::Side &side = one.sides[i], &beside = other.sides[i];
    if (side.extent == 1) continue;
    const bool follows = !merged.empty() && merged.back().stride == side.extent * side.stride &&
                         others.back().stride == beside.extent * beside.stride;
    if (!follows) {
      merged.push_back(side);
      others.push_back(beside);
      continue;
    }
    for (auto* sides : {&merged, &others}) sides->back().extent *= side.extent;
    merged.back().stride = side.stride;
    others.back().stride = beside.stride;
  }
  one.sides = std::move(merged);
  other.sides = std::move(others);
}

}  // namespace motley::synth
