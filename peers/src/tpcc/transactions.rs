//! The five transactions (clauses 2.4 to 2.8) on the tables of any engine.

use super::requests::{Answer, Request};
use super::tables::{Table, Tables};
use crate::peer::PeerResult;
use entresol::Direction;
use std::collections::BTreeSet;
use std::error::Error;
use workload::tpcc::Input;
use workload::tpcc::input::{Choice, Delivery, Line, NewOrder, OrderStatus, Payment, StockLevel};
use workload::tpcc::keys::{self, District};
use workload::tpcc::rows::{Text, customer, history, item, order, order_line, place, stock};

/// Executes requests one after the other.
pub fn run_all(tables: &mut impl Tables, requests: &[Request], answers: &mut Vec<Answer>) -> PeerResult<()> {
    for request in requests {
        answers.push(run(tables, request)?);
    }
    Ok(())
}

fn run(tables: &mut impl Tables, request: &Request) -> PeerResult<Answer> {
    // Never zero, which stands for null.
    let now = request.time_ns as i64 + 1;
    match &request.input {
        Input::NewOrder(input) => new_order(tables, input, now),
        Input::Payment(input) => payment(tables, input, request.sequence, now),
        Input::OrderStatus(input) => order_status(tables, input),
        Input::Delivery(input) => delivery(tables, input, now),
        Input::StockLevel(input) => stock_level(tables, input),
    }
}

/// An order's lines at most (clause 2.4.1.3).
const LINES_MAX: usize = 15;

/// Answers the sum of an order, or zero if an item does not exist. Items are looked for before anything is written: so an order
/// that fails takes nothing back, for its neighbours in a batch are in the same transaction of the engine.
fn new_order(tables: &mut impl Tables, input: &NewOrder, now: i64) -> PeerResult<Answer> {
    let mut prices = [0; LINES_MAX];
    for (line, price) in input.lines.iter().zip(&mut prices) {
        let found = tables.read(Table::Item, &keys::single(line.item), |row| item::PRICE.get(row))?;
        let Some(found) = found else { return Ok(0) };
        *price = found;
    }
    let district = input.district;
    let warehouse_tax = tables.get(Table::Warehouse, &keys::single(district.warehouse), |row| place::TAX.get(row))?;
    let (district_tax, number) = tables
        .modify(Table::District, &district.key(), |row| (place::TAX.get(row), place::NEXT_ORDER.increment(row)))?;
    let buyer = district.member(input.customer);
    let discount = tables.get(Table::Customer, &buyer, |row| customer::DISCOUNT.get(row))?;

    let all_local = input.lines.iter().all(|line| line.supply_warehouse == district.warehouse);
    let mut row = [0; order::SIZE];
    order::CUSTOMER.set(&mut row, input.customer);
    order::ENTERED.set(&mut row, now);
    order::LINES.set(&mut row, input.lines.len() as u32);
    order::ALL_LOCAL.set(&mut row, all_local.into());
    tables.insert(Table::Order, &district.member(number), &row)?;
    tables.insert(Table::NewOrder, &district.member(number), b"")?;
    tables.insert(Table::CustomerOrder, &district.customer_order(input.customer, number), b"")?;

    let mut sum = 0;
    for (line, price) in input.lines.iter().zip(prices) {
        let info = take_from_stock(tables, district, line)?;
        let amount = i64::from(line.quantity) * price;
        sum += amount;
        let mut row = [0; order_line::SIZE];
        order_line::ITEM.set(&mut row, line.item);
        order_line::SUPPLY_WAREHOUSE.set(&mut row, line.supply_warehouse);
        order_line::QUANTITY.set(&mut row, line.quantity);
        order_line::AMOUNT.set(&mut row, amount);
        order_line::DISTRICT_INFO.set(&mut row, &info);
        tables.insert(Table::OrderLine, &district.line(number, line.number), &row)?;
    }
    let taxed = 1.0 + f64::from(warehouse_tax) / 1e4 + f64::from(district_tax) / 1e4;
    Ok((sum as f64 * (1.0 - f64::from(discount) / 1e4) * taxed) as Answer)
}

