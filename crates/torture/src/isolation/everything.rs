//! Transactions that are alone: of the load, and of a restart, which read everything.

use super::Contention;
use super::actor::{Actor, Look, New};
use super::reader::SnapshotReader;
use super::store::Store;
use crate::context::RunContext;
use crate::event::ClientEvent;
use crate::history::{Level, Span};
use base::Lsn;
use engine::{Database, Direction, Error, Result};
use std::rc::Rc;

/// About how many moments are read after a restart.
const MOMENTS_MAX: usize = 8;

async fn alone(
    context: &RunContext,
    database: &Database,
    work: impl AsyncFnOnce(&mut Actor<'_>, &Contention) -> Result<()>,
) -> Result<()> {
    let Some(contention) = &context.configuration.contention else { return Ok(()) };
    let number = context.oracle.borrow_mut().history.begin(Level::Serializable);
    let tx = database.begin().await?;
    context.oracle.borrow_mut().history.started(number);
    let mut actor = Actor::new(tx, number, context);
    work(&mut actor, contention).await?;
    context.oracle.borrow_mut().history.asks(number);
    actor.tx.commit().await?;
    context.oracle.borrow_mut().history.committed(number);
    Ok(())
}

/// Writes every second record of each store.
pub async fn load(context: &RunContext, database: &Database) -> Result<()> {
    let write = async |actor: &mut Actor<'_>, contention: &Contention| {
        for store in &contention.stores {
            for number in (0..contention.keys).step_by(2) {
                let place = if *store == Store::Index { number % contention.groups } else { number };
                let new = New { place, length: 10 };
                match store {
                    Store::Appended => actor.append(*store, new).await?,
                    _ => actor.put(*store, number, new).await?,
                }
            }
        }
        Ok(())
    };
    alone(context, database, write).await
}

/// Reads every record by its key and all of them in their order; false if the run is over. Must be called while no client
/// works.
pub async fn read(context: &RunContext, database: &Database) -> bool {
    let read = async |actor: &mut Actor<'_>, contention: &Contention| {
        for store in &contention.stores {
            for number in (0..contention.keys).filter(|_| *store != Store::Appended) {
                actor.read(*store, number, Look::Copy).await?;
            }
            if store.is_ordered() || *store == Store::Appended {
                actor.scan(*store, Span::ALL, Direction::Forward).await?;
            }
        }
        Ok(())
    };
    match alone(context, database, read).await {
        Ok(()) => {}
        Err(error @ Error::BufferExhausted { .. }) => context.wrong(format!("reading alone: {error}")),
        Err(error) => {
            context.judge(&error, "reading everything");
            return false;
        }
    }
    if let Err(error) = read_moments(context, database).await {
        context.judge(&error, "reading moments before the restart");
        return false;
    }
    !context.over.get()
}

/// Reads everything as a snapshot shows it, and returns its moment.
async fn read_present(context: &RunContext, database: &Database, contention: &Contention) -> Result<Lsn> {
    let number = context.oracle.borrow_mut().history.begin(Level::Snapshot);
    let snapshot = database.snapshot().await?;
    context.oracle.borrow_mut().history.started(number);
    let (database, oracle) = (database.clone(), Rc::clone(&context.oracle));
    let mut reader = SnapshotReader { database, snapshot, number, oracle };
    for store in &contention.stores {
        match reader.read_all(*store, contention.keys).await {
            Err(error @ Error::SnapshotTooOld { .. }) => context.wrong(format!("{store:?} as it is: {error}")),
            done => done?,
        }
    }
    context.oracle.borrow_mut().history.asks(number);
    context.oracle.borrow_mut().history.committed(number);
    Ok(reader.snapshot.moment())
}

/// Whether there was no room for all versions.
fn has_given_up(database: &Database) -> bool {
    let versions = database.versions();
    versions.given_up > 0 || versions.failure.is_some()
}

/// Reads some moments before the restart, as far as they are kept.
async fn read_moments(context: &RunContext, database: &Database) -> Result<()> {
    let Some(contention) = context.configuration.contention.as_ref().filter(|drawn| drawn.keeps_moments()) else {
        return Ok(());
    };
    let present = read_present(context, database, contention).await?;
    let moments = context.oracle.borrow().moments.clone();
    for (moment, other) in moments.iter().rev().step_by(moments.len() / MOMENTS_MAX + 1).copied() {
        let snapshot = match database.as_of(moment).await {
            Err(Error::SnapshotTooOld { oldest, .. }) => {
                let first = database.recovery().oldest_moment;
                let is_possible = oldest > moment && oldest <= present;
                if !is_possible || first.is_some_and(|first| first <= moment) && !has_given_up(database) {
                    context.wrong(format!("moment {moment} is too old; the oldest is {oldest}, and was {first:?}"));
                }
                continue;
            }
            snapshot => snapshot?,
        };
        let number = context.oracle.borrow_mut().history.begin_as_of(other);
        let (database, oracle) = (database.clone(), Rc::clone(&context.oracle));
        let mut reader = SnapshotReader { database, snapshot, number, oracle };
        for store in &contention.stores {
            match reader.read_all(*store, contention.keys).await {
                Err(Error::SnapshotTooOld { oldest, .. }) => {
                    let is_possible = oldest > moment && oldest <= present;
                    if !is_possible || !has_given_up(&reader.database) {
                        context.wrong(format!("{store:?} as of {moment} is too old; the oldest is {oldest}"));
                    }
                }
                done => {
                    done?;
                    context.event(ClientEvent::MomentRead);
                }
            }
        }
        context.oracle.borrow_mut().history.asks(number);
        context.oracle.borrow_mut().history.committed(number);
    }
    Ok(())
}
