#include "motley/run/batch_order.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/check.h"

namespace motley::run {

BatchKind batch_kind(const program::Program& program) {
  BatchKind kind;
  kind.size = program.global_batch;
  for (const program::DeviceProgram& device : program.devices)
    kind.places.push_back(program.samples_of(device));
  return kind;
}

BatchOrder BatchOrder::endless(BatchKind kind, std::int64_t first_batch,
                               std::int64_t first_position) {
  BatchOrder order;
  order.kinds_.push_back(std::move(kind));
  order.first_batch_ = first_batch;
  order.first_position_ = first_position;
  return order;
}

BatchOrder BatchOrder::passes(std::vector<BatchKind> kinds, std::int64_t whole_batches) {
  MOTLEY_CHECK(!kinds.empty() && kinds.size() <= 2 && whole_batches > 0);
  BatchOrder order;
  order.kinds_ = std::move(kinds);
  order.whole_batches_ = whole_batches;
  return order;
}

BatchOrder BatchOrder::passes_over(std::vector<BatchKind> kinds, std::int64_t samples) {
  const std::int64_t rest = kinds.size() > 1 ? kinds[1].size : 0;
  const std::int64_t whole = (samples - rest) / kinds[0].size;
  return passes(std::move(kinds), whole);
}

std::int64_t BatchOrder::batches_in_pass() const {
  return whole_batches_ == 0 ? 0 : whole_batches_ + static_cast<std::int64_t>(kinds_.size()) - 1;
}

std::int64_t BatchOrder::in_pass(std::int64_t batch) const {
  if (whole_batches_ == 0) return batch - first_batch_;
  return batch % batches_in_pass();
}

std::size_t BatchOrder::kind_index(std::int64_t batch) const {
  return whole_batches_ > 0 && in_pass(batch) == whole_batches_ ? 1 : 0;
}

std::int64_t BatchOrder::position(std::int64_t batch) const {
  return first_position_ + in_pass(batch) * kinds_[0].size;
}

Result<SampleNumbers> SampleNumbers::make(const data::DataSource& source, std::int64_t samples,
                                          std::optional<std::uint64_t> shuffle) {
  SampleNumbers numbers;
  if (samples < 0) {
    if (!shuffle && source.begin == 0 && !source.end) return numbers;
    return usage_error("data.stream",
                       fmt::format("{}: is a stream, which has one order and no slices: give "
                                   "--shuffle none and no [BEGIN:END], or a dataset with a length",
                                   source.path));
  }
  if (samples == 0) return usage_error("data.empty", source.path + ": holds no sample");
  MOTLEY_ASSIGN(const data::Slice slice, data::slice_of(source, samples));
  numbers.begin_ = slice.begin;
  numbers.samples_ = slice.end - slice.begin;
  numbers.order_.emplace(numbers.samples_, shuffle);
  return numbers;
}

}  // namespace motley::run
