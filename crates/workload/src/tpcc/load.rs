use super::keys::{self, District};
use super::rows::history as history_row;
use super::{HISTORY, Scale, TREES, Tables, population};
use engine::{Database, PartitionSpec, Result};

/// The keys and rows of a table in the order of the keys.
pub type Records = Box<dyn Iterator<Item = (Vec<u8>, Vec<u8>)>>;

/// What one of [`TREES`] holds at the beginning.
///
/// # Panics
/// If it is none of them.
///
/// ```
/// use entresol_workload::tpcc::{self, Scale};
///
/// let scale = Scale::warehouses(2);
/// let districts: Vec<_> = tpcc::records(&scale, "district").map(|(key, _)| key).collect();
/// assert_eq!((districts.len(), &districts[19]), (20, &vec![0, 0, 0, 2, 10]));
/// ```
pub fn records(scale: &Scale, tree: &str) -> Records {
    let scale = *scale;
    let items = 1..=scale.items;
    match tree {
        "warehouse" => {
            let row = move |number| (keys::single(number).to_vec(), population::warehouse(&scale, number).to_vec());
            Box::new((1..=scale.warehouses).map(row))
        }
        "district" => of_districts(&scale, move |district| {
            vec![(district.key().to_vec(), population::district(&scale, district).to_vec())]
        }),
        "customer" => of_districts(&scale, move |district| {
            let rows = (1..).zip(population::customers(&scale, district));
            rows.map(|(number, row)| (district.member(number).to_vec(), row.to_vec())).collect()
        }),
        "customer-name" => of_districts(&scale, move |district| {
            let names = (1..).zip(population::names(&scale, district));
            sorted_keys(names.map(|(number, (last, first))| district.name(&last, &first, number)))
        }),
        "new-order" => of_districts(&scale, move |district| {
            sorted_keys(population::new_orders(&scale).map(|number| district.member(number)))
        }),
        "order" => of_districts(&scale, move |district| {
            let rows = (1..).zip(population::orders(&scale, district));
            rows.map(|(number, row)| (district.member(number).to_vec(), row.to_vec())).collect()
        }),
        "customer-order" => of_districts(&scale, move |district| {
            let orders = (1..).zip(population::buyers(&scale, district));
            sorted_keys(orders.map(|(number, buyer)| district.customer_order(buyer, number)))
        }),
        "order-line" => of_districts(&scale, move |district| {
            let lines = population::order_lines(&scale, district).into_iter();
            lines.map(|(order, line, row)| (district.line(order, line).to_vec(), row.to_vec())).collect()
        }),
        "item" => Box::new(items.map(|number| (keys::single(number).to_vec(), population::item(number).to_vec()))),
        "stock" => Box::new((1..=scale.warehouses).flat_map(move |warehouse| {
            let row = move |item| (keys::stock(warehouse, item).to_vec(), population::stock(warehouse, item).to_vec());
            items.clone().map(row)
        })),
        _ => panic!("there is no tree '{tree}'"),
    }
}

/// The history's rows at the beginning: the first payment of each customer.
pub fn history(scale: &Scale) -> impl Iterator<Item = [u8; history_row::SIZE]> + use<> {
    let customers = scale.customers;
    districts(scale)
        .flat_map(move |district| (1..=customers).map(move |customer| population::payment(district, customer)))
}

fn of_districts(scale: &Scale, rows: impl Fn(District) -> Vec<(Vec<u8>, Vec<u8>)> + 'static) -> Records {
    Box::new(districts(scale).flat_map(rows))
}

/// The records of a table that has nothing but keys.
fn sorted_keys<const N: usize>(keys: impl Iterator<Item = [u8; N]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| (key.to_vec(), Vec::new())).collect()
}

/// All districts in the order of their keys.
fn districts(scale: &Scale) -> impl Iterator<Item = District> + use<> {
    let numbers = 1..=scale.districts as u8;
    (1..=scale.warehouses).flat_map(move |warehouse| numbers.clone().map(move |number| District { warehouse, number }))
}

/// Creates the partitions and fills them; `spec` says what each is, by name; `progress` hears how many records the b-trees have.
///
/// # Errors
/// The engine's.
pub async fn load(
    database: &Database,
    scale: &Scale,
    spec: impl Fn(&str) -> Result<PartitionSpec>,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    for name in TREES.iter().chain([&HISTORY]) {
        database.create_partition(spec(name)?).await?;
    }
    let mut done = 0;
    for name in TREES {
        let mut count = 0;
        let rows = records(scale, name).inspect(|_| count += 1);
        let hear = |loaded| progress(done + loaded);
        database.load_b_tree(database.partition(name)?, rows, hear).await?;
        done += count;
    }
    append_history(database, scale).await?;
    database.checkpoint().await
}

/// As many rows in a transaction as a district has customers, so that none is too long for the log.
async fn append_history(database: &Database, scale: &Scale) -> Result<()> {
    let partition = Tables::of(database.catalog())?.history;
    let mut rows = history(scale);
    loop {
        let some: Vec<_> = rows.by_ref().take(scale.customers as usize).collect();
        if some.is_empty() {
            return Ok(());
        }
        database
            .transaction(async |tx| {
                for row in &some {
                    tx.append(partition, row).await?;
                }
                Ok::<_, engine::Error>(())
            })
            .await?;
    }
}
