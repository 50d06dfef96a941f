//! Debit-Credit clients: they meet on shared rows.

use crate::abandon::at_most;
use crate::configuration::{Configuration, Rows};
use crate::context::{After, RunContext};
use crate::ledger::{Transfer, TransferOutcome};
use crate::procedure::TRANSFER;
use base::{PartitionId, Random};
use engine::server::{MessageServer, TransactionServer};
use engine::{Catalog, Database, Error, Internals, Result, Transaction};
use std::rc::Rc;

/// The partitions of Debit-Credit: accounts, tellers, branches; history.
#[derive(Clone, Copy)]
pub struct Partitions {
    /// The rows' partitions.
    pub rows: [PartitionId; 3],
    /// The history's.
    pub history: PartitionId,
}

impl Partitions {
    /// Looks the partitions up.
    pub fn of(catalog: &Catalog) -> Result<Partitions> {
        let find = |name| catalog.partition(name);
        Ok(Partitions { rows: [find("account")?, find("teller")?, find("branch")?], history: find("history")? })
    }
}

/// The key of a row in a b-tree.
pub fn row_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A row's balance.
pub fn balance(row: &[u8]) -> i64 {
    row.first_chunk().map_or(0, |word| i64::from_le_bytes(*word))
}

fn add(row: &mut [u8], delta: i64) {
    let sum = balance(row) + delta;
    row[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Runs one client's transactions.
pub async fn client(context: Rc<RunContext>, database: Database, server: Option<TransactionServer>, client: usize) {
    let mut random = context.random(&format!("debit-credit {client}"));
    let messages = server.as_ref().map(TransactionServer::message_server);
    let partitions = match Partitions::of(database.catalog()) {
        Ok(partitions) => partitions,
        Err(error) => return context.wrong(error.to_string()),
    };
    for _ in 0..context.configuration.transactions {
        context.pause(&mut random).await;
        if context.over.get() {
            return;
        }
        let is_called = context.configuration.rows == Rows::Set && random.chance(0.6);
        let after = match is_called {
            true => call(&context, &database, messages.as_ref(), &mut random).await,
            false => run(&context, &database, partitions, &mut random).await,
        };
        if after == After::Reopen {
            return;
        }
    }
}

fn draw(context: &RunContext, random: &mut Random) -> Transfer {
    let configuration = &context.configuration;
    Transfer {
        account: random.below(configuration.accounts),
        teller: random.below(configuration.tellers),
        branch: random.below(configuration.branches),
        delta: random.between(1, 2_000) as i64 - 1_000,
    }
}

/// One transaction as a procedure, through the transaction server if there is one.
async fn call(
    context: &RunContext,
    database: &Database,
    messages: Option<&MessageServer>,
    random: &mut Random,
) -> After {
    let transfer = draw(context, random);
    let failed = database.log().failure().is_some();
    let abandoned = if random.chance(0.06) { random.between(1, 6) } else { u64::MAX };
    let id = context.oracle.borrow_mut().ledger.begin(transfer);
    context.note_transfer(id, TransferOutcome::InDoubt);
    let parameters = transfer.encode(id, Transfer::LENGTH);
    let answer = async {
        match messages {
            Some(messages) => served(messages, id, parameters).await,
            None => database.call(TRANSFER, &parameters).await,
        }
    };
    match at_most(abandoned, answer).await {
        Some(Ok(_)) => acknowledge(context, id, failed),
        Some(Err(error)) => refused(context, id, &error, "call"),
        None => After::Retry,
    }
}

/// The transaction server's response to a call. Responses to calls that were abandoned are passed over.
async fn served(messages: &MessageServer, id: u64, parameters: Vec<u8>) -> Result<Vec<u8>> {
    messages.submit(messages.procedure(TRANSFER)?, id, parameters).await?;
    let mut batch = Vec::new();
    loop {
        messages.receive(&mut batch).await;
        if let Some(response) = batch.drain(..).find(|response| response.tag == id) {
            return response.answer;
        }
    }
}

/// Notes that a client was told of a transaction's commit; `failed` if the log had failed before.
fn acknowledge(context: &RunContext, id: u64, failed: bool) -> After {
    context.note_transfer(id, TransferOutcome::Acknowledged);
    context.oracle.borrow_mut().acknowledged += 1;
    if failed {
        context.wrong(format!("transfer {id} commits though the log has failed"));
    }
    After::Retry
}

/// Judges what a client was told in place of a commit: after a conflict there is none.
fn refused(context: &RunContext, id: u64, error: &Error, doing: &str) -> After {
    if error.is_conflict() {
        context.note_transfer(id, TransferOutcome::Undone);
    }
    context.judge(error, doing)
}

/// One transaction, with another try after a deadlock.
async fn run(context: &RunContext, database: &Database, partitions: Partitions, random: &mut Random) -> After {
    let transfer = draw(context, random);
    let mut began = None;
    for _ in 0..20 {
        let id = context.oracle.borrow_mut().ledger.begin(transfer);
        let polls = if random.chance(0.03) { random.between(1, 3) } else { u64::MAX };
        let mut tx = match at_most(polls, database.begin_aged(began)).await {
            Some(Ok(tx)) => tx,
            Some(Err(error)) => return context.judge(&error, "begin"),
            None => continue,
        };
        began = Some(tx.began());
        match work(context, &mut tx, partitions, id, transfer, random).await {
            Some(Ok(())) => return end(context, database, tx, id, random).await,
            Some(Err(error)) => {
                if context.judge(&error, "debit-credit") == After::Reopen || !roll_back(context, tx, random).await {
                    return After::Reopen;
                }
            }
            // Abandoned in the middle.
            None => drop(tx),
        }
    }
    After::Retry
}

async fn work(
    context: &RunContext,
    tx: &mut Transaction,
    partitions: Partitions,
    id: u64,
    transfer: Transfer,
    random: &mut Random,
) -> Option<Result<()>> {
    let abandoned = if random.chance(0.04) { random.between(1, 6) } else { u64::MAX };
    at_most(abandoned, changes(&context.configuration, tx, partitions, id, transfer)).await
}

/// What a transfer changes.
pub async fn changes(
    configuration: &Configuration,
    tx: &mut Transaction,
    partitions: Partitions,
    id: u64,
    transfer: Transfer,
) -> Result<()> {
    let numbers = [transfer.account, transfer.teller, transfer.branch];
    for (partition, number) in partitions.rows.into_iter().zip(numbers) {
        match configuration.rows {
            Rows::Set => {
                tx.add(partition, &row_key(number), 0..8, transfer.delta).await?;
            }
            Rows::Tree => tx.modify(partition, &row_key(number), |row| add(row, transfer.delta)).await?,
            Rows::Direct(_) => tx.modify_object(partition, number, |row| add(row, transfer.delta)).await?,
        }
    }
    if let (Rows::Set, Some(guest)) = (configuration.rows, Transfer::guest(id)) {
        let (accounts, key) = (partitions.rows[0], row_key(configuration.accounts + guest));
        if !tx.delete(accounts, &key).await? {
            tx.insert(accounts, &key, &vec![guest as u8; id as usize % 90]).await?;
        }
    }
    let length = Transfer::LENGTH + id as usize % 60;
    tx.append(partitions.history, &transfer.encode(id, length)).await?;
    Ok(())
}

async fn end(context: &RunContext, database: &Database, tx: Transaction, id: u64, random: &mut Random) -> After {
    if random.chance(0.06) {
        return if roll_back(context, tx, random).await { After::Retry } else { After::Reopen };
    }
    let failed = database.log().failure().is_some();
    let abandoned = if random.chance(0.04) { random.between(1, 4) } else { u64::MAX };
    context.note_transfer(id, TransferOutcome::InDoubt);
    match at_most(abandoned, tx.commit()).await {
        Some(Ok(())) => acknowledge(context, id, failed),
        Some(Err(error)) => refused(context, id, &error, "commit"),
        None => After::Retry,
    }
}

/// Rolls back by the call, by dropping, or by a call that is abandoned; false if that failed and locks are stuck.
pub async fn roll_back(context: &RunContext, tx: Transaction, random: &mut Random) -> bool {
    match random.below(4) {
        0 => drop(tx),
        1 => {
            at_most(random.between(1, 4), tx.rollback()).await;
        }
        _ => {
            if let Err(error) = tx.rollback().await {
                context.judge(&error, "rollback");
                context.over.set(true);
            }
        }
    }
    !context.over.get()
}
