#include "peers/import/pollux.h"

#include "motley/base/csv.h"

namespace motley::peers {
namespace {

struct Times {
  std::size_t batch = 0, step = 0;  // columns

  static Result<Times> find(const CsvTable& table) {
    Times times;
    MOTLEY_ASSIGN(times.batch, table.column("local_bsz"));
    MOTLEY_ASSIGN(times.step, table.column("step_time"));
    return times;
  }
  Result<void> read(const CsvTable& table, std::size_t row, DataParallelSample& sample) const {
    MOTLEY_ASSIGN(sample.batch, table.positive_number(row, batch));
    MOTLEY_ASSIGN(const double seconds, table.positive_number(row, step));
    sample.measured = Seconds(seconds);
    return {};
  }
};

}  // namespace

Result<std::vector<DataParallelSample>> read_pollux_placements(const std::string& path) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t placement, table.column("placement"));
  MOTLEY_ASSIGN(const Times times, Times::find(table));
  std::vector<DataParallelSample> samples;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    DataParallelSample& sample = samples.emplace_back();
    for (const char digit : table.text(r, placement)) {
      if (digit < '1' || digit > '9')
        return table.fault(r, placement, "one digit from 1 to 9 for each machine");
      ++sample.hosts;
      sample.replicas += digit - '0';
    }
    MOTLEY_RETURN_IF_ERROR(times.read(table, r, sample));
  }
  return samples;
}

Result<std::vector<DataParallelSample>> read_pollux_scalability(const std::string& path) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t hosts, table.column("num_nodes"));
  MOTLEY_ASSIGN(const std::size_t replicas, table.column("num_replicas"));
  MOTLEY_ASSIGN(const Times times, Times::find(table));
  std::vector<DataParallelSample> samples;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    DataParallelSample& sample = samples.emplace_back();
    MOTLEY_ASSIGN(sample.hosts, table.positive_integer(r, hosts));
    MOTLEY_ASSIGN(sample.replicas, table.positive_integer(r, replicas));
    if (sample.replicas < sample.hosts)
      return table.fault(r, replicas, "at least one replica on each machine");
    MOTLEY_RETURN_IF_ERROR(times.read(table, r, sample));
  }
  return samples;
}

}  // namespace motley::peers
