//! The Delivery transaction (clause 2.7): the oldest order of each district, all in one transaction.

use super::Tables;
use super::input::Delivery;
use super::keys::{self, District};
use super::new_order::now;
use super::rows::{customer, order, order_line};
use engine::{Direction, Result, Transaction};

/// Delivers; returns how many districts had an order to deliver. Each step is made for all districts before the next one, so
/// that what they need of it can be asked for at once.
pub(super) async fn run(tables: &Tables, tx: &mut Transaction, input: &Delivery) -> Result<u32> {
    let mut delivered = Vec::new();
    for number in 1..=input.districts {
        let district = District { warehouse: input.warehouse, number };
        delivered.extend(take_oldest(tables, tx, district).await?.map(|number| (district, number)));
    }
    let orders: Vec<_> = delivered.iter().map(|(district, number)| district.member(*number)).collect();
    let first_lines: Vec<_> = delivered.iter().map(|(district, number)| district.line(*number, 1)).collect();
    tx.prefetch(tables.order, &orders).await;
    tx.prefetch(tables.order_line, &first_lines).await;
    let mut buyers = Vec::new();
    let mut sums = Vec::new();
    for ((district, number), key) in delivered.iter().zip(&orders) {
        let (buyer, lines) = tx
            .modify(tables.order, key, |row| {
                order::CARRIER.set(row, input.carrier);
                (order::CUSTOMER.get(row), order::LINES.get(row))
            })
            .await?;
        buyers.push(district.member(buyer));
        sums.push(deliver_lines(tables, tx, (*district, *number), lines).await?);
    }
    tx.prefetch(tables.customer, &buyers).await;
    for (buyer, sum) in buyers.iter().zip(sums) {
        tx.modify(tables.customer, buyer, |row| {
            customer::BALANCE.add(row, sum);
            customer::DELIVERIES.increment(row);
        })
        .await?;
    }
    Ok(delivered.len() as u32)
}

/// Takes the oldest order of a district from those that are not delivered, if there is one. Returns its number.
async fn take_oldest(tables: &Tables, tx: &mut Transaction, district: District) -> Result<Option<u32>> {
    let (lower, upper) = (district.member(0), district.member(u32::MAX));
    let mut oldest = None;
    let note = |key: &[u8], _: &[u8]| {
        oldest = Some(keys::number(key, 5));
        false
    };
    tx.scan(tables.new_order, lower..=upper, Direction::Forward).look(note).await?;
    if let Some(number) = oldest {
        tx.delete(tables.new_order, &district.member(number)).await?;
    }
    Ok(oldest)
}

/// States when the lines of an order are delivered. Returns the sum of their amounts.
async fn deliver_lines(
    tables: &Tables,
    tx: &mut Transaction,
    (district, number): (District, u32),
    lines: u32,
) -> Result<i64> {
    let (mut sum, time) = (0, now(tx));
    for line in 1..=lines as u8 {
        sum += tx
            .modify(tables.order_line, &district.line(number, line), |row| {
                order_line::DELIVERED.set(row, time);
                order_line::AMOUNT.get(row)
            })
            .await?;
    }
    Ok(sum)
}
