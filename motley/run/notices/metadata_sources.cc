#include "motley/run/notices/metadata_sources.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/check.h"
#include "motley/base/text.h"
#include "motley/run/notices/http.h"

namespace motley::run {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

class MetadataSource : public NoticeSource {
 public:
  MetadataSource(MetadataPlace place, const NoticeSourceOptions& options)
      : place_(std::move(place)), options_(options) {}
  std::string describe() const override {
    return fmt::format("{} at {} port {}", place_.source, place_.host, place_.port);
  }

 protected:
  struct Question {
    std::string method, path;
    Headers headers;
  };
  Result<HttpAnswer> ask(const Question& question, int wake) const {
    const HttpAsk ask{place_.host, place_.port, question.method, question.path, question.headers};
    auto answer = ask_http(ask, {.connect = options_.connect,
                                 .answer = options_.answer.value_or(usual_answer()),
                                 .wake = wake});
    if (!answer) return with_context(place_.source, answer.error());
    return answer;
  }
  virtual Seconds usual_answer() const { return Seconds(5); }
  Seconds now() const { return options_.now(); }

 private:
  MetadataPlace place_;
  NoticeSourceOptions options_;
};

/// Uses version 2 of the service, which issues a token first; falls back to requests without one.
class AwsSource : public MetadataSource {
 public:
  using MetadataSource::MetadataSource;
  Seconds every() const override { return Seconds(5); }
  Result<std::optional<Notice>> look(int wake) override {
    MOTLEY_ASSIGN(const HttpAnswer action, get("spot/instance-action", wake));
    MOTLEY_ASSIGN(std::optional<Notice> notice, parse_aws_action(action, now()));
    if (notice) return notice;
    MOTLEY_ASSIGN(const HttpAnswer advice, get("events/recommendations/rebalance", wake));
    return parse_aws_rebalance(advice);
  }

 private:
  Result<HttpAnswer> get(const std::string& item, int wake) {
    const bool is_new = !token_;
    if (is_new) MOTLEY_RETURN_IF_ERROR(ask_token(wake));
    MOTLEY_ASSIGN(HttpAnswer answer, get_by_token(item, wake));
    // A token expires.
    if (answer.status != 401 || is_new) return answer;
    MOTLEY_RETURN_IF_ERROR(ask_token(wake));
    return get_by_token(item, wake);
  }
  Result<HttpAnswer> get_by_token(const std::string& item, int wake) const {
    Headers headers;
    if (!token_->empty()) headers.emplace_back("X-aws-ec2-metadata-token", *token_);
    return ask({"GET", "/latest/meta-data/" + item, std::move(headers)}, wake);
  }
  Result<void> ask_token(int wake) {
    constexpr const char* kSixHours = "21600";  // the maximum
    MOTLEY_ASSIGN(
        const HttpAnswer answer,
        ask({"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", kSixHours}}},
            wake));
    const std::string_view token = trim(answer.body);
    // It goes into a header: printable, and one line.
    const bool is_token = answer.status == 200 && token.size() < 1000 &&
                          token.find_first_not_of(kTokenLetters) == std::string_view::npos;
    token_ = is_token ? std::string(token) : "";
    return {};
  }

  static constexpr std::string_view kTokenLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_.~";
  std::optional<std::string> token_;  // "": the service issues none
};

class GcpSource : public MetadataSource {
 public:
  using MetadataSource::MetadataSource;
  /// Of a warning of 30 s, five would be a sixth.
  Seconds every() const override { return Seconds(1); }
  Result<std::optional<Notice>> look(int wake) override {
    MOTLEY_ASSIGN(const HttpAnswer preempted, get("preempted", wake));
    MOTLEY_ASSIGN(std::optional<Notice> notice, parse_gcp_preempted(preempted));
    if (notice) return notice;
    MOTLEY_ASSIGN(const HttpAnswer maintenance, get("maintenance-event", wake));
    return parse_gcp_maintenance(maintenance);
  }

 private:
  Result<HttpAnswer> get(const std::string& item, int wake) const {
    return ask({"GET", "/computeMetadata/v1/instance/" + item, {{"Metadata-Flavor", "Google"}}},
               wake);
  }
};

/// A scale set's machines all see the same events, so the source first asks for its own name.
class AzureSource : public MetadataSource {
 public:
  using MetadataSource::MetadataSource;
  Seconds every() const override { return Seconds(1); }
  Result<std::optional<Notice>> look(int wake) override {
    if (!machine_) MOTLEY_RETURN_IF_ERROR(ask_machine(wake));
    MOTLEY_ASSIGN(const HttpAnswer events,
                  get("/metadata/scheduledevents?api-version=2020-07-01", wake));
    return parse_azure_events(events, *machine_, now());
  }

 protected:
  Seconds usual_answer() const override { return Seconds(150); }

 private:
  Result<HttpAnswer> get(const std::string& path, int wake) const {
    return ask({"GET", path, {{"Metadata", "true"}}}, wake);
  }
  Result<void> ask_machine(int wake) {
    MOTLEY_ASSIGN(const HttpAnswer name,
                  get("/metadata/instance/compute/name?api-version=2021-02-01&format=text", wake));
    // Without a name, all events are taken to concern this machine.
    machine_ = name.status == 200 ? std::string(trim(name.body)) : "";
    return {};
  }

  std::optional<std::string> machine_;
};

}  // namespace

std::unique_ptr<NoticeSource> make_metadata_source(MetadataPlace place,
                                                   const NoticeSourceOptions& options) {
  if (place.source == "aws") return std::make_unique<AwsSource>(std::move(place), options);
  if (place.source == "gcp") return std::make_unique<GcpSource>(std::move(place), options);
  MOTLEY_CHECK(place.source == "azure");
  return std::make_unique<AzureSource>(std::move(place), options);
}

}  // namespace motley::run
