//! Comparing a database with what is known of it.

use crate::configuration::Rows;
use crate::context::RunContext;
use crate::damage::{self, Damage};
use crate::debit_credit::{Partitions, balance, row_key};
use crate::isolation;
use crate::ledger::{Balances, FoundTransfers, KINDS, Transfer};
use crate::records::{RecordsByKey, owner_of};
use crate::run::filler;
use base::PartitionId;
use base::time::SECOND_NS;
use engine::check::{CheckReport, Finding};
use engine::{Database, Direction, Error, Internals, Result, Transaction};
use std::ops::Bound;

/// How long freeing the pages of deleted long values may take, in nanoseconds of the machine's time.
const FREEING_NS_MAX: u64 = 60 * SECOND_NS;

/// How long a check may take, with what it waits for, in nanoseconds of the machine's time.
const CHECK_NS_MAX: u64 = 2 * FREEING_NS_MAX;

/// Reads everything and compares it with what the clients know; false if the run is over. Must be called while no client works.
pub async fn contents(context: &RunContext, database: &Database) -> bool {
    if context.configuration.contention.is_some() {
        return isolation::read(context, database).await;
    }
    let read = async {
        let mut tx = database.begin().await?;
        let found = transfers(context, database, &mut tx).await?;
        let records = records(context, database, &mut tx).await?;
        tx.commit().await?;
        Ok((found, records))
    };
    let (found, records) = match read.await {
        Ok(found) => found,
        Err(error @ Error::BufferExhausted { .. }) => {
            context.wrong(format!("reading alone: {error}"));
            return false;
        }
        Err(error) => {
            context.judge(&error, "reading everything");
            return false;
        }
    };
    let oracle = &mut *context.oracle.borrow_mut();
    if let Err(wrong) = oracle.ledger.reconcile(&found) {
        let (excused, wrong): (Vec<_>, Vec<_>) =
            wrong.into_iter().partition(|wrong| context.is_excused(&wrong.partitions));
        let told = excused.into_iter().take(1).chain(wrong.into_iter().take(5));
        told.for_each(|wrong| context.differs(&wrong.partitions, wrong.what));
    }
    for (number, (owner, found)) in oracle.owners.iter_mut().zip(&records).enumerate() {
        if let Err(what) = owner.reconcile(found) {
            context.differs(&["records"], format!("records of client {number}: {what}"));
        }
    }
    context.note_all(oracle);
    !context.over.get()
}

async fn transfers(context: &RunContext, database: &Database, tx: &mut Transaction) -> Result<FoundTransfers> {
    let mut found = FoundTransfers::default();
    let partitions = Partitions::of(database.catalog())?;
    tx.scan_appended(partitions.history, |_, record| {
        found.history.push(record.to_vec());
        true
    })
    .await?;
    let configuration = &context.configuration;
    let counts = [configuration.accounts, configuration.tellers, configuration.branches];
    for (kind, count) in counts.into_iter().enumerate() {
        let mut balances = Balances::new();
        let partition = partitions.rows[kind];
        let scanned = scanned(context, tx, (partition, count)).await?;
        for number in 0..count {
            let row = match configuration.rows {
                Rows::Tree | Rows::Set => tx.get(partition, &row_key(number)).await?,
                Rows::Direct(_) => Some(tx.read_object(partition, number, <[u8]>::to_vec).await?),
            };
            if let (Some(scanned), Some(row)) = (&scanned, &row)
                && scanned[number as usize] != *row
            {
                let found = &scanned[number as usize];
                context.differs(
                    &[KINDS[kind]],
                    format!("row {number} of kind {kind} is {found:?} to a scan, then {row:?}"),
                );
            }
            let filler = if configuration.rows.have_keys() { filler(number) } else { 0 };
            match row {
                Some(row) if row.len() == configuration.row_size && row[8..].iter().all(|byte| *byte == filler) => {
                    balances.insert(number, balance(&row));
                }
                _ => context
                    .differs(&[KINDS[kind]], format!("row {number} of kind {kind} is not what was loaded: {row:?}")),
            }
        }
        balances.retain(|_, balance| *balance != 0);
        found.balances[kind] = balances;
    }
    if configuration.rows == Rows::Set {
        guests(context, tx, partitions, &found).await?;
    }
    Ok(found)
}

/// What a scan, which may read past caches, finds of rows without keys; none in half of the lives.
async fn scanned(
    context: &RunContext,
    tx: &mut Transaction,
    (partition, count): (PartitionId, u64),
) -> Result<Option<Vec<Vec<u8>>>> {
    if context.configuration.rows.have_keys() || context.random("scans").chance(0.5) {
        return Ok(None);
    }
    let mut found = Vec::new();
    tx.scan_objects(partition, 0..count, |_, bytes| found.push(bytes.to_vec())).await?;
    Ok(Some(found))
}

