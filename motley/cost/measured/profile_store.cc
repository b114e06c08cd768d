#include "motley/cost/measured/profile_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/cost/links/collective_fit.h"
#include "motley/cost/measured/database.h"
#include "motley/cost/measured/readings.h"

namespace motley::cost {
namespace {

// "MTLY" in the header distinguishes our files from other SQLite databases.
constexpr std::int64_t kApplication = 0x4d544c59;
constexpr std::int64_t kVersion = 2;

constexpr const char* kSchema = R"sql(
CREATE TABLE op(
  kind TEXT NOT NULL, threads INTEGER NOT NULL, torch TEXT NOT NULL, key TEXT NOT NULL,
  round INTEGER NOT NULL, median_s REAL NOT NULL CHECK(median_s >= 0), spread REAL NOT NULL,
  samples INTEGER NOT NULL, scratch_bytes INTEGER NOT NULL CHECK(scratch_bytes >= 0),
  flops REAL NOT NULL, bytes REAL NOT NULL, launches INTEGER NOT NULL,
  PRIMARY KEY(kind, threads, torch, key, round)) STRICT, WITHOUT ROWID;
CREATE TABLE collective(
  op TEXT NOT NULL, backend TEXT NOT NULL, route TEXT NOT NULL, ranks INTEGER NOT NULL,
  bytes INTEGER NOT NULL, round INTEGER NOT NULL, median_s REAL NOT NULL CHECK(median_s > 0),
  spread REAL NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY(op, backend, route, ranks, bytes, round)) STRICT, WITHOUT ROWID;
CREATE TABLE profiled_batch(
  model TEXT NOT NULL, kind TEXT NOT NULL, threads INTEGER NOT NULL, torch TEXT NOT NULL,
  batch INTEGER NOT NULL, PRIMARY KEY(model, kind, threads, torch, batch)) STRICT, WITHOUT ROWID;
CREATE TABLE prediction(
  id INTEGER PRIMARY KEY, model TEXT NOT NULL, cluster TEXT NOT NULL, quantity TEXT NOT NULL,
  predicted REAL NOT NULL CHECK(predicted > 0), measured REAL NOT NULL CHECK(measured > 0)) STRICT;
PRAGMA application_id = 1297370201;
PRAGMA user_version = 2;
)sql";
// Files of this version may be older than this table.
constexpr const char* kAddInterference = R"sql(
CREATE TABLE IF NOT EXISTS interference(
  kind TEXT NOT NULL, threads INTEGER NOT NULL, torch TEXT NOT NULL, backend TEXT NOT NULL,
  route TEXT NOT NULL, ranks INTEGER NOT NULL, round INTEGER NOT NULL,
  factor REAL NOT NULL CHECK(factor >= 0), samples INTEGER NOT NULL,
  PRIMARY KEY(kind, threads, torch, backend, route, ranks, round)) STRICT, WITHOUT ROWID;
)sql";
static_assert(kApplication == 1297370201);

constexpr std::string_view kPutOp =
    "INSERT INTO op SELECT ?1, ?2, ?3, ?4, 1 + ifnull(max(round), 0), ?5, ?6, ?7, ?8, ?9, ?10, ?11 "
    "FROM op WHERE kind = ?1 AND threads = ?2 AND torch = ?3 AND key = ?4";
constexpr std::string_view kDropOps =
    "DELETE FROM op WHERE kind = ?1 AND threads = ?2 AND torch = ?3 AND key = ?4 AND round <= "
    "(SELECT max(round) FROM op WHERE kind = ?1 AND threads = ?2 AND torch = ?3 AND key = ?4) - ?5";
constexpr std::string_view kFindOp =
    "SELECT key, median_s, spread, samples, scratch_bytes, flops, bytes, launches FROM op "
    "WHERE kind = ? AND threads = ? AND torch = ? AND key = ? ORDER BY round";
constexpr std::string_view kAllOps =
    "SELECT key, median_s, spread, samples, scratch_bytes, flops, bytes, launches FROM op "
    "WHERE kind = ? AND threads = ? AND torch = ? ORDER BY key, round";
constexpr std::string_view kPutCollective =
    "INSERT INTO collective SELECT ?1, ?2, ?3, ?4, ?5, 1 + ifnull(max(round), 0), ?6, ?7, ?8 "
    "FROM collective WHERE op = ?1 AND backend = ?2 AND route = ?3 AND ranks = ?4 AND bytes = ?5";
constexpr std::string_view kDropCollectives =
    "DELETE FROM collective WHERE op = ?1 AND backend = ?2 AND route = ?3 AND ranks = ?4 AND "
    "bytes = ?5 AND round <= (SELECT max(round) FROM collective WHERE op = ?1 AND backend = ?2 "
    "AND route = ?3 AND ranks = ?4 AND bytes = ?5) - ?6";
