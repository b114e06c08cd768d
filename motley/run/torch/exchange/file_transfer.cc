#include "motley/run/torch/exchange/file_transfer.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "motley/base/file.h"

namespace motley::run {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;
// First byte of a piece: whether another one follows.
constexpr char kMore = '+', kLast = '.';

std::string piece_key(const std::string& key, std::size_t i) {
  return fmt::format("{}/{}", key, i);
}
std::string taken_key(const std::string& key, std::size_t i) {
  return fmt::format("{}/{}/taken", key, i);
}

}  // namespace

Result<void> send_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                       Seconds patience) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(path));
  std::string_view rest = file.text();
  bool is_last = false;
  for (std::size_t i = 0; !is_last; ++i) {
    const std::string_view piece = rest.substr(0, kPiece);
    rest.remove_prefix(piece.size());
    is_last = rest.empty();
    MOTLEY_RETURN_IF_ERROR(
        rendezvous.set(piece_key(key, i), (is_last ? kLast : kMore) + std::string(piece)));
    MOTLEY_RETURN_IF_ERROR(rendezvous.get(taken_key(key, i), patience));
    MOTLEY_RETURN_IF_ERROR(rendezvous.remove(taken_key(key, i)));
  }
  return {};
}

Result<void> receive_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                          Seconds patience) {
  MOTLEY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  bool is_last = false;
  for (std::size_t i = 0; !is_last; ++i) {
    MOTLEY_ASSIGN(const std::string piece, rendezvous.get(piece_key(key, i), patience));
    MOTLEY_RETURN_IF_ERROR(rendezvous.remove(piece_key(key, i)));
    is_last = piece.empty() || piece[0] == kLast;
    MOTLEY_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(piece).subspan(1))));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set(taken_key(key, i), "taken"));
  }
  return file.commit();
}

}  // namespace motley::run
