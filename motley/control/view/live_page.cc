#include "motley/control/view/live_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/quiet_thread.h"
#include "motley/control/claim.h"
#include "motley/control/view/run_report.h"
#include "motley/report/page/page.h"
#include "motley/run/launch/diagnosis.h"
#include "motley/run/launch/process_life.h"

namespace motley::control {
namespace {

using WatchClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookEvery(250);
constexpr std::chrono::milliseconds kRanksEvery(1000);  // while no step completes

/// Returns file times that change when a run starts or ends.
std::vector<std::filesystem::file_time_type> marks_of(const RunDirectory& directory) {
  std::vector<std::filesystem::file_time_type> marks;
  for (const std::string& path : {directory.start(), directory.failure(), directory.summary()}) {
    std::error_code code;
    const auto written = std::filesystem::last_write_time(path, code);
    marks.push_back(code ? std::filesystem::file_time_type::min() : written);
  }
  return marks;
}

}  // namespace

/// The state of a live page; used by one thread at a time.
class LivePage::Follower {
 public:
  Follower(FoundRun run, PageServer& server) : server_(server) { begin(std::move(run)); }

  void look() {
    const auto marks = marks_of(run_->directory);
    const bool has_gone = run_->state == RunState::kRunning && !is_anyone_there();
    if (marks != marks_ || has_gone) {
      if (auto found = find_run(run_->directory.path)) return begin(std::move(*found));
    }
    const bool has_steps = read_new_steps();
    const bool is_time = WatchClock::now() - told_ >= kRanksEvery;
    if (run_->state == RunState::kRunning && (has_steps || is_time))
      tell(report::Sections::kChanging);
  }

 private:
  void begin(FoundRun found) {
    reporter_.reset();
    diagnosis_.reset();
    marks_ = marks_of(found.directory);
    run_ = std::make_unique<FoundRun>(std::move(found));
    reporter_ = std::make_unique<RunReporter>(*run_);
    diagnosis_ = std::make_unique<run::Diagnosis>(run_->job);
    std::error_code code;
    read_ = std::filesystem::file_size(run_->directory.log(), code);
    if (code) read_ = 0;
    tell(report::Sections::kAll);
  }

  bool is_anyone_there() {
    for (const RankPlace& each : run_->ranks)
      if (diagnosis_->is_running(each.rank)) return true;
    return find_holder(run_->directory).has_value();
  }

  /// Reads new complete lines of the log.
  bool read_new_steps() {
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(run_->directory.log(), code);
    if (code || size <= read_) {
      if (!code && size < read_) read_ = 0;
      return false;
    }
    std::ifstream file(run_->directory.log(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(read_));
    std::string text(size - read_, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    const std::size_t whole = text.rfind('\n');
    if (whole == std::string::npos) return false;
    read_log_lines(std::string_view(text).substr(0, whole), run_->log);
    read_ += whole + 1;
    return true;
  }

  void find_ranks() {
    for (RankPlace& each : run_->ranks) {
      each.step = diagnosis_->step(each.rank);
      each.where = diagnosis_->where(each.rank);
      if (run_->job.devices[static_cast<std::size_t>(each.rank)].host.empty())
        each.is_running = diagnosis_->is_running(each.rank);
    }
  }

  void tell(report::Sections which) {
    told_ = WatchClock::now();
    if (run_->state == RunState::kRunning) find_ranks();
    const report::ReportData report_data = reporter_->tell();
    const std::vector<report::Section> now = report::print_sections(report_data, which);
    Json changed = Json::array();
    std::string before;
    for (const report::Section& each : now) {
      const auto [at, is_new] = known_.try_emplace(each.id, each.html);
      if (is_new || at->second != each.html) changed.push_back({each.id, each.html, before});
      at->second = each.html;
      before = each.id;
    }
    if (which == report::Sections::kAll) forget_others(now, changed);
    put_in_order(now);
    if (changed.empty()) return;
    std::vector<report::Section> all;
    for (const std::string& id : order_) all.push_back({id, known_.at(id)});
    server_.show(report::print_page(report_data, all, report::Liveness::kLive));
    server_.tell("sections", changed.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void forget_others(const std::vector<report::Section>& now, Json& changed) {
    order_.clear();
    for (auto at = known_.begin(); at != known_.end();) {
      const bool stays = std::any_of(now.begin(), now.end(), [&](const report::Section& each) {
        return each.id == at->first;
      });
      if (!stays) changed.push_back({at->first, "", ""});
      at = stays ? std::next(at) : known_.erase(at);
    }
  }

  /// Inserts each new section after the one before it.
  void put_in_order(const std::vector<report::Section>& now) {
    auto place = order_.begin();
    for (const report::Section& each : now) {
      const auto found = std::find(order_.begin(), order_.end(), each.id);
      place = found == order_.end() ? order_.insert(place, each.id) : found;
      ++place;
    }
  }

  PageServer& server_;
  std::unique_ptr<FoundRun> run_;
  std::unique_ptr<RunReporter> reporter_;
  std::unique_ptr<run::Diagnosis> diagnosis_;
  std::vector<std::filesystem::file_time_type> marks_;
  std::map<std::string, std::string> known_;
  std::vector<std::string> order_;
  std::uintmax_t read_ = 0;
  WatchClock::time_point told_;
};

LivePage::LivePage(std::unique_ptr<PageServer> server, std::unique_ptr<Follower> follower)
    : server_(std::move(server)), follower_(std::move(follower)) {
  thread_ = start_quiet_thread([this] {
    while (!ends_) {
      std::this_thread::sleep_for(kLookEvery);
      follower_->look();
    }
  });
}

LivePage::~LivePage() {
  ends_ = true;
  thread_.join();
  follower_->look();
  server_->tell("end", "{}");
  server_->flush();
}

Result<std::unique_ptr<LivePage>> LivePage::start(const std::string& run_dir, int port) {
  MOTLEY_ASSIGN(FoundRun run, find_run(run_dir));
  MOTLEY_ASSIGN(auto server, PageServer::start(port));
  auto follower = std::make_unique<Follower>(std::move(run), *server);
  return std::unique_ptr<LivePage>(new LivePage(std::move(server), std::move(follower)));
}

std::string LivePage::address() const {
  return fmt::format("http://127.0.0.1:{}/", server_->port());
}

}  // namespace motley::control