constexpr std::string_view kAllCollectives =
    "SELECT op, backend, route, ranks, bytes, median_s, spread, samples FROM collective "
    "ORDER BY op, backend, route, ranks, bytes, round";
constexpr std::string_view kPutInterference =
    "INSERT INTO interference SELECT ?1, ?2, ?3, ?4, ?5, ?6, 1 + ifnull(max(round), 0), ?7, ?8 "
    "FROM interference WHERE kind = ?1 AND threads = ?2 AND torch = ?3 AND backend = ?4 AND "
    "route = ?5 AND ranks = ?6";
constexpr std::string_view kDropInterference =
    "DELETE FROM interference WHERE kind = ?1 AND threads = ?2 AND torch = ?3 AND backend = ?4 AND "
    "route = ?5 AND ranks = ?6 AND round <= (SELECT max(round) FROM interference WHERE kind = ?1 "
    "AND threads = ?2 AND torch = ?3 AND backend = ?4 AND route = ?5 AND ranks = ?6) - ?7";
constexpr std::string_view kAllInterference =
    "SELECT kind, threads, torch, backend, route, ranks, factor, samples FROM interference "
    "ORDER BY kind, threads, torch, backend, route, ranks, round";
constexpr std::string_view kPutPrediction =
    "INSERT INTO prediction(model, cluster, quantity, predicted, measured) VALUES(?, ?, ?, ?, ?)";
constexpr const char* kDropPredictions =
    "DELETE FROM prediction WHERE id <= (SELECT max(id) FROM prediction) - 1000";
constexpr std::string_view kAllPredictions =
    "SELECT model, cluster, quantity, predicted, measured FROM prediction ORDER BY id";
constexpr std::string_view kPutBatch = "REPLACE INTO profiled_batch VALUES(?, ?, ?, ?, ?)";
constexpr std::string_view kAllBatches =
    "SELECT batch FROM profiled_batch "
    "WHERE model = ? AND kind = ? AND threads = ? AND torch = ? ORDER BY batch";
constexpr std::string_view kProfiledDevices =
    "SELECT DISTINCT kind, threads, torch FROM profiled_batch WHERE model = ? "
    "ORDER BY kind, threads, torch";

Statement& bind(Statement& statement, const DeviceKey& device) {
  return statement.bind(device.kind).bind(std::int64_t{device.threads}).bind(device.torch);
}

// Creates the tables in a new file; another file must be ours and of this version.
Result<void> prepare_file(const Database& database) {
  MOTLEY_ASSIGN(const std::int64_t tables, database.integer("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) {
    MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(database));
    // Another process may have been first.
    MOTLEY_ASSIGN(const std::int64_t now, database.integer("SELECT count(*) FROM sqlite_schema"));
    if (now == 0) MOTLEY_RETURN_IF_ERROR(database.run(kSchema));
    MOTLEY_RETURN_IF_ERROR(transaction.commit());
  }
  MOTLEY_ASSIGN(const std::int64_t application, database.integer("PRAGMA application_id"));
  if (application != kApplication) {
    return usage_error("cost.not-a-store",
                       fmt::format("{}: is a database, but not a profile store", database.path()));
  }
  MOTLEY_ASSIGN(const std::int64_t version, database.integer("PRAGMA user_version"));
  if (version != kVersion) {
    return usage_error("cost.store-version",
                       fmt::format("{}: profile store of version {}, wanted {}; remove it and run "
                                   "`motley profile` again",
                                   database.path(), version, kVersion));
  }
  return database.run(kAddInterference);
}

// The tables' checks apply only to writes; a damaged file may hold anything.
Result<Seconds> read_seconds(const Statement& row, int column, const Database& database) {
  const double seconds = row.real(column);
  if (std::isfinite(seconds) && seconds >= 0) return Seconds(seconds);
  return usage_error("cost.corrupt-store",
                     fmt::format("{}: the profile store is corrupt (a time of {} s); remove it and "
                                 "run `motley profile` again",
                                 database.path(), seconds));
}

/// Merges the rounds of one entry, read one after the other.
class Rounds {
 public:
  void add(const Statement& row, int column, Seconds median) {
    rounds_.push_back({median.value, row.real(column + 1), row.integer(column + 2)});
  }
  /// Sets the times of `entry` and clears the rounds.
  template <typename Entry>
  MergedReading finish(Entry& entry) {
    const MergedReading merged = merge_readings(rounds_);
    entry.median = Seconds(merged.seconds);
    entry.spread = rounds_.back().spread;
    entry.samples = 0;
    for (const Reading& round : rounds_) entry.samples += round.samples;
    entry.has_drifted = merged.has_drifted;
    rounds_.clear();
    return merged;
  }
  bool empty() const { return rounds_.empty(); }

