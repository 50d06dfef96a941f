//! The New-Order transaction (clause 2.4).

use super::input::{Line, NewOrder};
use super::rows::{Text, customer, item, order, order_line, place, stock};
use super::{Tables, keys};
use crate::RecordTransaction;
use engine::{Error, Result};

/// What a transaction reads of the record of `key`.
pub(super) async fn read<R>(
    tx: &mut impl RecordTransaction,
    (partition, name): (base::PartitionId, &str),
    key: &[u8],
    read: impl FnOnce(&[u8]) -> R,
) -> Result<R> {
    let found = tx.get_with(partition, key, |row| row.map(read)).await?;
    found.ok_or_else(|| Error::NoRecord(name.to_owned()))
}

/// Enters an order, or takes everything back if an item does not exist.
pub(super) async fn run(tables: &Tables, tx: &mut impl RecordTransaction, input: &NewOrder) -> Result<()> {
    let begin = tx.savepoint();
    let district = input.district;
    let warehouse = keys::single(district.warehouse);
    let warehouse_tax = read(tx, (tables.warehouse, "warehouse"), &warehouse, |row| place::TAX.get(row)).await?;
    let (district_tax, number) = tx
        .modify(tables.district, &district.key(), |row| (place::TAX.get(row), place::NEXT_ORDER.increment(row)))
        .await?;
    let customer = district.member(input.customer);
    let discount = read(tx, (tables.customer, "customer"), &customer, |row| customer::DISCOUNT.get(row)).await?;

    let all_local = input.lines.iter().all(|line| line.supply_warehouse == district.warehouse);
    let mut row = [0; order::SIZE];
    order::CUSTOMER.set(&mut row, input.customer);
    order::ENTERED.set(&mut row, now(tx));
    order::LINES.set(&mut row, input.lines.len() as u32);
    order::ALL_LOCAL.set(&mut row, all_local.into());
    tx.insert(tables.order, &district.member(number), &row).await?;
    tx.insert(tables.new_order, &district.member(number), b"").await?;
    tx.insert(tables.customer_order, &district.customer_order(input.customer, number), b"").await?;

    let lines = price(tables, tx, input).await?;
    let infos = take_from_stock(tables, tx, input, &lines).await?;
    let (mut sum, mut rows) = (0, Vec::with_capacity(lines.len()));
    for ((line, price), info) in lines.iter().zip(infos) {
        let amount = i64::from(line.quantity) * price;
        sum += amount;
        let mut row = [0; order_line::SIZE];
        order_line::ITEM.set(&mut row, line.item);
        order_line::SUPPLY_WAREHOUSE.set(&mut row, line.supply_warehouse);
        order_line::QUANTITY.set(&mut row, line.quantity);
        order_line::AMOUNT.set(&mut row, amount);
        order_line::DISTRICT_INFO.set(&mut row, &info);
        rows.push((district.line(number, line.number), row));
    }
    tx.insert_each(tables.order_line, &rows).await?;
    if lines.len() < input.lines.len() {
        return tx.rollback_to(begin).await;
    }
    // What the terminal shows; no table has it.
    let _total = sum as f64
        * (1.0 - f64::from(discount) / 1e4)
        * (1.0 + f64::from(warehouse_tax) / 1e4 + f64::from(district_tax) / 1e4);
    Ok(())
}

/// The lines of an order whose items there are, with the items' prices. The rest of an order is entered all the same, and then
/// rolled back (clause 2.4.2.3).
async fn price<'a>(
    tables: &Tables,
    tx: &mut impl RecordTransaction,
    input: &'a NewOrder,
) -> Result<Vec<(&'a Line, i64)>> {
    let items: Vec<_> = input.lines.iter().map(|line| keys::single(line.item)).collect();
    let mut lines = Vec::with_capacity(items.len());
    let price = |position: usize, row: Option<&[u8]>| {
        lines.extend(row.map(|row| (&input.lines[position], item::PRICE.get(row))));
    };
    tx.get_each_with(tables.item, &items, price).await?;
    Ok(lines)
}

/// Takes the quantities of lines from the stock; returns what the stock of each says of the district.
async fn take_from_stock(
    tables: &Tables,
    tx: &mut impl RecordTransaction,
    input: &NewOrder,
    lines: &[(&Line, i64)],
) -> Result<Vec<[u8; 24]>> {
    let column: Text = stock::district_info(input.district.number);
    let stocks: Vec<_> = lines.iter().map(|(line, _)| keys::stock(line.supply_warehouse, line.item)).collect();
    let mut infos = Vec::with_capacity(lines.len());
    let take = |position: usize, row: &mut [u8]| {
        let line = lines[position].0;
        let quantity = stock::QUANTITY.get(row);
        let refill = if quantity >= line.quantity + 10 { 0 } else { 91 };
        stock::QUANTITY.set(row, quantity + refill - line.quantity);
        stock::YTD.add(row, line.quantity.into());
        stock::ORDERS.increment(row);
        if line.supply_warehouse != input.district.warehouse {
            stock::REMOTE_ORDERS.increment(row);
        }
        infos.push(*column.get(row).first_chunk().expect("24 characters"));
    };
    tx.modify_each(tables.stock, &stocks, take).await?;
    Ok(infos)
}

/// The time that a transaction writes into its rows; never zero, which stands for null.
pub(super) fn now(tx: &impl RecordTransaction) -> i64 {
    tx.executor().now().ns() as i64 + 1
}
