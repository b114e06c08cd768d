#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/base/units.h"

struct sqlite3;
struct sqlite3_stmt;

namespace motley::cost {

class Database;

/// A prepared statement of a Database, which must outlive it: bind, step through rows, read them.
class Statement {
 public:
  Statement(const Database& database, sqlite3_stmt* statement);

  Statement& bind(std::string_view text);
  Statement& bind(std::int64_t number);
  Statement& bind(double number);

  /// Returns true on a row; false after the last, when the statement can be bound again.
  Result<bool> step();
  Result<void> run();

  std::string text(int column) const;
  std::int64_t integer(int column) const;
  double real(int column) const;

 private:
  int next_parameter();

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_ = 1;  // parameter that bind() sets
};

/// No transaction takes this long, even on a network file system: its process has stopped.
inline constexpr Seconds kLongestHold{30};

/// One SQLite file. With database.cc the only place that names the library. Locks on the file
/// separate processes, even of several hosts if their file system locks for all. The journal is a
/// file beside it, because a write-ahead log is in memory that only processes of one host share.
class Database {
 public:
  /// Opens or creates the file. Each step waits up to `wait` for other processes, then fails with a
  /// runtime error (cost.busy) that names the holder if it is a process of this host.
  static Result<std::unique_ptr<Database>> open(const std::string& path,
                                                Seconds wait = kLongestHold);

  Result<Statement> prepare(std::string_view sql) const;
  Result<void> run(const char* sql) const;
  /// Returns the first column of the first row.
  Result<std::int64_t> integer(std::string_view sql) const;
  const std::string& path() const { return path_; }
  /// Returns the last error.
  tl::unexpected<Error> fault() const;

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  Database() = default;
  std::string path_;
  Seconds wait_;
  std::unique_ptr<sqlite3, Close> connection_;
};

/// Begins in begin() and rolls back on destruction unless committed.
class Transaction {
 public:
  static Result<Transaction> begin(const Database& database);
  Transaction(Transaction&& other) noexcept;
  ~Transaction();
  Result<void> commit();

 private:
  explicit Transaction(const Database& database) : database_(&database) {}
  const Database* database_;  // null when done
};

}  // namespace motley::cost
