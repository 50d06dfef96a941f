//! RocksDB: settings, load and sums that its two contenders share.

mod batches;
mod row_locks;
pub mod transactions;

pub use batches::RocksdbBatches;
pub use transactions::RocksdbTransactions;

use crate::bank::{HISTORY, Scale, Sums, Table, balance, key, row};
use crate::engines::CACHE_BYTES;
use crate::peer::{Durability, PeerResult};
use rocksdb::{
    BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBAccess, DBCompressionType,
    DBIteratorWithThreadMode, DataBlockIndexType, Options, WriteBatchWithTransaction, WriteOptions,
};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Rows of one write batch of the load.
const LOAD_ROWS: u64 = 1_000;
/// A memtable's size, RocksDB's own default.
const MEMTABLE_BYTES: usize = 64 << 20;
/// How long nothing may be running before the load is over, and how often that is looked at.
const QUIET: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(20);
/// Two cores: one thread may flush and one compact.
const BACKGROUND_THREADS: i32 = 2;

/// Options of the database as a whole.
fn database_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.increase_parallelism(BACKGROUND_THREADS);
    options.set_recycle_log_file_num(4);
    options.set_enable_pipelined_write(true);
    options
}

/// The bank's four tables as column families.
fn bank_families() -> Vec<ColumnFamilyDescriptor> {
    column_families(Table::ALL.map(Table::name).into_iter().chain([HISTORY]), CACHE_BYTES)
}

/// Tables of these names as column families.
pub fn column_families<'n>(
    names: impl IntoIterator<Item = &'n str>,
    cache_bytes: usize,
) -> Vec<ColumnFamilyDescriptor> {
    // One cache for all; HyperClockCache is the one that RocksDB recommends.
    let cache = Cache::new_hyper_clock_cache(cache_bytes, 0);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks.set_format_version(6);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(4);
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_memtable_whole_key_filtering(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_optimize_filters_for_hits(true);
    names.into_iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone())).collect()
}

/// Waits until no flush and no compaction is running or due; `property` reads one of RocksDB's numbers.
pub fn wait_for_compactions(property: impl Fn(&str) -> Result<u64, rocksdb::Error>) -> Result<(), rocksdb::Error> {
    let busy = ["compaction-pending", "num-running-compactions", "mem-table-flush-pending", "num-running-flushes"];
    let mut quiet = Duration::ZERO;
    while quiet < QUIET {
        let mut work = 0;
        for name in busy {
            work += property(&format!("rocksdb.{name}"))?;
        }
        thread::sleep(LOOK);
        quiet = if work == 0 { quiet + LOOK } else { Duration::ZERO };
    }
    Ok(())
}

/// How a commit is written.
pub fn write_options(durability: Durability) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(durability == Durability::Sync);
    options
}

pub type Family<'a> = Arc<BoundColumnFamily<'a>>;

/// The open column families.
struct Tables<'a> {
    tables: [Family<'a>; 3],
    history: Family<'a>,
}

impl<'a> Tables<'a> {
    /// Finds them by name with the given look-up.
    fn find(handle: impl Fn(&str) -> Option<Family<'a>>) -> Tables<'a> {
        let found = |name| handle(name).expect("the database was created with all column families");
        Tables { tables: Table::ALL.map(|table| found(table.name())), history: found(HISTORY) }
    }
}

impl<'a> Tables<'a> {
    /// All column families.
    fn all(&self) -> impl Iterator<Item = &Family<'a>> {
        self.tables.iter().chain([&self.history])
    }

    /// Writes all rows in the order of their keys.
    fn load<const TRANSACTION: bool>(
        &self,
        scale: Scale,
        write: impl Fn(WriteBatchWithTransaction<TRANSACTION>) -> Result<(), rocksdb::Error>,
    ) -> Result<(), rocksdb::Error> {
        for table in Table::ALL {
            let rows = scale.rows(table);
            for first in (0..rows).step_by(LOAD_ROWS as usize) {
                let mut batch = WriteBatchWithTransaction::default();
                for id in first..rows.min(first + LOAD_ROWS) {
                    batch.put_cf(&self.tables[table as usize], key(id), row(id));
                }
                write(batch)?;
            }
        }
        Ok(())
    }

    /// Waits until no flush and no compaction is running or due; `property` reads one of RocksDB's numbers.
    fn wait_for_compactions(
        &self,
        property: impl Fn(&Family<'a>, &str) -> Result<Option<u64>, rocksdb::Error>,
    ) -> Result<(), rocksdb::Error> {
        wait_for_compactions(|name| {
            let mut work = 0;
            for family in self.all() {
                work += property(family, name)?.unwrap_or(0);
            }
            Ok(work)
        })
    }

    /// Adds up all rows; `scan` makes an iterator over a column family.
    fn sums<'d, D: DBAccess + 'd>(
        &self,
        scan: impl Fn(&Family<'a>) -> DBIteratorWithThreadMode<'d, D>,
    ) -> PeerResult<Sums> {
        let mut sums = Sums::default();
        for table in Table::ALL {
            for entry in scan(&self.tables[table as usize]) {
                *sums.of_mut(table) += balance(&entry?.1);
            }
        }
        for entry in scan(&self.history) {
            sums.add_history(&entry?.1);
        }
        Ok(sums)
    }
}
