//! A server and its clients as engines on simulated machines: what transactions add to counters on pages is there in the end,
//! also after the server has lost its power.

use crate::counting::{PAGE_SIZE, PAGES, client_settings, count, read_of, serve, settings, sum};
use crate::machines::Machines;
use base::{Instant, PageId, Random};
use engine::{Database, Error, Internals, buffer};
use entresol_node::algorithm::{ALGORITHMS, Algorithm};
use entresol_node::channel::Plain;
use entresol_node::message::{self, Copy, Request, ToServer};
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server;
use entresol_node::page_server::ServerInternals;
use entresol_node::server::CLIENTS_MAX;
use executor::{Cluster, Executor};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

const CLIENTS: u32 = 4;

async fn join(executor: Executor, server: SocketAddr, address: SocketAddr) -> engine::Result<PageClient> {
    executor.sleep_ns(1_000).await;
    let transport = Rc::new(Plain(executor.for_users()));
    // Nodes of both kinds change the same pages.
    let commits_pages = address.ip().to_string().ends_with(['2', '4', '6']);
    let settings = ClientSettings { commits_pages, ..client_settings(address, 9) };
    PageClient::join(&executor, transport, server, settings).await
}

/// Counts under one algorithm; the sum is right, and it is the same after a power cut. Returns how many victims there were.
fn counts_are_right(algorithm: &'static Algorithm, seed: u64) -> u64 {
    let machines = Machines::new(seed);
    let server = machines.server();
    let clients: Vec<Executor> = (1..=CLIENTS).map(|number| machines.client(number)).collect();
    let mut cluster = Cluster::new([server.clone()].into_iter().chain(clients.iter().cloned()));
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, algorithm));
    let (page_server, counters) = cluster.run(serving).expect("it starts");
    let joined = Rc::new(RefCell::new(Vec::new()));
    let tasks = clients.iter().zip(1..).map(|(executor, number)| {
        let (executor, joined) = (executor.clone(), Rc::clone(&joined));
        let own = machines.address(number);
        executor.clone().spawn(async move {
            let client = join(executor, at, own).await.expect("the server listens");
            client.attach(counters);
            joined.borrow_mut().push(client.clone());
            count(client, counters, seed + u64::from(number), 60).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let (mut expected, mut victims) = (0, 0);
    for task in tasks {
        let (added, given_up) =
            cluster.run(task).unwrap_or_else(|stop| panic!("{} {seed}: {stop:?}", algorithm.name()));
        (expected, victims) = (expected + added, victims + given_up);
    }
    let reader = joined.borrow()[0].clone();
    let summing = clients[0].spawn(async move { sum(&reader, counters).await });
    let found = cluster.run(summing).expect("the machines go on").expect("all can be read");
    assert_eq!(found, expected, "{} {seed}", algorithm.name());
    page_server.protocol().check().expect("the directory is right");
    // Messages of the last transactions may be under way.
    cluster.run_until(cluster.now().plus_ns(1_000_000_000)).expect("they go on");
    assert_eq!(page_server.protocol().waiting(), 0);
    drop((page_server, joined));
    clients.iter().for_each(Executor::stop);
    server.stop();
    drop(cluster);
    assert_eq!(sum_after_restart(&machines), expected, "{} {seed}", algorithm.name());
    victims
}

fn sum_after_restart(machines: &Machines) -> u64 {
    let executor = machines.server();
    let found = executor.run(async {
        let database = Database::open(&executor, settings(), "counters").await?;
        let counters = database.partition("counters")?;
        let mut sum = 0;
        for number in 0..PAGES as u32 {
            let mut pins = buffer::Pins::new(database.buffer());
            let page = PageId::new(counters, number);
            let need = engine::Need::Page(page);
            database.buffer().resolve(need, engine::second_level::design::Pattern::Random, &mut pins).await?;
            let pool = database.buffer().pool().borrow();
            let bytes = pool.bytes(pool.frame_in_use(page));
            sum += u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        }
        Ok::<_, Error>(sum)
    });
    let found = found.expect("the machine goes on").expect("the database is opened");
    executor.stop();
    found
}

#[test]
fn what_was_committed_is_read_by_all_and_survives_a_restart() {
    let mut victims = 0;
    for turn in 0..3 {
        for (algorithm, seed) in ALGORITHMS.iter().zip(5 * turn..) {
            victims += counts_are_right(algorithm, 100 * seed);
        }
    }
    assert!(victims > 0, "there were deadlocks among them");
}

#[test]
fn a_commit_waits_for_frames_that_others_have_for_a_moment() {
    // Four nodes may commit more pages at a time than the server has frames.
    let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name() == "fwd-hs").expect("it is one of them");
    counts_are_right(algorithm, 1_000);
}

#[test]
fn a_client_with_pages_of_another_size_is_refused_by_name() {
    let machines = Machines::new(1);
    let (server, client) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), client.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let _server = cluster.run(serving).expect("it starts");
    let own = machines.address(1);
    let joining = client.clone().spawn(async move {
        client.sleep_ns(1_000).await;
        let transport = Rc::new(Plain(client.for_users()));
        let mut settings = client_settings(own, 9);
        settings.buffer.page_size = 2 * PAGE_SIZE;
        PageClient::join(&client, transport, at, settings).await.err().map(|error| error.to_string())
    });
    let refused = cluster.run(joining).expect("the machines go on").expect("it may not join");
    assert!(refused.contains("2048") && refused.contains("1024"), "{refused}");
    assert!(cluster.now() > Instant::START);
}

#[test]
fn a_strangers_bytes_and_a_client_that_vanishes_leave_the_others_at_work() {
    for seed in 0..12 {
        let machines = Machines::new(seed);
        let server = machines.server();
        let others: Vec<Executor> = (1..=4).map(|number| machines.client(number)).collect();
        let mut cluster = Cluster::new([server.clone()].into_iter().chain(others.iter().cloned()));
        let at = machines.address(0);
        let algorithm = &ALGORITHMS[seed as usize % ALGORITHMS.len()];
        let serving = server.spawn(serve(server.clone(), at, algorithm));
        let (page_server, counters) = cluster.run(serving).expect("it starts");
        let [stranger, vanishing, one, other] = &others[..] else { unreachable!("there are four") };
        stranger.clone().spawn(harass(stranger.clone(), at, seed));
        let counting = [(vanishing, 2), (one, 3), (other, 4)].map(|(executor, number)| {
            let (executor, own) = (executor.clone(), machines.address(number));
            executor.clone().spawn(async move {
                let client = join(executor, at, own).await.expect("the server listens");
                client.attach(counters);
                let counted = count(client.clone(), counters, seed + u64::from(number), 40).await;
                (client, counted.0)
            })
        });
        let [_, second, third] = counting;
        // It ends in the midst of its transactions.
        let end = cluster.now().plus_ns(1_000_000 + 300_000 * seed);
        cluster.run_until(end).expect("they go on");
        vanishing.stop();
        // Far longer than they need.
        cluster.run_until(cluster.now().plus_ns(20_000_000_000)).expect("they go on");
        assert!(second.is_finished() && third.is_finished(), "{} {seed}", algorithm.name());
        let (_, added) = cluster.run(second).expect("they go on");
        let (reader, more) = cluster.run(third).expect("they go on");
        let summing = other.spawn(async move { sum(&reader, counters).await });
        let found = cluster.run(summing).expect("they go on").expect("all can be read");
        assert!(found >= added + more, "what was acknowledged is there: {found}, {added} and {more}");
        page_server.protocol().check().expect("the directory is right");
        drop(page_server);
        others.iter().for_each(Executor::stop);
        server.stop();
    }
}

#[test]
fn a_client_that_takes_nothing_costs_no_memory_when_it_was_given_up() {
    let machines = Machines::new(3);
    let (server, deaf) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), deaf.clone()]);
    let (at, own) = (machines.address(0), machines.address(1));
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let (page_server, counters) = cluster.run(serving).expect("it starts");
    let executor = deaf.clone();
    deaf.spawn(async move {
        let connection = executor.connect(at).await.expect("it listens");
        let say = async |body| {
            let mut frame = Vec::new();
            message::encode(&ToServer { drops: Vec::new(), body }, 0, &mut frame);
            connection.send(&frame).await.expect("the server hears it");
        };
        say(Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None }).await;
        let copy = Copy { page: PageId::new(counters, 0), number: 0 };
        for _ in 0..15_000 {
            say(read_of(copy, None)).await;
        }
        executor.sleep_ns(60_000_000_000).await;
    });
    let mut most = 0;
    for _ in 0..1_000 {
        cluster.run_until(cluster.now().plus_ns(1_000_000)).expect("they go on");
        most = most.max(page_server.traffic().waiting.get());
    }
    assert!(most > 500 * PAGE_SIZE as u64, "it gets no more than it takes: {most}");
    assert!(most < 2 << 20, "who takes nothing is not heard: {most}");
    cluster.run_until(cluster.now().plus_ns(20_000_000_000)).expect("they go on");
    assert_eq!(page_server.protocol().clients().count(), 0);
    assert_eq!(page_server.traffic().waiting.get(), 0);
    drop(page_server);
    [server, deaf].iter().for_each(Executor::stop);
}

