#include "motley/base/check.h"
#include "motley/run/notices/http_answer.h"
#include "motley/run/notices/notice.h"
#include "tests/fuzz/text_of.h"

namespace motley::fuzz {

inline void check_notice(const Result<std::optional<run::Notice>>& notice) {
  if (notice && *notice) MOTLEY_CHECK((*notice)->left >= Seconds(0));
}

}  // namespace motley::fuzz

/// Any bytes are an answer or a message; any answer is a notice, none or a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using motley::fuzz::check_notice;
  const auto text = motley::fuzz::text_of(data, size);
  motley::run::HttpAnswer answer{200, std::string(text)};
  for (const auto incoming : {motley::run::Incoming::kMore, motley::run::Incoming::kOver})
    if (const auto read = motley::run::parse_http_answer(text, incoming); read && *read)
      answer = **read;
  const motley::Seconds now(1789719600);
  check_notice(motley::run::parse_aws_action(answer, now));
  check_notice(motley::run::parse_aws_rebalance(answer));
  check_notice(motley::run::parse_gcp_preempted(answer));
  check_notice(motley::run::parse_gcp_maintenance(answer));
  for (const char* machine : {"", "vm-3"})
    check_notice(motley::run::parse_azure_events(answer, machine, now));
  check_notice(motley::run::parse_notice_file(text, "f"));
  return 0;
}
