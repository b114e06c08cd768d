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

/// A prepared statement: bind the parameters in order, step through the rows, read their columns.
/// Belongs to its Database, which must outlive it.
class Statement {
 public:
  Statement(const Database& database, sqlite3_stmt* statement);

  Statement& bind(std::string_view text);
  Statement& bind(std::int64_t number);
  Statement& bind(double number);

  /// True on a row; false after the last, when the statement is ready to be bound again.
  Result<bool> step();
  /// For a statement without rows.
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

/// No transaction of a store takes as long, on a network's file system neither: whoever holds one
/// so long has stopped.
inline constexpr Seconds kLongestHold{30};

/// One SQLite file. The one place that names the library, with database.cc. Processes keep apart by
/// locks on the file, so those of several hosts may share it, too, where their file system locks
/// for all. Its journal stays a file beside it (a write-ahead log is in memory that the processes
/// of one host alone share).
class Database {
 public:
  /// Opens or creates. Each step waits so long for other processes: then it is a runtime error
  /// (cost.busy) that names who holds the file, if that is a process of this host.
  static Result<std::unique_ptr<Database>> open(const std::string& path,
                                                Seconds wait = kLongestHold);

  Result<Statement> prepare(std::string_view sql) const;
  /// Statements without parameters or rows.
  Result<void> run(const char* sql) const;
  /// First column of the first row.
  Result<std::int64_t> integer(std::string_view sql) const;
  const std::string& path() const { return path_; }
  /// Of what failed last.
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

/// Begins on construction by begin(), rolls back on destruction unless committed.
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