/// Each guest among the accounts is there if an odd number of committed transfers have let it in or out.
async fn guests(
    context: &RunContext,
    tx: &mut Transaction,
    partitions: Partitions,
    found: &FoundTransfers,
) -> Result<()> {
    let mut is_there = [false; Transfer::GUESTS as usize];
    let transfers = found.history.iter().filter_map(|record| Transfer::decode(record));
    for guest in transfers.filter_map(|(id, _)| Transfer::guest(id)) {
        is_there[guest as usize] ^= true;
    }
    for (guest, expected) in (0..).zip(is_there) {
        let key = row_key(context.configuration.accounts + guest);
        let record = tx.get(partitions.rows[0], &key).await?;
        let is_sound = record.as_ref().is_none_or(|value| value.iter().all(|byte| *byte == guest as u8));
        if record.is_some() != expected || !is_sound {
            context.differs(
                &["account", "history"],
                format!("guest {guest} is {record:?} after {} transfers", found.history.len()),
            );
        }
    }
    Ok(())
}

/// The records of all clients, by client.
async fn records(context: &RunContext, database: &Database, tx: &mut Transaction) -> Result<Vec<RecordsByKey>> {
    let mut found = vec![RecordsByKey::new(); context.configuration.record_clients];
    let Some(partition) = context.partition(database, "records") else { return Ok(found) };
    let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = tx.next(&mut cursor).await? {
        match found.get_mut(owner_of(&key)) {
            Some(contents) => {
                contents.insert(key, value.into());
            }
            None => context.differs(&["records"], format!("a record with the key {key:?} has no owner")),
        }
    }
    Ok(found)
}

/// Checks every page and every structure. Must be called while no client works.
pub async fn structure(context: &RunContext, database: &Database) {
    let report = context.in_time(CHECK_NS_MAX, "checking", quiet_report(context, database)).await;
    let Some(report) = report else { return };
    match report {
        Err(error) => {
            context.judge(&error, "checking");
        }
        Ok(report) if !report.findings.is_empty() => {
            context.look_at_damages();
            let damages = context.observed.damages.borrow();
            // The next opening frees what this run cannot free any more: then nothing may be lost.
            let is_crippled = context.is_crippled(database);
            let is_injected = |found: &Finding| damage::is_injected(&found.what) || is_crippled && is_unfreed(found);
            let unexplained =
                report.findings.iter().filter(|found| !is_injected(found) && !damage::explain_finding(&damages, found));
            unexplained.take(5).for_each(|finding| context.wrong(format!("check: {finding}")));
            if !report.findings.iter().all(is_injected) {
                context.detected.set(true);
            }
            context.over.set(true);
        }
        Ok(_) => {}
    }
    tables(context, database);
}

/// The report of a check once the pages of deleted long values are free, and what was to be rolled back is. Both go on in the background,
/// and pause for longer each time they fail.
async fn quiet_report(context: &RunContext, database: &Database) -> Result<CheckReport> {
    let (began, jumped_ns) = (context.executor.now(), context.observed.jumped_ns.get());
    let until = || began.plus_ns(FREEING_NS_MAX + context.observed.jumped_ns.get() - jumped_ns);
    loop {
        let report = match database.check(|_| ()).await {
            // What the opening has left is tried again until it is undone.
            Err(Error::RollbackStalled { .. } | Error::StillUndoing) if context.executor.now() < until() => {
                context.executor.sleep_ns(SECOND_NS).await;
                continue;
            }
            checked => checked?,
        };
        let is_searched = report.unsearched.is_empty() && database.check_ended().is_ok();
        let is_done = is_searched && !report.findings.iter().any(is_unfreed);
        let observed = &context.observed;
        context.look_at_damages();
        let may_fail = observed.is_log_full.get() || observed.damages.borrow().iter().any(Damage::is_met);
        if is_done || may_fail || context.is_crippled(database) {
            return Ok(report);
        }
        if context.executor.now() >= until() {
            context.wrong("pages of deleted long values are never freed");
            return Ok(report);
        }
        context.executor.sleep_ns(SECOND_NS).await;
    }
}

fn is_unfreed(found: &Finding) -> bool {
    found.what.contains("neither in use nor free")
}

/// Checks the engine's tables in memory.
pub fn tables(context: &RunContext, database: &Database) {
    if let Err(what) = database.buffer().pool().borrow().check() {
        context.wrong(format!("buffer pool: {what}"));
    }
    if let Err(what) = database.buffer().levels().check() {
        context.wrong(format!("second level: {what}"));
    }
    if let Err(violation) = database.locks().check() {
        context.wrong(format!("lock table: {violation}"));
    }
}
