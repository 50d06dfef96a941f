//! Running a script.

use super::table::{BYSTANDERS, Kept, Rows, Table};
use crate::ground::machine::run;
use entresol_engine::{Database, Error, Isolation, Result, Settings, Transaction};
use executor::Executor;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use virtual_driver::Media;

/// How long a step may take, in virtual nanoseconds: one that has not ended by then waits for another transaction.
const PATIENCE_NS: u64 = 100_000_000;

/// Runs a script at every level and in every organization, and compares.
pub fn check(script: &str) {
    for kept in Kept::ALL {
        check_kept(kept, script);
    }
}

/// The same for one organization.
pub fn check_kept(kept: Kept, script: &str) {
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for (column, level) in Isolation::ALL.into_iter().enumerate() {
        let parts: Vec<Vec<&str>> = lines.iter().map(|line| line.split('|').map(str::trim).collect()).collect();
        let steps: Vec<&str> = parts.iter().map(|parts| parts[0]).collect();
        let expected: Vec<&str> = parts.iter().map(|parts| *parts.get(column + 1).unwrap_or(&parts[1])).collect();
        let found = play(kept, level, &steps);
        let mut table = String::new();
        for (step, (found, expected)) in steps.iter().zip(found.iter().zip(&expected)) {
            let mark = if found == expected { "  " } else { "> " };
            writeln!(table, "{mark}{step:24} | {found:30} | {expected}").expect("writing to a string");
        }
        assert!(found == expected, "{level:?}, {kept:?}: step | found | expected\n{table}");
    }
}

/// Plays the steps one after the other; returns what each came to.
fn play(kept: Kept, level: Isolation, steps: &[&str]) -> Vec<String> {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        database.create_partition(kept.spec()).await.expect("creates a partition");
        let table = Table::of(&database, kept);
        let load = async |tx: &mut Transaction| {
            for (number, value) in [(1, 10), (2, 20)].into_iter().chain(BYSTANDERS) {
                table.insert(tx, number, value).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(load).await.expect("loads");
        let mut players: Vec<Player> = Vec::new();
        let mut cells = Vec::new();
        for step in steps {
            let (who, step) = step.split_once(' ').expect("a player, and what it does");
            if who == "now" {
                let rows = database.transaction(async |tx| table.all(tx).await).await.expect("reads");
                cells.push(shown(&rows));
                continue;
            }
            let index = match players.iter().position(|player| player.name == who) {
                Some(index) => index,
                None => {
                    players.push(Player::begin(executor, &database, level, who, table));
                    players.len() - 1
                }
            };
            players[index].steps.borrow_mut().push_back(step.to_owned());
            executor.sleep_ns(PATIENCE_NS).await;
            cells.push(cell(&players, index));
        }
        for player in &players {
            assert!(player.steps.borrow().back().is_none(), "{} has not done everything", player.name);
        }
        database.close().await.expect("closes");
        cells
    })
}

/// The result of a step, and the results of the steps that could go on because of it.
fn cell(players: &[Player], index: usize) -> String {
    let mut parts = Vec::new();
    let mut own = players[index].outcomes.take();
    parts.push(own.pop().unwrap_or_else(|| "waits".to_owned()));
    assert!(own.is_empty(), "a step has one outcome");
    for player in players {
        parts.extend(player.outcomes.take().into_iter().map(|outcome| format!("{}: {outcome}", player.name)));
    }
    parts.join(", ")
}

fn shown(rows: &Rows) -> String {
    let rows: Vec<String> = rows.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if rows.is_empty() { "none".to_owned() } else { rows.join(" ") }
}

/// A transaction with a task of its own.
struct Player {
    name: String,
    steps: Rc<RefCell<VecDeque<String>>>,
    outcomes: Rc<RefCell<Vec<String>>>,
}

impl Player {
    fn begin(executor: &Executor, database: &Database, level: Isolation, name: &str, table: Table) -> Player {
        let player = Player { name: name.to_owned(), steps: Rc::default(), outcomes: Rc::default() };
        let (steps, outcomes) = (Rc::clone(&player.steps), Rc::clone(&player.outcomes));
        let (executor, database) = (executor.clone(), database.clone());
        executor.clone().spawn(async move {
            let mut tx = Some(database.begin_at(level).await.expect("begins"));
            loop {
                let step = steps.borrow().front().cloned();
                let Some(step) = step else {
                    executor.sleep_ns(PATIENCE_NS / 100).await;
                    continue;
                };
                let outcome = take(&mut tx, table, &step).await;
                outcomes.borrow_mut().push(outcome);
                steps.borrow_mut().pop_front();
            }
        });
        player
    }
}

/// Takes a step and says what it came to; a transaction that has to give up is rolled back.
async fn take(tx: &mut Option<Transaction>, table: Table, step: &str) -> String {
    let Some(active) = tx else { return "over".to_owned() };
    let taken = match step {
        "commit" => tx.take().expect("it is active").commit().await.map(|()| "ok".to_owned()),
        "abort" => tx.take().expect("it is active").rollback().await.map(|()| "ok".to_owned()),
        step => act(active, table, step).await,
    };
    match taken {
        Ok(outcome) => outcome,
        Err(error) => {
            assert!(error.is_conflict(), "{step}: {error}");
            if let Some(tx) = tx.take() {
                tx.rollback().await.expect("rolls back");
            }
            if error == Error::Deadlock { "deadlock" } else { "conflict" }.to_owned()
        }
    }
}

async fn act(tx: &mut Transaction, table: Table, step: &str) -> Result<String> {
    let words: Vec<&str> = step.split(' ').collect();
    let number = |index: usize| words[index].parse::<i64>().expect("a number");
    let key = |index: usize| number(index).unsigned_abs();
    let done = |()| "ok".to_owned();
    match words[0] {
        "get" => Ok(table.get(tx, key(1)).await?.map_or("none".to_owned(), |value| value.to_string())),
        "set" => table.set(tx, key(1), number(2)).await.map(done),
        "add" => table.add(tx, key(1), number(2)).await.map(done),
        "insert" => table.insert(tx, key(1), number(2)).await.map(done),
        "all" => Ok(shown(&table.all(tx).await?)),
        "where" if words[1] == "=" => Ok(shown(&table.between(tx, number(2), number(2)).await?)),
        "where" => {
            let mut rows = table.all(tx).await?;
            rows.retain(|(_, value)| value % number(2) == 0);
            Ok(shown(&rows))
        }
        "add-to-all" => table.add_to_all(tx, number(1)).await.map(done),
        "delete-where" => table.delete_where(tx, number(1)).await.map(done),
        other => panic!("no such step: {other}"),
    }
}
