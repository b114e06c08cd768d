#pragma once

#include <string>
#include <string_view>

namespace motley::report {

/// The layer that an instruction of a trace ("aten::mm h.3.attn.qkv") belongs to: its module path
/// up to the first number ("h.3"), or the first word of the path; "update" for what is done with
/// gradients, "batch" for loading samples and what has no module.
std::string layer_of(std::string_view name);

}  // namespace motley::report