 private:
  std::vector<Reading> rounds_;
};

/// Reads entries from rows (key, median, spread, samples, scratch) ordered by key and round.
Result<std::vector<OpEntry>> read_ops(Statement& statement, const DeviceKey& device,
                                      const Database& database) {
  std::vector<OpEntry> entries;
  Rounds rounds;
  const auto finish = [&] {
    if (!rounds.empty()) entries.back().deviation = rounds.finish(entries.back()).deviation;
  };
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, statement.step());
    if (!has_row) break;
    std::string key = statement.text(0);
    if (rounds.empty() || entries.back().key != key) {
      finish();
      entries.push_back({device, std::move(key)});
    }
    MOTLEY_ASSIGN(const Seconds median, read_seconds(statement, 1, database));
    rounds.add(statement, 1, median);
    entries.back().scratch = std::max(entries.back().scratch, Bytes(statement.integer(4)));
    entries.back().work = {statement.real(5), statement.real(6),
                           static_cast<int>(statement.integer(7))};
  }
  finish();
  return entries;
}

bool is_same(const CollectiveEntry& a, const CollectiveEntry& b) {
  return a.op == b.op && a.backend == b.backend && a.route == b.route && a.ranks == b.ranks &&
         a.bytes == b.bytes;
}

bool is_same(const InterferenceEntry& a, const InterferenceEntry& b) {
  return a.device == b.device && a.backend == b.backend && a.route == b.route && a.ranks == b.ranks;
}

}  // namespace

/// Prepares statements that are used per entry only once.
struct ProfileStore::State {
  explicit State(std::unique_ptr<Database> opened) : database(std::move(opened)) {}
  std::unique_ptr<Database> database;
  std::optional<Statement> find_op;
};

ProfileStore::ProfileStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProfileStore::ProfileStore(ProfileStore&&) noexcept = default;
ProfileStore& ProfileStore::operator=(ProfileStore&&) noexcept = default;
ProfileStore::~ProfileStore() = default;

Result<ProfileStore> ProfileStore::open(const std::string& path, Seconds wait) {
  MOTLEY_ASSIGN(std::unique_ptr<Database> database, Database::open(path, wait));
  MOTLEY_RETURN_IF_ERROR(prepare_file(*database));
  auto state = std::make_unique<State>(std::move(database));
  MOTLEY_ASSIGN(state->find_op, state->database->prepare(kFindOp));
  return ProfileStore(std::move(state));
}

Result<void> ProfileStore::put(const std::vector<OpEntry>& entries) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement add, state_->database->prepare(kPutOp));
  MOTLEY_ASSIGN(Statement drop, state_->database->prepare(kDropOps));
  for (const OpEntry& entry : entries) {
    bind(add, entry.device).bind(entry.key).bind(entry.median.value).bind(entry.spread);
    add.bind(entry.samples).bind(entry.scratch.value).bind(entry.work.flops);
    add.bind(entry.work.bytes).bind(std::int64_t{entry.work.launches});
    MOTLEY_RETURN_IF_ERROR(add.run());
    bind(drop, entry.device).bind(entry.key);
    MOTLEY_RETURN_IF_ERROR(drop.bind(std::int64_t{kRoundsKept}).run());
  }
  return transaction.commit();
}

Result<void> ProfileStore::put(const std::vector<CollectiveEntry>& entries) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement add, state_->database->prepare(kPutCollective));
  MOTLEY_ASSIGN(Statement drop, state_->database->prepare(kDropCollectives));
  for (const CollectiveEntry& entry : entries) {
    for (Statement* statement : {&add, &drop}) {
      statement->bind(entry.op).bind(entry.backend).bind(entry.route);
      statement->bind(std::int64_t{entry.ranks}).bind(entry.bytes.value);
    }
    add.bind(entry.median.value).bind(entry.spread).bind(entry.samples);
    MOTLEY_RETURN_IF_ERROR(add.run());
    MOTLEY_RETURN_IF_ERROR(drop.bind(std::int64_t{kRoundsKept}).run());
  }
  return transaction.commit();
}

Result<void> ProfileStore::put(const std::vector<InterferenceEntry>& entries) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement add, state_->database->prepare(kPutInterference));
  MOTLEY_ASSIGN(Statement drop, state_->database->prepare(kDropInterference));
  for (const InterferenceEntry& entry : entries) {
    for (Statement* statement : {&add, &drop})
      bind(*statement, entry.device)
          .bind(entry.backend)
          .bind(entry.route)
          .bind(std::int64_t{entry.ranks});
    MOTLEY_RETURN_IF_ERROR(add.bind(entry.factor).bind(entry.samples).run());
    MOTLEY_RETURN_IF_ERROR(drop.bind(std::int64_t{kRoundsKept}).run());
  }
  return transaction.commit();
}

