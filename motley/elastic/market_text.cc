#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cluster/quantity_text.h"
#include "motley/cluster/toml_table.h"
#include "motley/elastic/market.h"

namespace motley::elastic {
namespace {

using cluster::TableReader;

constexpr std::string_view kMarketSchema = "motley.market/1";
constexpr std::int64_t kMostMachines = 64;

Result<void> check_schema(const TableReader& top) {
  MOTLEY_ASSIGN(const auto schema, top.text("schema"));
  if (!schema)
    return top.fault(1, "schema",
                     fmt::format("no key 'schema', wanted schema = \"{}\"", kMarketSchema));
  if (*schema == kMarketSchema) return {};
  return top.fault(static_cast<int>(top.find("schema")->source().begin.line), "schema",
                   fmt::format("schema {}, wanted \"{}\"", quote(*schema), kMarketSchema));
}

/// Reads an optional number, at least 0.
Result<std::optional<double>> amount(const TableReader& table, std::string_view key) {
  MOTLEY_ASSIGN(const auto value, table.number(key));
  if (value && !(*value >= 0 && std::isfinite(*value)))
    return table.fault_at(key, fmt::format("found {}, wanted a number from 0 on", *value));
  return value;
}
Result<double> wanted_amount(const TableReader& table, std::string_view key) {
  MOTLEY_ASSIGN(const auto value, amount(table, key));
  if (!value) return table.missing(key);
  return *value;
}

/// Reads an optional finite quantity above 0.
template <typename Quantity>
Result<std::optional<Quantity>> positive(const TableReader& table, std::string_view key,
                                         Result<Quantity> (*parse)(std::string_view)) {
  MOTLEY_ASSIGN(const auto value, table.quantity<Quantity>(key, parse));
  if (value && !(value->value > 0 && std::isfinite(static_cast<double>(value->value))))
    return table.fault_at(key, fmt::format("found {}, wanted more than 0", value->value));
  return value;
}
Result<std::optional<Seconds>> duration(const TableReader& table, std::string_view key) {
  return positive<Seconds>(table, key, parse_seconds);
}

/// Reads printable ASCII, as in file names and people's words.
Result<std::optional<std::string>> plain_text(const TableReader& table, std::string_view key) {
  MOTLEY_ASSIGN(const auto text, table.text(key));
  if (!text) return text;
  const bool is_plain = !text->empty() && std::all_of(text->begin(), text->end(),
                                                      [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_plain) return table.fault_at(key, "wanted printable ASCII characters");
  return text;
}
Result<std::string> wanted_text(const TableReader& table, std::string_view key) {
  MOTLEY_ASSIGN(const auto text, plain_text(table, key));
  if (!text) return table.missing(key);
  return *text;
}

Result<int> count(const TableReader& table, std::string_view key, int fallback) {
  MOTLEY_ASSIGN(const auto value, table.integer(key));
  if (value && (*value < 1 || *value > kMostMachines))
    return table.fault_at(key, fmt::format("found {}, wanted 1 to {}", *value, kMostMachines));
  return static_cast<int>(value.value_or(fallback));
}

/// Returns "us-west1" of "us-west1-b".
std::string region_of(const std::string& zone) {
  const std::size_t dash = zone.rfind('-');
  return dash == std::string::npos || dash == 0 ? zone : zone.substr(0, dash);
}

Result<void> read_machine(const TableReader& table, Offer& offer) {
  MOTLEY_ASSIGN(offer.kind, wanted_text(table, "kind"));
  MOTLEY_ASSIGN(offer.devices, count(table, "devices", 1));
  MOTLEY_ASSIGN(offer.memory, positive<Bytes>(table, "memory", parse_bytes));
  MOTLEY_ASSIGN(offer.threads, count(table, "threads", 1));
  MOTLEY_ASSIGN(const auto speed, table.number("speed"));
  offer.speed = speed.value_or(1);
  if (!(offer.speed > 0 && offer.speed <= 1))
    return table.fault_at("speed", fmt::format("found {}, wanted above 0, at most 1", *speed));
  MOTLEY_ASSIGN(offer.step, duration(table, "step"));
  return {};
}

Result<Offer> read_offer(const TableReader& table) {
  const std::vector<std::string> known = {"kind",       "devices",         "zone",    "region",
                                          "spot",       "price_per_hour",  "most",    "start_cold",
                                          "start_warm", "notice",          "limit",   "step",
                                          "memory",     "losses_per_hour", "threads", "speed"};
  MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
  Offer offer;
  MOTLEY_RETURN_IF_ERROR(read_machine(table, offer));
  MOTLEY_ASSIGN(offer.zone, wanted_text(table, "zone"));
  MOTLEY_ASSIGN(const auto region, plain_text(table, "region"));
  offer.region = region.value_or(region_of(offer.zone));
  MOTLEY_ASSIGN(const auto spot, table.flag("spot"));
  offer.is_spot = spot.value_or(false);
  MOTLEY_ASSIGN(offer.price_per_hour, wanted_amount(table, "price_per_hour"));
  MOTLEY_ASSIGN(offer.most, count(table, "most", Offer().most));
  MOTLEY_ASSIGN(const auto cold, duration(table, "start_cold"));
  MOTLEY_ASSIGN(const auto warm, duration(table, "start_warm"));
  offer.start = {cold.value_or(offer.start.cold), warm.value_or(offer.start.warm)};
  MOTLEY_ASSIGN(const auto notice, duration(table, "notice"));
  offer.notice = notice.value_or(Seconds(0));
  MOTLEY_ASSIGN(offer.limit, duration(table, "limit"));
  MOTLEY_ASSIGN(offer.losses_per_hour, amount(table, "losses_per_hour"));
  for (const char* key : {"notice", "limit", "losses_per_hour"})
    if (!offer.is_spot && table.find(key) != nullptr)
      return table.fault_at(key, "is of spot machines alone; say spot = true");
  return offer;
}

Result<ServerOffer> read_server(const TableReader& table) {
  const std::vector<std::string> known = {"service", "price_per_hour", "most"};
  MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
  ServerOffer server;
  MOTLEY_ASSIGN(const auto service, duration(table, "service"));
  if (!service) return table.missing("service");
  server.service = *service;
  MOTLEY_ASSIGN(server.price_per_hour, wanted_amount(table, "price_per_hour"));
  MOTLEY_ASSIGN(server.most, count(table, "most", server.most));
  return server;
}

Result<void> read_rest(const TableReader& top, Market& market) {
  MOTLEY_ASSIGN(market.name, wanted_text(top, "name"));
  MOTLEY_ASSIGN(const auto lifetimes, plain_text(top, "lifetimes"));
  market.lifetimes = lifetimes.value_or("");
  MOTLEY_ASSIGN(const auto bandwidth, positive<BytesPerSecond>(top, "bandwidth", parse_rate));
  market.bandwidth = bandwidth.value_or(market.bandwidth);
  MOTLEY_ASSIGN(const auto latency, duration(top, "latency"));
  market.latency = latency.value_or(market.latency);
  MOTLEY_ASSIGN(const auto fixed, duration(top, "checkpoint_fixed"));
  market.checkpoint_fixed = fixed.value_or(market.checkpoint_fixed);
  MOTLEY_ASSIGN(const auto rate, positive<BytesPerSecond>(top, "checkpoint_rate", parse_rate));
  market.checkpoint_rate = rate.value_or(market.checkpoint_rate);
  return {};
}

/// Checks that all offers have a step, for asynchronous workers, or none has.
Result<void> check_steps(const TableReader& top, const std::vector<TableReader>& tables,
                         const Market& market) {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const bool has_step = market.offers[i].step.has_value();
    if (has_step && !market.server)
      return tables[i].fault_at("step", "is of workers that share servers; say [server], too");
    if (!has_step && market.server)
      return tables[i].fault(tables[i].line(), "missing-key",
                             "[[offer]] has no key 'step', as workers of [server] need");
    if (has_step && *market.offers[i].step < market.server->service)
      return tables[i].fault_at("step", "is less than the server's 'service', which is part of it");
  }
  if (!tables.empty()) return {};
  return top.fault(1, "value", "no [[offer]]: nothing is for rent");
}

std::string quantity(const std::string& text) { return find_float(text) ? text : quote(text); }

void print_offer(const Offer& offer, std::string& out) {
  const auto seconds = [](Seconds time) { return quantity(cluster::print_seconds(time)); };
  const Offer usual;
  out += fmt::format("\n[[offer]]\nkind = {}\nzone = {}\nregion = {}\nprice_per_hour = {}\n",
                     quote(offer.kind), quote(offer.zone), quote(offer.region),
                     print_float(offer.price_per_hour));
  if (offer.is_spot) out += "spot = true\n";
  if (offer.devices != 1) out += fmt::format("devices = {}\n", offer.devices);
  if (offer.most != usual.most) out += fmt::format("most = {}\n", offer.most);
  out += fmt::format("start_cold = {}\nstart_warm = {}\n", seconds(offer.start.cold),
                     seconds(offer.start.warm));
  if (offer.notice.value > 0) out += fmt::format("notice = {}\n", seconds(offer.notice));
  if (offer.limit) out += fmt::format("limit = {}\n", seconds(*offer.limit));
  if (offer.losses_per_hour)
    out += fmt::format("losses_per_hour = {}\n", print_float(*offer.losses_per_hour));
  if (offer.step) out += fmt::format("step = {}\n", seconds(*offer.step));
  if (offer.memory) out += fmt::format("memory = \"{}\"\n", cluster::print_bytes(*offer.memory));
  if (offer.threads != 1) out += fmt::format("threads = {}\n", offer.threads);
  if (offer.speed != 1) out += fmt::format("speed = {}\n", print_float(offer.speed));
}

}  // namespace

Result<Market> parse_market(std::string_view text, const std::string& name) {
  const TableReader::Source source{name, "market"};
  MOTLEY_ASSIGN(const auto document, cluster::parse_toml(text, source));
  const TableReader top(document, source, "the market file");
  MOTLEY_RETURN_IF_ERROR(check_schema(top));
  const std::vector<std::string> known = {"schema",          "name",    "lifetimes",
                                          "bandwidth",       "latency", "checkpoint_fixed",
                                          "checkpoint_rate", "offer",   "server"};
  MOTLEY_RETURN_IF_ERROR(top.refuse_unknown(known));
  Market market;
  MOTLEY_RETURN_IF_ERROR(read_rest(top, market));
  if (const auto* node = top.find("server")) {
    const auto* table = node->as_table();
    if (table == nullptr) return top.wrong_type("server", "a table headed [server]");
    MOTLEY_ASSIGN(market.server, read_server(TableReader(*table, source, "[server]")));
  }
  MOTLEY_ASSIGN(const auto tables, top.tables("offer", "[[offer]]"));
  for (const TableReader& table : tables) {
    MOTLEY_ASSIGN(Offer offer, read_offer(table));
    for (const Offer& other : market.offers)
      if (name_of(other) == name_of(offer))
        return table.fault(table.line(), "value",
                           fmt::format("'{}' is offered twice", name_of(offer)));
    market.offers.push_back(std::move(offer));
  }
  MOTLEY_RETURN_IF_ERROR(check_steps(top, tables, market));
  return market;
}

Result<Market> read_market(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse_market(text, path);
}

std::string print_market(const Market& market) {
  std::string out = fmt::format("schema = \"{}\"\nname = {}\n", kMarketSchema, quote(market.name));
  if (!market.lifetimes.empty()) out += fmt::format("lifetimes = {}\n", quote(market.lifetimes));
  out += fmt::format("bandwidth = {}\nlatency = {}\ncheckpoint_fixed = {}\ncheckpoint_rate = {}\n",
                     quantity(cluster::print_rate(market.bandwidth)),
                     quantity(cluster::print_seconds(market.latency)),
                     quantity(cluster::print_seconds(market.checkpoint_fixed)),
                     quantity(cluster::print_rate(market.checkpoint_rate)));
  if (market.server)
    out += fmt::format("\n[server]\nservice = {}\nprice_per_hour = {}\nmost = {}\n",
                       quantity(cluster::print_seconds(market.server->service)),
                       print_float(market.server->price_per_hour), market.server->most);
  for (const Offer& offer : market.offers) print_offer(offer, out);
  return out;
}

std::string print_duration(Seconds time) {
  if (time.value < 120) return format_seconds(time);
  return time.value < 7200 ? fmt::format("{:.0f} min", time.value / 60)
                           : fmt::format("{:.1f} h", time.value / 3600);
}

std::string name_of(const Offer& offer) {
  const std::string devices = offer.devices == 1 ? "" : fmt::format("{}x", offer.devices);
  return fmt::format("{}{} {} {}", devices, offer.kind, offer.is_spot ? "spot" : "on demand",
                     offer.zone);
}

}  // namespace motley::elastic