#[test]
fn a_strangers_first_message_is_heard_only_if_it_is_short() {
    let machines = Machines::new(4);
    let (server, stranger) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), stranger.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let _server = cluster.run(serving).expect("it starts");
    let executor = stranger.clone();
    let hung_up = stranger.spawn(async move {
        let connection = executor.connect(at).await.expect("it listens");
        let mut head = (message::HELLO_MAX as u32 + 1).to_le_bytes().to_vec();
        head.push(message::VERSION);
        connection.send(&head).await.expect("it is taken");
        let (began, mut nothing) = (executor.now(), Vec::new());
        let end = connection.receive(&mut nothing).await;
        (end.is_err() || nothing.is_empty(), executor.now().since_ns(began))
    });
    let (hung_up, took_ns) = cluster.run(hung_up).expect("the machines go on");
    assert!(hung_up && took_ns < 1_000_000_000, "the rest is not waited for: {took_ns}");
    [server, stranger].iter().for_each(Executor::stop);
}

#[test]
fn strangers_that_say_nothing_keep_none_out() {
    let machines = Machines::new(5);
    let (server, crowd, late) = (machines.server(), machines.client(1), machines.client(2));
    let mut cluster = Cluster::new([server.clone(), crowd.clone(), late.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let (page_server, _) = cluster.run(serving).expect("it starts");
    let executor = crowd.clone();
    crowd.spawn(async move {
        let mut held = Vec::new();
        for _ in 0..400 {
            let connection = executor.connect(at).await.expect("it listens");
            // As much as one may say that is not known, but for the end.
            let mut frame = (message::HELLO_MAX as u32).to_le_bytes().to_vec();
            frame.push(message::VERSION);
            frame.resize(60_000, 0);
            let _hung_up = connection.send(&frame).await;
            held.push(connection);
        }
        executor.sleep_ns(60_000_000_000).await;
    });
    let mut most = 0;
    for _ in 0..300 {
        cluster.run_until(cluster.now().plus_ns(10_000_000)).expect("they go on");
        most = most.max(page_server.strangers());
    }
    assert!((1..=page_server::STRANGERS_MAX).contains(&most), "{most}");
    let joining = late.spawn(join(late.clone(), at, machines.address(2)));
    cluster.run_until(cluster.now().plus_ns(500_000_000)).expect("they go on");
    assert!(joining.is_finished(), "it is heard at once");
    drop(page_server);
    [server, crowd, late].iter().for_each(Executor::stop);
}

#[test]
fn a_node_of_another_release_learns_that_it_is_one() {
    let machines = Machines::new(6);
    let (server, older) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), older.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let _server = cluster.run(serving).expect("it starts");
    let executor = older.clone();
    let heard = older.spawn(async move {
        let connection = executor.connect(at).await.expect("it listens");
        connection.send(&[1, 0, 0, 0, message::VERSION - 1, 0]).await.expect("it is taken");
        let mut heard = Vec::new();
        while connection.receive(&mut heard).await.expect("it ends in order") > 0 {}
        heard
    });
    let heard = cluster.run(heard).expect("the machines go on");
    // Whatever its form of messages is, it knows a version when it sees one.
    assert_eq!(heard.get(4), Some(&message::VERSION), "{heard:?}");
    let answer = message::decode::<message::Answer>(&heard);
    let Ok(message::Answer::Refusal { reason }) = answer else { panic!("it is refused: {answer:?}") };
    assert!(reason.contains("run the same release on both"), "{reason}");
    [server, older].iter().for_each(Executor::stop);
}

/// Sends what is no message, again and again.
async fn harass(executor: Executor, server: SocketAddr, seed: u64) {
    let mut random = Random::stream(seed, "stranger");
    for _ in 0..200 {
        executor.sleep_ns(random.between(1_000, 50_000)).await;
        let Ok(connection) = executor.connect(server).await else { continue };
        let mut bytes = vec![0; random.between(1, 200) as usize];
        random.fill(&mut bytes);
        if random.chance(0.7) && bytes.len() > 5 {
            // A frame of the right version, and sometimes of a length that never comes.
            let length = if random.chance(0.3) { 60 << 20 } else { bytes.len() as u32 - 5 };
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[4] = entresol_node::message::VERSION;
        }
        let _sent = connection.send(&bytes).await;
        if random.chance(0.5) {
            let _flushed = connection.close().await;
        }
    }
}

/// Says who it is, and nothing more but that it is there.
pub async fn sit(executor: Executor, (server, own): (SocketAddr, SocketAddr)) {
    let connection = executor.connect(server).await.expect("it listens");
    let mut frame = Vec::new();
    let hello = Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None };
    message::encode(&ToServer { drops: Vec::new(), body: hello }, 0, &mut frame);
    while connection.send(&frame).await.is_ok() {
        executor.sleep_ns(500_000_000).await;
        frame.clear();
        let body = Request::Renew { sent: executor.now().ns() };
        message::encode(&ToServer { drops: Vec::new(), body }, 0, &mut frame);
    }
}

