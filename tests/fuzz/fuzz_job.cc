#include "motley/base/check.h"
#include "motley/base/json.h"
#include "motley/run/job.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a job or a message, and a worker's line an event or a message; both read back.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = motley::fuzz::text_of(data, size);
  if (const auto event = motley::run::parse_event(text)) {
    MOTLEY_CHECK(motley::run::parse_event(motley::run::print_event(*event)).has_value());
  }
  const auto json = motley::parse_json(text, "f");
  if (!json) return 0;
  const auto job = motley::run::job_from_json(*json, "f");
  if (!job) return 0;
  const auto written = motley::run::job_to_json(*job);
  const auto again = motley::run::job_from_json(written, "f");
  MOTLEY_CHECK(again.has_value() && motley::run::job_to_json(*again) == written);
  return 0;
}
