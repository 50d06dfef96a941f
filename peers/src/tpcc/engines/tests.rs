use super::*;
use crate::peer::{Durability, Requests};
use crate::tpcc::bench::{self, Settings};
use crate::tpcc::conditions;
use crate::tpcc::peer::contents;
use crate::tpcc::requests::{Answer, Request, Terminals};
use crate::tpcc::tables::{Record, Table, Tables, page};
use crate::tpcc::transactions;
use ::entresol::Direction;
use std::collections::BTreeMap;
use std::time::Duration;
use workload::tpcc::rows::{customer, history, order, order_line, place};
use workload::tpcc::{Input, Scale};

const SMALL: Scale = Scale { warehouses: 2, districts: 3, customers: 60, items: 200 };

/// The tables as maps.
struct Model([BTreeMap<Vec<u8>, Vec<u8>>; Table::ALL.len()]);

impl Model {
    fn loaded() -> Model {
        Model(Table::ALL.map(|table| contents(&SMALL, table).collect()))
    }

    fn violations(&mut self) -> Vec<u8> {
        let found = conditions::check(|table, after| page(self, table, after, 7)).unwrap();
        found.into_iter().map(|violation| violation.condition).collect()
    }
}

impl Tables for Model {
    fn read<T>(&mut self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> PeerResult<Option<T>> {
        Ok(self.0[table as usize].get(key).map(|row| look(row)))
    }

    fn insert(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        assert_eq!(self.0[table as usize].insert(key.to_owned(), row.to_owned()), None, "{table:?} {key:?}");
        Ok(())
    }

    fn update(&mut self, table: Table, key: &[u8], row: &[u8]) -> PeerResult<()> {
        let old = self.0[table as usize].insert(key.to_owned(), row.to_owned());
        assert_eq!(old.map(|old| old.len()), Some(row.len()), "{table:?} {key:?}");
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> PeerResult<()> {
        assert!(self.0[table as usize].remove(key).is_some(), "{table:?} {key:?}");
        Ok(())
    }

    fn scan(
        &mut self,
        table: Table,
        (lower, upper): (&[u8], &[u8]),
        direction: Direction,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> PeerResult<()> {
        let mut inside: Vec<_> = self.0[table as usize].range(lower.to_owned()..=upper.to_owned()).collect();
        if direction == Direction::Backward {
            inside.reverse();
        }
        let _ = inside.into_iter().all(|(key, row)| see(key, row));
        Ok(())
    }
}

fn requests(count: u64) -> Vec<Request> {
    let terminals = Terminals::new(SMALL);
    let mut terminal = terminals.terminal(11, 0);
    let first = u64::from(SMALL.warehouses * SMALL.districts * SMALL.customers);
    (0..count).map(|number| terminals.next(&mut terminal, first + number, 1_000 * number)).collect()
}

/// The rows of a table without what depends on clocks.
fn timeless(table: Table, records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mask = |(mut key, mut row): Record| {
        match table {
            Table::Order => order::ENTERED.set(&mut row, 0),
            Table::OrderLine => {
                let is_delivered = order_line::DELIVERED.get(&row) != 0;
                order_line::DELIVERED.set(&mut row, is_delivered.into());
            }
            Table::History => {
                history::DATE.set(&mut row, 0);
                // Where our own engine has appended a row is not how the peers number it.
                key.clear();
            }
            _ => {}
        }
        (key, row)
    };
    records.into_iter().map(mask).collect()
}

#[test]
fn every_engine_answers_and_ends_as_maps_do() {
    let requests = requests(1_500);
    let mut model = Model::loaded();
    let mut expected: Vec<Answer> = Vec::new();
    transactions::run_all(&mut model, &requests, &mut expected).unwrap();
    assert!(model.violations().is_empty());
    assert!(
        requests
            .iter()
            .zip(&expected)
            .any(|(request, answer)| { matches!(request.input, Input::NewOrder(_)) && *answer == 0 })
    );

    for contender in CONTENDERS {
        let directory = tempfile::tempdir().unwrap();
        let opening = Opening { durability: Durability::Off, cache_bytes: 64 << 20 };
        let mut peer = (contender.create)(directory.path(), opening).unwrap();
        peer.load(&SMALL).unwrap();
        assert_eq!(peer.violations().unwrap(), [], "{}", contender.name);
        let mut answers = Vec::new();
        for batch in requests.chunks(100) {
            answers.extend(peer.execute(batch).unwrap());
        }
        if contender.name != OURS {
            assert_eq!(answers, expected, "{}", contender.name);
        }
        for table in Table::ALL {
            let found = timeless(table, peer.page(table, None, usize::MAX).unwrap());
            let expected = timeless(table, model.0[table as usize].clone());
            assert_eq!(found.len(), expected.len(), "{} {table:?}", contender.name);
            let differ = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(differ, None, "{} {table:?}", contender.name);
        }
        assert_eq!(peer.violations().unwrap(), [], "{}", contender.name);
    }
}

#[test]
fn pages_of_every_engine_begin_behind_a_key() {
    for contender in CONTENDERS {
        let directory = tempfile::tempdir().unwrap();
        let opening = Opening { durability: Durability::Off, cache_bytes: 64 << 20 };
        let mut peer = (contender.create)(directory.path(), opening).unwrap();
        peer.load(&SMALL).unwrap();
        for table in [Table::District, Table::CustomerName, Table::History] {
            let all = peer.page(table, None, usize::MAX).unwrap();
            assert_eq!(peer.page(table, Some(&all[2].0), 3).unwrap(), all[3..6], "{} {table:?}", contender.name);
            let (last, _) = all.last().unwrap();
            assert_eq!(peer.page(table, Some(last), 3).unwrap(), [], "{} {table:?}", contender.name);
        }
    }
}

#[test]
fn planted_errors_break_the_conditions() {
    let mut model = Model::loaded();
    let mut answers = Vec::new();
    transactions::run_all(&mut model, &requests(300), &mut answers).unwrap();
    assert!(model.violations().is_empty());
    let mut plant = |table: Table, change: fn(&mut [u8]), undo: fn(&mut [u8])| {
        let key = model.0[table as usize].keys().next().unwrap().clone();
        model.modify(table, &key, change).unwrap();
        let found = model.violations();
        model.modify(table, &key, undo).unwrap();
        found
    };
    let (pay, repay) = (|row: &mut [u8]| place::YTD.add(row, 1), |row: &mut [u8]| place::YTD.add(row, -1));
    assert_eq!(plant(Table::Warehouse, pay, repay), [1, 8]);
    assert_eq!(plant(Table::District, pay, repay), [9, 1]);
    let lend = |row: &mut [u8]| customer::BALANCE.add(row, 1);
    assert_eq!(plant(Table::Customer, lend, |row| customer::BALANCE.add(row, -1)), [10, 12]);
    let longer = |row: &mut [u8]| {
        order::LINES.increment(row);
    };
    assert_eq!(plant(Table::Order, longer, |row| order::LINES.set(row, order::LINES.get(row) - 1)), [6, 4]);
    let key = model.0[Table::NewOrder as usize].keys().nth(1).unwrap().clone();
    model.delete(Table::NewOrder, &key).unwrap();
    assert_eq!(model.violations(), [5, 3]);
}

/// A short benchmark of every engine in every grouping; [`bench::run`] checks the conditions after each run.
fn run_all(durability: Durability) {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        opening: Opening { durability, cache_bytes: 64 << 20 },
        clients: 8,
        scale: Scale::warehouses(1).shrunk(50),
        measured: Duration::from_millis(200),
        warm_up: Duration::from_millis(20),
        runs: 2,
        seed: 7,
        data: directory.path().to_owned(),
        groupings: Vec::new(),
    };
    for contender in CONTENDERS {
        let result = bench::run(contender, &settings, &|_| ()).unwrap();
        assert_eq!(result.groupings.len(), settings.groupings_of(contender).len());
        for grouping in &result.groupings {
            let share = grouping.new_orders_per_min / 60.0 / grouping.median.throughput_per_s;
            assert!((0.2..0.7).contains(&share), "{} {grouping:?}", contender.name);
        }
        assert!(!directory.path().join(contender.name).exists(), "the directory is removed");
    }
}

#[test]
fn conditions_hold_with_durable_commits() {
    run_all(Durability::Sync);
}

#[test]
fn conditions_hold_without_durable_commits() {
    run_all(Durability::Off);
}
