//! Bytes go sealed between nodes that have proven who they are, and between no others.

#![allow(clippy::disallowed_methods, reason = "tests make certificates, and play strangers")]

mod ground;
#[path = "ground/wire.rs"]
mod wire;

use driver::{Fault, FaultKind};
use entresol_tls::{Files, Tls};
use ground::{Authority, Ground, loopback};
use node::channel::{Channel, Transport};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use wire::{has, tapped};

/// Sends back what comes, connection after connection, and tells the names of the peers.
async fn echo(ground: &Ground, server: &Tls) -> (SocketAddr, Rc<std::cell::RefCell<Vec<String>>>) {
    let acceptor = server.listen(loopback()).await.expect("a port is free");
    let (address, names) = (acceptor.address(), Rc::<std::cell::RefCell<Vec<String>>>::default());
    let (executor, told) = (ground.executor.clone(), Rc::clone(&names));
    ground.executor.spawn(async move {
        while let Ok(channel) = acceptor.accept().await {
            told.borrow_mut().push(channel.peer_name().expect("it has proven one").to_owned());
            executor.spawn(async move {
                let mut bytes = Vec::new();
                while let Ok(1..) = channel.receive(&mut bytes).await {
                    if channel.send(&std::mem::take(&mut bytes)).await.is_err() {
                        return;
                    }
                }
                let _ended = channel.shutdown().await;
            });
        }
    });
    (address, names)
}

/// Says this, and hears it said back.
async fn converse(channel: &dyn Channel, bytes: &[u8]) -> Result<(), Fault> {
    channel.send(bytes).await?;
    let mut heard = Vec::new();
    while heard.len() < bytes.len() {
        if channel.receive(&mut heard).await? == 0 {
            return Err(Fault::new(FaultKind::Closed, "it has ended"));
        }
    }
    assert!(heard == bytes, "{} bytes are others", bytes.len());
    Ok(())
}

/// What comes of a node that connects and says something.
async fn attempt(tls: &Tls, address: SocketAddr) -> Result<(), Fault> {
    let channel = tls.connect(address, None).await?;
    converse(&*channel, b"good day").await
}

async fn refused(tls: &Tls, address: SocketAddr) -> String {
    let fault = attempt(tls, address).await.expect_err("it is refused");
    assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    fault.message
}

async fn await_refusals(ground: &Ground, server: &Tls, count: u64) {
    while server.refusals().count < count {
        ground.executor.sleep_ns(1_000_000).await;
    }
}

#[test]
fn what_is_said_arrives_and_cannot_be_read_on_its_way() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["server", "127.0.0.1"]));
    let (wire, tap) = tapped(&ground.executor);
    let client = ground.tls_over(wire, authority.issue(&ground.path("one"), &["Node-1"]), None);
    ground.run(async || {
        let (address, names) = echo(&ground, &server).await;
        let channel = client.connect(address, None).await.expect("both are of one authority");
        for length in [1, 4_101, 16 << 10, 300_000, 3 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            converse(&*channel, &bytes).await.expect("it goes on");
        }
        let secret = b"the balance of account 4711 is 12.50";
        converse(&*channel, secret).await.expect("it goes on");
        assert!(!has(&tap.received.borrow(), secret) && !has(&tap.sent.borrow(), secret));
        assert!(tap.received.borrow().len() > 3 << 20, "the tap is where it should be");
        channel.shutdown().await.expect("it is there");
        assert_eq!(channel.receive(&mut Vec::new()).await, Ok(0), "an end in order is one");
        assert_eq!(*names.borrow(), ["node-1"]);
    });
    assert_eq!((server.accepted(), server.refusals().count), (1, 0));
}

#[test]
fn what_is_changed_or_cut_on_its_way_ends_the_connection() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let (wire, tap) = tapped(&ground.executor);
    let client = ground.tls_over(wire, authority.issue(&ground.path("one"), &["one"]), None);
    ground.run(async || {
        let (address, _) = echo(&ground, &server).await;
        for spoil in [|tap: &wire::Tap| tap.changes.set(true), |tap: &wire::Tap| tap.cuts.set(true)] {
            let channel = client.connect(address, None).await.expect("it is the one that is sought");
            converse(&*channel, b"before").await.expect("nothing is spoilt yet");
            spoil(&tap);
            let fault = converse(&*channel, b"after").await.expect_err("it is spoilt");
            assert_eq!(fault.kind, FaultKind::Reset, "{fault}");
            tap.cuts.set(false);
        }
    });
}

