//! The Payment transaction (clause 2.5), and how a customer is found by name (clause 2.5.2.2).

use super::Tables;
use super::input::{Choice, Payment};
use super::keys::{self, District};
use super::new_order::now;
use super::rows::{customer, history, place};
use crate::RecordTransaction;
use engine::{Direction, Error, Result};

/// The number of a customer. Of those with the same last name it is the middle one by first name, rounded up.
pub(super) async fn find_customer(
    tables: &Tables,
    tx: &mut impl RecordTransaction,
    district: District,
    choice: Choice,
) -> Result<u32> {
    let last = match choice {
        Choice::Number(number) => return Ok(number),
        Choice::LastName(last) => last,
    };
    let (lower, upper) = (district.name(&last, &[0; 16], 0), district.name(&last, &[u8::MAX; 16], u32::MAX));
    let mut found = Vec::new();
    let note = |key: &[u8], _: &[u8]| {
        found.push(keys::number(key, 37));
        true
    };
    tx.look_at_range(tables.customer_name, lower..=upper, Direction::Forward, note).await?;
    let middle = found.len().saturating_sub(1) / 2;
    found.get(middle).copied().ok_or_else(|| Error::NoRecord("customer-name".to_owned()))
}

/// Pays.
pub(super) async fn run(tables: &Tables, tx: &mut impl RecordTransaction, input: &Payment) -> Result<()> {
    let (home, amount) = (input.district, input.amount);
    let name = |row: &mut [u8]| {
        place::YTD.add(row, amount);
        <[u8; 10]>::try_from(place::NAME.get(row)).expect("ten characters")
    };
    let warehouse_name = tx.modify(tables.warehouse, &keys::single(home.warehouse), name).await?;
    let district_name = tx.modify(tables.district, &home.key(), name).await?;

    let district = input.customer_district;
    let number = find_customer(tables, tx, district, input.customer).await?;
    let mut note = Vec::new();
    tx.modify(tables.customer, &district.member(number), |row| {
        customer::BALANCE.add(row, -amount);
        customer::YTD_PAYMENT.add(row, amount);
        customer::PAYMENTS.increment(row);
        if customer::CREDIT.get(row) == b"BC" {
            note = format!(
                "{number} {} {} {} {} {amount}|",
                district.number, district.warehouse, home.number, home.warehouse
            )
            .into_bytes();
            // What no longer fits is cut off at the end.
            let data = customer::DATA.get_mut(row);
            let length = data.len();
            data.copy_within(..length - note.len(), note.len());
            data[..note.len()].copy_from_slice(&note);
        }
    })
    .await?;

    let mut row = [0; history::SIZE];
    history::CUSTOMER.set(&mut row, number);
    history::CUSTOMER_DISTRICT.set(&mut row, district.number.into());
    history::CUSTOMER_WAREHOUSE.set(&mut row, district.warehouse);
    history::DISTRICT.set(&mut row, home.number.into());
    history::WAREHOUSE.set(&mut row, home.warehouse);
    history::DATE.set(&mut row, now(tx));
    history::AMOUNT.set(&mut row, amount);
    let data = history::DATA.get_mut(&mut row);
    data[..10].copy_from_slice(&warehouse_name);
    data[10..14].fill(b' ');
    data[14..].copy_from_slice(&district_name);
    tx.append(tables.history, &row).await.map(drop)
}
