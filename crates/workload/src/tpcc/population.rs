//! The rows of a new database (clause 4.3.3).

use super::Scale;
use super::input::{last_name, non_uniform};
use super::keys::District;
use super::rows::{Text, customer, history, item, order, order_line, place, stock};
use base::Random;

/// The constant C for the last names of a load (clause 2.1.6.1).
const C_LAST_NAME: u64 = 123;
/// What each customer has paid before: 10.00.
pub const FIRST_PAYMENT: i64 = 1_000;
/// When everything was entered.
const THEN: i64 = 1;

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random characters up to the end of `text`.
fn letters(random: &mut Random, text: &mut [u8]) {
    random.fill(text);
    text.iter_mut().for_each(|byte| *byte = ALPHANUMERIC[usize::from(*byte) % ALPHANUMERIC.len()]);
}

/// Sets a column to between `shortest` random characters and as many as it has room for.
fn text(random: &mut Random, row: &mut [u8], column: Text, shortest: u64) {
    let text = column.get_mut(row);
    let length = random.between(shortest, text.len() as u64) as usize;
    letters(random, &mut text[..length]);
}

/// As [`text`], with "ORIGINAL" somewhere in it in one of ten cases.
fn data(random: &mut Random, row: &mut [u8], column: Text) {
    text(random, row, column, 26);
    if random.chance(0.1) {
        let at = random.between(0, 18) as usize;
        column.get_mut(row)[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
}

/// Four random digits and five ones.
fn zip(random: &mut Random, row: &mut [u8], column: Text) {
    let digits = format!("{:04}11111", random.below(10_000));
    column.set(row, digits.as_bytes());
}

/// The row of an item.
pub fn item(number: u32) -> [u8; item::SIZE] {
    let random = &mut Random::stream(number.into(), "tpcc item");
    let mut row = [0; item::SIZE];
    item::IMAGE.set(&mut row, random.between(1, 10_000) as u32);
    text(random, &mut row, item::NAME, 14);
    item::PRICE.set(&mut row, random.between(100, 10_000) as i64);
    data(random, &mut row, item::DATA);
    row
}

/// The row of an item's stock in a warehouse.
pub fn stock(warehouse: u32, item: u32) -> [u8; stock::SIZE] {
    let random = &mut Random::stream(u64::from(warehouse) << 32 | u64::from(item), "tpcc stock");
    let mut row = [0; stock::SIZE];
    stock::QUANTITY.set(&mut row, random.between(10, 100) as u32);
    (1..=10).for_each(|district| letters(random, stock::district_info(district).get_mut(&mut row)));
    data(random, &mut row, stock::DATA);
    row
}

/// The row of a warehouse; what it has taken is what its districts have.
pub fn warehouse(scale: &Scale, number: u32) -> [u8; place::WAREHOUSE_SIZE] {
    let random = &mut Random::stream(number.into(), "tpcc warehouse");
    let mut row = [0; place::WAREHOUSE_SIZE];
    fill_place(random, &mut row);
    place::YTD.set(&mut row, i64::from(scale.districts) * i64::from(scale.customers) * FIRST_PAYMENT);
    row
}

/// The row of a district.
pub fn district(scale: &Scale, district: District) -> [u8; place::DISTRICT_SIZE] {
    let random = &mut stream(district, "tpcc district");
    let mut row = [0; place::DISTRICT_SIZE];
    fill_place(random, &mut row);
    place::YTD.set(&mut row, i64::from(scale.customers) * FIRST_PAYMENT);
    place::NEXT_ORDER.set(&mut row, scale.customers + 1);
    row
}

fn fill_place(random: &mut Random, row: &mut [u8]) {
    text(random, row, place::NAME, 6);
    text(random, row, place::ADDRESS, 30);
    text(random, row, place::STATE, 2);
    zip(random, row, place::ZIP);
    place::TAX.set(row, random.between(0, 2_000) as u32);
}

fn stream(district: District, concern: &str) -> Random {
    Random::stream(u64::from(district.warehouse) << 8 | u64::from(district.number), concern)
}

/// The last and first names of a district's customers, from number 1 on: the first thousand have each last name once.
pub fn names(scale: &Scale, district: District) -> Vec<([u8; 16], [u8; 16])> {
    let random = &mut stream(district, "tpcc names");
    (1..=scale.customers)
        .map(|number| {
            let name =
                if number <= 1_000 { u64::from(number) - 1 } else { non_uniform(random, 255, C_LAST_NAME, 0, 999) };
            let (mut first, length) = ([0; 16], random.between(8, 16) as usize);
            letters(random, &mut first[..length]);
            (last_name(name), first)
        })
        .collect()
}

/// The rows of a district's customers, from number 1 on.
pub fn customers(scale: &Scale, district: District) -> Vec<[u8; customer::SIZE]> {
    let random = &mut stream(district, "tpcc customers");
    let row = |(last, first): ([u8; 16], [u8; 16])| {
        let mut row = [0; customer::SIZE];
        customer::FIRST.set(&mut row, &first);
        customer::MIDDLE.set(&mut row, b"OE");
        customer::LAST.set(&mut row, &last);
        text(random, &mut row, customer::ADDRESS, 30);
        text(random, &mut row, customer::STATE, 2);
        zip(random, &mut row, customer::ZIP);
        let phone = format!("{:016}", random.below(10_u64.pow(16)));
        customer::PHONE.set(&mut row, phone.as_bytes());
        customer::SINCE.set(&mut row, THEN);
        customer::CREDIT.set(&mut row, if random.chance(0.1) { b"BC" } else { b"GC" });
        customer::CREDIT_LIMIT.set(&mut row, 5_000_000);
        customer::DISCOUNT.set(&mut row, random.between(0, 5_000) as u32);
        customer::BALANCE.set(&mut row, -FIRST_PAYMENT);
        customer::YTD_PAYMENT.set(&mut row, FIRST_PAYMENT);
        customer::PAYMENTS.set(&mut row, 1);
        text(random, &mut row, customer::DATA, 300);
        row
    };
    names(scale, district).into_iter().map(row).collect()
}

/// The history's row of a customer's first payment.
pub fn payment(district: District, customer: u32) -> [u8; history::SIZE] {
    let random = &mut Random::stream(customer.into(), "tpcc history");
    let mut row = [0; history::SIZE];
    history::CUSTOMER.set(&mut row, customer);
    history::CUSTOMER_DISTRICT.set(&mut row, district.number.into());
    history::CUSTOMER_WAREHOUSE.set(&mut row, district.warehouse);
    history::DISTRICT.set(&mut row, district.number.into());
    history::WAREHOUSE.set(&mut row, district.warehouse);
    history::DATE.set(&mut row, THEN);
    history::AMOUNT.set(&mut row, FIRST_PAYMENT);
    text(random, &mut row, history::DATA, 12);
    row
}

/// The customers of a district's orders, from order 1 on: each has one.
pub fn buyers(scale: &Scale, district: District) -> Vec<u32> {
    let random = &mut stream(district, "tpcc buyers");
    let mut buyers: Vec<u32> = (1..=scale.customers).collect();
    for at in (1..buyers.len()).rev() {
        buyers.swap(at, random.below(at as u64 + 1) as usize);
    }
    buyers
}

/// How many lines a district's orders have, from order 1 on.
fn line_counts(scale: &Scale, district: District) -> Vec<u32> {
    let random = &mut stream(district, "tpcc line counts");
    (0..scale.customers).map(|_| random.between(5, 15) as u32).collect()
}

/// Whether an order of the load is delivered.
fn is_delivered(scale: &Scale, number: u32) -> bool {
    number <= scale.customers - scale.undelivered()
}

/// The numbers of a district's orders that are not delivered.
pub fn new_orders(scale: &Scale) -> impl Iterator<Item = u32> + use<> {
    let scale = *scale;
    (1..=scale.customers).filter(move |number| !is_delivered(&scale, *number))
}

/// The rows of a district's orders, from number 1 on.
pub fn orders(scale: &Scale, district: District) -> Vec<[u8; order::SIZE]> {
    let random = &mut stream(district, "tpcc orders");
    let orders = buyers(scale, district).into_iter().zip(line_counts(scale, district)).zip(1..);
    orders
        .map(|((buyer, lines), number)| {
            let mut row = [0; order::SIZE];
            order::CUSTOMER.set(&mut row, buyer);
            order::ENTERED.set(&mut row, THEN);
            let carrier = random.between(1, 10) as u32;
            order::CARRIER.set(&mut row, if is_delivered(scale, number) { carrier } else { 0 });
            order::LINES.set(&mut row, lines);
            order::ALL_LOCAL.set(&mut row, 1);
            row
        })
        .collect()
}

/// The rows of a district's order lines by order and number of the line. What was delivered has cost nothing.
pub fn order_lines(scale: &Scale, district: District) -> Vec<(u32, u8, [u8; order_line::SIZE])> {
    let random = &mut stream(district, "tpcc order lines");
    let lines = line_counts(scale, district).into_iter().zip(1..);
    let lines = lines.flat_map(|(lines, order)| (1..=lines as u8).map(move |line| (order, line)));
    lines
        .map(|(order, line)| {
            let mut row = [0; order_line::SIZE];
            order_line::ITEM.set(&mut row, random.between(1, scale.items.into()) as u32);
            order_line::SUPPLY_WAREHOUSE.set(&mut row, district.warehouse);
            order_line::QUANTITY.set(&mut row, 5);
            let amount = random.between(1, 999_999) as i64;
            if is_delivered(scale, order) {
                order_line::DELIVERED.set(&mut row, THEN);
            } else {
                order_line::AMOUNT.set(&mut row, amount);
            }
            letters(random, order_line::DISTRICT_INFO.get_mut(&mut row));
            (order, line, row)
        })
        .collect()
}
