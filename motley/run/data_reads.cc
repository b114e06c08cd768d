#include "motley/run/data_reads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace motley::run {
namespace {

/// Returns, by kind of batch, the places that any of the ranks needs.
std::vector<std::vector<std::int64_t>> wanted_places(const DataReads& reads) {
  std::vector<std::vector<std::int64_t>> wanted;
  for (const BatchKind& kind : reads.order.kinds()) {
    std::set<std::int64_t> places;
    for (const int rank : reads.ranks) {
      const auto& own = kind.places[static_cast<std::size_t>(rank)];
      places.insert(own.begin(), own.end());
    }
    wanted.emplace_back(places.begin(), places.end());
  }
  return wanted;
}

/// Returns the expected share of shuffled samples that are read: each epoch reads others.
double expected_share(const DataReads& reads, std::size_t places) {
  const double share =
      static_cast<double>(places) / static_cast<double>(reads.order.kinds()[0].size);
  const double epochs = static_cast<double>(reads.batches * reads.order.kinds()[0].size) /
                        static_cast<double>(reads.samples);
  const double whole = std::floor(epochs);
  return 1 - std::pow(1 - share, whole) * (1 - share * (epochs - whole));
}

}  // namespace

std::optional<data::SampleSet> find_samples(const DataReads& reads, double most_share) {
  const auto wanted = wanted_places(reads);
  if (reads.shuffle && expected_share(reads, wanted[0].size()) > most_share) return std::nullopt;
  data::SampleSet found(reads.samples);
  const data::SampleOrder order(reads.samples, reads.shuffle);
  const auto most = static_cast<std::int64_t>(most_share * static_cast<double>(reads.samples));
  const std::int64_t first = reads.order.first_batch();
  for (std::int64_t batch = first; batch < first + reads.batches; ++batch) {
    const std::int64_t position = reads.order.position(batch);
    for (const std::int64_t place : wanted[reads.order.kind_index(batch)])
      found.add(order.at(position + place));
    if (found.count() > most) return std::nullopt;
  }
  return found;
}

std::string reads_key(const DataReads& reads) {
  const std::int64_t first = reads.order.first_batch();
  std::string key = fmt::format("{} samples, shuffle {}, batches {} to {} from {}", reads.samples,
                                reads.shuffle ? std::to_string(*reads.shuffle) : "none", first,
                                first + reads.batches, reads.order.position(first));
  const auto wanted = wanted_places(reads);
  for (std::size_t kind = 0; kind < wanted.size(); ++kind)
    key += fmt::format("; of {}: {}", reads.order.kinds()[kind].size, fmt::join(wanted[kind], ","));
  return key;
}

}  // namespace motley::run
