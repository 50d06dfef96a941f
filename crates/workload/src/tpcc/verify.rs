//! The consistency conditions of clause 3.3.2: all twelve but the eleventh, which speaks of a new database only.

use super::Tables;
use super::keys::{self, District};
use super::rows::{customer, history, order, order_line, place};
use base::PartitionId;
use engine::{Cursor, Database, Direction, Error, Transaction};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in clause 3.3.2.
    pub condition: u8,
    /// Where, and what was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "consistency condition 3.3.2.{}: {}", self.condition, self.found)
    }
}

/// What the orders of a district add up to.
#[derive(Default)]
struct Orders {
    last: u32,
    lines_expected: u64,
    lines: u64,
    /// The first, the last and the number of those that are not delivered.
    new: Option<(u32, u32, u32)>,
}

/// What is known of a customer.
#[derive(Default)]
struct Account {
    delivered: i64,
    paid: i64,
}

#[derive(Default)]
struct Sums {
    orders: BTreeMap<(u32, u8), Orders>,
    accounts: BTreeMap<(u32, u8, u32), Account>,
    /// Payments to districts.
    taken: BTreeMap<(u32, u8), i64>,
}

/// Where the conditions find the rows, while no transaction runs.
pub trait Rows {
    /// Why a row cannot be read.
    type Error;
    /// A place between the rows of a table.
    type Cursor;

    /// The place before the first row of one of the [`super::TREES`].
    ///
    /// # Errors
    /// The engine's.
    fn first(&mut self, tree: &str) -> Result<Self::Cursor, Self::Error>;

    /// The key and row behind the cursor, which moves over it: in the order of the keys.
    fn next(&mut self, cursor: &mut Self::Cursor) -> impl Future<Output = Result<Option<Record>, Self::Error>>;

    /// Shows each row of the history, in any order.
    fn history(&mut self, see: impl FnMut(&[u8])) -> impl Future<Output = Result<(), Self::Error>>;
}

/// A key and its row.
type Record = (Vec<u8>, Vec<u8>);

/// Reads everything, without locks: while no transaction runs. Returns what is wrong, at most a hundred violations.
///
/// # Errors
/// The engine's.
pub async fn verify(database: &Database, tables: &Tables) -> engine::Result<Vec<Violation>> {
    database.transaction(async |tx| violations(&mut Unlocked { tx, history: tables.history }).await).await
}

/// What is wrong with the rows of any engine, at most a hundred violations. If the rows never make it wait, it is ready at once.
///
/// # Errors
/// Those of the rows.
pub async fn violations<R: Rows>(rows: &mut R) -> Result<Vec<Violation>, R::Error> {
    let mut sums = Sums::default();
    let mut wrong = Violations(Vec::new());
    add_history(rows, &mut sums).await?;
    add_orders(rows, &mut sums, &mut wrong).await?;
    check_places(rows, &sums, &mut wrong).await?;
    check_customers(rows, &sums, &mut wrong).await?;
    Ok(wrong.0)
}

/// The rows of our own engine, read without locks.
struct Unlocked<'a> {
    tx: &'a mut Transaction,
    history: PartitionId,
}

impl Rows for Unlocked<'_> {
    type Error = Error;
    type Cursor = Cursor;

    fn first(&mut self, tree: &str) -> Result<Cursor, Error> {
        let partition = self.tx.catalog().partition(tree)?;
        let all = self.tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        Ok(all.without_locks())
    }

    async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<Record>, Error> {
        self.tx.next(cursor).await
    }

    async fn history(&mut self, mut see: impl FnMut(&[u8])) -> Result<(), Error> {
        let all = |_, row: &[u8]| {
            see(row);
            true
        };
        self.tx.scan_appended(self.history, all).await
    }
}

struct Violations(Vec<Violation>);

impl Violations {
    fn unless(&mut self, holds: bool, condition: u8, found: impl FnOnce() -> String) {
        if !holds && self.0.len() < 100 {
            self.0.push(Violation { condition, found: found() });
        }
    }
}

fn place_of(district: District) -> (u32, u8) {
    (district.warehouse, district.number)
}

async fn add_history<R: Rows>(rows: &mut R, sums: &mut Sums) -> Result<(), R::Error> {
    let see = |row: &[u8]| {
        let amount = history::AMOUNT.get(row);
        let district = (history::WAREHOUSE.get(row), history::DISTRICT.get(row) as u8);
        *sums.taken.entry(district).or_default() += amount;
        let customer = (
            history::CUSTOMER_WAREHOUSE.get(row),
            history::CUSTOMER_DISTRICT.get(row) as u8,
            history::CUSTOMER.get(row),
        );
        sums.accounts.entry(customer).or_default().paid += amount;
    };
    rows.history(see).await
}

