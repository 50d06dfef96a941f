//! Comparing a database with what is known of it.

use crate::configuration::Rows;
use crate::debit_credit::{Partitions, balance, row_key};
use crate::hurt;
use crate::isolation;
use crate::ledger::{Balances, Found, Transfer};
use crate::life::filler;
use crate::records::{Contents, owner_of};
use crate::stage::Stage;
use base::time::SECOND_NS;
use engine::check::{Finding, Report};
use engine::{Database, Direction, Error, Result, Transaction};
use std::ops::Bound;

/// How long freeing the pages of deleted long values may take, in nanoseconds of the machine's time.
const FREEING_NS_MAX: u64 = 60 * SECOND_NS;

/// Reads everything and compares it with what the clients know; false if the life is over. To be called while nobody works.
pub async fn contents(stage: &Stage, database: &Database) -> bool {
    if stage.configuration.contention.is_some() {
        return isolation::read(stage, database).await;
    }
    let read = async {
        let mut tx = database.begin().await?;
        let found = transfers(stage, database, &mut tx).await?;
        let records = records(stage, database, &mut tx).await?;
        tx.commit().await?;
        Ok((found, records))
    };
    let (found, records) = match read.await {
        Ok(found) => found,
        Err(error @ Error::BufferExhausted { .. }) => {
            stage.wrong(format!("reading alone: {error}"));
            return false;
        }
        Err(error) => {
            stage.judge(&error, "reading everything");
            return false;
        }
    };
    let truth = &mut *stage.truth.borrow_mut();
    if let Err(wrong) = truth.ledger.settle(&found) {
        wrong.into_iter().take(5).for_each(|what| stage.differs(what));
    }
    for (number, (owner, found)) in truth.owners.iter_mut().zip(&records).enumerate() {
        if let Err(what) = owner.settle(found) {
            stage.differs(format!("records of client {number}: {what}"));
        }
    }
    !stage.over.get()
}

async fn transfers(stage: &Stage, database: &Database, tx: &mut Transaction) -> Result<Found> {
    let mut found = Found::default();
    let partitions = Partitions::of(database.catalog())?;
    tx.scan_appended(partitions.history, |_, record| {
        found.history.push(record.to_vec());
        true
    })
    .await?;
    let configuration = &stage.configuration;
    let counts = [configuration.accounts, configuration.tellers, configuration.branches];
    for (kind, count) in counts.into_iter().enumerate() {
        let mut balances = Balances::new();
        for number in 0..count {
            let partition = partitions.rows[kind];
            let row = match configuration.rows {
                Rows::Tree | Rows::Set => tx.get(partition, &row_key(number)).await?,
                Rows::Direct(_) => Some(tx.read_object(partition, number, <[u8]>::to_vec).await?),
            };
            let filler = if configuration.rows.have_keys() { filler(number) } else { 0 };
            match row {
                Some(row) if row.len() == configuration.row_size && row[8..].iter().all(|byte| *byte == filler) => {
                    balances.insert(number, balance(&row));
                }
                _ => stage.differs(format!("row {number} of kind {kind} is not what was loaded: {row:?}")),
            }
        }
        balances.retain(|_, balance| *balance != 0);
        found.balances[kind] = balances;
    }
    if configuration.rows == Rows::Set {
        guests(stage, tx, partitions, &found).await?;
    }
    Ok(found)
}

/// Each guest among the accounts is there if an odd number of committed transfers have let it in or out.
async fn guests(stage: &Stage, tx: &mut Transaction, partitions: Partitions, found: &Found) -> Result<()> {
    let mut is_there = [false; Transfer::GUESTS as usize];
    let transfers = found.history.iter().filter_map(|record| Transfer::decode(record));
    for guest in transfers.filter_map(|(id, _)| Transfer::guest(id)) {
        is_there[guest as usize] ^= true;
    }
    for (guest, expected) in (0..).zip(is_there) {
        let key = row_key(stage.configuration.accounts + guest);
        let record = tx.get(partitions.rows[0], &key).await?;
        let is_sound = record.as_ref().is_none_or(|value| value.iter().all(|byte| *byte == guest as u8));
        if record.is_some() != expected || !is_sound {
            stage.differs(format!("guest {guest} is {record:?} after {} transfers", found.history.len()));
        }
    }
    Ok(())
}

/// Everybody's records, by client.
async fn records(stage: &Stage, database: &Database, tx: &mut Transaction) -> Result<Vec<Contents>> {
    let mut found = vec![Contents::new(); stage.configuration.record_clients];
    let Some(partition) = stage.partition(database, "records") else { return Ok(found) };
    let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = tx.next(&mut cursor).await? {
        match found.get_mut(owner_of(&key)) {
            Some(contents) => {
                contents.insert(key, value.into());
            }
            None => stage.differs(format!("a record with the key {key:?} is nobody's")),
        }
    }
    Ok(found)
}

/// Checks every page and every structure. To be called while nobody works.
pub async fn structure(stage: &Stage, database: &Database) {
    match quiet_report(stage, database).await {
        Err(error) => {
            stage.judge(&error, "checking");
        }
        Ok(report) if !report.is_clean() => {
            let hurts = stage.scene.hurts.borrow();
            // The next opening frees what this life cannot any more: then nothing may be lost.
            let is_crippled = stage.is_crippled(database);
            let is_injected = |found: &Finding| hurt::is_injected(&found.what) || is_crippled && is_unfreed(found);
            let unexplained =
                report.findings.iter().filter(|found| !is_injected(found) && !hurt::explain_finding(&hurts, found));
            unexplained.take(5).for_each(|finding| stage.wrong(format!("check: {finding}")));
            if !report.findings.iter().all(is_injected) {
                stage.detected.set(true);
            }
            stage.over.set(true);
        }
        Ok(_) => {}
    }
    tables(stage, database);
}

/// What a check finds once the pages of deleted long values are free. That goes on beside everything else, and rests for longer
/// each time it fails.
async fn quiet_report(stage: &Stage, database: &Database) -> Result<Report> {
    let (began, jumped_ns) = (stage.executor.now(), stage.scene.jumped_ns.get());
    let until = || began.plus_ns(FREEING_NS_MAX + stage.scene.jumped_ns.get() - jumped_ns);
    loop {
        let report = database.check(|_| ()).await?;
        let is_done = !report.findings.iter().any(is_unfreed) || stage.is_crippled(database);
        if is_done || stage.executor.now() >= until() {
            return Ok(report);
        }
        stage.executor.sleep_ns(SECOND_NS).await;
    }
}

fn is_unfreed(found: &Finding) -> bool {
    found.what.contains("neither in use nor free")
}

/// Checks the engine's tables in memory.
pub fn tables(stage: &Stage, database: &Database) {
    if let Err(what) = database.buffer().pool().borrow().check() {
        stage.wrong(format!("buffer pool: {what}"));
    }
    if let Err(violation) = database.locks().check() {
        stage.wrong(format!("lock table: {violation}"));
    }
}
