// YCSB's core workloads A, B, C and F on RocksDB (with its persistent cache) and on PostgreSQL, in a closed loop, with the keys and the
// distribution of the original, as `entresol bench ycsb` has them. Prints one line of JSON.
//
//   c++ -O2 -std=c++17 -o ycsb ycsb.cc -I"$(pg_config --includedir)" -lrocksdb -lpq -lpthread
//   ./ycsb rocksdb load|run DIR key=value...      ./ycsb postgresql load|run CONNINFO key=value...

#include <libpq-fe.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/persistent_cache.h>
#include <rocksdb/table.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
using Options = std::map<std::string, std::string>;

constexpr int FIELDS = 10;
constexpr int FIELD_LENGTH = 100;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "ycsb: %s\n", what.c_str());
    std::exit(1);
}

std::string option(const Options& options, const std::string& name, const std::string& otherwise) {
    auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
}

// The original's FNV hash and its absolute value.
uint64_t hash(uint64_t number) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (int octet = 0; octet < 8; octet++) hash = (hash ^ ((number >> (8 * octet)) & 0xff)) * 1099511628211ULL;
    auto value = static_cast<int64_t>(hash);
    return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

std::string key(uint64_t number) { return "user" + std::to_string(hash(number)); }

// The original's ScrambledZipfianGenerator: the hash of a Zipfian number out of ten thousand million.
struct Scrambled {
    static constexpr double THETA = 0.99, ZETA = 26.46902820178302, ITEMS = 1e10;
    uint64_t records;

    uint64_t draw(std::mt19937_64& random) const {
        double unit = std::uniform_real_distribution<double>(0, 1)(random), scaled = unit * ZETA;
        double two = 1 + std::pow(0.5, THETA);
        if (scaled < 1) return hash(0) % records;
        if (scaled < two) return hash(1) % records;
        double eta = (1 - std::pow(2 / ITEMS, 1 - THETA)) / (1 - two / ZETA);
        double number = std::min(ITEMS * std::pow(eta * unit - eta + 1, 1 / (1 - THETA)), ITEMS - 1);
        return hash(static_cast<uint64_t>(number)) % records;
    }
};

std::string filler(std::mt19937_64& random, int length) {
    std::string text(length, ' ');
    for (char& octet : text) octet = static_cast<char>(' ' + random() % 95);
    return text;
}

// What a client does; each client has its own.
struct Session {
    virtual ~Session() = default;
    virtual void load(uint64_t from, uint64_t to, std::mt19937_64& random) = 0;
    virtual void read(const std::string& key) = 0;
    // Durably overwrites one field.
    virtual void update(const std::string& key, int field, const std::string& value) = 0;
};

struct RocksSession : Session {
    rocksdb::DB* db;
    rocksdb::WriteOptions durable;

    explicit RocksSession(rocksdb::DB* db) : db(db) { durable.sync = true; }

    static void check(const rocksdb::Status& status) {
        if (!status.ok()) fail("RocksDB: " + status.ToString());
    }

    void load(uint64_t from, uint64_t to, std::mt19937_64& random) override {
        rocksdb::WriteOptions unlogged;
        unlogged.disableWAL = true;
        for (uint64_t number = from; number < to; number++)
            check(db->Put(unlogged, key(number), filler(random, FIELDS * FIELD_LENGTH)));
    }

    void read(const std::string& key) override {
        std::string value;
        check(db->Get(rocksdb::ReadOptions(), key, &value));
    }

    // Two clients may overwrite each other's field, as in the original's binding, which does not lock either.
    void update(const std::string& key, int field, const std::string& value) override {
        std::string record;
        check(db->Get(rocksdb::ReadOptions(), key, &record));
        record.replace(field * FIELD_LENGTH, FIELD_LENGTH, value);
        check(db->Put(durable, key, record));
    }
};

struct PostgresSession : Session {
    PGconn* connection;

    explicit PostgresSession(const std::string& conninfo) : connection(PQconnectdb(conninfo.c_str())) {
        if (PQstatus(connection) != CONNECTION_OK) fail(std::string("PostgreSQL: ") + PQerrorMessage(connection));
    }
    ~PostgresSession() override { PQfinish(connection); }

