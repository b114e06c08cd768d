#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "motley/program/boxes.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Rows [part.begin, part.begin + count) of a tensor seen as [before, extent, after]: what a device
/// has of it.
struct TensorRows {
  program::Part part;
  std::int64_t count = 0;
  bool operator==(const TensorRows&) const = default;

  std::int64_t elements() const { return part.before * count * part.after; }
};
/// Of a persistent buffer; one without a part has its tensor whole.
TensorRows rows_of(const program::Buffer& buffer);
/// Elements of the whole tensor.
std::int64_t whole_elements(const TensorRows& rows);

/// Parts of one tensor that are cut in different views, as boxes of one grid, where they meet and
/// are taken from each other. A part's elements are those whose flat index, modulo its period
/// extent * after, lies in a range. Periods of cuts of one shape divide each other, so they are the
/// digits of a number system, and a part is a box of digits, or a few where a cut of a longer
/// period falls between those of a shorter one. Where periods do not divide each other, a box is a
/// stretch of consecutive elements.
///
///   f32[4, 6] by rows, period 24, and by columns, period 6: digits (i, j) of i * 6 + j. Rows 0 and
///   1: [0, 2) x [0, 6); columns 4 and 5: [0, 4) x [4, 6).
class PartGrid {
 public:
  /// Ranges of the digits, the most significant first.
  using Cell = std::vector<std::pair<std::int64_t, std::int64_t>>;

  /// Of a tensor of so many elements, > 0, that is cut so.
  PartGrid(std::int64_t elements, const std::vector<TensorRows>& cuts);

  Cell whole() const;
  /// Disjoint, in order of their first elements.
  std::vector<Cell> cells_of(const TensorRows& rows) const;
  /// Where the elements of a cell, which lies in one of cells_of(rows), are in the memory of who
  /// has these rows. Sides of all digits, those of extent 1 too.
  program::Box box_in(const TensorRows& rows, const Cell& cell) const;
  /// Flat index of a cell's first and last element.
  std::pair<std::int64_t, std::int64_t> bounds(const Cell& cell) const;

  static std::int64_t elements(const Cell& cell);
  static std::optional<Cell> intersect(const Cell& one, const Cell& other);
  /// Disjoint cells of what is in the first alone.
  static std::vector<Cell> subtract(const Cell& from, const Cell& other);

 private:
  void append_range(std::vector<Cell>& cells, Cell begun, std::int64_t begin,
                    std::int64_t end) const;

  std::int64_t elements_;
  std::vector<std::int64_t> strides_;  // by digit; the last is 1
};

/// A stretch of a tensor that the same devices have.
struct HeldCell {
  PartGrid::Cell cell;
  std::vector<std::size_t> holders;  ///< by rank, ascending; none: nobody has it
};

/// All of a tensor that is cut so, by who has which rows of it. O(d^2) for d different cuts.
std::vector<HeldCell> find_held_cells(const PartGrid& grid,
                                      const std::vector<std::optional<TensorRows>>& held);

/// Two boxes of the same extents, sides that follow each other in both made one, those of extent 1
/// left out.
void merge_sides(program::Box& one, program::Box& other);

}  // namespace motley::synth
