//! The Debit-Credit database that every benchmark runs on: loading it, and bringing it into memory.

use crate::Failure;
use crate::progress::Progress;
use devices::Discipline;
use engine::Internals;
use entresol::configuration::{Configuration, LockGranule, Organization, Partition};
use entresol::{Database, PartitionSpec, Procedures, Store};
use workload::debit_credit::{self, ACCOUNT, BRANCH, HISTORY, Scale, TELLER, Tables, Totals};

/// Makes the partitions memory-resident sets.
pub fn in_memory(configuration: &mut Configuration) {
    for name in [ACCOUNT, TELLER, BRANCH, HISTORY] {
        let base = configuration.partition(name);
        let partition = match name {
            HISTORY => Partition { organization: Organization::Arrivals, locks: LockGranule::None, ..base },
            _ => Partition { organization: Organization::Set, ..base },
        };
        configuration.partitions.insert(name.to_owned(), partition);
    }
}

/// The scale that is loaded where none is asked for.
const SCALE: u32 = 10;

/// How large the database will be if it is loaded now.
pub fn scale(configuration: &Configuration, branches: Option<u32>) -> Scale {
    if configuration.partition(BRANCH).organization == Organization::Direct {
        return Scale::rahm_1991(branches.unwrap_or(500).into());
    }
    Scale::tpc_b(branches.unwrap_or(SCALE).into())
}

/// Debit-Credit as a registered procedure, on a database of this scale or one that differs in its number of branches.
pub fn procedures(scale: &Scale) -> Procedures {
    let mut procedures = Procedures::new();
    register(&mut procedures, scale);
    procedures
}

/// The same, beside others.
pub fn register(procedures: &mut Procedures, scale: &Scale) {
    debit_credit::register(procedures, scale);
}

/// Loads the database if it is empty. Without `branches` an existing one is taken as large as it is.
pub fn prepare(store: &Store, branches: Option<u32>, progress: &Progress) -> Result<Scale, Failure> {
    let scale = scale(store.configuration(), branches);
    if scale.clustered && store.configuration().partition(ACCOUNT).organization != Organization::Direct {
        return Err(
            "branches are organized as \"direct\", with nothing but balances, and accounts have to be, too: set \
                    organization = \"direct\" in [partition.account]"
                .into(),
        );
    }
    if !debit_credit::exists(store.database()) {
        load(store, &scale, progress)?;
        return Ok(scale);
    }
    let present = store.run(async |database| debit_credit::branches(database, scale.clustered).await)?;
    match branches {
        Some(asked) if u64::from(asked) != present => {
            Err(format!("the database has {present} branches, not {asked}; correct --scale or name another --data")
                .into())
        }
        _ => Ok(Scale { branches: present, ..scale }),
    }
}

fn load(store: &Store, scale: &Scale, progress: &Progress) -> Result<(), Failure> {
    let total = scale.accounts() + scale.tellers() + scale.branches;
    progress.phase("loading", total);
    let configuration = store.configuration();
    let spec = |name: &str| -> entresol::Result<PartitionSpec> {
        let mut spec = configuration.partition_spec(name, &layout(name, scale, configuration))?;
        spec.assumed = store.is_virtual() && !(name == HISTORY && formats_new_pages(configuration));
        Ok(spec)
    };
    store.run(async |database| {
        debit_credit::load(database, scale, spec, |records| progress.advance_to(records)).await
    })?;
    Ok(())
}

/// Whether new pages of the history are formatted in memory, as on the machine that is described. On those of the papers they are read, like
/// all others that are missed: that is what their figures count.
fn formats_new_pages(configuration: &Configuration) -> bool {
    let cpu = configuration.hardware.as_ref().and_then(|hardware| hardware.cpu.as_ref());
    cpu.is_some_and(|cpu| cpu.discipline == Discipline::RunUntilWait)
}

/// What a partition is where the configuration leaves it open.
fn layout(name: &str, scale: &Scale, configuration: &Configuration) -> Partition {
    let base = configuration.partition(name);
    let (objects, record_size) = match name {
        ACCOUNT => (scale.accounts(), scale.record_size),
        TELLER => (scale.tellers(), scale.record_size),
        BRANCH if scale.clustered => (scale.branches * (1 + scale.tellers_per_branch), scale.record_size),
        _ => (scale.branches, scale.record_size),
    };
    if name == HISTORY {
        return Partition { organization: Organization::Append, locks: LockGranule::None, ..base };
    }
    Partition { objects: Some(objects), record_size: Some(record_size as u32), ..base }
}

/// The partitions that [`warm`] reads, the most used ones first.
pub const WARMED: [&str; 3] = [BRANCH, TELLER, ACCOUNT];

/// Brings what fits of these partitions into the buffer, so that the measurement does not begin with reads.
pub async fn warm(database: &Database, names: &[&str], progress: impl Fn(u64, u64)) -> entresol::Result<()> {
    warm_but(database, names, progress, |_, _| false).await
}

/// The same, of those partitions only that were loaded or that never leave main memory: an experiment's described machine warms
/// up by running.
pub async fn warm_loaded(database: &Database, names: &[&str]) -> entresol::Result<()> {
    let is_neither = |assumed: bool, resident: bool| assumed && !resident;
    warm_but(database, names, |_, _| {}, is_neither).await
}

async fn warm_but(
    database: &Database,
    names: &[&str],
    progress: impl Fn(u64, u64),
    is_left: impl Fn(bool, bool) -> bool,
) -> entresol::Result<()> {
    for name in names {
        let Ok(partition) = database.partition(name) else { continue };
        let found = database.describe(partition)?;
        if found.set_settings().is_some() {
            continue;
        }
        let file = database.buffer().space(partition);
        if is_left(found.assumed, file.placement().resident) {
            continue;
        }
        let pages = file.written();
        database.warm(partition, |page| progress(page, pages.into())).await?;
    }
    Ok(())
}

/// Adds everything up, to be judged by [`agreed`].
pub async fn totals(database: &Database, scale: &Scale) -> entresol::Result<Totals> {
    debit_credit::totals(database, &Tables::of(database.catalog(), scale)?).await
}

/// Checks that money was neither made nor lost.
pub fn agreed(totals: &Totals) -> Result<(), Failure> {
    if totals.agree() {
        return Ok(());
    }
    Err(format!("the balances disagree, which is a defect of this program: {totals:?}").into())
}