#[test]
fn nodes_that_only_sit_there_keep_none_out() {
    let machines = Machines::new(6);
    let (server, crowd, late) = (machines.server(), machines.client(1), machines.client(2));
    let mut cluster = Cluster::new([server.clone(), crowd.clone(), late.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let (page_server, counters) = cluster.run(serving).expect("it starts");
    for _ in 0..CLIENTS_MAX {
        crowd.spawn(sit(crowd.clone(), (at, machines.address(1))));
        cluster.run_until(cluster.now().plus_ns(1_000_000)).expect("they go on");
    }
    cluster.run_until(cluster.now().plus_ns(12_000_000_000)).expect("they go on");
    assert_eq!(page_server.protocol().clients().count(), CLIENTS_MAX);
    let joining = late.spawn(join(late.clone(), at, machines.address(2)));
    let client = cluster.run(joining).expect("they go on").expect("it gets a place");
    client.attach(counters);
    let counting = late.spawn(async move { count(client, counters, 3, 20).await });
    assert!(cluster.run(counting).expect("they go on").0 > 0, "it works there");
    assert!(page_server.protocol().clients().count() <= CLIENTS_MAX);
    drop(page_server);
    [server, crowd, late].iter().for_each(Executor::stop);
}

#[test]
fn strangers_that_say_much_take_no_more_memory_together_than_the_limit() {
    let machines = Machines::new(7);
    let (server, crowd, late) = (machines.server(), machines.client(1), machines.client(2));
    let mut cluster = Cluster::new([server.clone(), crowd.clone(), late.clone()]);
    let at = machines.address(0);
    let serving = server.spawn(serve(server.clone(), at, &ALGORITHMS[0]));
    let (page_server, _) = cluster.run(serving).expect("it starts");
    for _ in 0..40 {
        let executor = crowd.clone();
        crowd.spawn(async move {
            let connection = executor.connect(at).await.expect("it listens");
            // As much as one may say that is not known, but for the end.
            let mut frame = (message::HELLO_MAX as u32).to_le_bytes().to_vec();
            frame.push(message::VERSION);
            frame.resize(1_900_000, 0);
            let _hung_up = connection.send(&frame).await;
            executor.sleep_ns(60_000_000_000).await;
        });
    }
    let mut most = 0;
    for _ in 0..400 {
        cluster.run_until(cluster.now().plus_ns(10_000_000)).expect("they go on");
        most = most.max(page_server.strangers_bytes());
    }
    let limit = page_server::STRANGERS_BYTES_MAX;
    assert!((limit / 2..=limit).contains(&most), "{most}");
    assert!(page_server.strangers() > 0, "those that there is room for are heard");
    let joining = late.spawn(join(late.clone(), at, machines.address(2)));
    cluster.run_until(cluster.now().plus_ns(500_000_000)).expect("they go on");
    assert!(joining.is_finished(), "it is heard at once");
    drop(page_server);
    [server, crowd, late].iter().for_each(Executor::stop);
}
