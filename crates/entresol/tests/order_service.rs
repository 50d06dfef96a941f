//! An order service on the public names alone: customers, products, orders with a secondary index by customer; threads, async,
//! snapshots, the past, a sort, reopening. It compiles as a user's program would: against this library and nothing else.

use entresol::{
    DatabaseThread, Direction, Error, FieldType, FieldValue, Handle, Lsn, OpenError, Opening, PartitionId,
    PartitionSpec, RecordType, Rows, Transaction,
};
use std::ops::Bound;
use std::path::Path;

/// What goes wrong in a shop.
#[derive(Debug, PartialEq)]
enum ShopError {
    NoCustomer,
    SoldOut { product: u32, left: u32 },
    Storage(Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> ShopError {
        ShopError::Storage(error)
    }
}

#[derive(Clone)]
struct Shop {
    handle: Handle,
    customers: PartitionId,
    products: PartitionId,
    orders: PartitionId,
    by_customer: usize,
}

/// What an order's record consists of.
fn order_type() -> RecordType {
    let fields = [("customer", FieldType::U32), ("product", FieldType::U32), ("count", FieldType::U32)];
    RecordType::new(fields).expect("the names differ")
}

/// Customer, product and count of an order.
fn parts(order: &[u8]) -> [u32; 3] {
    [0, 1, 2].map(|field| match order_type().decode(order, field) {
        Ok(FieldValue::U32(part)) => part,
        other => panic!("{other:?}"),
    })
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("numbers have four bytes"))
}

/// The next order's number, taken within the transaction that uses it.
async fn next_order(tx: &mut Transaction, orders: PartitionId) -> Result<u32, Error> {
    let last = tx.scan(orders, .., Direction::Backward).next().await?;
    Ok(last.map_or(0, |(key, _)| number(&key)) + 1)
}

impl Shop {
    fn open(handle: &Handle) -> Result<Shop, Error> {
        let orders = PartitionSpec::b_tree("orders").record(order_type()).secondary("by_customer", &["customer"]);
        let orders = handle.ensure_partition(orders).wait()?;
        Ok(Shop {
            handle: handle.clone(),
            customers: handle.ensure_partition(PartitionSpec::b_tree("customers")).wait()?,
            products: handle.ensure_partition(PartitionSpec::b_tree("products")).wait()?,
            orders,
            by_customer: handle.secondary(orders, "by_customer").wait()?,
        })
    }

    /// Orders some of a product: all of it, or nothing.
    async fn order(&self, customer: u32, product: u32, count: u32) -> Result<u32, ShopError> {
        let Shop { customers, products, orders, .. } = *self;
        let order = self.handle.transaction(async move |tx| {
            if tx.get(customers, &customer.to_be_bytes()).await?.is_none() {
                return Err(ShopError::NoCustomer);
            }
            let stock = tx.get_for_update(products, &product.to_be_bytes()).await?;
            let left = stock.map_or(0, |stock| number(&stock));
            let rest = left.checked_sub(count).ok_or(ShopError::SoldOut { product, left })?;
            tx.put(products, &product.to_be_bytes(), &rest.to_be_bytes()).await?;
            let order = next_order(tx, orders).await?;
            let record = [customer, product, count].map(FieldValue::U32);
            tx.insert_record(orders, &order.to_be_bytes(), &record).await?;
            Ok(order)
        });
        order.await
    }

    /// A customer's orders, the latest first.
    fn orders_of(&self, customer: u32) -> Result<Vec<u32>, Error> {
        let (orders, by_customer) = (self.orders, self.by_customer);
        let found = self.handle.snapshot(async move |now| {
            let (wanted, mut found) = ([FieldValue::U32(customer)], Vec::new());
            let add = |key: &[u8], _: &[u8]| {
                found.push(number(key));
                true
            };
            let of_customer = (Bound::Included(&wanted[..]), Bound::Included(&wanted[..]));
            now.range(orders, by_customer, of_customer, Direction::Backward, add).await?;
            Ok(found)
        });
        found.wait()
    }

    /// What is in stock and what was sold of a product, at one moment.
    fn balance(&self, product: u32, then: Option<Lsn>) -> Result<(u32, u32), Error> {
        let (products, orders) = (self.products, self.orders);
        let add_up = async move |now: &mut entresol::Snapshot| {
            let stock = now.get(products, &product.to_be_bytes()).await?.map_or(0, |stock| number(&stock));
            let mut sold = 0;
            let add = |_: &[u8], order: &[u8]| {
                let [_, of, count] = parts(order);
                sold += if of == product { count } else { 0 };
                true
            };
            now.scan(orders, .., Direction::Forward).look(add).await?;
            Ok((stock, sold))
        };
        match then {
            None => self.handle.snapshot(add_up).wait(),
            Some(moment) => self.handle.as_of(moment, add_up).wait(),
        }
    }