    void check(PGresult* result, ExecStatusType wanted) {
        if (PQresultStatus(result) != wanted) fail(std::string("PostgreSQL: ") + PQerrorMessage(connection));
        PQclear(result);
    }

    void command(const std::string& text) { check(PQexec(connection, text.c_str()), PGRES_COMMAND_OK); }

    void prepare() {
        check(PQprepare(connection, "read", "SELECT * FROM usertable WHERE ycsb_key = $1", 1, nullptr), PGRES_COMMAND_OK);
        for (int field = 0; field < FIELDS; field++) {
            std::string name = std::to_string(field), text = "UPDATE usertable SET field" + name + " = $2 WHERE ycsb_key = $1";
            check(PQprepare(connection, ("update" + name).c_str(), text.c_str(), 2, nullptr), PGRES_COMMAND_OK);
        }
    }

    void load(uint64_t from, uint64_t to, std::mt19937_64& random) override {
        check(PQexec(connection, "COPY usertable FROM STDIN WITH (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"), PGRES_COPY_IN);
        for (uint64_t number = from; number < to; number++) {
            std::string row = key(number);
            for (int field = 0; field < FIELDS; field++) row += '\x02' + filler(random, FIELD_LENGTH);
            row += '\n';
            if (PQputCopyData(connection, row.data(), static_cast<int>(row.size())) != 1) fail(PQerrorMessage(connection));
        }
        if (PQputCopyEnd(connection, nullptr) != 1) fail(PQerrorMessage(connection));
        check(PQgetResult(connection), PGRES_COMMAND_OK);
    }

    void execute(const std::string& name, const std::vector<const char*>& values, ExecStatusType wanted) {
        auto count = static_cast<int>(values.size());
        check(PQexecPrepared(connection, name.c_str(), count, values.data(), nullptr, nullptr, 0), wanted);
    }

    void read(const std::string& key) override { execute("read", {key.c_str()}, PGRES_TUPLES_OK); }
    void update(const std::string& key, int field, const std::string& value) override {
        execute("update" + std::to_string(field), {key.c_str(), value.c_str()}, PGRES_COMMAND_OK);
    }
};

struct RocksStore {
    std::shared_ptr<rocksdb::PersistentCache> persistent;
    std::unique_ptr<rocksdb::DB> db;

    RocksStore(const std::string& directory, const Options& options) {
        rocksdb::Options settings;
        settings.create_if_missing = true;
        settings.compression = rocksdb::kNoCompression;
        settings.use_direct_reads = true;
        settings.use_direct_io_for_flush_and_compaction = true;
        settings.max_background_jobs = 2;
        settings.recycle_log_file_num = 4;
        settings.wal_dir = option(options, "wal", "");
        rocksdb::BlockBasedTableOptions table;
        table.block_size = 8192;
        table.block_cache = rocksdb::NewLRUCache(std::stoull(option(options, "memory", "536870912")));
        table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
        table.cache_index_and_filter_blocks = true;
        table.pin_l0_filter_and_index_blocks_in_cache = true;
        std::string cache = option(options, "cache", "");
        if (!cache.empty()) {
            std::shared_ptr<rocksdb::Logger> log;
            uint64_t size = std::stoull(option(options, "cache_size", "3221225472"));
            RocksSession::check(rocksdb::NewPersistentCache(rocksdb::Env::Default(), cache, size, log, true, &persistent));
            table.persistent_cache = persistent;
        }
        settings.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
        rocksdb::DB* opened = nullptr;
        RocksSession::check(rocksdb::DB::Open(settings, directory, &opened));
        db.reset(opened);
    }
};

struct Report {
    std::vector<double> latencies_us;
    uint64_t done = 0;
};

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void client(Session& session, uint64_t seed, const Scrambled& popular, double updates, Clock::time_point start, Clock::time_point end,
            Report& report, std::vector<std::atomic<uint64_t>>& series, Clock::time_point origin) {
    std::mt19937_64 random(seed);
    for (;;) {
        auto began = Clock::now();
        if (began >= end) return;
        std::string wanted = key(popular.draw(random));
        if (std::uniform_real_distribution<double>(0, 1)(random) < updates)
            session.update(wanted, static_cast<int>(random() % FIELDS), filler(random, FIELD_LENGTH));
        else
            session.read(wanted);
        auto ended = Clock::now();
        auto second = static_cast<size_t>(std::chrono::duration<double>(ended - origin).count());
        if (second < series.size()) series[second]++;
        if (began < start || ended > end) continue;
        report.done++;
        report.latencies_us.push_back(std::chrono::duration<double, std::micro>(ended - began).count());
    }
}

