//! The Delivery transaction (clause 2.7): the oldest order of each district, all in one transaction.

use super::Tables;
use super::input::Delivery;
use super::keys::{self, District};
use super::new_order::now;
use super::rows::{customer, order, order_line};
use crate::RecordTransaction;
use engine::{Direction, Result};

/// Delivers; returns how many districts had an order to deliver. Each step is made for all districts before the next one, so
/// that what they need of it can be asked for at once.
pub(super) async fn run(tables: &Tables, tx: &mut impl RecordTransaction, input: &Delivery) -> Result<u32> {
    let mut delivered = Vec::new();
    for number in 1..=input.districts {
        let district = District { warehouse: input.warehouse, number };
        delivered.extend(take_oldest(tables, tx, district).await?.map(|number| (district, number)));
    }
    let orders: Vec<_> = delivered.iter().map(|(district, number)| district.member(*number)).collect();
    let (mut buyers, mut lines) = (Vec::with_capacity(orders.len()), Vec::new());
    let carry = |position: usize, row: &mut [u8]| {
        let (district, number) = delivered[position];
        order::CARRIER.set(row, input.carrier);
        buyers.push(district.member(order::CUSTOMER.get(row)));
        lines.extend((1..=order::LINES.get(row) as u8).map(|line| (position, district.line(number, line))));
    };
    tx.modify_each(tables.order, &orders, carry).await?;
    let sums = deliver_lines(tables, tx, delivered.len(), &lines).await?;
    let credit = |position: usize, row: &mut [u8]| {
        customer::BALANCE.add(row, sums[position]);
        customer::DELIVERIES.increment(row);
    };
    tx.modify_each(tables.customer, &buyers, credit).await?;
    Ok(delivered.len() as u32)
}

/// Takes the oldest order of a district from those that are not delivered, if there is one. Returns its number.
async fn take_oldest(tables: &Tables, tx: &mut impl RecordTransaction, district: District) -> Result<Option<u32>> {
    let (lower, upper) = (district.member(0), district.member(u32::MAX));
    let mut oldest = None;
    let note = |key: &[u8], _: &[u8]| {
        oldest = Some(keys::number(key, 5));
        false
    };
    tx.look_at_range(tables.new_order, lower..=upper, Direction::Forward, note).await?;
    if let Some(number) = oldest {
        tx.delete(tables.new_order, &district.member(number)).await?;
    }
    Ok(oldest)
}

/// States when the lines of orders are delivered: to each belongs the position of its order. Returns the sums of the orders'
/// amounts.
async fn deliver_lines(
    tables: &Tables,
    tx: &mut impl RecordTransaction,
    orders: usize,
    lines: &[(usize, [u8; 10])],
) -> Result<Vec<i64>> {
    let (mut sums, time) = (vec![0; orders], now(tx));
    let keys: Vec<_> = lines.iter().map(|(_, key)| key).collect();
    let deliver = |position: usize, row: &mut [u8]| {
        order_line::DELIVERED.set(row, time);
        sums[lines[position].0] += order_line::AMOUNT.get(row);
    };
    tx.modify_each(tables.order_line, &keys, deliver).await?;
    Ok(sums)
}
