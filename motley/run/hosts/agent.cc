#include "motley/run/hosts/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "motley/base/json.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/frame.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/outgoing_files.h"
#include "motley/run/hosts/process_set.h"
#include "motley/run/hosts/signal_pipe.h"
#include "motley/run/hosts/standby.h"
#include "motley/run/hosts/status.h"
#include "motley/run/hosts/wire.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr int kPollMs = 50;
constexpr double kStatusEvery = 0.5;  // seconds
constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

struct Incoming {
  std::ofstream stream;
  fs::path path;
  bool has_failed = false;  ///< the remaining pieces are ignored
};

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options),
        process_set_(options.worker, no_signals()),
        input_(options.input),
        output_(options.output) {
    if (options.passes_signals) signals_.emplace();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() {
    process_set_.signal(SIGKILL);
    std::error_code code;
    if (!scratch_.empty()) fs::remove_all(scratch_, code);
  }

  Result<std::optional<int>> serve() {
    MOTLEY_RETURN_IF_ERROR(make_scratch());
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
  static sigset_t no_signals() {
    sigset_t none;
    sigemptyset(&none);
    return none;
  }

  Json hello() const {
    Json hello = options_.hello;
    hello["is"] = "hello";
    hello["scratch"] = scratch_.string();
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
    if (signals_ && signals_->take() > 0) process_set_.signal(SIGTERM);
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
    outgoing_.clear();
    incoming_.reset();
    input_ = output_ = coordinator_.number();
    heard_at_ = Clock::now();
    Json words = hello();
    words["memory"] = standby_->memory();
    words["alone"] = standby_->alone();
    words["lines"] = lines_;
    words["checkpoints"] = checkpoints();
    words["processes"] = Json::array();
    for (auto& [id, member] : members_) {
      words["processes"].push_back({id, member.rank});
      member.status.clear();  // reported anew
    }
    return say(std::move(words));
  }

  /// Removes folders of agents that were killed: a live agent locks its folder.
  void remove_left_over() const {
    std::error_code code;
    for (const auto& each : fs::directory_iterator(options_.cache, code)) {
      if (!each.path().filename().string().starts_with("job-")) continue;
      const Descriptor folder(::open(each.path().c_str(), O_RDONLY | O_CLOEXEC));
      if (folder.is_open() && ::flock(folder.number(), LOCK_EX | LOCK_NB) == 0)
        fs::remove_all(each.path(), code);
    }
  }

  Result<void> make_scratch() {
    std::error_code code;
    fs::create_directories(options_.cache + "/files", code);
    remove_left_over();
    std::string name = options_.cache + "/job-XXXXXX";
    if (code || ::mkdtemp(name.data()) == nullptr)
      return runtime_error("agent.scratch",
                           fmt::format("{}: cannot be written: {}", options_.cache,
                                       code ? code.message() : std::strerror(errno)));
    scratch_ = name;
    lock_ = Descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    ::flock(lock_.number(), LOCK_EX | LOCK_NB);
    return {};
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
    const bool has_more = outbox_.waiting() > 0 || !outgoing_.empty();
    std::vector<pollfd> waits{{input_, POLLIN, 0},
                              {output_, static_cast<short>(has_more ? POLLOUT : 0), 0},
                              {standby_ ? standby_->descriptor() : -1, POLLIN, 0}};
    process_set_.add_waits(waits);
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

  Result<void> obey(const Frame& frame) {
    using Deed = Result<void> (Agent::*)(const Frame&);
    static const std::map<std::string, Deed> kDeeds = {
        {"beat", &Agent::beat},         {"have", &Agent::have},     {"write", &Agent::write},
        {"keep", &Agent::keep},         {"reset", &Agent::reset},   {"start", &Agent::start},
        {"signal", &Agent::signal},     {"fetch", &Agent::fetch},   {"port", &Agent::port},
        {"probe", &Agent::probe},       {"exists", &Agent::exists}, {"link", &Agent::link},
        {"listen", &Agent::listen},     {"wire", &Agent::wire},     {"names", &Agent::names},
        {"end", &Agent::end},           {"clock", &Agent::clock},   {"retain", &Agent::retain},
        {"tell", &Agent::tell},         {"append", &Agent::append}, {"outlive", &Agent::outlive},
        {"remember", &Agent::remember}, {"settle", &Agent::settle}};
    const auto deed = kDeeds.find(frame.head.value("do", ""));
    if (deed == kDeeds.end())
      return usage_error("agent.request", "not known: " + frame.head.dump());
    try {
      return (this->*deed->second)(frame);
    } catch (const Json::exception& fault) {
      return usage_error("agent.request", frame.head.dump() + ": " + fault.what());
    }
  }

  Result<void> beat(const Frame&) { return {}; }

  Result<void> end(const Frame& frame) {
    code_ = frame.head.at("code").get<int>();
    return {};
  }

  Result<void> names(const Frame& frame) {
    Json here = Json::array();
    for (const std::string host : frame.head.at("hosts")) here.push_back(is_this_machine(host));
    return say({{"is", "names"}, {"here", std::move(here)}});
  }

  fs::path kept(const Frame& frame) const {
    return fs::path(options_.cache) / "files" / fs::path(frame.head.at("hash")).filename();
  }

  Result<void> have(const Frame& frame) {
    std::error_code code;
    return say({{"is", "have"},
                {"hash", frame.head.at("hash")},
                {"there", fs::exists(kept(frame), code)}});
  }

  Result<void> exists(const Frame& frame) {
    std::error_code code;
    const std::string path = frame.head.at("path");
    return say({{"is", "exists"}, {"path", path}, {"there", fs::exists(path, code)}});
  }

  Result<void> link(const Frame& frame) {
    const fs::path path = scratch_ / fs::path(frame.head.at("path")).relative_path();
    std::error_code code;
    fs::create_directories(path.parent_path(), code);
    fs::remove(path, code);
    fs::create_symlink(frame.head.at("target").get<std::string>(), path, code);
    return code ? runtime_error("agent.write", path.string() + ": " + code.message())
                : Result<void>();
  }

  Result<void> write(const Frame& frame) {
    MOTLEY_RETURN_IF_ERROR(
        add_piece(frame, scratch_ / fs::path(frame.head.at("path")).relative_path()));
    return {};
  }

  Result<void> keep(const Frame& frame) {
    const fs::path path = kept(frame), part = scratch_ / path.filename();
    MOTLEY_ASSIGN(const bool is_whole, add_piece(frame, part));
    std::error_code code;
    if (is_whole) fs::rename(part, path, code);
    return code ? runtime_error("agent.write", path.string() + ": " + code.message())
                : Result<void>();
  }

  /// Returns whether the last piece arrived of a file that could be written entirely.
  Result<bool> add_piece(const Frame& frame, const fs::path& path) {
    std::error_code code;
    if (!incoming_ || incoming_->path != path) {
      fs::create_directories(path.parent_path(), code);
      incoming_ = Incoming{std::ofstream(path, std::ios::binary), path};
    }
    const bool is_end = frame.head.at("end"), had_failed = incoming_->has_failed;
    incoming_->stream.write(frame.bytes.data(), static_cast<std::streamsize>(frame.bytes.size()));
    if (is_end) incoming_->stream.close();
    const std::string why = std::strerror(errno);
    incoming_->has_failed = had_failed || incoming_->stream.fail();
    const bool has_failed = incoming_->has_failed;
    if (is_end) incoming_.reset();
    if (!has_failed) return is_end;
    fs::remove(path, code);
    if (had_failed) return false;  // already reported
    return runtime_error("agent.write",
                         fmt::format("{}: cannot be written: {}; make room for it there, or leave "
                                     "the host out",
                                     path.string(), why));
  }

  Result<void> reset(const Frame& frame) {
    process_set_.signal(SIGKILL);
    members_.clear();
    outgoing_.clear();
    std::error_code code;
    fs::create_directories(scratch_ / "log", code);
    run_ = frame.head.value("run", "");
    if (!run_.empty()) return {};
    run_ = (scratch_ / "run").string();
    fs::remove_all(scratch_ / "run", code);
    fs::create_directories(scratch_ / "run/status", code);
    return code ? runtime_error("agent.scratch", scratch_.string() + ": " + code.message())
                : Result<void>();
  }

  std::string log_path(int id) const { return fmt::format("{}/log/{}.txt", scratch_.string(), id); }

  Result<void> start(const Frame& frame) {
    Hand hand;
    hand.id = frame.head.at("id");
    for (const Json& each : frame.head.at("arguments")) hand.arguments.push_back(each);
    hand.log = log_path(hand.id);
    hand.takes_lines = frame.head.value("takes_lines", false);
    members_[hand.id].rank = frame.head.at("rank");
    return process_set_.start(hand);
  }

  Result<void> tell(const Frame& frame) {
    return process_set_.tell(frame.head.at("id").get<int>(), frame.bytes);
  }

  Result<void> signal(const Frame& frame) {
    const int signal = frame.head.at("signal");
    if (frame.head.contains("id"))
      process_set_.signal_one(frame.head.at("id"), signal);
    else
      process_set_.signal(signal);
    return {};
  }

  /// "word" "": the agent no longer outlives its coordinator.
  Result<void> outlive(const Frame& frame) {
    standby_.reset();
    const std::string word = frame.head.at("word");
    if (word.empty()) return {};
    MOTLEY_ASSIGN(standby_,
                  Standby::start({options_.program, scratch_.string(), options_.cache + "/led",
                                  frame.head.at("host").get<std::string>(), word,
                                  frame.head.at("patience").get<double>()}));
    return say({{"is", "outlives"}, {"port", standby_->port()}});
  }

  Result<void> remember(const Frame& frame) {
    if (!standby_) return usage_error("agent.request", "it has nothing to outlive");
    MOTLEY_RETURN_IF_ERROR(standby_->remember(frame.bytes));
    return say({{"is", "remembered"}, {"version", frame.head.at("version")}});
  }

  Result<void> append(const Frame& frame) {
    const fs::path path = scratch_ / fs::path(frame.head.at("path")).relative_path();
    std::error_code code;
    fs::create_directories(path.parent_path(), code);
    std::ofstream(path, std::ios::binary | std::ios::app) << frame.bytes;
    return {};
  }

  /// Moves a completed file, in place of everything in its target's folder.
  Result<void> settle(const Frame& frame) {
    const fs::path from = scratch_ / fs::path(frame.head.at("path")).relative_path();
    const fs::path to = scratch_ / fs::path(frame.head.at("as")).relative_path();
    std::error_code code;
    fs::remove_all(to.parent_path(), code);
    fs::create_directories(to.parent_path(), code);
    fs::rename(from, to, code);
    return code ? runtime_error("agent.write", to.string() + ": " + code.message())
                : Result<void>();
  }

  /// Returns the checkpoint folders below SCRATCH, half-written ones too.
  Json checkpoints() const {
    Json paths = Json::array();
    std::error_code code;
    for (const char* folder : {"left/checkpoint", "run/checkpoint"})
      for (const auto& each : fs::directory_iterator(scratch_ / folder, code))
        paths.push_back(std::string(folder) + "/" + each.path().filename().string());
    return paths;
  }

  Result<void> port(const Frame&) {
    MOTLEY_ASSIGN(const int found, find_free_port());
    return say({{"is", "port"}, {"port", found}});
  }

  Result<void> listen(const Frame& frame) {
    MOTLEY_ASSIGN(wire_, WireServer::start(frame.head.at("address"), frame.head.at("word")));
    return say({{"is", "listening"}, {"port", wire_->port()}});
  }

  /// Measures in a thread: several may send at once, and the coordinator is heard meanwhile.
  Result<void> wire(const Frame& frame) {
    const std::string what = frame.head.at("what");
    WireAsk ask{.what = what == "ping"     ? WireAsk::What::kPing
                        : what == "settle" ? WireAsk::What::kSettle
                                           : WireAsk::What::kTogether,
                .seconds = Seconds(frame.head.value("seconds", 1.0))};
    wires_.push_back({frame, std::async(std::launch::async, measure_wire,
                                        frame.head.at("address").get<std::string>(),
                                        frame.head.at("port").get<int>(),
                                        frame.head.at("word").get<std::string>(), ask)});
    return {};
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

  Result<void> clock(const Frame&) {
    const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
    return say({{"is", "clock"}, {"time", time.count()}});
  }

  Result<void> probe(const Frame&) {
    MOTLEY_ASSIGN(Json host, options_.probe());
    return say({{"is", "probe"}, {"host", std::move(host)}});
  }

  /// Queues the files; they are sent when there is room, and nothing waits for them.
  Result<void> fetch(const Frame& frame) {
    const Json number = frame.head.value("number", 0);
    const bool is_kept = frame.head.contains("kept");
    const fs::path base = is_kept ? kept_folder() : scratch_;
    const fs::path root = base / fs::path(frame.head.at(is_kept ? "kept" : "path")).relative_path();
    outgoing_.emplace_back(
        OutgoingFiles::Places{root, base, scratch_ / fmt::format("out-{}", ++fetches_)}, number);
    return {};
  }

  fs::path kept_folder() const { return fs::path(options_.cache) / "kept"; }

  Result<void> retain(const Frame& frame) {
    const std::set<std::int64_t> steps = frame.head.at("steps");
    const fs::path root = kept_folder() / fs::path(frame.head.at("kept")).filename();
    std::error_code code;
    std::vector<fs::path> old;
    for (const auto& each : fs::recursive_directory_iterator(root, code)) {
      const std::string name = each.path().filename();
      if (!name.starts_with("step-") || !each.is_directory(code)) continue;
      const std::int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
      if (!steps.empty() && step < *steps.rbegin() && !steps.contains(step))
        old.push_back(each.path());
    }
    for (const fs::path& path : old) fs::remove_all(path, code);
    return {};
  }

  Result<void> send_files() {
    MOTLEY_RETURN_IF_ERROR(outbox_.write_some(output_));
    if (outgoing_.empty() || outbox_.waiting() > 0) return {};
    if (auto frame = outgoing_.front().next()) return say(std::move(frame->head), frame->bytes);
    outgoing_.pop_front();
    return {};
  }

  /// Reports the processes' events and, if nothing else is sent, a heartbeat.
  Result<void> report() {
    MOTLEY_RETURN_IF_ERROR(report_wires());
    std::vector<Heard> heard;
    process_set_.listen(heard);
    for (const Heard& each : heard) {
      if (each.what == Heard::What::kLine) {
        if (standby_) keep_line(each);
        MOTLEY_RETURN_IF_ERROR(say({{"is", "line"}, {"id", each.id}, {"text", each.line}}));
        continue;
      }
      MOTLEY_RETURN_IF_ERROR(report_status(each.id));
      MOTLEY_RETURN_IF_ERROR(report_log(each.id));
      MOTLEY_RETURN_IF_ERROR(say({{"is", "exit"}, {"id", each.id}, {"status", each.status}}));
      members_.erase(each.id);
    }
    if (outbox_.waiting() > 0) return {};  // pending output is a sign of life; the rest can wait
    if (seconds_since(reported_at_) >= kStatusEvery) {
      reported_at_ = Clock::now();
      for (const auto& [id, member] : members_) {
        MOTLEY_RETURN_IF_ERROR(report_status(id));
        MOTLEY_RETURN_IF_ERROR(report_log(id));
      }
    }
    if (seconds_since(said_at_) >= kBeatEvery) return say({{"is", "beat"}});
    return {};
  }

  /// Keeps a line for the next coordinator, which may need what the last one could not pass on.
  void keep_line(const Heard& heard) {
    constexpr std::size_t kMostLines = 64;
    lines_.push_back(heard.line);
    if (lines_.size() > kMostLines) lines_.pop_front();
  }

  Result<void> report_status(int id) {
    const auto member = members_.find(id);
    if (member == members_.end()) return {};
    auto& [rank, logged, file, sent] = member->second;
    if (!file) {
      auto opened = StatusFile::open(run_, rank);
      if (!opened) return {};
      file = std::make_unique<StatusFile>(std::move(*opened));
    }
    const std::vector<std::int64_t> record = file->numbers();
    if (record == sent) return {};
    sent = record;
    return say({{"is", "status"}, {"id", id}, {"record", record}});
  }

  Result<void> report_log(int id) {
    const auto member = members_.find(id);
    if (member == members_.end()) return {};
    std::ifstream stream(log_path(id), std::ios::binary);
    std::streamoff& sent = member->second.logged;
    stream.seekg(sent);
    std::string text(1 << 16, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
    sent += static_cast<std::streamoff>(text.size());
    return text.empty() ? Result<void>() : say({{"is", "log"}, {"id", id}}, text);
  }

  struct Member {
    int rank = 0;
    std::streamoff logged = 0;
    std::unique_ptr<StatusFile> file;
    std::vector<std::int64_t> status;
  };
  const AgentOptions& options_;
  LocalProcessSet process_set_;
  int input_, output_;                // to the coordinator
  Descriptor coordinator_;            // both, for a later coordinator
  std::unique_ptr<Standby> standby_;  // null: the agent ends with its coordinator
  std::deque<std::string> lines_;     // the last that its processes printed
  fs::path scratch_;
  Descriptor lock_;  // of the folder
  std::optional<SignalPipe> signals_;
  FrameReader reader_;
  std::string run_;          // the job's directory, of this agent or another
  std::optional<int> code_;  // from the coordinator's "end"
  std::optional<Incoming> incoming_;
  FrameWriter outbox_;
  std::deque<OutgoingFiles> outgoing_;
  int fetches_ = 0;
  std::unique_ptr<WireServer> wire_;
  struct Measuring {
    Frame frame;
    std::future<Result<WireTimes>> times;
  };
  std::list<Measuring> wires_;
  std::map<int, Member> members_;
  Clock::time_point heard_at_ = Clock::now(), said_at_ = heard_at_, reported_at_ = heard_at_;
};

}  // namespace

Result<std::optional<int>> serve_agent(const AgentOptions& options) {
  return Agent(options).serve();
}

}  // namespace motley::run
