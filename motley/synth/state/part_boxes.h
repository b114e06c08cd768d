#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "motley/program/boxes.h"
#include "motley/program/program.h"

namespace motley::synth {

/// A device's rows [part.begin, part.begin + count) of a tensor viewed as [before, extent, after].
struct TensorRows {
  program::Part part;
  std::int64_t count = 0;
  bool operator==(const TensorRows&) const = default;

  std::int64_t elements() const { return part.before * count * part.after; }
};
/// Returns the rows of a persistent buffer; without a part it has the whole tensor.
TensorRows rows_of(const program::Buffer& buffer);
/// Returns the elements of the whole tensor.
std::int64_t whole_elements(const TensorRows& rows);

/// Parts of one tensor, cut in different views, as boxes of one grid, so that they can be
/// intersected and subtracted. A part's elements are those whose flat index, modulo its period
/// extent * after, is in a range. The periods of cuts of one shape divide each other, so they are
/// the digits of a number system. A part is then a box of digits, or a few boxes if a cut of a
/// longer period falls between those of a shorter one. If periods do not divide each other, a box
/// is a range of consecutive elements.
///
///   f32[4, 6] by rows, period 24, and by columns, period 6: digits (i, j) of i * 6 + j. Rows 0 and
///   1: [0, 2) x [0, 6); columns 4 and 5: [0, 4) x [4, 6).
class PartGrid {
 public:
  /// Ranges of the digits, the most significant first.
  using Cell = std::vector<std::pair<std::int64_t, std::int64_t>>;

  /// `elements` > 0: of the tensor; `cuts`: its parts.
  PartGrid(std::int64_t elements, const std::vector<TensorRows>& cuts);

  Cell whole() const;
  /// Returns disjoint cells in order of their first elements.
  std::vector<Cell> cells_of(const TensorRows& rows) const;
  /// Returns where the elements of a cell are in a buffer of these rows. The cell must lie in one
  /// of cells_of(rows). Has a side for each digit, even of extent 1.
  program::Box box_in(const TensorRows& rows, const Cell& cell) const;
  /// Returns the flat indices of a cell's first and last element.
  std::pair<std::int64_t, std::int64_t> bounds(const Cell& cell) const;

  static std::int64_t elements(const Cell& cell);
  static std::optional<Cell> intersect(const Cell& one, const Cell& other);
  /// Returns disjoint cells of the elements that only the first has.
  static std::vector<Cell> subtract(const Cell& from, const Cell& other);

 private:
  void append_range(std::vector<Cell>& cells, Cell begun, std::int64_t begin,
                    std::int64_t end) const;

  std::int64_t elements_;
  std::vector<std::int64_t> strides_;  // by digit; the last is 1
};

/// A range of a tensor that the same devices hold.
struct HeldCell {
  PartGrid::Cell cell;
  std::vector<std::size_t> holders;  ///< by rank, ascending; none if it is lost
};

/// Divides a tensor into cells by holders. O(d^2) for d different cuts.
std::vector<HeldCell> find_held_cells(const PartGrid& grid,
                                      const std::vector<std::optional<TensorRows>>& held);

/// Merges sides contiguous in both boxes (of equal extents) and removes sides of extent 1.
void merge_sides(program::Box& one, program::Box& other);

}  // namespace motley::synth