/// Takes a line's quantity from the stock; returns what the stock says of the district.
fn take_from_stock(tables: &mut impl Tables, district: District, line: &Line) -> PeerResult<[u8; 24]> {
    let is_remote = line.supply_warehouse != district.warehouse;
    let column: Text = stock::district_info(district.number);
    tables.modify(Table::Stock, &keys::stock(line.supply_warehouse, line.item), |row| {
        let quantity = stock::QUANTITY.get(row);
        let refill = if quantity >= line.quantity + 10 { 0 } else { 91 };
        stock::QUANTITY.set(row, quantity + refill - line.quantity);
        stock::YTD.add(row, line.quantity.into());
        stock::ORDERS.increment(row);
        if is_remote {
            stock::REMOTE_ORDERS.increment(row);
        }
        *column.get(row).first_chunk().expect("24 characters")
    })
}

/// The number of a customer; of those with the same last name the middle one by first name, rounded up (clause 2.5.2.2).
fn find_customer(tables: &mut impl Tables, district: District, choice: Choice) -> PeerResult<u32> {
    let last = match choice {
        Choice::Number(number) => return Ok(number),
        Choice::LastName(last) => last,
    };
    let range = (&district.name(&last, &[0; 16], 0)[..], &district.name(&last, &[u8::MAX; 16], u32::MAX)[..]);
    let mut found = Vec::new();
    tables.scan(Table::CustomerName, range, Direction::Forward, |key, _| {
        found.push(keys::number(key, 37));
        true
    })?;
    let middle = found.len().saturating_sub(1) / 2;
    let none = || -> Box<dyn Error + Send + Sync> { format!("no customer of {district:?} has this name").into() };
    found.get(middle).copied().ok_or_else(none)
}

/// Answers the number of the customer.
fn payment(tables: &mut impl Tables, input: &Payment, sequence: u64, now: i64) -> PeerResult<Answer> {
    let (home, amount) = (input.district, input.amount);
    let pay = |row: &mut [u8]| {
        place::YTD.add(row, amount);
        <[u8; 10]>::try_from(place::NAME.get(row)).expect("ten characters")
    };
    let warehouse_name = tables.modify(Table::Warehouse, &keys::single(home.warehouse), pay)?;
    let district_name = tables.modify(Table::District, &home.key(), pay)?;
    let district = input.customer_district;
    let number = find_customer(tables, district, input.customer)?;
    tables.modify(Table::Customer, &district.member(number), |row| {
        customer::BALANCE.add(row, -amount);
        customer::YTD_PAYMENT.add(row, amount);
        customer::PAYMENTS.increment(row);
        if customer::CREDIT.get(row) == b"BC" {
            let District { warehouse, number: of } = district;
            let note = format!("{number} {of} {warehouse} {} {} {amount}|", home.number, home.warehouse).into_bytes();
            // What no longer fits is cut off at the end.
            let data = customer::DATA.get_mut(row);
            data.copy_within(..data.len() - note.len(), note.len());
            data[..note.len()].copy_from_slice(&note);
        }
    })?;
    let mut row = [0; history::SIZE];
    history::CUSTOMER.set(&mut row, number);
    history::CUSTOMER_DISTRICT.set(&mut row, district.number.into());
    history::CUSTOMER_WAREHOUSE.set(&mut row, district.warehouse);
    history::DISTRICT.set(&mut row, home.number.into());
    history::WAREHOUSE.set(&mut row, home.warehouse);
    history::DATE.set(&mut row, now);
    history::AMOUNT.set(&mut row, amount);
    let data = history::DATA.get_mut(&mut row);
    data[..10].copy_from_slice(&warehouse_name);
    data[10..14].fill(b' ');
    data[14..].copy_from_slice(&district_name);
    tables.insert(Table::History, &sequence.to_be_bytes(), &row)?;
    Ok(number.into())
}

