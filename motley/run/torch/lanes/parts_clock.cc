#include "motley/run/torch/lanes/parts_clock.h"

namespace motley::run {

PartsClock::PartsClock(const program::DeviceProgram& program)
    : shape_(program::find_step_shape(program)),
      is_marked_(program::marks_parts(shape_)),
      worked_(program.instructions.size(), 0),
      exchanges_(program.instructions.size(), 0) {}

StepParts PartsClock::parts() const {
  return program::find_step_parts(shape_, worked_, exchanges_);
}

}  // namespace motley::run
