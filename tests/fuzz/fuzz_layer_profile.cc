#include "motley/base/check.h"
#include "motley/cost/layers/metis.h"
#include "motley/cost/layers/sailor.h"
#include "tests/fuzz/text_of.h"

/// Any text is refused with the file's name or gives what can be verified and looked up.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley::cost;
  const std::string text(motley::fuzz::text_of(data, size));
  const auto check = [](const auto& result, const std::string& name) {
    MOTLEY_CHECK(result || result.error().message.starts_with(name));
  };
  LayerProfile profile;
  profile.model = "m";
  profile.tokens = 2048;
  check(add_sailor_times(text, "f", "A100-40", profile), "f:");
  check(add_sailor_sizes(text, "f", profile), "f:");
  check(parse_sailor_network(text, "f"), "f:");
  StageNetwork network;
  check(add_sailor_pairs(text, "f", "z", network), "f:");
  check(parse_sailor_plan(text, "f"), "f:");
  static_cast<void>(verify_layer_profile(profile, built_in_peaks()));
  const std::string name = "DeviceType.t4_tp1_bs1.json";
  const auto metis = parse_metis_profile({{name, text}});
  check(metis, name + ":");
  if (metis) static_cast<void>(verify_layer_profile(*metis, built_in_peaks()));
  return 0;
}
