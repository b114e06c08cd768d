#include "motley/run/torch/stints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/json.h"
#include "motley/run/change.h"
#include "motley/run/torch/exchange/clock.h"

namespace motley::run {
namespace {

/// Of a program that has no inputs.
class NoSamples final : public data::Batch {
 public:
  std::int64_t samples() const override { return 0; }
  std::int64_t sample_bytes(std::size_t) const override { return 0; }
  void read(std::size_t, std::int64_t, std::byte*) const override {}
};

}  // namespace

Result<std::unique_ptr<Stints>> Stints::open(WorkerSession& process, const Reporter& reporter,
                                             OnTraining on_training) {
  std::unique_ptr<Stints> stints(new Stints(process, reporter, std::move(on_training)));
  MOTLEY_ASSIGN(stints->session_,
                open_part(process, "stint/0", devices_of(process.program, process.job.devices),
                          process.program, process.evaluations));
  MOTLEY_ASSIGN(stints->orders_, OrderReader::start(process, reporter));
  if (!stints->session_->is_idle) {
    MOTLEY_ASSIGN(stints->training_, RankTraining::open(*stints->session_, reporter));
    stints->status_ = stints->training_->status();
    stints->model_ = stints->training_->model();
  } else {
    MOTLEY_ASSIGN(StatusFile status, StatusFile::create(process.job.run_dir, process.process));
    stints->status_ = std::make_shared<StatusFile>(std::move(status));
    reporter.event("ready", Json{{"device", process.device().name}, {"idle", true}});
  }
  stints->show_present();
  return stints;
}

/// What the next program is prepared from.
void Stints::show_present() {
  OrderReader::Present present;
  present.model = model_;
  present.status = status_;
  present.leads = is_lead();
  if (training_) {
    present.tensors = training_->persistent();
    present.request_change = [training = training_.get()] { training->request_change(); };
  }
  orders_->set_present(std::move(present));
  on_training_(training_.get());
}

/// Before which step the next change begins, where that was given.
std::optional<std::int64_t> Stints::given_step() const {
  const std::vector<std::int64_t>& at = process_.job.changes->at;
  const auto next = static_cast<std::size_t>(number_);
  if (next >= at.size()) return std::nullopt;
  return at[next];
}

/// The first rank of a stint's program tells the others, idle ones too, what comes after it.
Result<void> Stints::tell(const Json& word) {
  if (!is_lead() || !process_.rendezvous) return {};
  return process_.rendezvous->set(fmt::format("after/{}", number_), word.dump());
}

Result<Json> Stints::wait_idle() {
  const std::string key = fmt::format("after/{}", number_);
  constexpr Seconds kLook{1};
  while (true) {
    const auto text = process_.rendezvous->get(key, kLook);
    if (text) return parse_json(*text, key);
    if (text.error().code != "run.timeout") return tl::make_unexpected(text.error());
    // The others may train for days; those who lead the job notice if they do not get on.
    status_->record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
  }
}

Result<RankTraining::End> Stints::run() {
  while (true) {
    Json word;
    if (training_) {
      MOTLEY_ASSIGN(const RankTraining::End ended, training_->run(given_step()));
      const bool goes_on = ended == RankTraining::End::kChanged;
      word = Json{{"goes_on", goes_on}, {"is_stopped", ended == RankTraining::End::kStopped}};
      if (goes_on) word["point"] = point_to_json(training_->point());
      MOTLEY_RETURN_IF_ERROR(tell(word));
    } else {
      MOTLEY_ASSIGN(word, wait_idle());
    }
    if (!word.value("goes_on", false))
      return end(word.value("is_stopped", false) ? RankTraining::End::kStopped
                                                 : RankTraining::End::kFinished);
    MOTLEY_RETURN_IF_ERROR(change(word));
  }
}

Result<void> Stints::change(const Json& word) {
  const std::int64_t begin = monotonic_ns();
  MOTLEY_ASSIGN(Next next, orders_->take(process_.patience()));
  // The lead knows of the latest checkpoint.
  Json said = word;
  if (training_ && !is_lead() && process_.rendezvous) {
    MOTLEY_ASSIGN(said, wait_idle());
  }
  MOTLEY_ASSIGN(const TrainingPoint point, point_from_json(said.at("point"), "point"));
  if (next.mover) {
    const NoSamples none;
    MOTLEY_RETURN_IF_ERROR(next.mover->step(point.step, none));
  }
  next.handover.point = point;
  model_ = next.handover.model;
  std::unique_ptr<RankTraining> training;
  if (!next.session->is_idle) {
    MOTLEY_ASSIGN(training,
                  RankTraining::go_on(*next.session, reporter_, std::move(next.handover)));
    if (next.session->rendezvous)
      MOTLEY_RETURN_IF_ERROR(next.session->rendezvous->barrier("begun", process_.patience()));
  }
  next.mover.reset();
  on_training_(nullptr);  // a signal that comes now is kept for the next one
  number_ = next.number;
  training_ = std::move(training);
  session_ = std::move(next.session);
  show_present();
  if (is_lead())
    reporter_.event("change",
                    Json{{"change", number_},
                         {"step", point.step},
                         {"pause_s", static_cast<double>(monotonic_ns() - begin) * 1e-9}});
  return {};
}

/// All processes leave together: one of them serves the store.
Result<RankTraining::End> Stints::end(RankTraining::End end) {
  if (!training_)
    reporter_.event(
        "done",
        Json{{"steps", 0}, {"reason", end == RankTraining::End::kStopped ? "stopped" : "idle"}});
  if (process_.rendezvous)
    MOTLEY_RETURN_IF_ERROR(process_.rendezvous->barrier("over", process_.patience()));
  return end;
}

}  // namespace motley::run
