use super::input::{self, Choice, Delivery, Line, NewOrder, OrderStatus, Payment, StockLevel};
use super::keys::District;
use super::rows::{customer, order, place, stock};
use super::*;
use crate::ground;
use crate::{Length, Load, Plan, Unwatched, run};
use engine::{Error, PartitionSpec};
use virtual_driver::Hardware;

const SMALL: Scale = Scale { warehouses: 2, districts: 3, customers: 60, items: 200 };
const HOME: District = District { warehouse: 1, number: 2 };

fn loaded(test: impl AsyncFnOnce(&Database, Tables) -> Result<()>) {
    let mut settings = ground::settings(2_000);
    settings.buffer.page_size = 4096;
    ground::with(Hardware::ideal(), settings, async |database| {
        let spec =
            |name: &str| Ok(if name == HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) });
        load(&database, &SMALL, spec, |_| {}).await?;
        let tables = Tables::of(database.catalog())?;
        test(&database, tables).await
    });
}

fn line(number: u8, item: u32, supply_warehouse: u32) -> Line {
    Line { number, item, supply_warehouse, quantity: 3 }
}

async fn row(database: &Database, partition: PartitionId, key: &[u8]) -> Result<Vec<u8>> {
    let found = database.transaction(async |tx| tx.get(partition, key).await).await?;
    found.ok_or_else(|| Error::NoRecord("row".to_owned()))
}

#[test]
fn last_names_are_those_of_the_clause() {
    assert_eq!(input::last_name(371), *b"PRICALLYOUGHT\0\0\0");
    assert_eq!(input::last_name(40), *b"BARPRESBAR\0\0\0\0\0\0");
    let longest = (0..1_000).map(|number| input::last_name(number).iter().filter(|byte| **byte != 0).count()).max();
    assert_eq!(longest, Some(15));
}

#[test]
fn inputs_have_the_shares_of_the_clauses() {
    let (scale, mut random) = (Scale::warehouses(5), Random::stream(1, "inputs"));
    let (mut orders, mut wrong, mut lines, mut remote, mut payments, mut by_name, mut elsewhere) =
        (0, 0, 0, 0, 0, 0, 0);
    for _ in 0..40_000 {
        match Input::draw(&scale, &mut random) {
            Input::NewOrder(order) => {
                orders += 1;
                lines += order.lines.len();
                assert!((5..=15).contains(&order.lines.len()) && (1..=3_000).contains(&order.customer));
                wrong += usize::from(order.lines.iter().any(|line| line.item > scale.items));
                remote += order.lines.iter().filter(|line| line.supply_warehouse != order.district.warehouse).count();
            }
            Input::Payment(payment) => {
                payments += 1;
                by_name += usize::from(matches!(payment.customer, Choice::LastName(_)));
                elsewhere += usize::from(payment.customer_district.warehouse != payment.district.warehouse);
            }
            _ => {}
        }
    }
    let near = |part: usize, all: usize, share: f64| (part as f64 / all as f64 / share - 1.0).abs() < 0.15;
    assert!(near(orders, 40_000, 0.45) && near(payments, 40_000, 0.43), "{orders} {payments}");
    assert!(near(lines, orders, 10.0) && near(remote, lines, 0.01), "{lines} {remote}");
    assert!((100..260).contains(&wrong), "{wrong} of {orders}");
    assert!(near(by_name, payments, 0.6) && near(elsewhere, payments, 0.15), "{by_name} {elsewhere}");
}

