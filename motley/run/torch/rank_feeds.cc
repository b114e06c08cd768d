#include "motley/run/torch/rank_feeds.h"

#include <fmt/format.h>

#include <utility>

#include "motley/run/input_specs.h"
#include "motley/run/torch/exchange/clock.h"

namespace motley::run {
namespace {

Result<std::vector<std::string>> share_machines(const WorkerSession& session) {
  if (session.size == 1) return std::vector<std::string>{this_machine()};
  return session.rendezvous->share("machine", this_machine(), session.patience());
}

}  // namespace

Result<RankFeeds> open_feeds(const TrainedTensors& tensors, StatusFile& status,
                             const TrainingPoint& point) {
  const WorkerSession& session = tensors.session();
  RankFeeds feeds;
  std::vector<std::string> machines(static_cast<std::size_t>(session.size));
  const auto& evaluation = session.job.evaluation;
  if (data::is_loaded(session.job.data) || (evaluation && data::is_loaded(evaluation->data))) {
    MOTLEY_ASSIGN(machines, share_machines(session));
  }
  const auto open = [&](const std::string& name, const data::DataSource& source, BatchOrder order,
                        std::optional<std::uint64_t> shuffle) {
    FeedOptions options{.source = source,
                        .inputs = input_specs(tensors.model()->graph),
                        .order = std::move(order),
                        .shuffle = shuffle,
                        .rank = session.rank,
                        .machines = machines,
                        .timeout = session.job.timeout};
    const std::string key =
        fmt::format("feed/{}/{}", name, machines[static_cast<std::size_t>(session.rank)]);
    options.share = [&session, key](const std::optional<std::string>& text) -> Result<std::string> {
      if (!text) return session.rendezvous->get(key, session.patience());
      MOTLEY_RETURN_IF_ERROR(session.rendezvous->set(key, *text));
      return *text;
    };
    options.on_progress = [&status] {
      status.record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
    };
    return open_feed(std::move(options));
  };
  MOTLEY_ASSIGN(feeds.training,
                open("training", session.job.data,
                     BatchOrder::endless(batch_kind(session.program), point.step, point.samples),
                     session.job.shuffle));
  if (!evaluation) return feeds;
  std::vector<BatchKind> kinds;
  for (const program::Program& program : session.evaluations) kinds.push_back(batch_kind(program));
  BatchOrder order = BatchOrder::passes_over(std::move(kinds), evaluation->samples);
  feeds.batches_evaluated = order.batches_in_pass();
  MOTLEY_ASSIGN(feeds.evaluation,
                open("evaluation", evaluation->data, std::move(order), std::nullopt));
  return feeds;
}

}  // namespace motley::run
