#include "motley/run/torch/exchange/served_store.h"

#include <c10/util/Exception.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/run/hosts/here.h"
#include "motley/run/hosts/key_server.h"

namespace motley::run {
namespace {

constexpr double kMostSeconds = 30;  // seconds for an answer; the server answers at once

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

ServedStore::ServedStore(StoreAddress address) : address_(std::move(address)) {
  auto connected = connect_to(address_.address, address_.port, kMostSeconds);
  TORCH_CHECK(connected.has_value(), "no connection to the job's keys at ", address_.address,
              " port ", address_.port, ": ", connected ? "" : connected.error().message);
  socket_ = std::move(*connected);
  exchange(address_.secret);
}

c10::intrusive_ptr<c10d::Store> ServedStore::clone() {
  return c10::make_intrusive<ServedStore>(address_);
}

std::string ServedStore::exchange(const std::string& request) {
  const std::lock_guard lock(mutex_);
  const std::string text = pack_fields({request});
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count =
        ::send(socket_.number(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    TORCH_CHECK(count > 0, "the job's keys are gone: ", std::strerror(errno));
    at += static_cast<std::size_t>(count);
  }
  const auto read = [&](char* into, std::size_t wanted) {
    for (std::size_t at = 0; at < wanted;) {
      const ssize_t count = ::recv(socket_.number(), into + at, wanted - at, 0);
      if (count < 0 && errno == EINTR) continue;
      TORCH_CHECK(count > 0, "the job's keys are gone");
      at += static_cast<std::size_t>(count);
    }
  };
  std::uint32_t length = 0;
  read(reinterpret_cast<char*>(&length), sizeof length);
  std::string answer(length, '\0');
  read(answer.data(), length);
  return answer;
}

std::string ServedStore::ask(char operation, const std::vector<std::string>& fields) {
  return exchange(operation + pack_fields(fields));
}

void ServedStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  ask('s', {key, text_of(value)});
}

std::vector<std::uint8_t> ServedStore::compareSet(const std::string& key,
                                                  const std::vector<std::uint8_t>& expected,
                                                  const std::vector<std::uint8_t>& value) {
  return bytes_of(ask('x', {key, text_of(expected), text_of(value)}));
}

std::vector<std::uint8_t> ServedStore::get(const std::string& key) {
  wait({key});
  const std::string answer = ask('g', {key});
  TORCH_CHECK(answer.starts_with('1'), "no key ", key);
  return bytes_of(answer.substr(1));
}

std::int64_t ServedStore::add(const std::string& key, std::int64_t value) {
  return std::stoll(ask('a', {key, std::to_string(value)}));
}

bool ServedStore::deleteKey(const std::string& key) { return ask('d', {key}) == "1"; }

bool ServedStore::check(const std::vector<std::string>& keys) { return ask('c', keys) == "1"; }

std::int64_t ServedStore::getNumKeys() {
  TORCH_CHECK(false, "nobody counts keys");
  return 0;
}

}  // namespace motley::run
