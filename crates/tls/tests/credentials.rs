//! Keys and certificates by file: what cannot be used is named, and what is new is used without a restart.

#![allow(clippy::disallowed_methods, reason = "tests make certificates and change files")]

mod ground;

use driver::FaultKind;
use entresol_tls::{Files, Tls};
use ground::{Authority, Ground, loopback, write};
use node::channel::{Channel, Transport};
use std::cell::Cell;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;

/// Accepts nodes and says nothing. How many have come is counted.
async fn attend(ground: &Ground, server: &Tls) -> (SocketAddr, Rc<Cell<usize>>) {
    let acceptor = server.listen(loopback()).await.expect("a port is free");
    let (address, came) = (acceptor.address(), Rc::<Cell<usize>>::default());
    let count = Rc::clone(&came);
    ground.executor.spawn(async move {
        let mut here = Vec::new();
        while let Ok(channel) = acceptor.accept().await {
            channel.send(b"come in").await.expect("it is there");
            here.push(channel);
            count.set(here.len());
        }
    });
    (address, came)
}

async fn let_in(tls: &Tls, address: SocketAddr) -> Result<Rc<dyn Channel>, FaultKind> {
    let channel = tls.connect(address, None).await.map_err(|fault| fault.kind)?;
    let mut heard = Vec::new();
    channel.receive(&mut heard).await.map_err(|fault| fault.kind)?;
    assert_eq!(heard, b"come in");
    Ok(channel)
}

#[test]
fn new_credentials_are_used_without_a_restart() {
    let (ground, old, new) = (Ground::new(), Authority::named("old"), Authority::named("new"));
    let at_server = ground.path("server");
    let server = ground.tls(old.issue(&at_server, &["127.0.0.1"]));
    let node_of_old = ground.tls(old.issue(&ground.path("old"), &["one"]));
    let node_of_new = ground.tls(new.issue(&ground.path("new"), &["one"]));
    ground.run(async || {
        let (address, _) = attend(&ground, &server).await;
        let former = let_in(&node_of_old, address).await.expect("it is of the same authority");
        assert_eq!(let_in(&node_of_new, address).await.map(drop), Err(FaultKind::Denied));
        new.issue(&at_server, &["127.0.0.1"]);
        ground.executor.sleep_ns(4 * SECOND_NS).await;
        let_in(&node_of_new, address).await.expect("it is of the new authority");
        assert_eq!(let_in(&node_of_old, address).await.map(drop), Err(FaultKind::Denied));
        former.send(b"still here").await.expect("connections that are there go on");
        let told = ground.notices.borrow().clone();
        assert!(matches!(&told[..], [changed] if changed.contains("new ones")), "{told:?}");
        // A key that does not belong to the certificate: what there was stays, and that is said once.
        let stray = old.issue(&ground.path("stray"), &["127.0.0.1"]);
        write(&at_server.join("certificate"), &fs::read_to_string(stray.certificate).expect("it was made"));
        ground.executor.sleep_ns(5 * SECOND_NS).await;
        let_in(&node_of_new, address).await.expect("the former ones are kept");
        let told = ground.notices.borrow().clone();
        assert_eq!(told.iter().filter(|words| words.contains("former ones are kept")).count(), 1, "{told:?}");
    });
}

#[test]
fn a_node_uses_new_credentials_without_a_restart() {
    let (ground, old, new) = (Ground::new(), Authority::named("old"), Authority::named("new"));
    let at_node = ground.path("node");
    let server = ground.tls(new.issue(&ground.path("server"), &["127.0.0.1"]));
    let node = ground.tls(old.issue(&at_node, &["one"]));
    ground.run(async || {
        let (address, _) = attend(&ground, &server).await;
        assert_eq!(let_in(&node, address).await.map(drop), Err(FaultKind::Denied));
        new.issue(&at_node, &["one"]);
        ground.executor.sleep_ns(4 * SECOND_NS).await;
        let_in(&node, address).await.expect("it is of the same authority by now");
    });
}

#[test]
fn an_acceptor_that_is_gone_leaves_its_address() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let listening = ground.run(async || {
        let acceptor = server.listen(loopback()).await?;
        let address = acceptor.address();
        ground.executor.sleep_ns(SECOND_NS / 20).await;
        drop(acceptor);
        ground.executor.sleep_ns(SECOND_NS / 20).await;
        server.listen(address).await.map(drop)
    });
    assert_eq!(listening, Ok(()));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let good = authority.issue(&ground.path("good"), &["one"]);
    let other = authority.issue(&ground.path("other"), &["one"]);
    let empty = ground.path("empty");
    fs::write(&empty, "nothing").expect("a file");
    fs::set_permissions(&empty, Permissions::from_mode(0o600)).expect("it is ours");
    let open = authority.issue(&ground.path("open"), &["one"]);
    fs::set_permissions(&open.key, Permissions::from_mode(0o644)).expect("it is ours");
    let refused = |files: Files| {
        let plain = Rc::new(node::channel::Plain(ground.executor.for_users()));
        let options = entresol_tls::Options { files, server_name: None, notice: Box::new(|_| {}) };
        Tls::new(&ground.executor.for_users(), plain, options).map(drop).expect_err("they cannot be used").to_string()
    };
    let missing = ground.path("missing");
    let said = refused(Files { certificate: missing.clone(), ..good.clone() });
    assert!(said.contains("missing") && said.contains("cannot be read"), "{said}");
    let said = refused(Files { key: missing.clone(), ..good.clone() });
    assert!(said.contains("missing"), "{said}");
    for files in [
        Files { certificate: empty.clone(), ..good.clone() },
        Files { authority: empty.clone(), ..good.clone() },
        Files { key: empty.clone(), ..good.clone() },
    ] {
        let said = refused(files);
        assert!(said.contains("empty") && said.contains("PEM"), "{said}");
    }
    let said = refused(Files { key: other.key, ..good });
    assert!(said.contains("cannot be used with the key"), "{said}");
    let said = refused(open);
    assert!(said.contains("644") && said.contains("chmod 600"), "{said}");
}
