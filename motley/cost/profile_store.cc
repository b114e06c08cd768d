#include "motley/cost/profile_store.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "motley/cost/database.h"

namespace motley::cost {
namespace {

// "MTLY": tells our files from other SQLite databases. Kept in the file's header with the version.
constexpr std::int64_t kApplication = 0x4d544c59;
constexpr std::int64_t kVersion = 1;

constexpr const char* kSchema = R"sql(
CREATE TABLE op(
  kind TEXT NOT NULL, threads INTEGER NOT NULL, torch TEXT NOT NULL, key TEXT NOT NULL,
  median_s REAL NOT NULL CHECK(median_s >= 0), spread REAL NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY(kind, threads, torch, key)) STRICT, WITHOUT ROWID;
CREATE TABLE collective(
  op TEXT NOT NULL, backend TEXT NOT NULL, route TEXT NOT NULL, ranks INTEGER NOT NULL,
  bytes INTEGER NOT NULL, median_s REAL NOT NULL CHECK(median_s > 0), spread REAL NOT NULL,
  samples INTEGER NOT NULL, PRIMARY KEY(op, backend, route, ranks, bytes)) STRICT, WITHOUT ROWID;
CREATE TABLE profiled_batch(
  model TEXT NOT NULL, kind TEXT NOT NULL, threads INTEGER NOT NULL, torch TEXT NOT NULL,
  batch INTEGER NOT NULL, PRIMARY KEY(model, kind, threads, torch, batch)) STRICT, WITHOUT ROWID;
PRAGMA application_id = 1297370201;
PRAGMA user_version = 1;
)sql";
static_assert(kApplication == 1297370201);

constexpr std::string_view kPutOp = "REPLACE INTO op VALUES(?, ?, ?, ?, ?, ?, ?)";
constexpr std::string_view kFindOp =
    "SELECT key, median_s, spread, samples FROM op "
    "WHERE kind = ? AND threads = ? AND torch = ? AND key = ?";
constexpr std::string_view kAllOps =
    "SELECT key, median_s, spread, samples FROM op "
    "WHERE kind = ? AND threads = ? AND torch = ? ORDER BY key";
constexpr std::string_view kPutCollective =
    "REPLACE INTO collective VALUES(?, ?, ?, ?, ?, ?, ?, ?)";
constexpr std::string_view kAllCollectives =
    "SELECT op, backend, route, ranks, bytes, median_s, spread, samples FROM collective "
    "ORDER BY op, backend, route, ranks, bytes";
constexpr std::string_view kPutBatch = "REPLACE INTO profiled_batch VALUES(?, ?, ?, ?, ?)";
constexpr std::string_view kAllBatches =
    "SELECT batch FROM profiled_batch "
    "WHERE model = ? AND kind = ? AND threads = ? AND torch = ? ORDER BY batch";

Statement& bind(Statement& statement, const DeviceKey& device) {
  return statement.bind(device.kind).bind(std::int64_t{device.threads}).bind(device.torch);
}

// A new file gets the tables; another one must be ours and of this version.
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
  return {};
}

// The tables' own checks hold when rows are written; a damaged file may hold anything.
Result<Seconds> read_seconds(const Statement& row, int column, const Database& database) {
  const double seconds = row.real(column);
  if (std::isfinite(seconds) && seconds >= 0) return Seconds(seconds);
  return usage_error("cost.corrupt-store",
                     fmt::format("{}: the profile store is corrupt (a time of {} s); remove it and "
                                 "run `motley profile` again",
                                 database.path(), seconds));
}

Result<OpEntry> read_op(const Statement& row, const DeviceKey& device, const Database& database) {
  MOTLEY_ASSIGN(const Seconds median, read_seconds(row, 1, database));
  return OpEntry{device, row.text(0), median, row.real(2), row.integer(3)};
}

}  // namespace

/// Statements used once an entry are prepared once.
struct ProfileStore::State {
  explicit State(std::unique_ptr<Database> opened) : database(std::move(opened)) {}
  std::unique_ptr<Database> database;
  std::optional<Statement> find_op;
};

ProfileStore::ProfileStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProfileStore::ProfileStore(ProfileStore&&) noexcept = default;
ProfileStore& ProfileStore::operator=(ProfileStore&&) noexcept = default;
ProfileStore::~ProfileStore() = default;

Result<ProfileStore> ProfileStore::open(const std::string& path) {
  MOTLEY_ASSIGN(std::unique_ptr<Database> database, Database::open(path));
  MOTLEY_RETURN_IF_ERROR(prepare_file(*database));
  auto state = std::make_unique<State>(std::move(database));
  MOTLEY_ASSIGN(state->find_op, state->database->prepare(kFindOp));
  return ProfileStore(std::move(state));
}

Result<void> ProfileStore::put(const std::vector<OpEntry>& entries) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kPutOp));
  for (const OpEntry& entry : entries) {
    bind(statement, entry.device).bind(entry.key).bind(entry.median.value).bind(entry.spread);
    MOTLEY_RETURN_IF_ERROR(statement.bind(entry.samples).run());
  }
  return transaction.commit();
}

Result<void> ProfileStore::put(const std::vector<CollectiveEntry>& entries) {
  MOTLEY_ASSIGN(Transaction transaction, Transaction::begin(*state_->database));
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kPutCollective));
  for (const CollectiveEntry& entry : entries) {
    statement.bind(entry.op).bind(entry.backend).bind(entry.route);
    statement.bind(std::int64_t{entry.ranks}).bind(entry.bytes.value).bind(entry.median.value);
    MOTLEY_RETURN_IF_ERROR(statement.bind(entry.spread).bind(entry.samples).run());
  }
  return transaction.commit();
}

Result<std::optional<OpEntry>> ProfileStore::find_op(const DeviceKey& device,
                                                     const std::string& key) const {
  Statement& statement = *state_->find_op;
  bind(statement, device).bind(key);
  MOTLEY_ASSIGN(const bool has_row, statement.step());
  if (!has_row) return std::nullopt;
  MOTLEY_ASSIGN(OpEntry entry, read_op(statement, device, *state_->database));
  MOTLEY_ASSIGN(const bool has_more, statement.step());  // the key is primary: this resets
  static_cast<void>(has_more);
  return entry;
}

Result<std::vector<OpEntry>> ProfileStore::ops(const DeviceKey& device) const {
  MOTLEY_ASSIGN(Statement statement, state_->database->prepare(kAllOps));
  bind(statement, device);
  std::vector<OpEntry> entries;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, statement.step());
    if (!has_row) return entries;
    MOTLEY_ASSIGN(OpEntry entry, read_op(statement, device, *state_->database));
    entries.push_back(std::move(entry));
  }
}

Result<std::vector<CollectiveEntry>> ProfileStore::collectives() const {
  MOTLEY_ASSIGN(Statement row, state_->database->prepare(kAllCollectives));
  std::vector<CollectiveEntry> entries;
  while (true) {
    MOTLEY_ASSIGN(const bool has_row, row.step());
    if (!has_row) return entries;
    MOTLEY_ASSIGN(const Seconds median, read_seconds(row, 5, *state_->database));
    entries.push_back({row.text(0), row.text(1), row.text(2), static_cast<int>(row.integer(3)),
                       Bytes(row.integer(4)), median, row.real(6), row.integer(7)});
  }
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

}  // namespace motley::cost
