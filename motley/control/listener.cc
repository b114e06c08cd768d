#include "motley/control/listener.h"

namespace motley::control {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kLoad:
      return "load";
    case Phase::kPrice:
      return "price";
    case Phase::kSearch:
      return "search";
    case Phase::kSynth:
      return "synth";
    case Phase::kSimulate:
      return "simulate";
  }
  return "";
}

}  // namespace motley::control