    /// The customers by what they have ordered, the most first.
    fn best_customers(&self) -> Result<Vec<(u32, u32)>, Error> {
        let orders = self.orders;
        let sorted = self.handle.with_database(async move |database| {
            let mut tx = database.begin().await?;
            let by_customer = |_: &[u8], order: &[u8]| {
                let [customer, _, count] = parts(order).map(u32::to_be_bytes);
                (customer.to_vec(), count.to_vec())
            };
            let all = tx.cursor(orders, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            let mut rows = tx.sort(all, by_customer, 4 << 20).await?;
            let mut totals: Vec<(u32, u32)> = Vec::new();
            while let Some(row) = rows.next().await? {
                let (customer, count) = (number(row.key), number(row.value));
                match totals.last_mut().filter(|(last, _)| *last == customer) {
                    Some((_, total)) => *total += count,
                    None => totals.push((customer, count)),
                }
            }
            Ok(totals)
        });
        let mut totals = sorted.wait()?;
        totals.sort_by_key(|(customer, total)| (std::cmp::Reverse(*total), *customer));
        Ok(totals)
    }
}

/// The least of runtimes: it parks the thread until its task is woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

fn start(directory: &Path) -> Result<DatabaseThread, OpenError> {
    DatabaseThread::start(Opening::in_directory(directory)?)
}

const THREADS: u32 = 8;
const ORDERS: u32 = 25;

#[test]
#[allow(clippy::disallowed_methods, reason = "a user's program has threads and files")]
fn a_shop_sells_what_it_has() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    std::fs::write(directory.path().join("entresol.toml"), "[undo]\nretention = \"10 min\"\n[log]\nsize = \"16 MiB\"")?;
    let thread = start(directory.path())?;
    let shop = Shop::open(&thread.handle())?;
    for customer in 1..=THREADS {
        shop.handle.put(shop.customers, &customer.to_be_bytes(), b"a name").wait()?;
    }
    shop.handle.put(shop.products, &7_u32.to_be_bytes(), &1_000_u32.to_be_bytes()).wait()?;
    let opening = shop.handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait()?;
    let clients: Vec<_> = (1..=THREADS)
        .map(|customer| {
            let shop = shop.clone();
            std::thread::spawn(move || {
                block_on(async {
                    for _ in 0..ORDERS {
                        shop.order(customer, 7, customer % 3 + 1).await?;
                    }
                    Ok::<_, ShopError>(())
                })
            })
        })
        .collect();
    while clients.iter().any(|client| !client.is_finished()) {
        let (stock, sold) = shop.balance(7, None)?;
        assert_eq!(stock + sold, 1_000, "a snapshot is of a moment between transactions");
    }
    for client in clients {
        client.join().expect("it does not panic").expect("there is enough");
    }
    let sold = (1..=THREADS).map(|customer| ORDERS * (customer % 3 + 1)).sum::<u32>();
    let refused = block_on(shop.order(1, 7, 1_000));
    assert_eq!(refused, Err(ShopError::SoldOut { product: 7, left: 1_000 - sold }));
    assert_eq!(block_on(shop.order(99, 7, 1)), Err(ShopError::NoCustomer));
    thread.close()?;

    let thread = start(directory.path())?;
    let shop = Shop::open(&thread.handle())?;
    assert_eq!(shop.balance(7, None)?, (1_000 - sold, sold), "nothing of what was refused is there");
    let latest = shop.orders_of(3)?;
    assert!(latest.len() == ORDERS as usize && latest.is_sorted_by(|one, next| one > next));
    assert_eq!(shop.best_customers()?[0], (2, 3 * ORDERS));
    // The past goes on over openings.
    assert_eq!(shop.balance(7, Some(opening))?, (1_000, 0));
    let before = shop.handle.snapshot(async |now| Ok::<_, Error>(now.moment())).wait()?;
    block_on(shop.order(1, 7, 10)).expect("there is enough");
    assert_eq!(shop.balance(7, Some(before))?, (1_000 - sold, sold));
    assert_eq!(shop.balance(7, None)?, (1_000 - sold - 10, sold + 10));
    thread.close()?;
    Ok(())
}
