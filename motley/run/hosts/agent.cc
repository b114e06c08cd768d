#include "motley/run/hosts/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "motley/base/json.h"
#include "motley/run/hosts/agent_files.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/frame.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/process_set.h"
#include "motley/run/hosts/signal_pipe.h"
#include "motley/run/hosts/standby.h"
#include "motley/run/hosts/status.h"
#include "motley/run/hosts/wire.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr int kPollMs = 50;
constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

/// Sends a frame to the coordinator.
using Say = std::function<Result<void>(Json head, std::string_view bytes)>;

/// The processes of a job: starts them, and tells the coordinator what they print, where they are
/// and how they end.
class JobProcesses {
 public:
  explicit JobProcesses(const std::string& worker) : set_(worker, sigset_t{}) {}

  /// `folder`: where their stderr goes.
  void set_logs(std::string folder) { logs_ = std::move(folder); }
  /// Kills and forgets those of the last job. `run`: the next job's directory.
  void begin_job(std::string run) {
    set_.signal(SIGKILL);
    members_.clear();
    run_ = std::move(run);
  }

  Result<Json> start(const Frame& frame) {
    Hand hand;
    hand.id = frame.head.at("id");
    for (const Json& each : frame.head.at("arguments")) hand.arguments.push_back(each);
    hand.log = log_path(hand.id);
    hand.takes_lines = frame.head.value("takes_lines", false);
    members_[hand.id].rank = frame.head.at("rank");
    MOTLEY_RETURN_IF_ERROR(set_.start(hand));
    return Json();
  }

  Result<Json> tell(const Frame& frame) {
    MOTLEY_RETURN_IF_ERROR(set_.tell(frame.head.at("id").get<int>(), frame.bytes));
    return Json();
  }

  Result<Json> signal(const Frame& frame) {
    const int signal = frame.head.at("signal");
    if (frame.head.contains("id"))
      set_.signal_one(frame.head.at("id"), signal);
    else
      set_.signal(signal);
    return Json();
  }

  void signal_all(int signal) { set_.signal(signal); }
  void add_waits(std::vector<pollfd>& waits) const { set_.add_waits(waits); }

  /// Returns pairs of id and rank of those that run; their status is reported anew.
  Json introduce() {
    Json running = Json::array();
    for (auto& [id, member] : members_) {
      running.push_back({id, member.rank});
      member.status.clear();
    }
    return running;
  }

  /// Reports lines and ends.
  Result<void> report(const Say& say) {
    std::vector<Heard> heard;
    set_.listen(heard);
    for (const Heard& each : heard) {
      if (each.what == Heard::What::kLine) {
        MOTLEY_RETURN_IF_ERROR(say({{"is", "line"}, {"id", each.id}, {"text", each.line}}, {}));
        continue;
      }
      if (const auto member = members_.find(each.id); member != members_.end())
        MOTLEY_RETURN_IF_ERROR(report_progress(say, each.id, member->second));
      MOTLEY_RETURN_IF_ERROR(say({{"is", "exit"}, {"id", each.id}, {"status", each.status}}, {}));
      members_.erase(each.id);
    }
    return {};
  }

  /// Reports from time to time where all are, and what they wrote.
  Result<void> report_progress(const Say& say) {
    constexpr double kStatusEvery = 0.5;  // seconds
    if (seconds_since(reported_at_) < kStatusEvery) return {};
    reported_at_ = Clock::now();
    for (auto& [id, member] : members_) MOTLEY_RETURN_IF_ERROR(report_progress(say, id, member));
    return {};
  }

 private:
  struct Member {
    int rank = 0;
    std::streamoff logged = 0;
    std::unique_ptr<StatusFile> file;
    std::vector<std::int64_t> status;
  };
  std::string log_path(int id) const { return fmt::format("{}/{}.txt", logs_, id); }

