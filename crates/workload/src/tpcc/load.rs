use super::keys::{self, District};
use super::{HISTORY, Scale, TREES, Tables, population};
use base::PartitionId;
use engine::{Database, PartitionSpec, Result};

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
    let tables = Tables::of(database.catalog())?;
    let mut loader = Loader { database, done: 0, progress: &mut progress };
    let warehouses = 1..=scale.warehouses;
    let items = 1..=scale.items;
    let rows = warehouses.clone().map(|number| (keys::single(number), population::warehouse(scale, number)));
    loader.fill(tables.warehouse, rows).await?;
    let rows = districts(scale).map(|district| (district.key(), population::district(scale, district)));
    loader.fill(tables.district, rows).await?;
    let rows = districts(scale).flat_map(|district| {
        (1..).zip(population::customers(scale, district)).map(move |(number, row)| (district.member(number), row))
    });
    loader.fill(tables.customer, rows).await?;
    let rows = districts(scale).flat_map(|district| {
        let names = (1..).zip(population::names(scale, district));
        let mut keys: Vec<_> = names.map(|(number, (last, first))| district.name(&last, &first, number)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| (key, b""))
    });
    loader.fill(tables.customer_name, rows).await?;
    let rows = districts(scale)
        .flat_map(|district| population::new_orders(scale).map(move |number| (district.member(number), b"")));
    loader.fill(tables.new_order, rows).await?;
    let rows = districts(scale).flat_map(|district| {
        (1..).zip(population::orders(scale, district)).map(move |(number, row)| (district.member(number), row))
    });
    loader.fill(tables.order, rows).await?;
    let rows = districts(scale).flat_map(|district| {
        let orders = (1..).zip(population::buyers(scale, district));
        let mut keys: Vec<_> = orders.map(|(number, buyer)| district.customer_order(buyer, number)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| (key, b""))
    });
    loader.fill(tables.customer_order, rows).await?;
    let rows = districts(scale).flat_map(|district| {
        let lines = population::order_lines(scale, district).into_iter();
        lines.map(move |(order, line, row)| (district.line(order, line), row))
    });
    loader.fill(tables.order_line, rows).await?;
    loader.fill(tables.item, items.clone().map(|number| (keys::single(number), population::item(number)))).await?;
    let rows = warehouses.flat_map(|warehouse| {
        items.clone().map(move |item| (keys::stock(warehouse, item), population::stock(warehouse, item)))
    });
    loader.fill(tables.stock, rows).await?;
    append_history(database, scale, tables.history).await?;
    database.checkpoint().await
}

/// All districts in the order of their keys.
fn districts(scale: &Scale) -> impl Iterator<Item = District> + use<> {
    let numbers = 1..=scale.districts as u8;
    (1..=scale.warehouses).flat_map(move |warehouse| numbers.clone().map(move |number| District { warehouse, number }))
}

struct Loader<'a, P> {
    database: &'a Database,
    done: u64,
    progress: &'a mut P,
}

impl<P: FnMut(u64)> Loader<'_, P> {
    async fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        partition: PartitionId,
        rows: impl Iterator<Item = (K, V)>,
    ) -> Result<()> {
        let (before, mut count) = (self.done, 0);
        let hear = |loaded| (self.progress)(before + loaded);
        self.database.load_b_tree(partition, rows.inspect(|_| count += 1), hear).await?;
        self.done += count;
        Ok(())
    }
}

/// One transaction for each district, so that none is too long for the log.
async fn append_history(database: &Database, scale: &Scale, history: PartitionId) -> Result<()> {
    for district in districts(scale) {
        database
            .transaction(async |tx| {
                for customer in 1..=scale.customers {
                    tx.append(history, &population::payment(district, customer)).await?;
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}
