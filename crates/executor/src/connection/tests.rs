use super::{CONNECTION_BUFFER, Connection};
use crate::{Cluster, Executor, Order, Stop};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Clock, Instant};
use driver::{Fault, FaultKind, Halt, Work};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Network, NetworkOptions, Options, VirtualDriver};

fn machine(network: &Network, number: u32, hardware: Hardware) -> Executor {
    let port = network.attach(number);
    let driver = VirtualDriver::on_network(hardware, Options::default(), Media::new(), port);
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// One machine that is connected with itself runs `work` on both ends.
fn connected(work: impl AsyncFnOnce(&Executor, Rc<Connection>, Rc<Connection>)) -> Network {
    let network = Network::new(NetworkOptions::default());
    let executor = machine(&network, 0, Hardware::ideal());
    let main = async {
        let listener = executor.listen("127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
        let client = executor.connect(listener.address()).await.expect("it listens");
        let server = listener.accept().await.expect("a client has come");
        work(&executor, Rc::new(client), Rc::new(server)).await;
    };
    executor.run(main).expect("no task waits for ever");
    executor.stop();
    network
}

async fn received(connection: &Connection, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        assert!(connection.receive(&mut bytes).await.expect("bytes come") > 0, "the stream goes on");
    }
    bytes
}

#[test]
fn messages_of_several_tasks_do_not_mix() {
    const LENGTH: usize = 3 * CONNECTION_BUFFER + 17;
    connected(async |executor, client, server| {
        for byte in 1..=5u8 {
            let client = Rc::clone(&client);
            executor.spawn(async move { client.send(&vec![byte; LENGTH]).await.expect("it is received") });
        }
        let mut bytes = received(&server, 5 * LENGTH).await;
        assert_eq!(bytes.len(), 5 * LENGTH);
        bytes.dedup();
        bytes.sort_unstable();
        assert_eq!(bytes, [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_sender_waits_for_room_when_its_peer_does_not_receive() {
    connected(async |executor, client, server| {
        let sent = Rc::new(Cell::new(0));
        let (own, count) = (Rc::clone(&client), Rc::clone(&sent));
        let sender = executor.spawn(async move {
            for _ in 0..1_000 {
                own.send(&[7; 1_000]).await.expect("it is received in the end");
                count.set(count.get() + 1_000);
            }
        });
        executor.sleep_ns(SECOND_NS).await;
        let stands = sent.get();
        assert!(!sender.is_finished() && stands <= 4 * CONNECTION_BUFFER, "{stands} bytes stand somewhere");
        assert!(stands >= CONNECTION_BUFFER);
        assert!(executor.within(SECOND_NS, client.flush()).await.is_none(), "it is not taken");
        assert_eq!(received(&server, 1_000_000).await.len(), 1_000_000);
        sender.join().await;
        client.flush().await.expect("all is taken");
    });
}

#[test]
fn a_message_abandoned_half_way_ends_the_sending_and_one_not_begun_does_not() {
    connected(async |executor, client, server| {
        let filled = executor.within(1_000, client.send(&vec![1; 3 * CONNECTION_BUFFER])).await;
        assert!(filled.expect("so much fits").is_ok());
        assert!(executor.within(1_000, client.send(&[2; 10])).await.is_none(), "there is no room");
        received(&server, 3 * CONNECTION_BUFFER).await;
        client.send(&[3; 10]).await.expect("nothing of the other has been sent");
        assert_eq!(received(&server, 10).await, [3; 10]);
        assert!(executor.within(1_000, client.send(&vec![4; 9 * CONNECTION_BUFFER])).await.is_none());
        assert_eq!(client.send(&[5]).await.map_err(|fault| fault.kind), Err(FaultKind::Closed));
        server.send(b"but this").await.expect("the other direction goes on");
        assert_eq!(received(&client, 8).await, b"but this");
    });
}

#[test]
fn an_abandoned_receive_loses_nothing() {
    connected(async |executor, client, server| {
        let mut bytes = Vec::new();
        assert!(executor.within(1_000, server.receive(&mut bytes)).await.is_none());
        client.send(b"late").await.expect("it stands");
        executor.sleep_ns(1_000).await;
        assert_eq!(received(&server, 4).await, b"late");
    });
}

#[test]
fn ends_are_told_to_every_task_and_stay() {
    let network = connected(async |executor, client, server| {
        client.send(b"last words").await.expect("it stands");
        client.shutdown().await.expect("it can end");
        assert_eq!(client.send(b"x").await.map_err(|fault| fault.kind), Err(FaultKind::Closed));
        let mut bytes = Vec::new();
        while server.receive(&mut bytes).await.expect("no fault") > 0 {}
        assert_eq!(bytes, b"last words");
        assert_eq!(server.receive(&mut bytes).await, Ok(0), "still");

        // The client goes with bytes unread: a reset.
        server.send(b"unread").await.expect("it stands");
        server.flush().await.expect("it is taken");
        let waiting = Rc::clone(&server);
        executor.sleep_ns(1_000).await;
        drop(client);
        executor.sleep_ns(1_000).await;
        for _ in 0..2 {
            assert!(waiting.send(b"y").await.is_err() || waiting.flush().await.is_err());
            let reset = waiting.flush().await.expect_err("it is gone");
            assert_eq!(reset.kind, FaultKind::Reset);
        }
    });
    assert_eq!(network.connections(), 0);
}

#[test]
fn sockets_opened_for_tasks_that_are_gone_are_closed() {
    let network = Network::new(NetworkOptions::default());
    let executor = machine(&network, 0, Hardware::ideal());
    let main = async {
        let listener = executor.listen("127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
        for patience in 0..3 {
            // Abandoned at once, while the answer is on its way, or when it is there and was not looked at.
            let mut connecting = Box::pin(executor.connect(listener.address()));
            std::future::poll_fn(|context| {
                assert!(connecting.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            for _ in 0..patience {
                executor.yield_now().await;
            }
            drop(connecting);
            executor.sleep_ns(1_000).await;
            let accepted = executor.within(1_000, listener.accept()).await;
            drop(accepted);
            executor.sleep_ns(1_000).await;
            assert_eq!(network.connections(), 0, "after {patience} turns");
        }
    };
    executor.run(main).expect("no task waits for ever");
}

/// A server that answers each message of 4 KiB with one, for one connection after the other.
async fn serve(executor: Executor, address: SocketAddr, clients: usize) -> Result<(), Fault> {
    let listener = executor.listen(address).await?;
    for _ in 0..clients {
        let connection = listener.accept().await?;
        let own = executor.clone();
        executor.spawn(async move {
            let mut bytes = Vec::new();
            while connection.receive(&mut bytes).await? > 0 {
                while bytes.len() >= 4_096 {
                    own.pay_message(4_096).await;
                    let message: Vec<u8> = bytes.drain(..4_096).collect();
                    connection.send(&message).await?;
                }
            }
            Ok::<_, Fault>(())
        });
    }
    Ok(())
}

/// Round trips of a page, and the time that each took.
async fn ask(executor: Executor, address: SocketAddr, rounds: usize) -> Result<Vec<u64>, Fault> {
    executor.sleep_ns(MILLISECOND_NS).await;
    let connection = executor.connect(address).await?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let began = executor.now();
        connection.send(&[round as u8; 4_096]).await?;
        let mut answer = Vec::new();
        while answer.len() < 4_096 {
            connection.receive(&mut answer).await?;
        }
        executor.pay_message(4_096).await;
        assert_eq!(answer, [round as u8; 4_096]);
        times.push(executor.now().since_ns(began));
    }
    connection.close().await?;
    Ok(times)
}

fn paper(name: &str) -> Hardware {
    Hardware::named(name).expect("embedded")
}

/// A page there and back on the machines of Franklin 1992: two messages at 15 MIPS, two at 30 MIPS, twice the wire.
#[test]
fn a_round_trip_costs_what_the_paper_says() {
    let server_hardware = paper("franklin-1992-server");
    let description = server_hardware.networks["slow"].clone();
    let network = Network::new(NetworkOptions { name: "slow".to_owned(), description, ..NetworkOptions::default() });
    let server = machine(&network, 0, server_hardware);
    let client = machine(&network, 1, paper("franklin-1992-client"));
    let mut cluster = Cluster::new([server.clone(), client.clone()]);
    let address = SocketAddr::new(network.address(0), 7_000);
    server.spawn(serve(server.clone(), address, 1));
    let times = client.spawn(ask(client.clone(), address, 5));
    let times = cluster.run(times).expect("no machine stops").expect("no fault");
    assert_eq!(times, [2 * (2_000_000 + 1_000_000 + 4_096_000); 5]);
    let counts = client.work_counts();
    assert_eq!((counts[Work::NetworkMessage as usize], counts[Work::NetworkBytes as usize]), (10, 160));
    let wire = client.stations().into_iter().find(|station| station.name == "network.slow").expect("described");
    assert!(wire.completed >= 10 && wire.utilization > 0.2, "{wire:?}");
}

/// Clients on one medium wait for each other, and each machine's clock is where the others' messages are.
#[test]
fn machines_take_turns_under_one_clock() {
    const CLIENTS: usize = 10;
    let run = || {
        let server_hardware = paper("franklin-1992-server");
        let description = server_hardware.networks["slow"].clone();
        let network = Network::new(NetworkOptions { description, ..NetworkOptions::default() });
        let server = machine(&network, 0, server_hardware);
        let clients: Vec<_> =
            (1..=CLIENTS as u32).map(|number| machine(&network, number, paper("franklin-1992-client"))).collect();
        let mut cluster = Cluster::new([server.clone()]);
        let address = SocketAddr::new(network.address(0), 7_000);
        server.spawn(serve(server.clone(), address, CLIENTS));
        let mut tasks = Vec::new();
        for client in &clients {
            cluster.add(client.clone());
            tasks.push(client.spawn(ask(client.clone(), address, 50)));
        }
        let times = tasks.into_iter().map(|task| cluster.run(task).expect("no machine stops").expect("no fault"));
        let times: Vec<_> = times.collect();
        (times, cluster.now())
    };
    let (times, end) = run();
    // 500 pages there and back are 1,000 transmissions, which fill the time.
    let wire_ns = 1_000 * 4_096_000;
    assert!(end.ns() > wire_ns && end.ns() < wire_ns * 102 / 100, "{end}");
    assert_eq!(run(), (times, end), "the same again");
}

#[test]
fn machines_whose_clocks_differ_wait_by_their_own_and_meet_in_one_time() {
    let network = Network::new(NetworkOptions::default());
    let clocks = [Clock::new(0, 0), Clock::new(5_000, 250_000)];
    let machines = [0, 1].map(|number: u32| {
        let (port, options) = (network.attach(number), Options::default());
        let driver = VirtualDriver::on_network(Hardware::ideal(), options, Media::new(), port);
        Executor::new(Box::new(driver.with_clock(clocks[number as usize])), Order::FirstInFirstOut)
    });
    let mut cluster = Cluster::new(machines.clone());
    let (server, client) = (machines[0].clone(), machines[1].clone());
    let address = SocketAddr::new(network.address(0), 7_000);
    let heard = server.clone().spawn(async move {
        let connection = server.listen(address).await?.accept().await?;
        let mut word = Vec::new();
        connection.receive(&mut word).await?;
        Ok::<_, Fault>(server.now().ns())
    });
    let said = client.clone().spawn(async move {
        let began = client.now();
        client.sleep_ns(1_000).await;
        client.connect(address).await?.send(b"a thousand have passed").await?;
        Ok::<_, Fault>((began.ns(), client.now().ns()))
    });
    assert_eq!(cluster.run(said).expect("no machine stops"), Ok((5_000, 6_000)));
    assert_eq!(cluster.run(heard).expect("no machine stops"), Ok(800), "the network takes no time");
    assert_eq!((cluster.now().ns(), machines[1].clock()), (800, clocks[1]));
}

/// Its clock has gone on: it takes nothing that has come, and nothing that was due, for what it was at the time.
#[test]
fn a_machine_that_was_paused_wakes_when_that_is_over_whatever_came_meanwhile() {
    let network = Network::new(NetworkOptions::default());
    let clocks = [Clock::new(7_000, 0), Clock::new(5_000, 250_000)];
    let machines = [0, 1].map(|number: u32| {
        let driver =
            VirtualDriver::on_network(Hardware::ideal(), Options::default(), Media::new(), network.attach(number));
        Executor::new(Box::new(driver.with_clock(clocks[number as usize])), Order::FirstInFirstOut)
    });
    let mut cluster = Cluster::new(machines.clone());
    let (server, client) = (machines[0].clone(), machines[1].clone());
    let address = SocketAddr::new(network.address(0), 7_000);
    let sleeper = server.clone();
    let woken = server.clone().spawn(async move {
        sleeper.sleep_ns(2_000).await;
        sleeper.now().ns()
    });
    let heard = server.clone().spawn(async move {
        let connection = server.listen(address).await?.accept().await?;
        let (mut words, mut heard) = (Vec::new(), Vec::new());
        while heard.len() < 3 {
            assert!(connection.receive(&mut words).await? > 0, "the stream goes on");
            heard.push((server.now().ns(), words.len()));
        }
        Ok::<_, Fault>(heard)
    });
    let said = client.clone().spawn(async move {
        let connection = client.connect(address).await?;
        for word in [&b"early"[..], b"later", b"after"] {
            client.sleep_ns(2_500).await;
            connection.send(word).await?;
        }
        Ok::<_, Fault>(client.now().ns())
    });
    cluster.run_until(Instant::from_ns(1_000)).expect("no machine stops");
    cluster.pause(0, Instant::from_ns(5_000));
    assert_eq!(cluster.run(said).expect("no machine stops"), Ok(5_000 + 7_500), "the other one goes on");
    assert_eq!(cluster.run(woken).expect("no machine stops"), 7_000 + 5_000, "what was due at 2,000");
    let heard = cluster.run(heard).expect("no machine stops").expect("no fault");
    let over = 7_000 + 5_000;
    assert_eq!(heard, [(over, 5), (over, 10), (7_000 + 6_000, 15)], "what came at 2,000, 4,000 and 6,000");
}

#[test]
fn a_cluster_stops_when_all_wait_for_ever_and_goes_on_to_a_moment() {
    let network = Network::new(NetworkOptions::default());
    let machines = [machine(&network, 0, Hardware::ideal()), machine(&network, 1, Hardware::ideal())];
    let mut cluster = Cluster::new(machines.clone());
    let address = SocketAddr::new(network.address(0), 7_000);
    let server = machines[0].clone();
    let waits = server.clone().spawn(async move { server.listen(address).await?.accept().await.map(drop) });
    let ticks = Rc::new(Cell::new(0));
    let (other, count) = (machines[1].clone(), Rc::clone(&ticks));
    machines[1].spawn(async move {
        for _ in 0..10 {
            other.sleep_ns(100).await;
            count.set(count.get() + 1);
        }
    });
    cluster.run_until(Instant::from_ns(550)).expect("no machine stops");
    assert_eq!((ticks.get(), cluster.now().ns()), (5, 550));
    assert_eq!(cluster.run(waits), Err(Stop { machine: None, halt: Halt::Idle }));
    assert_eq!(ticks.get(), 10);
    assert_eq!(cluster.now().ns(), 1_000);
}
