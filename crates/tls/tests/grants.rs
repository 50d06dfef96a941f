//! Pages are served over TLS to nodes that have grants for them, and to no others.

#![allow(clippy::disallowed_methods, reason = "tests make certificates")]

mod ground;
#[path = "ground/wire.rs"]
mod wire;

use base::{PageId, PartitionId};
use driver::FaultKind;
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Settings, buffer};
use entresol_tls::Tls;
use ground::{Authority, Ground, loopback};
use node::algorithm::{self, CHANCES};
use node::grants::Grants;
use node::page_client::{ClientSettings, NodeInternals, PageClient};
use node::page_server::{PageServer, ServerInternals, ServerSettings};
use std::net::SocketAddr;
use std::rc::Rc;
use wire::{Tap, Tapped, has};

const PAGE_SIZE: usize = 1024;
const CONTENT: &[u8] = b"the salary of the director is 4711.20";
const TABLE: &str = r#"{"node": {
    "clerk": {"write": ["salary"]}, "auditor": {"read": ["salary"]}, "cook": {"write": ["menu"]}
}}"#;

fn grants(text: &str) -> Grants {
    serde_json::from_str(text).expect("a table")
}

fn pages() -> buffer::Settings {
    buffer::Settings { frames: 16, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
}

/// Serves two partitions of pages, `salary` and `menu`.
async fn serve(ground: &Ground, tls: Tls, algorithm: &str) -> (PageServer, [PartitionId; 2]) {
    let (server, partitions, _) = serve_to(ground, tls, algorithm, TABLE).await;
    (server, partitions)
}

fn texts(name: &str) -> PartitionSpec {
    let organization = Organization::Direct { objects: 8, blocking_factor: 1, record_size: 64 };
    PartitionSpec::new(name, organization, Locking::None)
}

/// The same with these grants, and the database.
async fn serve_to(ground: &Ground, tls: Tls, algorithm: &str, table: &str) -> (PageServer, [PartitionId; 2], Database) {
    let settings = Settings { buffer: pages(), ..Settings::default() };
    let database = Database::create(&ground.executor, settings).await.expect("the directory is empty");
    let mut partitions = Vec::new();
    for name in ["salary", "menu"] {
        partitions.push(database.create_partition(texts(name)).await.expect("there is room"));
    }
    let algorithm = algorithm::named(algorithm).expect("it is one of them");
    let settings = ServerSettings {
        algorithm,
        chances: CHANCES,
        message_size_min: 0,
        has_leases: true,
        grants: Some(grants(table)),
    };
    let server = PageServer::serve(&database, Rc::new(tls), loopback(), settings).await.expect("a port is free");
    (server, [partitions[0], partitions[1]], database)
}

/// A node joins, and what it receives, opened, is noted.
async fn join(ground: &Ground, tls: Tls, server: SocketAddr) -> (PageClient, Rc<Tap>) {
    let tap = Rc::<Tap>::default();
    let transport = Rc::new(Tapped(tls, Rc::clone(&tap)));
    let settings = ClientSettings {
        buffer: pages(),
        address: loopback(),
        message_size_min: 0,
        transactions: 8,
        keeps_write_locks: false,
        commits_pages: true,
        lock_wait_ns_max: None,
        patience_ns: 20_000_000_000,
    };
    let client = PageClient::join(&ground.executor, transport, server, settings).await.expect("it is let in");
    (client, tap)
}

async fn read(client: &PageClient, page: PageId) -> engine::Result<Vec<u8>> {
    client.attach(page.partition);
    let mut transaction = client.begin().await;
    let (bytes, _) = transaction.read(page, |bytes| bytes[32..32 + CONTENT.len()].to_vec()).await?;
    transaction.commit().await?;
    Ok(bytes)
}

async fn write(client: &PageClient, page: PageId, bytes: &[u8]) -> engine::Result<()> {
    client.attach(page.partition);
    let mut transaction = client.begin().await;
    transaction.write(page, 32, bytes).await?;
    transaction.commit().await
}

fn denied<T>(answer: engine::Result<T>) -> String {
    match answer.map(drop).expect_err("there is no grant") {
        Error::Input(fault) if fault.kind == FaultKind::Denied => fault.message,
        error => panic!("{error}"),
    }
}

#[test]
fn a_node_without_a_grant_is_refused_and_gets_no_bytes() {
    for algorithm in ["cbl", "fwd-hs"] {
        let (ground, authority) = (Ground::new(), Authority::named("ours"));
        let node = |name: &str| ground.tls(authority.issue(&ground.path(name), &[name, "127.0.0.1"]));
        ground.run(async || {
            let (server, [salary, _]) = serve(&ground, node("server"), algorithm).await;
            let page = PageId::new(salary, 3);
            let (clerk, _) = join(&ground, node("clerk"), server.address()).await;
            write(&clerk, page, CONTENT).await.expect("it may");
            let (auditor, tap) = join(&ground, node("auditor"), server.address()).await;
            assert_eq!(read(&auditor, page).await.expect("it may"), CONTENT);
            assert!(has(&tap.received.borrow(), CONTENT), "the tap is where it should be");
            let said = denied(write(&auditor, page, b"5000.00").await);
            assert!(said.contains("'auditor'") && said.contains("write"), "{said}");
            let (cook, tap) = join(&ground, node("cook"), server.address()).await;
            let said = denied(read(&cook, page).await);
            assert!(said.contains("'cook'") && said.contains("read"), "{said}");
            denied(write(&cook, page, b"soup").await);
            // One that is in no line of the table.
            let (guest, guest_tap) = join(&ground, node("guest"), server.address()).await;
            denied(read(&guest, page).await);
            for tap in [tap, guest_tap] {
                assert!(!tap.received.borrow().is_empty() && !has(&tap.received.borrow(), b"salary of"));
            }
            assert_eq!(read(&clerk, page).await.expect("it may"), CONTENT, "nothing has changed");
            assert_eq!(server.counts().denials, 4);
            server.protocol().check().expect("the state is right");
        });
    }
}

#[test]
fn a_grant_that_is_withdrawn_or_given_counts_from_then_on() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let node = |name: &str| ground.tls(authority.issue(&ground.path(name), &[name, "127.0.0.1"]));
    ground.run(async || {
        let (server, [salary, menu]) = serve(&ground, node("server"), "cbl").await;
        let page = PageId::new(salary, 3);
        let (clerk, _) = join(&ground, node("clerk"), server.address()).await;
        let (cook, tap) = join(&ground, node("cook"), server.address()).await;
        write(&clerk, page, CONTENT).await.expect("it may");
        denied(read(&cook, page).await);
        let former = clerk.session();
        server.grant(grants(r#"{"node": {"cook": {"write": ["menu", "salary"]}}}"#)).expect("both are there");
        // Both have to join again; the former copies of the one are gone.
        while clerk.session() == former || !cook.has_lease() {
            ground.executor.sleep_ns(10_000_000).await;
        }
        denied(read(&clerk, page).await);
        let mut found = read(&cook, page).await;
        while found
            .as_ref()
            .is_err_and(|error| !matches!(error, Error::Input(fault) if fault.kind == FaultKind::Denied))
        {
            found = read(&cook, page).await;
        }
        assert_eq!(found.expect("it may"), CONTENT);
        assert!(has(&tap.received.borrow(), CONTENT));
        // A table that names what is not there changes nothing.
        let refused = server.grant(grants(r#"{"node": {"cook": {"read": ["menus"]}}}"#)).expect_err("it is none");
        assert!(refused.to_string().contains("'menus'") && refused.to_string().contains("'cook'"), "{refused}");
        write(&cook, PageId::new(menu, 0), b"soup").await.expect("it may");
    });
}

#[test]
fn what_is_granted_for_all_partitions_is_for_one_that_is_made_later() {
    const TABLE: &str = r#"{"node": {"clerk": {"write": ["*"]}, "auditor": {"read": ["*"], "write": ["menu"]}}}"#;
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let node = |name: &str| ground.tls(authority.issue(&ground.path(name), &[name, "127.0.0.1"]));
    ground.run(async || {
        let (server, [_, menu], database) = serve_to(&ground, node("server"), "cbl", TABLE).await;
        let (clerk, _) = join(&ground, node("clerk"), server.address()).await;
        let (auditor, _) = join(&ground, node("auditor"), server.address()).await;
        let sessions = [clerk.session(), auditor.session()];
        let bonus = database.create_partition(texts("bonus")).await.expect("there is room");
        let page = PageId::new(bonus, 3);
        write(&clerk, page, CONTENT).await.expect("it may");
        assert_eq!(read(&auditor, page).await.expect("it may"), CONTENT);
        denied(write(&auditor, page, b"5000.00").await);
        write(&auditor, PageId::new(menu, 0), b"soup").await.expect("it may");
        // The same grants are the same to both, though there is one partition more.
        server.grant(grants(TABLE)).expect("all is there");
        ground.executor.sleep_ns(10_000_000).await;
        assert_eq!([clerk.session(), auditor.session()], sessions);
        assert_eq!(server.counts().joined, 2);
    });
}