void measure(std::vector<std::unique_ptr<Session>>& sessions, const Options& options, uint64_t records) {
    std::string workload = option(options, "workload", "b");
    const std::map<std::string, double> shares = {{"a", 0.5}, {"b", 0.05}, {"c", 0}};
    if (!shares.count(workload)) fail("workload: a, b or c");
    double warm_up = std::stod(option(options, "warm_up", "10")), seconds = std::stod(option(options, "seconds", "30"));
    auto span = [](double seconds) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)); };
    auto origin = Clock::now(), start = origin + span(warm_up), end = start + span(seconds);
    std::vector<std::atomic<uint64_t>> series(static_cast<size_t>(warm_up + seconds) + 1);
    std::vector<Report> reports(sessions.size());
    std::vector<std::thread> threads;
    double cpu = 0;
    uint64_t seed = std::stoull(option(options, "seed", "1"));
    for (size_t at = 0; at < sessions.size(); at++)
        threads.emplace_back([&, at] {
            client(*sessions[at], seed * 1000 + at, Scrambled{records}, shares.at(workload), start, end, reports[at], series, origin);
        });
    std::this_thread::sleep_until(start);
    cpu = cpu_seconds();
    std::this_thread::sleep_until(end);
    cpu = cpu_seconds() - cpu;
    for (auto& thread : threads) thread.join();
    std::vector<double> all;
    uint64_t done = 0;
    for (auto& report : reports) {
        done += report.done;
        all.insert(all.end(), report.latencies_us.begin(), report.latencies_us.end());
    }
    std::sort(all.begin(), all.end());
    auto quantile = [&](double share) { return all.empty() ? 0.0 : all[std::min(all.size() - 1, size_t(share * all.size()))]; };
    std::printf("{\"per_second\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"cpu_us\": %.2f, \"series\": [", done / seconds, quantile(0.5),
                quantile(0.99), done ? cpu * 1e6 / done : 0.0);
    for (size_t at = 0; at < series.size(); at++) std::printf("%s%lu", at ? ", " : "", static_cast<unsigned long>(series[at]));
    std::printf("]}\n");
}

int main(int count, char** arguments) {
    if (count < 4) fail("usage: ycsb rocksdb|postgresql load|run DIR|CONNINFO key=value...");
    std::string engine = arguments[1], what = arguments[2], place = arguments[3];
    Options options;
    for (int at = 4; at < count; at++) {
        std::string text = arguments[at];
        auto split = text.find('=');
        if (split == std::string::npos) fail("not key=value: " + text);
        options[text.substr(0, split)] = text.substr(split + 1);
    }
    uint64_t records = std::stoull(option(options, "records", "100000"));
    size_t clients = what == "load" ? 1 : std::stoul(option(options, "clients", "64"));
    std::unique_ptr<RocksStore> rocks;
    if (engine == "rocksdb") rocks = std::make_unique<RocksStore>(place, options);
    std::vector<std::unique_ptr<Session>> sessions;
    for (size_t at = 0; at < clients; at++) {
        if (rocks) {
            sessions.push_back(std::make_unique<RocksSession>(rocks->db.get()));
            continue;
        }
        auto session = std::make_unique<PostgresSession>(place);
        if (what == "load") {
            std::string fields;
            for (int field = 0; field < FIELDS; field++) fields += ", field" + std::to_string(field) + " text";
            session->command("DROP TABLE IF EXISTS usertable");
            session->command("CREATE TABLE usertable (ycsb_key varchar(255) PRIMARY KEY" + fields + ")");
        } else {
            session->prepare();
        }
        sessions.push_back(std::move(session));
    }
    if (what == "load") {
        std::mt19937_64 random(1);
        sessions[0]->load(0, records, random);
        if (rocks) {
            RocksSession::check(rocks->db->Flush(rocksdb::FlushOptions()));
            RocksSession::check(rocks->db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
        }
        return 0;
    }
    measure(sessions, options, records);
    sessions.clear();
    return 0;
}
