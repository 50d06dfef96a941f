//! What a transaction is about, as a terminal would enter it (clause 2, input data generation).

use super::Scale;
use super::keys::District;
use base::Random;

/// The input of one transaction.
#[derive(Clone, Debug)]
pub enum Input {
    /// Clause 2.4.
    NewOrder(NewOrder),
    /// Clause 2.5.
    Payment(Payment),
    /// Clause 2.6.
    OrderStatus(OrderStatus),
    /// Clause 2.7.
    Delivery(Delivery),
    /// Clause 2.8.
    StockLevel(StockLevel),
}

/// A line of a new order.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its number in the order, from 1.
    pub number: u8,
    /// The item; one more than there are if it does not exist.
    pub item: u32,
    /// The warehouse whose stock it is taken from.
    pub supply_warehouse: u32,
    /// How many, 1 to 10.
    pub quantity: u32,
}

/// Clause 2.4.1. The lines stand in the order of their stock, so that two orders of the same items do not wait for each other;
/// an item that does not exist comes last.
#[derive(Clone, Debug)]
pub struct NewOrder {
    /// The home district.
    pub district: District,
    /// Who orders.
    pub customer: u32,
    /// What is ordered, 5 to 15 lines.
    pub lines: Vec<Line>,
}

/// How a customer is found.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// By number.
    Number(u32),
    /// By last name, filled up with zeros.
    LastName([u8; 16]),
}

/// Clause 2.5.1.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The home district.
    pub district: District,
    /// Where the customer lives.
    pub customer_district: District,
    /// The customer.
    pub customer: Choice,
    /// In cents.
    pub amount: i64,
}

/// Clause 2.6.1.
#[derive(Clone, Debug)]
pub struct OrderStatus {
    /// The home district.
    pub district: District,
    /// The customer.
    pub customer: Choice,
}

/// Clause 2.7.1.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The home warehouse.
    pub warehouse: u32,
    /// How many districts it has.
    pub districts: u8,
    /// Who carries, 1 to 10.
    pub carrier: u32,
}

/// Clause 2.8.1.
#[derive(Clone, Debug)]
pub struct StockLevel {
    /// The home district.
    pub district: District,
    /// Stocks below it are counted.
    pub threshold: u32,
}

/// The constants C of the run (clause 2.1.6.1); that of last names differs from the load's by 100, which is allowed.
const C_LAST_NAME: u64 = 223;
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7_911;

/// NURand(A, low, high) of clause 2.1.6: `high` itself included.
pub(super) fn non_uniform(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    ((random.between(0, a) | random.between(low, high)) + c) % (high - low + 1) + low
}

/// The last name of this number, 0 to 999 (clause 4.3.2.3).
pub(super) fn last_name(number: u64) -> [u8; 16] {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let mut name = [0; 16];
    let mut at = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        name[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    name
}

fn customer(scale: &Scale, random: &mut Random) -> u32 {
    non_uniform(random, 1_023, C_CUSTOMER, 1, scale.customers.into()) as u32
}

/// By last name in 60 of 100 cases.
fn choice(scale: &Scale, random: &mut Random) -> Choice {
    if random.between(1, 100) > 60 {
        return Choice::Number(customer(scale, random));
    }
    let names = u64::from(scale.customers).min(1_000);
    Choice::LastName(last_name(non_uniform(random, 255, C_LAST_NAME, 0, names - 1)))
}

fn district(scale: &Scale, random: &mut Random) -> District {
    let warehouse = random.between(1, scale.warehouses.into()) as u32;
    District { warehouse, number: random.between(1, scale.districts.into()) as u8 }
}

/// A warehouse that is not this one, where there are others.
fn another(warehouse: u32, scale: &Scale, random: &mut Random) -> u32 {
    if scale.warehouses == 1 {
        return warehouse;
    }
    let number = random.between(1, u64::from(scale.warehouses) - 1) as u32;
    if number < warehouse { number } else { number + 1 }
}

impl Input {
    /// Draws a transaction of any type.
    pub fn draw(scale: &Scale, random: &mut Random) -> Input {
        match random.between(1, 100) {
            1..=45 => Input::NewOrder(NewOrder::draw(scale, random)),
            46..=88 => Input::Payment(Payment::draw(scale, random)),
            89..=92 => {
                Input::OrderStatus(OrderStatus { district: district(scale, random), customer: choice(scale, random) })
            }
            93..=96 => Input::Delivery(Delivery {
                warehouse: random.between(1, scale.warehouses.into()) as u32,
                districts: scale.districts as u8,
                carrier: random.between(1, 10) as u32,
            }),
            _ => Input::StockLevel(StockLevel {
                district: district(scale, random),
                threshold: random.between(10, 20) as u32,
            }),
        }
    }
}

impl NewOrder {
    pub(super) fn draw(scale: &Scale, random: &mut Random) -> NewOrder {
        let (district, customer) = (district(scale, random), customer(scale, random));
        let count = random.between(5, 15) as u8;
        // One order of a hundred names an item that does not exist, and is rolled back.
        let is_wrong = random.between(1, 100) == 1;
        let mut lines: Vec<Line> = (1..=count)
            .map(|number| {
                let item = non_uniform(random, 8_191, C_ITEM, 1, scale.items.into()) as u32;
                let is_remote = random.between(1, 100) == 1;
                let supply_warehouse =
                    if is_remote { another(district.warehouse, scale, random) } else { district.warehouse };
                Line { number, item, supply_warehouse, quantity: random.between(1, 10) as u32 }
            })
            .collect();
        if let Some(last) = lines.last_mut().filter(|_| is_wrong) {
            last.item = scale.items + 1;
        }
        let items = scale.items;
        lines.sort_by_key(|line| (line.item > items, line.supply_warehouse, line.item));
        NewOrder { district, customer, lines }
    }
}

impl Payment {
    pub(super) fn draw(scale: &Scale, random: &mut Random) -> Payment {
        let home = district(scale, random);
        let is_local = random.between(1, 100) <= 85 || scale.warehouses == 1;
        let customer_district = if is_local {
            home
        } else {
            let warehouse = another(home.warehouse, scale, random);
            District { warehouse, number: random.between(1, scale.districts.into()) as u8 }
        };
        let customer = choice(scale, random);
        let amount = random.between(100, 500_000) as i64;
        Payment { district: home, customer_district, customer, amount }
    }
}