/// Answers the customer's balance, the number of the last order and its carrier and lines, mixed.
fn order_status(tables: &mut impl Tables, input: &OrderStatus) -> PeerResult<Answer> {
    let district = input.district;
    let number = find_customer(tables, district, input.customer)?;
    let mut shown = Shown::default();
    shown.add(tables.get(Table::Customer, &district.member(number), |row| customer::BALANCE.get(row))?);
    let (first, last) = (district.customer_order(number, 0), district.customer_order(number, u32::MAX));
    let mut latest = None;
    tables.scan(Table::CustomerOrder, (&first, &last), Direction::Backward, |key, _| {
        latest = Some(keys::number(key, 9));
        false
    })?;
    let Some(latest) = latest else { return Ok(shown.0) };
    shown.add(latest.into());
    shown.add(tables.get(Table::Order, &district.member(latest), |row| order::CARRIER.get(row))?.into());
    let range = (&district.line(latest, 0)[..], &district.line(latest, u8::MAX)[..]);
    tables.scan(Table::OrderLine, range, Direction::Forward, |_, row| {
        shown.add(order_line::ITEM.get(row).into());
        shown.add(order_line::SUPPLY_WAREHOUSE.get(row).into());
        shown.add(order_line::QUANTITY.get(row).into());
        shown.add(order_line::AMOUNT.get(row));
        shown.add(order_line::DELIVERED.get(row));
        true
    })?;
    Ok(shown.0)
}

/// What a terminal shows, as one number: the polynomial hash of its values.
#[derive(Default)]
struct Shown(u64);

impl Shown {
    fn add(&mut self, value: i64) {
        self.0 = self.0.wrapping_mul(31).wrapping_add(value as u64);
    }
}

/// Answers how many districts had an order to deliver.
fn delivery(tables: &mut impl Tables, input: &Delivery, now: i64) -> PeerResult<Answer> {
    let mut delivered = 0;
    for number in 1..=input.districts {
        let district = District { warehouse: input.warehouse, number };
        delivered += Answer::from(deliver(tables, district, input.carrier, now)?);
    }
    Ok(delivered)
}

fn deliver(tables: &mut impl Tables, district: District, carrier: u32, now: i64) -> PeerResult<bool> {
    let range = (&district.member(0)[..], &district.member(u32::MAX)[..]);
    let mut oldest = None;
    tables.scan(Table::NewOrder, range, Direction::Forward, |key, _| {
        oldest = Some(keys::number(key, 5));
        false
    })?;
    let Some(number) = oldest else { return Ok(false) };
    tables.delete(Table::NewOrder, &district.member(number))?;
    let (buyer, lines) = tables.modify(Table::Order, &district.member(number), |row| {
        order::CARRIER.set(row, carrier);
        (order::CUSTOMER.get(row), order::LINES.get(row))
    })?;
    let mut sum = 0;
    for line in 1..=lines as u8 {
        sum += tables.modify(Table::OrderLine, &district.line(number, line), |row| {
            order_line::DELIVERED.set(row, now);
            order_line::AMOUNT.get(row)
        })?;
    }
    tables.modify(Table::Customer, &district.member(buyer), |row| {
        customer::BALANCE.add(row, sum);
        customer::DELIVERIES.increment(row);
    })?;
    Ok(true)
}

/// Answers how many items of the district's last 20 orders are short in its warehouse.
fn stock_level(tables: &mut impl Tables, input: &StockLevel) -> PeerResult<Answer> {
    let district = input.district;
    let next = tables.get(Table::District, &district.key(), |row| place::NEXT_ORDER.get(row))?;
    // The key with line 0 is no row's.
    let range = (&district.line(next.saturating_sub(20), 0)[..], &district.line(next, 0)[..]);
    let mut items = BTreeSet::new();
    tables.scan(Table::OrderLine, range, Direction::Forward, |_, row| {
        items.insert(order_line::ITEM.get(row));
        true
    })?;
    let mut short = 0;
    for item in items {
        let key = keys::stock(district.warehouse, item);
        let quantity = tables.get(Table::Stock, &key, |row| stock::QUANTITY.get(row))?;
        short += Answer::from(quantity < input.threshold);
    }
    Ok(short)
}
