//! The credit-card database that benchmarks and experiments run on.

use crate::Failure;
use crate::progress::Progress;
use entresol::configuration::{Organization, Partition};
use entresol::{Database, Store};
use workload::credit_card::{self, Scale, Tables, Totals};

/// Loads the database if it is empty. Without `accounts` an existing one is taken as large as it is.
pub fn prepare(store: &Store, accounts: Option<u64>, progress: &Progress) -> Result<Tables, Failure> {
    let present = credit_card::exists(store.database());
    if !present {
        let scale = accounts.map_or(Scale::system_m(), |accounts| Scale { accounts });
        load(store, scale, progress)?;
    }
    let tables = Tables::of(store.database().catalog(), |set| store.database().set_records(set))?;
    let found = tables.scale().accounts;
    match accounts {
        Some(asked) if asked != found => {
            Err(format!("the database has {found} accounts, not {asked}; correct --scale or name another --data")
                .into())
        }
        _ => Ok(tables),
    }
}

fn load(store: &Store, scale: Scale, progress: &Progress) -> Result<(), Failure> {
    progress.phase("loading", 2 * scale.accounts + scale.hot_cards() + scale.stores());
    let configuration = store.configuration();
    let spec = |name: &str| {
        let base = configuration.partition(name);
        let default = Partition { organization: Organization::Set, record: Some(credit_card::record(name)), ..base };
        configuration.partition_spec(name, &default)
    };
    store
        .run(async |database| credit_card::load(database, scale, spec, |records| progress.advance_to(records)).await)?;
    Ok(())
}

/// Adds everything up, to be judged by [`agreed`].
pub async fn totals(database: &Database, tables: &Tables) -> entresol::Result<Totals> {
    credit_card::totals(database, tables).await
}

/// Checks that money was neither made nor lost.
pub fn agreed(totals: &Totals) -> Result<(), Failure> {
    if totals.agree() {
        return Ok(());
    }
    Err(format!("the accounts disagree with the stores, which is a defect of this program: {totals:?}").into())
}
