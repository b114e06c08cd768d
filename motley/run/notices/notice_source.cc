#include "motley/run/notices/notice_source.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "motley/base/text.h"
#include "motley/run/notices/metadata_sources.h"

namespace motley::run {
namespace {

/// A scheduler's signal to the process: nothing is polled.
class SignalSource : public NoticeSource {
 public:
  SignalSource(std::string name, std::vector<int> signals, Seconds warning)
      : name_(std::move(name)), signals_(std::move(signals)), warning_(warning) {}
  std::string describe() const override {
    std::vector<std::string> names;
    for (const int signal : signals_) names.push_back(signal_name(signal));
    return fmt::format("{} by {}", name_, join(names, " or "));
  }
  Seconds every() const override { return Seconds(0.2); }
  std::vector<int> signals() const override { return signals_; }
  bool note_signal(int signal) override {
    if (std::find(signals_.begin(), signals_.end(), signal) == signals_.end()) return false;
    std::int64_t none = kNone;
    came_ns_.compare_exchange_strong(none, now_ns());  // SLURM sends it again at the end
    return true;
  }
  Result<std::optional<Notice>> look(int) override {
    const std::int64_t came = came_ns_;
    if (came == kNone) return std::optional<Notice>();
    const Seconds passed(static_cast<double>(now_ns() - came) * 1e-9);
    return std::optional(Notice{.source = name_,
                                .what = describe(),
                                .left = std::max(warning_ - passed, Seconds(0)),
                                .devices = {}});
  }

 private:
  static constexpr std::int64_t kNone = -1;
  static std::string signal_name(int signal) { return signal == SIGTERM ? "SIGTERM" : "SIGUSR1"; }
  static std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  std::string name_;
  std::vector<int> signals_;
  Seconds warning_;
  std::atomic<std::int64_t> came_ns_ = kNone;
};

/// A file whose existence is the notice.
class FileSource : public NoticeSource {
 public:
  explicit FileSource(std::string path) : path_(std::move(path)) {}
  std::string describe() const override { return "file " + path_; }
  Seconds every() const override { return Seconds(0.2); }
  Result<std::optional<Notice>> look(int) override {
    std::error_code fault;
    const auto status = std::filesystem::status(path_, fault);
    if (status.type() == std::filesystem::file_type::none)
      return runtime_error("run.notice", fmt::format("file: {}: {}", path_, fault.message()));
    const bool is_there = status.type() != std::filesystem::file_type::not_found;
    const std::string text =
        status.type() == std::filesystem::file_type::regular ? begin_of_text() : "";
    // A shell creates an empty file before it writes the content.
    const bool may_be_unwritten = is_there && text.empty() && !was_empty_;
    was_empty_ = is_there && text.empty();
    if (!is_there || may_be_unwritten) return std::optional<Notice>();
    return std::optional(parse_notice_file(text, path_));
  }

 private:
  std::string begin_of_text() const {
    std::array<char, 4096> bytes;
    std::ifstream stream(path_, std::ios::binary);
    stream.read(bytes.data(), bytes.size());
    return {bytes.data(), static_cast<std::size_t>(stream.gcount())};
  }
  std::string path_;
  bool was_empty_ = false;
};

constexpr std::string_view kKnownSources =
    "aws, gcp, azure (with @HOST:PORT: another metadata server), slurm, kubernetes (with :SECONDS: "
    "another warning), file:PATH";

tl::unexpected<Error> no_source(const std::string& what) {
  return usage_error("run.notice", fmt::format("{}; known are {}", what, kKnownSources));
}

Result<MetadataPlace> read_place(std::string_view source, std::string_view rest) {
  MetadataPlace place;
  place.source = source;
  if (rest.empty()) return place;
  constexpr std::string_view kHostLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
  const auto parts = split(rest.substr(1), ':');
  const auto port = parts.size() == 2 ? find_integer(parts[1]) : std::optional<std::int64_t>(80);
  const bool is_host =
      !parts[0].empty() && parts[0].find_first_not_of(kHostLetters) == std::string_view::npos;
  if (rest[0] != '@' || parts.size() > 2 || !is_host || !port || *port < 1 || *port > 65535)
    return no_source(
        fmt::format("source of notices '{}{}': found '{}', wanted @HOST or "
                    "@HOST:PORT after '{}'",
                    source, rest, rest, source));
  place.host = parts[0];
  place.port = static_cast<int>(*port);
  return place;
}

Result<Seconds> read_warning(std::string_view source, std::string_view rest, Seconds usual) {
  if (rest.empty()) return usual;
  const auto seconds = parse_seconds(rest.substr(1));
  if (rest[0] != ':' || !seconds)
    return no_source(
        fmt::format("source of notices '{}{}': found '{}', wanted a time such as :60 "
                    "after '{}'",
                    source, rest, rest, source));
  return *seconds;
}

}  // namespace

bool NoticeSource::note_signal(int) { return false; }

Result<std::unique_ptr<NoticeSource>> make_notice_source(std::string_view text,
                                                         const NoticeSourceOptions& options) {
  using Made = std::unique_ptr<NoticeSource>;
  const std::size_t end = std::min(text.find_first_of(":@"), text.size());
  const std::string_view name = text.substr(0, end), rest = text.substr(end);
  if (name == "aws" || name == "gcp" || name == "azure") {
    MOTLEY_ASSIGN(MetadataPlace place, read_place(name, rest));
    return make_metadata_source(std::move(place), options);
  }
  if (name == "slurm") {
    MOTLEY_ASSIGN(const Seconds warning, read_warning(name, rest, kSlurmWarning));
    return Made(std::make_unique<SignalSource>("slurm", std::vector{SIGTERM, SIGUSR1}, warning));
  }
  if (name == "kubernetes") {
    MOTLEY_ASSIGN(const Seconds warning, read_warning(name, rest, kKubernetesWarning));
    return Made(std::make_unique<SignalSource>("kubernetes", std::vector{SIGTERM}, warning));
  }
  if (name == "file") {
    if (rest.size() < 2 || rest[0] != ':')
      return no_source(fmt::format("source of notices '{}': wanted a path, file:PATH", text));
    return Made(std::make_unique<FileSource>(std::string(rest.substr(1))));
  }
  const std::vector<std::string> known = {"aws", "gcp", "azure", "slurm", "kubernetes", "file"};
  return no_source(fmt::format("unknown source of notices '{}'{}", print_excerpt(text),
                               suggestion_clause(name, known)));
}

}  // namespace motley::run
