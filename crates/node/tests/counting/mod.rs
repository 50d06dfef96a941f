//! Transactions that add to counters on pages: what nodes do in these tests.

use base::{PageId, PartitionId, Random};
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Settings, buffer};
use entresol_node::algorithm::Algorithm;
use entresol_node::channel::Plain;
use entresol_node::page_client::{self, PageClient};
use entresol_node::page_server::{self, PageServer};
use executor::Executor;
use std::net::SocketAddr;
use std::rc::Rc;

pub const PAGES: u64 = 40;
pub const PAGE_SIZE: usize = 1024;

pub fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 12, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

pub fn counters() -> PartitionSpec {
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 8 };
    PartitionSpec::new("counters", organization, Locking::None)
}

pub async fn serve(
    executor: Executor,
    address: SocketAddr,
    algorithm: &'static Algorithm,
) -> (PageServer, PartitionId) {
    let database = Database::create(&executor, settings()).await.expect("the medium is empty");
    let counters = database.create_partition(counters()).await.expect("there is room");
    let transport = Rc::new(Plain(executor));
    let settings = page_server::ServerSettings { algorithm, message_size_min: 0, has_leases: true, grants: None };
    (PageServer::serve(&database, transport, address, settings).await.expect("the port is free"), counters)
}

/// Adds one to some counters, transaction after transaction. Each is run again until it is committed. Returns how often it was not.
pub async fn count(client: PageClient, counters: PartitionId, seed: u64, transactions: u64) -> (u64, u64) {
    let mut random = Random::stream(seed, "transactions");
    let (mut added, mut victims) = (0, 0);
    for _ in 0..transactions {
        let pages: Vec<(u32, bool)> =
            (0..random.between(1, 5)).map(|_| (random.below(PAGES) as u32, random.chance(0.5))).collect();
        loop {
            match add(&client, counters, &pages).await {
                Ok(()) => break,
                Err(Error::Deadlock) => victims += 1,
                Err(error) => panic!("{error}"),
            }
        }
        added += pages.iter().filter(|(_, writes)| *writes).count() as u64;
    }
    (added, victims)
}

async fn add(client: &PageClient, counters: PartitionId, pages: &[(u32, bool)]) -> engine::Result<()> {
    let mut transaction = client.begin().await;
    for (number, writes) in pages {
        let page = PageId::new(counters, *number);
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        let (value, _) = transaction.read(page, value).await?;
        if *writes {
            transaction.write(page, 32, &(value + 1).to_le_bytes()).await?;
        }
    }
    transaction.commit().await
}

pub async fn sum(client: &PageClient, counters: PartitionId) -> engine::Result<u64> {
    let mut transaction = client.begin().await;
    let mut sum = 0;
    for number in 0..PAGES as u32 {
        let page = PageId::new(counters, number);
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        sum += transaction.read(page, value).await?.0;
    }
    transaction.commit().await?;
    Ok(sum)
}

pub fn client_settings(address: SocketAddr, frames: usize) -> page_client::ClientSettings {
    let buffer = buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
    page_client::ClientSettings {
        buffer,
        address,
        message_size_min: 0,
        transactions: 8,
        keeps_write_locks: false,
        patience_ns: 60_000_000_000,
    }
}
