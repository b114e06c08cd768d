#pragma once

#include <string>
#include <string_view>

namespace motley::report {

/// Returns an instruction's layer ("aten::mm h.3.attn.qkv"): the path up to its first number
/// ("h.3") or its first word. "update" is work on gradients; "batch" is loading, or has no module.
std::string layer_of(std::string_view name);

}  // namespace motley::report
