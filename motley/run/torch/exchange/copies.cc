#include "motley/run/torch/exchange/copies.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <limits>

#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::run {
namespace {

std::string hash_of(const std::map<std::string, at::Tensor>& copies) {
  std::string hashes;
  for (const auto& [name, tensor] : copies) {
    const at::Tensor host = tensor.detach().contiguous().cpu();
    hashes += hash_hex({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  }
  return hash_hex(hashes);
}

double largest_difference(const at::Tensor& own, const at::Tensor& wanted) {
  if (own.numel() == 0) return 0;
  const at::Tensor a = own.to(at::kDouble), b = wanted.to(at::kDouble);
  const at::Tensor same = a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan()));
  const at::Tensor apart = a.sub(b).abs_().masked_fill_(same, 0);
  return apart.nan_to_num(std::numeric_limits<double>::infinity()).max().item<double>();
}

/// Prints a difference; JSON has no infinity.
std::string print_difference(const CopyDifference& found) {
  return Json{found.name, std::min(found.difference, std::numeric_limits<double>::max()),
              found.allowed, found.tensors}
      .dump();
}

Result<CopyDifference> parse_difference(const std::string& text, int rank) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, fmt::format("copies of rank {}", rank)));
  if (!json.is_array() || json.size() != 4)
    return runtime_error("run.copies", fmt::format("rank {} says '{}'", rank, text));
  return CopyDifference{rank, json[0].get<std::string>(), json[1].get<double>(),
                        json[2].get<double>(), json[3].get<std::int64_t>()};
}

/// Finds this rank's worst difference and replaces its copies by rank 0's.
Result<CopyDifference> take_copies(Communicator& communicator,
                                   const std::map<std::string, at::Tensor>& copies) {
  const c10::InferenceMode guard;
  CopyDifference worst;
  double most = -1;
  for (const auto& [name, tensor] : copies) {
    at::Tensor wanted = tensor.clone(at::MemoryFormat::Contiguous);
    MOTLEY_RETURN_IF_ERROR(communicator.broadcast(wanted));
    if (hash_of({{name, tensor}}) == hash_of({{name, wanted}})) continue;
    ++worst.tensors;
    const double difference = largest_difference(tensor, wanted);
    const double allowed = allowed_difference(wanted);
    const double part = allowed > 0      ? difference / allowed
                        : difference > 0 ? std::numeric_limits<double>::infinity()
                                         : 0;
    if (part > most) {
      most = part;
      worst.name = name;
      worst.difference = difference;
      worst.allowed = allowed;
    }
    at::Tensor(tensor).copy_(wanted);
  }
  return worst;
}

}  // namespace

double allowed_difference(const at::Tensor& of_rank_0) {
  if (!at::isFloatingType(of_rank_0.scalar_type()) || of_rank_0.numel() == 0) return 0;
  const double largest = of_rank_0.to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>();
  const double part = of_rank_0.scalar_type() == at::kBFloat16 ? 0x1p-6
                      : of_rank_0.scalar_type() == at::kHalf   ? 0x1p-9
                                                               : 1e-5;
  return part * largest;
}

Result<std::vector<CopyDifference>> compare_copies(
    Rendezvous& rendezvous, Communicator& communicator, const std::string& key,
    const std::map<std::string, at::Tensor>& copies) {
  std::vector<CopyDifference> found;
  const auto agreed = rendezvous.agree(key, hash_of(copies));
  if (agreed) return found;
  if (agreed.error().code != "run.disagreement") return tl::make_unexpected(agreed.error());
  MOTLEY_ASSIGN(const CopyDifference own, take_copies(communicator, copies));
  MOTLEY_ASSIGN(
      const std::vector<std::string> said,
      rendezvous.share(key + ", differences", print_difference(own), rendezvous.options().timeout));
  for (int rank = 1; rank < rendezvous.size(); ++rank) {
    MOTLEY_ASSIGN(CopyDifference each,
                  parse_difference(said[static_cast<std::size_t>(rank)], rank));
    if (each.tensors > 0) found.push_back(std::move(each));
  }
  return found;
}

}  // namespace motley::run