#[test]
fn an_order_takes_from_the_stock_and_counts_up_the_district() {
    loaded(async |database, tables| {
        let lines = vec![line(2, 5, 1), line(1, 7, 1), line(3, 7, 2)];
        let input = NewOrder { district: HOME, customer: 9, lines };
        let before = row(database, tables.stock, &keys::stock(2, 7)).await?;
        database.transaction(async |tx| new_order::run(&tables, tx, &input).await).await?;
        assert_eq!(place::NEXT_ORDER.get(&row(database, tables.district, &HOME.key()).await?), 62);
        let entered = row(database, tables.order, &HOME.member(61)).await?;
        assert_eq!((order::CUSTOMER.get(&entered), order::LINES.get(&entered)), (9, 3));
        assert_eq!((order::CARRIER.get(&entered), order::ALL_LOCAL.get(&entered)), (0, 0));
        let after = row(database, tables.stock, &keys::stock(2, 7)).await?;
        let left = i64::from(stock::QUANTITY.get(&before)) - 3;
        let refilled = if left < 10 { left + 91 } else { left };
        assert_eq!(i64::from(stock::QUANTITY.get(&after)), refilled);
        assert_eq!((stock::YTD.get(&after), stock::ORDERS.get(&after), stock::REMOTE_ORDERS.get(&after)), (3, 1, 1));
        let status = OrderStatus { district: HOME, customer: Choice::Number(9) };
        let status = database.transaction(async |tx| order_status::run(&tables, tx, &status).await).await?;
        assert_eq!((status.order, status.carrier, status.lines.len()), (61, 0, 3));
        assert_eq!(verify(database, &tables).await?, []);
        Ok(())
    });
}

#[test]
fn an_order_of_an_item_that_does_not_exist_leaves_nothing() {
    loaded(async |database, tables| {
        let input = NewOrder { district: HOME, customer: 9, lines: vec![line(1, 5, 1), line(2, SMALL.items + 1, 1)] };
        let before = row(database, tables.stock, &keys::stock(1, 5)).await?;
        database.transaction(async |tx| new_order::run(&tables, tx, &input).await).await?;
        assert_eq!(row(database, tables.stock, &keys::stock(1, 5)).await?, before);
        assert_eq!(place::NEXT_ORDER.get(&row(database, tables.district, &HOME.key()).await?), 61);
        assert!(row(database, tables.order, &HOME.member(61)).await.is_err());
        assert_eq!(verify(database, &tables).await?, []);
        Ok(())
    });
}

#[test]
fn a_payment_reaches_warehouse_district_customer_and_history() {
    loaded(async |database, tables| {
        // Of the customers with one last name the middle one pays, by its first name.
        let elsewhere = District { warehouse: 2, number: 1 };
        let (last, _) = population::names(&SMALL, elsewhere)[16];
        let input =
            Payment { district: HOME, customer_district: elsewhere, customer: Choice::LastName(last), amount: 12_345 };
        database.transaction(async |tx| payment::run(&tables, tx, &input).await).await?;
        let payer = row(database, tables.customer, &elsewhere.member(17)).await?;
        assert_eq!((customer::BALANCE.get(&payer), customer::PAYMENTS.get(&payer)), (-13_345, 2));
        let paid = 60 * population::FIRST_PAYMENT + 12_345;
        assert_eq!(place::YTD.get(&row(database, tables.district, &HOME.key()).await?), paid);
        assert_eq!(verify(database, &tables).await?, []);
        Ok(())
    });
}

#[test]
fn the_middle_customer_of_a_name_is_rounded_up() {
    loaded(async |database, tables| {
        let last = input::last_name(500);
        let add = async |count: u32| {
            let key = HOME.name(&last, &[b'a' + count as u8; 16], 100 + count);
            database.transaction(async |tx| tx.insert(tables.customer_name, &key, b"").await).await
        };
        for (count, middle) in [(1, 101), (2, 101), (3, 102), (4, 102), (5, 103)] {
            add(count).await?;
            let find =
                async |tx: &mut Transaction| payment::find_customer(&tables, tx, HOME, Choice::LastName(last)).await;
            assert_eq!(database.transaction(find).await?, middle, "of {count}");
        }
        Ok(())
    });
}

