//! The Order-Status transaction (clause 2.6).

use super::Tables;
use super::input::OrderStatus;
use super::keys;
use super::new_order::read;
use super::payment::find_customer;
use super::rows::{customer, order, order_line};
use crate::RecordTransaction;
use engine::{Direction, Result};

/// What the terminal shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub customer: u32,
    pub balance: i64,
    pub order: u32,
    pub carrier: u32,
    /// Item, supplying warehouse, quantity, amount and time of delivery.
    pub lines: Vec<(u32, u32, u32, i64, i64)>,
}

/// Shows a customer's last order.
pub(super) async fn run(tables: &Tables, tx: &mut impl RecordTransaction, input: &OrderStatus) -> Result<Status> {
    let district = input.district;
    let customer = find_customer(tables, tx, district, input.customer).await?;
    let key = district.member(customer);
    let balance = read(tx, (tables.customer, "customer"), &key, |row| customer::BALANCE.get(row)).await?;
    let (lower, upper) = (district.customer_order(customer, 0), district.customer_order(customer, u32::MAX));
    let mut status = Status { customer, balance, order: 0, carrier: 0, lines: Vec::new() };
    let note = |key: &[u8], _: &[u8]| {
        status.order = keys::number(key, 9);
        false
    };
    tx.look_at_range(tables.customer_order, lower..=upper, Direction::Backward, note).await?;
    if status.order == 0 {
        return Ok(status);
    }
    let key = district.member(status.order);
    status.carrier = read(tx, (tables.order, "order"), &key, |row| order::CARRIER.get(row)).await?;
    let (lower, upper) = (district.line(status.order, 0), district.line(status.order, u8::MAX));
    let note = |_: &[u8], row: &[u8]| {
        status.lines.push((
            order_line::ITEM.get(row),
            order_line::SUPPLY_WAREHOUSE.get(row),
            order_line::QUANTITY.get(row),
            order_line::AMOUNT.get(row),
            order_line::DELIVERED.get(row),
        ));
        true
    };
    tx.look_at_range(tables.order_line, lower..=upper, Direction::Forward, note).await?;
    Ok(status)
}
