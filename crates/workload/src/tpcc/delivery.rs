//! The Delivery transaction (clause 2.7): the oldest order of each district, all in one transaction.

use super::Tables;
use super::input::Delivery;
use super::keys::{self, District};
use super::new_order::now;
use super::rows::{customer, order, order_line};
use engine::{Direction, Result, Transaction};
use std::ops::Bound;

/// Delivers; returns how many districts had an order to deliver.
pub(super) async fn run(tables: &Tables, tx: &mut Transaction, input: &Delivery) -> Result<u32> {
    let mut delivered = 0;
    for number in 1..=input.districts {
        let district = District { warehouse: input.warehouse, number };
        delivered += u32::from(deliver(tables, tx, district, input.carrier).await?);
    }
    Ok(delivered)
}

async fn deliver(tables: &Tables, tx: &mut Transaction, district: District, carrier: u32) -> Result<bool> {
    let (lower, upper) = (district.member(0), district.member(u32::MAX));
    let range = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
    let mut oldest = tx.cursor(tables.new_order, range.0, range.1, Direction::Forward);
    let Some((key, _)) = tx.next(&mut oldest).await? else { return Ok(false) };
    let number = keys::number(&key, 5);
    tx.delete(tables.new_order, &key).await?;
    let (buyer, lines) = tx
        .modify(tables.order, &district.member(number), |row| {
            order::CARRIER.set(row, carrier);
            (order::CUSTOMER.get(row), order::LINES.get(row))
        })
        .await?;
    let (mut sum, time) = (0, now(tx));
    for line in 1..=lines as u8 {
        sum += tx
            .modify(tables.order_line, &district.line(number, line), |row| {
                order_line::DELIVERED.set(row, time);
                order_line::AMOUNT.get(row)
            })
            .await?;
    }
    tx.modify(tables.customer, &district.member(buyer), |row| {
        customer::BALANCE.add(row, sum);
        customer::DELIVERIES.increment(row);
    })
    .await?;
    Ok(true)
}