Result<std::vector<InterferenceEntry>> ProfileStore::interference() const {
  MOTLEY_ASSIGN(Statement row, state_->database->prepare(kAllInterference));
  std::vector<InterferenceEntry> entries;
  std::vector<double> rounds;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, row.step());
    if (!has_row) return entries;
    const InterferenceEntry read{{row.text(0), static_cast<int>(row.integer(1)), row.text(2)},
                                 row.text(3),
                                 row.text(4),
                                 static_cast<int>(row.integer(5)),
                                 row.real(6),
                                 row.integer(7)};
    if (!(read.factor >= 0 && read.factor <= kMostInterference))
      return usage_error("cost.corrupt-store",
                         fmt::format("{}: the profile store is corrupt (interference of {}); "
                                     "remove it and run `motley profile` again",
                                     state_->database->path(), read.factor));
    if (entries.empty() || !is_same(entries.back(), read)) {
      rounds.clear();
      entries.push_back(read);
    } else {
      entries.back().samples += read.samples;
    }
    rounds.push_back(read.factor);
    entries.back().factor = median(rounds);
  }
}

Result<void> ProfileStore::copy_to(const std::string& path) const {
  MOTLEY_ASSIGN(Statement copy, state_->database->prepare("vacuum into ?"));
  return copy.bind(path).run();
}

Result<void> ProfileStore::put(const PredictionEntry& entry) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement add, state_->database->prepare(kPutPrediction));
  add.bind(entry.subject).bind(entry.cluster).bind(entry.quantity);
  MOTLEY_RETURN_IF_ERROR(add.bind(entry.predicted).bind(entry.measured).run());
  MOTLEY_RETURN_IF_ERROR(state_->database->run(kDropPredictions));
  return transaction.commit();
}

Result<std::vector<PredictionEntry>> ProfileStore::predictions() const {
  MOTLEY_ASSIGN(Statement row, state_->database->prepare(kAllPredictions));
  std::vector<PredictionEntry> entries;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, row.step());
    if (!has_row) return entries;
    entries.push_back({row.text(0), row.text(1), row.text(2), row.real(3), row.real(4)});
  }
}

Result<std::optional<OpEntry>> ProfileStore::find_op(const DeviceKey& device,
                                                     const std::string& key) const {
  Statement& statement = *state_->find_op;
  bind(statement, device).bind(key);
  MOTLEY_ASSIGN(auto entries, read_ops(statement, device, *state_->database));
  if (entries.empty()) return std::nullopt;
  return std::move(entries.front());
}

Result<std::vector<OpEntry>> ProfileStore::ops(const DeviceKey& device) const {
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kAllOps));
  bind(statement, device);
  return read_ops(statement, device, *state_->database);
}

Result<std::vector<CollectiveEntry>> ProfileStore::collectives() const {
  MOTLEY_ASSIGN(Statement row, state_->database->prepare(kAllCollectives));
  std::vector<CollectiveEntry> entries;
  Rounds rounds;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, row.step());
    if (!has_row) break;
    CollectiveEntry next{row.text(0), row.text(1), row.text(2), static_cast<int>(row.integer(3)),
                         Bytes(row.integer(4))};
    if (rounds.empty() || !is_same(entries.back(), next)) {
      if (!rounds.empty()) rounds.finish(entries.back());
      entries.push_back(std::move(next));
    }
    MOTLEY_ASSIGN(const Seconds median, read_seconds(row, 5, *state_->database));
    rounds.add(row, 5, median);
  }
  if (!rounds.empty()) rounds.finish(entries.back());
  return entries;
}

Result<void> ProfileStore::put_batches(const std::string& subject, const DeviceKey& device,
                                       const std::vector<std::int64_t>& batches) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kPutBatch));
  for (const std::int64_t batch : batches) {
    MOTLEY_RETURN_IF_ERROR(bind(statement.bind(subject), device).bind(batch).run());
  }
  return transaction.commit();
}

Result<std::vector<std::int64_t>> ProfileStore::batches(const std::string& subject,
                                                        const DeviceKey& device) const {
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kAllBatches));
  bind(statement.bind(subject), device);
  std::vector<std::int64_t> batches;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, statement.step());
    if (!has_row) return batches;
    batches.push_back(statement.integer(0));
  }
}

Result<std::vector<DeviceKey>> ProfileStore::profiled_devices(const std::string& subject) const {
  MOTLEY_ASSIGN(Statement row, state_->database->prepare(kProfiledDevices));
  row.bind(subject);
  std::vector<DeviceKey> devices;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, row.step());
    if (!has_row) return devices;
    devices.push_back({row.text(0), static_cast<int>(row.integer(1)), row.text(2)});
  }
}

}  // namespace motley::cost
