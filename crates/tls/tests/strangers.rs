//! What peers cost that never prove who they are.

#![allow(clippy::disallowed_methods, reason = "tests make certificates, and play strangers")]

mod ground;

use base::Random;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use entresol_tls::{SHARE, Tls, UNDER_WAY_MAX};
use ground::{Authority, Ground, loopback};
use node::channel::Transport;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a handshake is taken to cost at least, and how much may be saved up.
const BEGUN_NS: u64 = 250 * MICROSECOND_NS;
const SAVED_NS: u64 = 50 * MILLISECOND_NS;

async fn attend(ground: &Ground, server: &Tls) -> SocketAddr {
    let acceptor = server.listen(loopback()).await.expect("a port is free");
    let address = acceptor.address();
    let executor = ground.executor.clone();
    ground.executor.spawn(async move {
        while let Ok(channel) = acceptor.accept().await {
            executor.spawn(async move {
                let mut bytes = Vec::new();
                while let Ok(1..) = channel.receive(&mut bytes).await {
                    if channel.send(&std::mem::take(&mut bytes)).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Connects, says something that is no handshake or only its beginning, and goes. How often that was.
fn harass(server: SocketAddr, seed: u64, is_over: &AtomicBool) -> u64 {
    let (mut random, mut came) = (Random::stream(seed, "stranger"), 0);
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&server, Duration::from_millis(200)) else { continue };
        came += 1;
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket can");
        stream.set_write_timeout(Some(Duration::from_millis(5))).expect("a socket can");
        let mut bytes = vec![0; random.between(1, 70_000) as usize];
        random.fill(&mut bytes);
        if random.chance(0.5) && bytes.len() > 5 {
            // A record of a handshake that has a length.
            let length = (bytes.len() - 5).min(16_000) as u16;
            bytes[..3].copy_from_slice(&[22, 3, 1]);
            bytes[3..5].copy_from_slice(&length.to_be_bytes());
        }
        let _sent = stream.write_all(&bytes);
        let _heard = stream.read(&mut [0; 1_000]);
    }
    came
}

#[test]
fn strangers_cost_a_part_of_the_time_and_keep_no_node_waiting() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let client = ground.tls(authority.issue(&ground.path("one"), &["one"]));
    let began = ground.executor.now();
    let address = ground.run(async || attend(&ground, &server).await);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let strangers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn({
                    let is_over = &is_over;
                    move || harass(address, seed, is_over)
                })
            })
            .collect();
        ground.run(async || {
            let channel = client.connect(address, None).await.expect("it is let in");
            let (mut conversations, mut most) = (0_u64, 0);
            while ground.executor.now().since_ns(began) < 4 * SECOND_NS {
                channel.send(b"good day").await.expect("it is there");
                let mut heard = Vec::new();
                while heard.len() < 8 {
                    assert!(channel.receive(&mut heard).await.expect("it is there") > 0);
                }
                conversations += 1;
                most = most.max(server.handshakes().1);
            }
            assert!(conversations > 100 && most <= UNDER_WAY_MAX, "{conversations}, {most}");
        });
        is_over.store(true, Ordering::Relaxed);
        let (begun, _) = server.handshakes();
        let elapsed_ns = ground.executor.now().since_ns(began);
        let limit = (SAVED_NS + elapsed_ns / SHARE) / BEGUN_NS + 1;
        assert!(begun <= limit, "{begun} of {limit} in {elapsed_ns} ns");
        let came: u64 = strangers.into_iter().map(|stranger| stranger.join().expect("it ends")).sum();
        println!("{came} came, {begun} handshakes of at most {limit} in {elapsed_ns} ns");
        assert!(came > 100 && server.refusals().count > 50, "{came}, {:?}", server.refusals());
        assert_eq!(server.accepted(), 1);
    });
    assert!(ground.notices.borrow().is_empty(), "a word in ten seconds: {:?}", ground.notices.borrow());
}

#[test]
fn strangers_that_say_nothing_keep_no_node_out() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let client = ground.tls(authority.issue(&ground.path("one"), &["one"]));
    let plain = node::channel::Plain(ground.executor.for_users());
    ground.run(async || {
        let address = attend(&ground, &server).await;
        let mut silent = Vec::new();
        for _ in 0..3 * UNDER_WAY_MAX {
            silent.push(plain.connect(address, None).await.expect("it listens"));
        }
        let joined = ground.executor.within(3 * SECOND_NS, client.connect(address, None)).await;
        joined.expect("it is heard").expect("it is let in");
        assert!(server.handshakes().1 <= UNDER_WAY_MAX);
        // Sooner or later all are given up.
        ground.executor.sleep_ns(6 * SECOND_NS).await;
        assert_eq!(server.handshakes().1, 0);
        assert_eq!(server.refusals().count, 3 * UNDER_WAY_MAX as u64);
    });
}

#[test]
fn words_about_strangers_are_few() {
    let (ground, authority) = (Ground::new(), Authority::named("ours"));
    let server = ground.tls(authority.issue(&ground.path("server"), &["127.0.0.1"]));
    let plain = node::channel::Plain(ground.executor.for_users());
    ground.run(async || {
        let address = attend(&ground, &server).await;
        let (began, mut came) = (ground.executor.now(), 0);
        while ground.executor.now().since_ns(began) < 12 * SECOND_NS {
            let channel = plain.connect(address, None).await.expect("it listens");
            channel.send(&[7; 100]).await.expect("it is taken");
            let _heard = channel.receive(&mut Vec::new()).await;
            ground.executor.sleep_ns(20 * MILLISECOND_NS).await;
            came += 1;
        }
        assert!(came > 100, "{came}");
    });
    let told = ground.notices.borrow();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("peers were refused") && told[0].len() < 400, "{told:?}");
}
