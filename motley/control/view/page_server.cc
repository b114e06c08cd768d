#include "motley/control/view/page_server.h"

#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <set>
#include <thread>

#include "motley/base/quiet_thread.h"

namespace motley::control {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::size_t kMostConnections = 64;
constexpr std::size_t kMostPending = 16;       // events that a listener may be behind
constexpr std::chrono::seconds kPatience(30);  // for a request

class Visit;

/// The visits' shared state, used only in the server's thread.
struct Reception {
  int port = 0;
  std::shared_ptr<const std::string> page = std::make_shared<std::string>();
  std::set<std::shared_ptr<Visit>> listeners;
  std::size_t visits = 0;
};

class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(tcp::socket socket, Reception& reception)
      : stream_(std::move(socket)), reception_(reception) {
    ++reception_.visits;
  }
  ~Visit() { --reception_.visits; }

  void start() {
    parser_.emplace();
    parser_->header_limit(8192);
    parser_->body_limit(0);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code fault, std::size_t) {
                       if (!fault) self->answer();
                     });
  }

  void send(std::string text) {
    if (pending_.size() >= kMostPending) return close();  // it reconnects and is then up to date
    pending_.push_back(std::move(text));
    if (pending_.size() == 1) write_next();
  }
  bool is_behind() const { return !pending_.empty(); }
  void close() {
    beast::error_code ignored;
    stream_.socket().close(ignored);
    reception_.listeners.erase(shared_from_this());
  }

 private:
  bool is_for_this_machine() const {
    const auto host = parser_->get()[http::field::host];
    for (const char* name : {"127.0.0.1", "localhost"})
      if (host == fmt::format("{}:{}", name, reception_.port) ||
          (reception_.port == 80 && host == name))
        return true;
    return false;
  }

  void answer() {
    const auto& request = parser_->get();
    if (!is_for_this_machine()) return reply(http::status::forbidden, "not for this host\n");
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return reply(http::status::method_not_allowed, "this page can only be read\n");
    if (request.target() == "/") return reply(http::status::ok, *reception_.page);
    if (request.target() != "/events" || request.method() == http::verb::head)
      return reply(http::status::not_found, "there is only the page /\n");
    stream_.expires_never();
    reception_.listeners.insert(shared_from_this());
    send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\nretry: 1000\n\n");
    await_end();
  }

  void reply(http::status status, const std::string& text) {
    response_ = {status, parser_->get().version()};
    const bool is_page = status == http::status::ok;
    response_.set(http::field::content_type,
                  is_page ? "text/html; charset=utf-8" : "text/plain; charset=utf-8");
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.keep_alive(false);
    if (parser_->get().method() == http::verb::head)
      response_.content_length(text.size());
    else
      response_.body() = text;
    if (parser_->get().method() != http::verb::head) response_.prepare_payload();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code, std::size_t) {
                        beast::error_code ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                      });
  }

  /// Waits for a listener to close; it sends nothing.
  void await_end() {
    stream_.socket().async_read_some(
        asio::buffer(ignored_), [self = shared_from_this()](beast::error_code fault, std::size_t) {
          if (fault)
            self->close();
          else
            self->await_end();
        });
  }

  void write_next() {
    asio::async_write(stream_.socket(), asio::buffer(pending_.front()),
                      [self = shared_from_this()](beast::error_code fault, std::size_t) {
                        self->pending_.pop_front();
                        if (fault) return self->close();
                        if (!self->pending_.empty()) self->write_next();
                      });
  }

  beast::tcp_stream stream_;
  Reception& reception_;
  beast::flat_buffer buffer_{16384};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::deque<std::string> pending_;
  char ignored_[64] = {};
};

class LoopbackServer : public PageServer {
 public:
  ~LoopbackServer() override {
    asio::post(context_, [this] {
      beast::error_code ignored;
      acceptor_.close(ignored);
      const auto listeners = reception_.listeners;
      for (const auto& each : listeners) each->close();
      context_.stop();
    });
    if (thread_.joinable()) thread_.join();
  }

  Result<void> open(int port) {
    const tcp::endpoint place(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    beast::error_code fault;
    acceptor_.open(place.protocol(), fault);
    if (!fault) acceptor_.set_option(tcp::acceptor::reuse_address(true), fault);
    if (!fault) acceptor_.bind(place, fault);
    if (!fault) acceptor_.listen(asio::socket_base::max_listen_connections, fault);
    if (fault)
      return usage_error("serve.port",
                         fmt::format("port {} of 127.0.0.1: {}; give another one, or 0 for any",
                                     port, fault.message()));
    reception_.port = acceptor_.local_endpoint().port();
    accept();
    thread_ = start_quiet_thread([this] { context_.run(); });
    return {};
  }

  int port() const override { return reception_.port; }

  void show(std::string page) override {
    asio::post(context_, [this, page = std::make_shared<std::string>(std::move(page))] {
      reception_.page = page;
    });
  }

  void tell(const std::string& name, const std::string& data) override {
    asio::post(context_, [this, text = fmt::format("event: {}\ndata: {}\n\n", name, data)] {
      const auto listeners = reception_.listeners;  // a slow listener leaves the set
      for (const auto& each : listeners) each->send(text);
    });
  }

  void flush() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (bool is_behind = true; is_behind && std::chrono::steady_clock::now() < end;) {
      std::promise<bool> asked;
      asio::post(context_, [&] {
        bool any = false;
        for (const auto& each : reception_.listeners) any = any || each->is_behind();
        asked.set_value(any);
      });
      is_behind = asked.get_future().get();
      if (is_behind) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  void accept() {
    acceptor_.async_accept([this](beast::error_code fault, tcp::socket socket) {
      if (fault == asio::error::operation_aborted) return;
      // Connections above the limit are closed.
      if (!fault && reception_.visits < kMostConnections)
        std::make_shared<Visit>(std::move(socket), reception_)->start();
      accept();
    });
  }

  Reception reception_;  // outlives the visits, which the context holds
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<PageServer>> PageServer::start(int port) {
  if (port < 0 || port > 65535)
    return usage_error("serve.port", fmt::format("port {}: wanted 0 to 65535", port));
  auto server = std::make_unique<LoopbackServer>();
  MOTLEY_RETURN_IF_ERROR(server->open(port));
  return server;
}

}  // namespace motley::control
