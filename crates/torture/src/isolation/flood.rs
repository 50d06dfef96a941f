//! A client that changes enough records that the engine discards versions which snapshot readers still want.

use super::contention::Flood;
use super::store::stored_key;
use crate::ClientEvent;
use crate::context::{After, RunContext};
use crate::debit_credit::roll_back;
use base::Random;
use base::time::MICROSECOND_NS;
use engine::{Database, Isolation, Result, Transaction};
use std::rc::Rc;

/// The number of changes after which a flood ends.
const CHANGES_MAX: u64 = 6_000;

/// The table of the latest versions is swept when it has more of them.
const SWEPT_MIN: u64 = 4_096;

/// How long a flood rests between two transactions at most, in nanoseconds.
const REST_NS_MAX: u64 = 50 * MICROSECOND_NS;

/// Changes all records of a flood, again and again.
pub async fn flood(context: Rc<RunContext>, database: Database) {
    let Some(flood) = context.configuration.contention.as_ref().and_then(|contention| contention.flood) else { return };
    let random = &mut context.random("flood");
    let mut changed = 0;
    // As long as others work.
    while context.working.get() > 1 && changed < CHANGES_MAX {
        for number in (0..flood.records).step_by(flood.together as usize) {
            if context.over.get() || change(&context, &database, flood, number, random).await == After::Reopen {
                return;
            }
            context.executor.sleep_ns(random.below(REST_NS_MAX)).await;
        }
        changed += flood.records;
        if flood.records > SWEPT_MIN {
            context.event(ClientEvent::VersionsSwept);
        }
    }
}

/// One transaction.
async fn change(context: &RunContext, database: &Database, flood: Flood, first: u64, random: &mut Random) -> After {
    let mut tx = match database.begin_at(Isolation::ReadCommitted).await {
        Ok(tx) => tx,
        Err(error) => return context.judge(&error, "begin"),
    };
    match put(&mut tx, flood, first, random).await {
        Ok(()) => match tx.commit().await {
            Ok(()) => After::Retry,
            Err(error) => context.judge(&error, "commit"),
        },
        Err(error) => match context.judge(&error, "a flood") {
            After::Retry if roll_back(context, tx, random).await => After::Retry,
            _ => After::Reopen,
        },
    }
}

async fn put(tx: &mut Transaction, flood: Flood, first: u64, random: &mut Random) -> Result<()> {
    let partition = tx.partition(Flood::NAME)?;
    for number in first..flood.records.min(first + flood.together) {
        let mut value = vec![0; random.between(8, 40) as usize];
        random.fill(&mut value);
        tx.put(partition, &stored_key(number), &value).await?;
    }
    Ok(())
}
