//! The Stock-Level transaction (clause 2.8).

use super::input::StockLevel;
use super::new_order::read;
use super::rows::{order_line, place, stock};
use super::{Tables, keys};
use crate::RecordTransaction;
use engine::{Direction, Error, Result};

/// How many items of the district's last 20 orders are short in its warehouse.
pub(super) async fn run(tables: &Tables, tx: &mut impl RecordTransaction, input: &StockLevel) -> Result<u32> {
    let district = input.district;
    let next = read(tx, (tables.district, "district"), &district.key(), |row| place::NEXT_ORDER.get(row)).await?;
    let (lower, upper) = (district.line(next.saturating_sub(20), 0), district.line(next, 0));
    let mut items = Vec::new();
    let note = |_: &[u8], row: &[u8]| {
        items.push(order_line::ITEM.get(row));
        true
    };
    tx.look_at_range(tables.order_line, lower..upper, Direction::Forward, note).await?;
    items.sort_unstable();
    items.dedup();
    let stocks: Vec<_> = items.into_iter().map(|item| keys::stock(district.warehouse, item)).collect();
    let (mut short, mut present) = (0, 0);
    let note = |_: usize, row: Option<&[u8]>| {
        present += usize::from(row.is_some());
        short += u32::from(row.is_some_and(|row| stock::QUANTITY.get(row) < input.threshold));
    };
    tx.get_each_with(tables.stock, &stocks, note).await?;
    if present < stocks.len() {
        return Err(Error::NoRecord("stock".to_owned()));
    }
    Ok(short)
}
