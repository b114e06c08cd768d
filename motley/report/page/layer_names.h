#pragma once

#include <string>
#include <string_view>

namespace motley::report {

/// Returns the layer of a trace's instruction ("aten::mm h.3.attn.qkv"): its module path up to the
/// first number ("h.3"), or the path's first word. "update" is work on gradients; "batch" is
/// loading samples and anything without a module.
std::string layer_of(std::string_view name);

}  // namespace motley::report