#[test]
fn a_bad_customer_keeps_a_note_of_each_payment() {
    loaded(async |database, tables| {
        let number = (1..=60)
            .zip(population::customers(&SMALL, HOME))
            .find_map(|(number, row)| (customer::CREDIT.get(&row) == b"BC").then_some(number))
            .expect("one of ten is bad");
        let input = Payment { district: HOME, customer_district: HOME, customer: Choice::Number(number), amount: 777 };
        let before = row(database, tables.customer, &HOME.member(number)).await?;
        database.transaction(async |tx| payment::run(&tables, tx, &input).await).await?;
        let after = row(database, tables.customer, &HOME.member(number)).await?;
        let note = format!("{number} 2 1 2 1 777|");
        let (data, rest) = customer::DATA.get(&after).split_at(note.len());
        assert_eq!(data, note.as_bytes());
        assert_eq!(rest, &customer::DATA.get(&before)[..500 - note.len()]);
        Ok(())
    });
}

#[test]
fn a_delivery_takes_the_oldest_order_of_each_district() {
    loaded(async |database, tables| {
        let input = Delivery { warehouse: 1, districts: 3, carrier: 4 };
        for round in 0..19 {
            let delivered = database.transaction(async |tx| delivery::run(&tables, tx, &input).await).await?;
            // 18 of 60 orders are not delivered at the beginning.
            assert_eq!(delivered, if round < 18 { 3 } else { 0 });
        }
        let last = row(database, tables.order, &HOME.member(60)).await?;
        assert_eq!(order::CARRIER.get(&last), 4);
        assert_eq!(verify(database, &tables).await?, []);
        Ok(())
    });
}

#[test]
fn the_stock_level_counts_items_below_the_threshold_once() {
    loaded(async |database, tables| {
        let count = async |threshold| {
            let input = StockLevel { district: HOME, threshold };
            database.transaction(async |tx| stock_level::run(&tables, tx, &input).await).await
        };
        let everything: std::collections::BTreeSet<u32> = population::order_lines(&SMALL, HOME)
            .into_iter()
            .filter(|(order, _, _)| *order > 40)
            .map(|(_, _, row)| rows::order_line::ITEM.get(&row))
            .collect();
        assert_eq!(count(1_000).await? as usize, everything.len());
        assert_eq!(count(10).await?, 0);
        Ok(())
    });
}

#[test]
fn a_run_of_all_types_keeps_the_conditions_and_a_planted_error_breaks_them() {
    loaded(async |database, tables| {
        let plan = Plan {
            load: Load::Closed { clients: 12 },
            warm_up: Length::Transactions(50),
            measure: Length::Transactions(1_500),
            seed: 3,
        };
        let workload = Tpcc { tables: tables.clone(), scale: SMALL };
        let measured = run::run(database, workload, &plan, &mut Unwatched, |measured| measured).await?;
        assert!(measured.types.iter().all(|found| found.response.count() > 20));
        assert_eq!(verify(database, &tables).await?, []);
        assert_eq!(scale(database).await?, SMALL);

        let plant = async |partition, key: Vec<u8>, change: fn(&mut [u8])| {
            database.transaction(async |tx| tx.modify(partition, &key, change).await).await?;
            let found: Vec<u8> = verify(database, &tables).await?.into_iter().map(|wrong| wrong.condition).collect();
            Ok::<_, Error>(found)
        };
        let customer = HOME.member(5).to_vec();
        assert_eq!(plant(tables.customer, customer.clone(), |row| customer::BALANCE.add(row, 1)).await?, [10, 12]);
        assert_eq!(plant(tables.customer, customer, |row| customer::BALANCE.add(row, -1)).await?, []);
        let district = HOME.key().to_vec();
        assert_eq!(plant(tables.district, district.clone(), |row| place::YTD.add(row, 1)).await?, [9, 1]);
        assert_eq!(plant(tables.district, district.clone(), |row| place::YTD.add(row, -1)).await?, []);
        let next = |row: &mut [u8]| place::NEXT_ORDER.set(row, 1);
        assert_eq!(plant(tables.district, district, next).await?, [2]);
        let order = HOME.member(3).to_vec();
        assert_eq!(plant(tables.order, order, |row| order::LINES.set(row, 16)).await?, [6, 2, 4]);
        Ok(())
    });
}
