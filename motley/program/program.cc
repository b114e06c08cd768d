#include "motley/program/program.h"

#include <cmath>

namespace motley::program {
namespace {

bool equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

std::int64_t Buffer::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Bytes Buffer::bytes() const { return Bytes(elements() * dtype_size(dtype)); }

bool NumberArgument::operator==(const NumberArgument& other) const {
  const auto* a = std::get_if<double>(&value);
  const auto* b = std::get_if<double>(&other.value);
  return a && b ? equal(*a, *b) : value == other.value;
}

bool Argument::operator==(const Argument& other) const {
  const auto* a = std::get_if<double>(&value);
  const auto* b = std::get_if<double>(&other.value);
  return a && b ? equal(*a, *b) : value == other.value;
}

std::string Instruction::full_name() const { return overload.empty() ? op : op + "." + overload; }

BufferId storage_of(const DeviceProgram& program, BufferId buffer) {
  while (!program.buffer(buffer).view_of.is_none()) buffer = program.buffer(buffer).view_of;
  return buffer;
}

}  // namespace motley::program
