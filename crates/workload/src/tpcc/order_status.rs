//! The Order-Status transaction (clause 2.6).

use super::Tables;
use super::input::OrderStatus;
use super::keys;
use super::new_order::read;
use super::payment::find_customer;
use super::rows::{customer, order, order_line};
use engine::{Direction, Result, Transaction};
use std::ops::Bound;

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
pub(super) async fn run(tables: &Tables, tx: &mut Transaction, input: &OrderStatus) -> Result<Status> {
    let district = input.district;
    let customer = find_customer(tables, tx, district, input.customer).await?;
    let key = district.member(customer);
    let balance = read(tx, (tables.customer, "customer"), &key, |row| customer::BALANCE.get(row)).await?;
    let (lower, upper) = (district.customer_order(customer, 0), district.customer_order(customer, u32::MAX));
    let range = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
    let mut orders = tx.cursor(tables.customer_order, range.0, range.1, Direction::Backward);
    let mut status = Status { customer, balance, order: 0, carrier: 0, lines: Vec::new() };
    let Some((key, _)) = tx.next(&mut orders).await? else { return Ok(status) };
    status.order = keys::number(&key, 9);
    let key = district.member(status.order);
    status.carrier = read(tx, (tables.order, "order"), &key, |row| order::CARRIER.get(row)).await?;
    let (lower, upper) = (district.line(status.order, 0), district.line(status.order, u8::MAX));
    let range = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
    let mut lines = tx.cursor(tables.order_line, range.0, range.1, Direction::Forward);
    while let Some((_, row)) = tx.next(&mut lines).await? {
        status.lines.push((
            order_line::ITEM.get(&row),
            order_line::SUPPLY_WAREHOUSE.get(&row),
            order_line::QUANTITY.get(&row),
            order_line::AMOUNT.get(&row),
            order_line::DELIVERED.get(&row),
        ));
    }
    Ok(status)
}