#[test]
fn nodes_with_certificates_that_are_not_accepted_are_refused_by_name() {
    let (ground, authority, other) = (Ground::new(), Authority::named("ours"), Authority::named("other"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let mut foreign = other.issue(&ground.path("foreign"), &["one"]);
    // It knows the server, which does not know it.
    foreign.authority = ground.path("server").join("authority");
    let strangers = [
        (foreign, "UnknownCA"),
        (authority.issue_expired(&ground.path("expired"), &["one"]), "CertificateExpired"),
        (authority.issue(&ground.path("nameless"), &["127.0.0.2"]), "does not accept this node's certificate"),
        (authority.issue(&ground.path("two-names"), &["one", "two"]), "does not accept this node's certificate"),
    ];
    ground.run(async || {
        let (address, names) = echo(&ground, &server).await;
        for (number, (files, word)) in strangers.into_iter().enumerate() {
            let said = refused(&ground.tls(files), address).await;
            assert!(said.contains(word) && said.contains(&address.to_string()), "{said}");
            await_refusals(&ground, &server, number as u64 + 1).await;
        }
        assert!(names.borrow().is_empty());
        assert!(server.refusals().latest.contains("2 DNS names"), "{:?}", server.refusals());
    });
    assert_eq!(server.accepted(), 0);
}

#[test]
fn a_server_has_to_be_the_one_that_is_sought() {
    let (ground, authority, other) = (Ground::new(), Authority::named("ours"), Authority::named("other"));
    let one = authority.issue(&ground.path("one"), &["one"]);
    let two = ground.tls(authority.issue(&ground.path("two"), &["two"]));
    let foreign = ground.tls(other.issue(&ground.path("foreign"), &["two", "127.0.0.1"]));
    let plain = Rc::new(node::channel::Plain(ground.executor.for_users()));
    ground.run(async || {
        let (address, names) = echo(&ground, &two).await;
        // Another node of the same authority is not the server, which is sought by its address.
        let said = refused(&ground.tls(one.clone()), address).await;
        assert!(said.contains("is not accepted") && said.contains("name"), "{said}");
        let by_name = ground.tls_over(plain.clone(), one.clone(), Some("two"));
        attempt(&by_name, address).await.expect("it is of that name");
        // Nor is a node another one.
        by_name.connect(address, Some("two")).await.expect("it is of that name");
        let fault = by_name.connect(address, Some("three")).await.map(drop).expect_err("it is not");
        assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
        assert_eq!(names.borrow().len(), 2);
        let (address, names) = echo(&ground, &foreign).await;
        let said = refused(&ground.tls(one), address).await;
        assert!(said.contains("UnknownIssuer"), "{said}");
        assert!(names.borrow().is_empty());
    });
}

#[test]
fn those_who_do_not_speak_tls_are_told_so() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let plain = node::channel::Plain(ground.executor.for_users());
    ground.run(async || {
        let (address, names) = echo(&ground, &server).await;
        let channel = plain.connect(address, None).await.expect("it listens");
        channel.send(b"\x20\0\0\0\x06 and so on, as messages of nodes do").await.expect("it is taken");
        let mut heard = Vec::new();
        while let Ok(1..) = channel.receive(&mut heard).await {}
        let error = node::message::frame_size(&heard, 100);
        assert_eq!(error, Err(node::message::MessageError::Sealed), "{heard:?}");
        await_refusals(&ground, &server, 1).await;
        assert!(names.borrow().is_empty());
        // The other way round.
        let acceptor = plain.listen(loopback()).await.expect("a port is free");
        let address = acceptor.address();
        ground.executor.spawn(async move {
            let channel = acceptor.accept().await.expect("it comes");
            channel.send(b"\x20\0\0\0\x06 a message").await.expect("it is taken");
            let mut all = Vec::new();
            while let Ok(1..) = channel.receive(&mut all).await {}
        });
        let said = refused(&ground.tls(ground::files(&ground.path("server"))), address).await;
        assert!(said.contains("does not speak TLS"), "{said}");
    });
}

/// What a peer hears that shakes hands as anyone, and says something.
fn say_as_no_one(authority: Files, address: SocketAddr) -> std::io::Result<usize> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.authority).expect("it was made")).expect("it is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let configuration = builder.expect("it knows them").with_root_certificates(roots).with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(configuration), ServerName::IpAddress(address.ip().into()));
    let mut stream = StreamOwned::new(tls.expect("it can begin"), TcpStream::connect(address)?);
    stream.write_all(b"good day")?;
    stream.read(&mut [0; 100])
}

#[test]
fn a_peer_without_a_certificate_hears_nothing() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let files = authority.issue(&ground.path("server"), &["127.0.0.1"]);
    let server = ground.tls(files.clone());
    let (address, names) = ground.run(async || echo(&ground, &server).await);
    std::thread::scope(|scope| {
        let stranger = scope.spawn(move || say_as_no_one(files, address));
        ground.run(async || await_refusals(&ground, &server, 1).await);
        let heard = stranger.join().expect("it ends").expect_err("there is nothing to be heard");
        assert!(heard.to_string().contains("CertificateRequired"), "{heard}");
    });
    assert!(server.refusals().latest.contains("shows no certificate"), "{:?}", server.refusals());
    assert!(names.borrow().is_empty());
}