  /// Reports where it is and what it wrote since the last time.
  Result<void> report_progress(const Say& say, int id, Member& member) const {
    auto& [rank, logged, file, sent] = member;
    if (!file)
      if (auto opened = StatusFile::open(run_, rank))
        file = std::make_unique<StatusFile>(std::move(*opened));
    if (file) {
      std::vector<std::int64_t> record = file->numbers();
      if (record != sent) {
        sent = std::move(record);
        MOTLEY_RETURN_IF_ERROR(say({{"is", "status"}, {"id", id}, {"record", sent}}, {}));
      }
    }
    std::ifstream stream(log_path(id), std::ios::binary);
    stream.seekg(logged);
    std::string text(1 << 16, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
    logged += static_cast<std::streamoff>(text.size());
    return text.empty() ? Result<void>() : say({{"is", "log"}, {"id", id}}, text);
  }

  LocalProcessSet set_;
  std::string logs_, run_;  // folders
  std::map<int, Member> members_;
  Clock::time_point reported_at_ = Clock::now();
};

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options),
        processes_(options.worker),
        input_(options.input),
        output_(options.output),
        files_(options.cache) {
    if (options.passes_signals) signals_.emplace();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() { processes_.signal_all(SIGKILL); }

  Result<std::optional<int>> serve() {
    MOTLEY_RETURN_IF_ERROR(files_.make());
    processes_.set_logs(files_.scratch() / "log");
    MOTLEY_RETURN_IF_ERROR(say(hello()));
    while (true) {
      const Result<bool> is_led = turn();
      if (code_) return code_;
      if (is_led && *is_led) continue;
      if (standby_ && standby_->has_memory()) {
        MOTLEY_RETURN_IF_ERROR(change_coordinator());
        continue;
      }
      if (is_led) return std::optional<int>();
      return tl::make_unexpected(is_led.error());
    }
  }

 private:
  Json hello() const {
    Json hello = options_.hello;
    hello["is"] = "hello";
    hello["scratch"] = files_.scratch().string();
    hello["cache"] = options_.cache;
    hello["host"] = own_host_name();
    hello["machine"] = machine_identity();
    return hello;
  }

  /// Handles requests and reports events. False: the coordinator is gone.
  Result<bool> turn() {
    // However long this process was busy: silence counts only if nothing is waiting to be read.
    if (wait()) {
      if (!reader_.read_some(input_)) return false;
      heard_at_ = Clock::now();
      MOTLEY_RETURN_IF_ERROR(obey_all());
      if (code_) return true;
    } else if (const double most = standby_ ? standby_->patience() : options_.most_silence;
               seconds_since(heard_at_) >= most) {
      return runtime_error("agent.silence",
                           fmt::format("nothing was heard of the coordinator for {:.0f} s", most));
    }
    if (signals_ && signals_->take() > 0) processes_.signal_all(SIGTERM);
    MOTLEY_RETURN_IF_ERROR(report());
    MOTLEY_RETURN_IF_ERROR(send_files());
    return true;
  }

  /// Waits for another coordinator. Output of processes is kept meanwhile.
  Result<void> change_coordinator() {
    if (!coordinator_.is_open()) {
      ::close(input_);
      ::close(output_);
    }
    coordinator_.reset();
    MOTLEY_ASSIGN(coordinator_, standby_->await_coordinator());
    reader_ = FrameReader();
    outbox_ = FrameWriter();
    input_ = output_ = coordinator_.number();
    heard_at_ = Clock::now();
    files_.drop_outgoing();
    files_.drop_incoming();
    Json words = hello();
    words["memory"] = standby_->memory();
    words["alone"] = standby_->alone();
    words["lines"] = lines_;
    words["checkpoints"] = files_.checkpoints();
    words["processes"] = processes_.introduce();
    return say(std::move(words));
  }

  Result<void> say(Json head, std::string_view bytes = {}) {
    said_at_ = Clock::now();
    outbox_.add(std::move(head), bytes);
    // Bounds the memory for output that the coordinator does not read.
    if (outbox_.waiting() > kMostWaiting) return outbox_.write_all(output_, options_.most_silence);
    return outbox_.write_some(output_);
  }

  Result<void> say_failed(const Frame& frame, const Error& error) {
    return say({{"is", "failed"},
                {"do", frame.head.value("do", "")},
                {"number", frame.head.value("number", 0)},
                {"code", error.code},
                {"message", error.message}});
  }

  /// Waits for input, or for room to write. Returns whether the coordinator has sent something.
  bool wait() {
    const bool has_more = outbox_.waiting() > 0 || files_.has_outgoing();
    std::vector<pollfd> waits{{input_, POLLIN, 0},
                              {output_, static_cast<short>(has_more ? POLLOUT : 0), 0},
                              {standby_ ? standby_->descriptor() : -1, POLLIN, 0}};
    processes_.add_waits(waits);
    ::poll(waits.data(), waits.size(), kPollMs);
    if (waits[2].revents != 0) standby_->refuse();
    return waits[0].revents != 0;
  }

  Result<void> obey_all() {
    while (const auto frame = reader_.next()) {
      const auto done = obey(*frame);
      if (!done) MOTLEY_RETURN_IF_ERROR(say_failed(*frame, done.error()));
      if (code_) return {};
    }
    return {};
  }

  using OwnDeed = Result<Json> (Agent::*)(const Frame&);
  using FileDeed = Result<Json> (AgentFiles::*)(const Frame&);
  using ProcessDeed = Result<Json> (JobProcesses::*)(const Frame&);
  Result<Json> call(OwnDeed deed, const Frame& frame) { return (this->*deed)(frame); }
  Result<Json> call(FileDeed deed, const Frame& frame) { return (files_.*deed)(frame); }
  Result<Json> call(ProcessDeed deed, const Frame& frame) { return (processes_.*deed)(frame); }

  /// Does what is asked, and says the answer if there is one.
  Result<void> obey(const Frame& frame) {
    using Files = AgentFiles;
    using Jobs = JobProcesses;
    static const std::map<std::string, std::variant<OwnDeed, FileDeed, ProcessDeed>> kDeeds = {
        {"beat", &Agent::beat},         {"have", &Files::have},     {"write", &Files::write},
        {"keep", &Files::keep},         {"reset", &Agent::reset},   {"start", &Jobs::start},
        {"port", &Agent::port},         {"fetch", &Files::fetch},   {"signal", &Jobs::signal},
        {"probe", &Agent::probe},       {"exists", &Agent::exists}, {"link", &Files::link},
        {"listen", &Agent::listen},     {"wire", &Agent::wire},     {"names", &Agent::names},
        {"end", &Agent::end},           {"clock", &Agent::clock},   {"retain", &Files::retain},
        {"tell", &Jobs::tell},          {"append", &Files::append}, {"outlive", &Agent::outlive},
        {"remember", &Agent::remember}, {"settle", &Files::settle}};
    const auto known = kDeeds.find(frame.head.value("do", ""));
    if (known == kDeeds.end())
      return usage_error("agent.request", "not known: " + frame.head.dump());
    try {
      MOTLEY_ASSIGN(Json answer,
                    std::visit([&](auto deed) { return call(deed, frame); }, known->second));
      return answer.is_null() ? Result<void>() : say(std::move(answer));
    } catch (const Json::exception& fault) {
      return usage_error("agent.request", frame.head.dump() + ": " + fault.what());
    }
  }

  Result<Json> beat(const Frame&) { return Json(); }

  Result<Json> end(const Frame& frame) {
    code_ = frame.head.at("code").get<int>();
    return Json();
  }

  Result<Json> names(const Frame& frame) {
    Json here = Json::array();
    for (const std::string host : frame.head.at("hosts")) here.push_back(is_this_machine(host));
    return Json({{"is", "names"}, {"here", std::move(here)}});
  }

  Result<Json> exists(const Frame& frame) {
    std::error_code code;
    const std::string path = frame.head.at("path");
    return Json({{"is", "exists"}, {"path", path}, {"there", fs::exists(path, code)}});
  }

  Result<Json> port(const Frame&) {
    MOTLEY_ASSIGN(const int found, find_free_port());
    return Json({{"is", "port"}, {"port", found}});
  }

  Result<Json> clock(const Frame&) {
    const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
    return Json({{"is", "clock"}, {"time", time.count()}});
  }

  Result<Json> reset(const Frame& frame) {
    const std::string run = frame.head.value("run", "");
    const fs::path own = files_.scratch() / "run";
    processes_.begin_job(run.empty() ? own.string() : run);
    files_.drop_outgoing();
    std::error_code code;
    fs::create_directories(files_.scratch() / "log", code);
    if (!run.empty()) return Json();
    fs::remove_all(own, code);
    fs::create_directories(own / "status", code);
    if (!code) return Json();
    return runtime_error("agent.scratch", files_.scratch().string() + ": " + code.message());
  }

  /// "word" "": the agent no longer outlives its coordinator.
  Result<Json> outlive(const Frame& frame) {
    standby_.reset();
    const std::string word = frame.head.at("word");
    if (word.empty()) return Json();
    MOTLEY_ASSIGN(standby_,
                  Standby::start({options_.program, files_.scratch().string(),
                                  options_.cache + "/led", frame.head.at("host").get<std::string>(),
                                  word, frame.head.at("patience").get<double>()}));
    return Json({{"is", "outlives"}, {"port", standby_->port()}});
  }

  Result<Json> remember(const Frame& frame) {
    if (!standby_) return usage_error("agent.request", "it has nothing to outlive");
    MOTLEY_RETURN_IF_ERROR(standby_->remember(frame.bytes));
    return Json({{"is", "remembered"}, {"version", frame.head.at("version")}});
  }

  Result<Json> listen(const Frame& frame) {
    MOTLEY_ASSIGN(wire_, WireServer::start(frame.head.at("address"), frame.head.at("word")));
    return Json({{"is", "listening"}, {"port", wire_->port()}});
  }

  /// Measures in a thread: several may send at once, and the coordinator is heard meanwhile.
  Result<Json> wire(const Frame& frame) {
    const std::string what = frame.head.at("what");
    WireAsk ask{.what = what == "ping"     ? WireAsk::What::kPing
                        : what == "settle" ? WireAsk::What::kSettle
                                           : WireAsk::What::kTogether,
                .seconds = Seconds(frame.head.value("seconds", 1.0))};
    wires_.push_back({frame, std::async(std::launch::async, measure_wire,
                                        frame.head.at("address").get<std::string>(),
                                        frame.head.at("port").get<int>(),
                                        frame.head.at("word").get<std::string>(), ask)});
    return Json();
  }

  Result<void> report_wires() {
    for (auto each = wires_.begin(); each != wires_.end();) {
      if (each->times.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        ++each;
        continue;
      }
      const Result<WireTimes> times = each->times.get();
      const Frame frame = std::move(each->frame);
      each = wires_.erase(each);
      if (!times) {
        MOTLEY_RETURN_IF_ERROR(say_failed(frame, times.error()));
        continue;
      }
      MOTLEY_RETURN_IF_ERROR(say({{"is", "wire"},
                                  {"id", frame.head.value("id", 0)},
                                  {"latency", times->latency.value},
                                  {"bandwidth", times->bandwidth.value}}));
    }
    return {};
  }

  Result<Json> probe(const Frame&) {
    MOTLEY_ASSIGN(Json host, options_.probe());
    return Json({{"is", "probe"}, {"host", std::move(host)}});
  }

  Result<void> send_files() {
    MOTLEY_RETURN_IF_ERROR(outbox_.write_some(output_));
    if (outbox_.waiting() > 0) return {};
    const auto frame = files_.next_outgoing();
    return frame ? say(frame->head, frame->bytes) : Result<void>();
  }

  /// Reports the processes' events and, if nothing else is sent, a heartbeat.
  Result<void> report() {
    const Say say_now = [this](Json head, std::string_view bytes) {
      if (standby_ && head["is"] == "line") keep_line(head["text"]);
      return say(std::move(head), bytes);
    };
    MOTLEY_RETURN_IF_ERROR(report_wires());
    MOTLEY_RETURN_IF_ERROR(processes_.report(say_now));
    if (outbox_.waiting() > 0) return {};  // pending output is a sign of life; the rest can wait
    MOTLEY_RETURN_IF_ERROR(processes_.report_progress(say_now));
    if (seconds_since(said_at_) >= kBeatEvery) return say({{"is", "beat"}});
    return {};
  }

  /// Keeps a line for the next coordinator, which may need what the last one could not pass on.
  void keep_line(const std::string& line) {
    constexpr std::size_t kMostLines = 64;
    lines_.push_back(line);
    if (lines_.size() > kMostLines) lines_.pop_front();
  }

  const AgentOptions& options_;
  JobProcesses processes_;
  int input_, output_;      // to the coordinator
  Descriptor coordinator_;  // both, for a later coordinator
  FrameReader reader_;
  FrameWriter outbox_;
  Clock::time_point heard_at_ = Clock::now(), said_at_ = heard_at_;
  std::unique_ptr<Standby> standby_;  // null: the agent ends with its coordinator
  std::deque<std::string> lines_;     // the last that its processes printed
  AgentFiles files_;
  std::optional<SignalPipe> signals_;
  std::optional<int> code_;  // from the coordinator's "end"
  std::unique_ptr<WireServer> wire_;
  struct Measuring {
    Frame frame;
    std::future<Result<WireTimes>> times;
  };
  std::list<Measuring> wires_;
};

}  // namespace

Result<std::optional<int>> serve_agent(const AgentOptions& options) {
  return Agent(options).serve();
}

}  // namespace motley::run
