//! A small bank, and what is in it when nodes have left it.

use crate::command::printed;
use engine::Database;
use entresol::Opening;
use std::path::Path;
use tempfile::TempDir;
use workload::debit_credit::{self, Scale, Tables, Totals};

pub const CONFIGURATION: &str =
    "[log]\nsize = \"16 MiB\"\n[buffer]\nsize = \"64 MiB\"\n[driver]\nbackend = \"thread-pool\"\n";

/// A directory with this configuration of a database to come in `bank`.
pub fn directory(configuration: &str) -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::create_dir(directory.path().join("bank")).expect("a directory");
    std::fs::write(directory.path().join("bank/entresol.toml"), configuration).expect("a file");
    directory
}

/// A directory with a bank of one branch in `bank`, in which one transaction was run.
pub fn bank(configuration: &str) -> TempDir {
    let directory = directory(configuration);
    printed(directory.path(), "bench debit-credit --data bank --scale 1 --transactions 1 --clients 1 --json");
    directory
}

/// The balances of a bank that no one has open. They agree.
#[allow(dead_code, reason = "not every test counts")]
pub fn totals(directory: &Path) -> Totals {
    let store = Opening::in_directory(directory.join("bank")).expect("it is configured").nodes(1).open_existing();
    let store = store.expect("it is there");
    let all = async |database: &Database| {
        let tables = Tables::of(database.catalog(), &Scale::tpc_b(1))?;
        debit_credit::totals(database, &tables).await
    };
    let totals = store.run(all).expect("it can be read");
    store.close().expect("it can be closed");
    assert!(totals.agree(), "{totals:?}");
    totals
}