/// Walks orders, their lines and the new orders side by side: conditions 5, 6, 7, and what 2, 3, 4, 10 and 12 need.
async fn add_orders<R: Rows>(rows: &mut R, sums: &mut Sums, wrong: &mut Violations) -> Result<(), R::Error> {
    let (mut orders, mut lines) = (rows.first("order")?, rows.first("order-line")?);
    let mut new_orders = rows.first("new-order")?;
    let mut line = rows.next(&mut lines).await?;
    let mut new_order = rows.next(&mut new_orders).await?;
    while let Some((key, row)) = rows.next(&mut orders).await? {
        let (district, number) = (District::of(&key), keys::number(&key, 5));
        let name = || format!("order {number} of district {} in warehouse {}", district.number, district.warehouse);
        let (carrier, expected) = (order::CARRIER.get(&row), order::LINES.get(&row));
        let (mut found, mut delivered) = (0, 0);
        while let Some((_, row)) = line.as_ref().filter(|(line, _)| line.starts_with(&key)) {
            found += 1;
            let is_delivered = order_line::DELIVERED.get(row) != 0;
            wrong.unless(is_delivered == (carrier != 0), 7, || format!("{}: line {found}, carrier {carrier}", name()));
            delivered += if is_delivered { order_line::AMOUNT.get(row) } else { 0 };
            line = rows.next(&mut lines).await?;
        }
        wrong.unless(found == expected, 6, || format!("{} has {found} lines in place of {expected}", name()));
        let is_new = new_order.as_ref().is_some_and(|(new, _)| *new == key);
        wrong.unless(is_new == (carrier == 0), 5, || format!("{}: carrier {carrier}, new: {is_new}", name()));
        if is_new {
            new_order = rows.next(&mut new_orders).await?;
        }
        let sum = sums.orders.entry(place_of(district)).or_default();
        sum.last = number;
        sum.lines += u64::from(found);
        sum.lines_expected += u64::from(expected);
        if is_new {
            let (first, _, count) = sum.new.unwrap_or((number, number, 0));
            sum.new = Some((first, number, count + 1));
        }
        let customer = (district.warehouse, district.number, order::CUSTOMER.get(&row));
        sums.accounts.entry(customer).or_default().delivered += delivered;
    }
    wrong.unless(line.is_none(), 4, || "there are lines of orders that do not exist".to_owned());
    wrong.unless(new_order.is_none(), 5, || "there are new orders that do not exist".to_owned());
    Ok(())
}

/// Conditions 1, 2, 3, 4, 8 and 9.
async fn check_places<R: Rows>(rows: &mut R, sums: &Sums, wrong: &mut Violations) -> Result<(), R::Error> {
    let mut of_districts: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let mut districts = rows.first("district")?;
    while let Some((key, row)) = rows.next(&mut districts).await? {
        let district = District::of(&key);
        let name = || format!("district {} of warehouse {}", district.number, district.warehouse);
        let (year, next) = (place::YTD.get(&row), place::NEXT_ORDER.get(&row));
        let taken = sums.taken.get(&place_of(district)).copied().unwrap_or(0);
        wrong.unless(year == taken, 9, || format!("{}: {year}, and {taken} in the history", name()));
        let warehouse = of_districts.entry(district.warehouse).or_default();
        *warehouse = (warehouse.0 + year, warehouse.1 + taken);
        let Some(orders) = sums.orders.get(&place_of(district)) else { continue };
        wrong.unless(orders.last + 1 == next, 2, || format!("{}: next {next}, last {}", name(), orders.last));
        let (lines, expected) = (orders.lines, orders.lines_expected);
        wrong.unless(lines == expected, 4, || format!("{}: {lines} lines in place of {expected}", name()));
        if let Some((first, last, count)) = orders.new {
            wrong.unless(last == orders.last, 2, || format!("{}: last {}, last new {last}", name(), orders.last));
            wrong.unless(last - first + 1 == count, 3, || format!("{}: {count} from {first} to {last}", name()));
        }
    }
    let mut warehouses = rows.first("warehouse")?;
    while let Some((key, row)) = rows.next(&mut warehouses).await? {
        let (number, year) = (keys::number(&key, 0), place::YTD.get(&row));
        let (districts, taken) = of_districts.get(&number).copied().unwrap_or_default();
        wrong.unless(year == districts, 1, || format!("warehouse {number}: {year}, its districts {districts}"));
        wrong.unless(year == taken, 8, || format!("warehouse {number}: {year}, and {taken} in the history"));
    }
    Ok(())
}

/// Conditions 10 and 12.
async fn check_customers<R: Rows>(rows: &mut R, sums: &Sums, wrong: &mut Violations) -> Result<(), R::Error> {
    let mut customers = rows.first("customer")?;
    while let Some((key, row)) = rows.next(&mut customers).await? {
        let (district, number) = (District::of(&key), keys::number(&key, 5));
        let name = || format!("customer {number} of district {} in {}", district.number, district.warehouse);
        let none = Account::default();
        let account = sums.accounts.get(&(district.warehouse, district.number, number)).unwrap_or(&none);
        let (balance, paid) = (customer::BALANCE.get(&row), customer::YTD_PAYMENT.get(&row));
        let expected = account.delivered - account.paid;
        wrong.unless(balance == expected, 10, || format!("{}: {balance} in place of {expected}", name()));
        let delivered = account.delivered;
        wrong.unless(balance + paid == delivered, 12, || {
            format!("{}: {balance} and {paid} paid, {delivered} delivered", name())
        });
    }
    Ok(())
}
