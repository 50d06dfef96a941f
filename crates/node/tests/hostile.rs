//! A client among nodes that say what no honest one says: a server that is played by a script, and strangers that send pages.

use crate::counting::{PAGE_SIZE, client_settings};
use crate::machines::Machines;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PageId, PartitionId};
use engine::page::{PageKind, header};
use entresol_node::channel::{Acceptor, Channel, Incoming, Plain, Transport};
use entresol_node::lease::LEASE_NS;
use entresol_node::message::{
    self, Answer, ClientId, Copy, LeavingFate, Outcome, Request, Secret, Session, ToPeer, ToServer,
};
use entresol_node::page_client::{NodeInternals, PageClient};
use executor::{Cluster, Executor};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::{NetworkFaults, Partition};

pub const PAGE: PageId = PageId::new(PartitionId(0), 3);
const OTHER: PageId = PageId::new(PartitionId(0), 4);

/// The bytes of a page, as they should be.
pub fn sound(page: PageId) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    header::format(&mut bytes, page);
    header::set_kind(&mut bytes, PageKind::Direct);
    header::seal(&mut bytes);
    bytes
}

/// What is no such page.
fn unsound() -> Vec<Vec<u8>> {
    let mut flipped = sound(PAGE);
    flipped[200] ^= 1;
    let mut longer = sound(PAGE);
    longer.push(0);
    vec![Vec::new(), vec![1, 2, 3], vec![0; PAGE_SIZE], flipped, longer, sound(OTHER)]
}

/// A copy, and what it was asked for with.
type Asked = (Copy, Secret);

/// One end of a connection, as a script has it.
pub struct Line {
    channel: Rc<dyn Channel>,
    incoming: Incoming,
}

impl Line {
    fn new(channel: Rc<dyn Channel>, executor: &Executor) -> Line {
        Line { incoming: Incoming::new(&channel, executor), channel }
    }

    pub async fn say(&self, message: &impl Serialize) {
        let mut frame = Vec::new();
        message::encode(message, 0, &mut frame);
        let _gone = self.channel.send(&frame).await;
    }

    /// What the client says next, leases apart, which are prolonged.
    pub async fn hear(&mut self) -> Option<Request> {
        loop {
            let ToServer { body, .. } = self.incoming.next().await.ok()??;
            match body {
                Request::Renew { sent } => self.say(&Answer::Renewed { sent }).await,
                body => return Some(body),
            }
        }
    }

    /// Says several things at once: all of it comes before the client does anything else.
    pub async fn say_all(&self, answers: &[Answer]) {
        let mut frames = Vec::new();
        answers.iter().for_each(|answer| message::encode(answer, 0, &mut frames));
        let _gone = self.channel.send(&frames).await;
    }

    async fn hear_accept(&mut self) -> Copy {
        match self.hear().await {
            Some(Request::Accept { copy, .. }) => copy,
            other => panic!("the client says {other:?}"),
        }
    }

    pub async fn hear_read(&mut self) -> Copy {
        self.hear_asked().await.0
    }

    /// What the client asks for, and what another one has to show that sends it.
    async fn hear_asked(&mut self) -> Asked {
        match self.hear().await {
            Some(Request::Read { copy, secret, .. }) => (copy, secret),
            other => panic!("the client says {other:?}"),
        }
    }
}

const SECRET: Secret = Secret(77);

fn session(client: u32) -> Session {
    Session { epoch: 1, client: ClientId(client) }
}

pub async fn admit(acceptor: &dyn Acceptor, executor: &Executor, client: u32, keeps: bool, lease_ns: u64) -> Line {
    let mut line = Line::new(acceptor.accept().await.expect("it is open"), executor);
    let hello = line.hear().await;
    assert!(matches!(hello, Some(Request::Hello { .. })), "{hello:?}");
    let (session, former) = (session(client), Outcome::Unknown);
    line.say(&Answer::Joined {
        session,
        secret: SECRET,
        lease_ns,
        keeps,
        wants_leaving: true,
        pages_together: 100,
        former,
    })
    .await;
    line
}

pub struct Ground {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 3],
}

impl Ground {
    pub fn new() -> Ground {
        Ground::with(NetworkFaults::default())
    }

    fn with(faults: NetworkFaults) -> Ground {
        let machines = Machines::with(9, faults);
        let executors = [machines.server(), machines.client(1), machines.client(2)];
        let cluster = Cluster::new(executors.iter().cloned());
        Ground { machines, cluster, executors }
    }

    /// A server that does what this script says.
    pub fn play<F: Future<Output = ()> + 'static>(
        &self,
        script: impl FnOnce(Rc<dyn Acceptor>, Executor) -> F + 'static,
    ) {
        let (executor, at) = (self.executors[0].clone(), self.machines.address(0));
        executor.clone().spawn(async move {
            let acceptor = Plain(executor.for_users()).listen(at).await.expect("the port is free");
            script(acceptor, executor).await;
        });
    }

    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        work: impl FnOnce(Executor, SocketAddr, SocketAddr) -> F,
    ) -> T {
        let executor = self.executors[1].clone();
        let (at, own) = (self.machines.address(0), self.machines.address(1));
        let task = executor.spawn(work(executor.clone(), at, own));
        self.cluster.run_until(self.cluster.now().plus_ns(30 * SECOND_NS)).expect("they go on");
        assert!(task.is_finished(), "it goes on and on");
        let done = self.cluster.run(task).expect("they go on");
        self.executors.iter().for_each(Executor::stop);
        done
    }

    /// A page comes from another machine as soon as it is known how it was asked for.
    fn send_from_stranger(&self, asked: &Rc<RefCell<Option<Asked>>>, bytes: Vec<u8>, after_ns: u64) {
        self.send_with(None, asked, bytes, after_ns);
    }

    /// It shows this, or what it was asked for with.
    fn send_with(&self, shown: Option<Secret>, asked: &Rc<RefCell<Option<Asked>>>, bytes: Vec<u8>, after_ns: u64) {
        let (executor, to, asked) = (self.executors[2].clone(), self.machines.address(1), Rc::clone(asked));
        executor.clone().spawn(async move {
            while asked.borrow().is_none() {
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            executor.sleep_ns(after_ns).await;
            let (copy, secret) = asked.borrow().expect("it is there");
            let secret = shown.unwrap_or(secret);
            let line = Line::new(Plain(executor.for_users()).connect(to, None).await.expect("it listens"), &executor);
            line.say(&ToPeer::Page { to: session(0), secret, copy, bytes, fate: LeavingFate::Dropped }).await;
            executor.sleep_ns(SECOND_NS).await;
        });
    }
}

async fn join(executor: &Executor, at: SocketAddr, own: SocketAddr) -> engine::Result<PageClient> {
    join_with(9, executor, at, own).await
}

/// With this many frames, on which depends how many transactions run at a time.
pub async fn join_with(
    frames: usize,
    executor: &Executor,
    at: SocketAddr,
    own: SocketAddr,
) -> engine::Result<PageClient> {
    executor.sleep_ns(MILLISECOND_NS).await;
    let client =
        PageClient::join(executor, Rc::new(Plain(executor.for_users())), at, client_settings(own, frames)).await?;
    client.attach(PAGE.partition);
    Ok(client)
}

fn length(bytes: &[u8]) -> usize {
    bytes.len()
}

#[test]
fn a_page_of_another_client_that_comes_when_the_server_is_gone_is_passed_over() {
    let mut ground = Ground::new();
    let asked: Rc<RefCell<Option<Asked>>> = Rc::default();
    let tell = Rc::clone(&asked);
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        tell.replace(Some(line.hear_asked().await));
        drop(line);
        let mut line = admit(&*acceptor, &executor, 1, true, LEASE_NS).await;
        let copy = line.hear_read().await;
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        while line.hear().await.is_some() {}
    });
    ground.send_from_stranger(&asked, sound(PAGE), 300 * MILLISECOND_NS);
    let found = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await?;
        let mut transaction = client.begin().await;
        assert!(transaction.read(PAGE, length).await.is_err(), "the server is gone");
        executor.sleep_ns(SECOND_NS).await;
        drop(transaction);
        client.begin().await.read(PAGE, length).await
    });
    assert_eq!(found, Ok((PAGE_SIZE, false)));
}

#[test]
fn what_a_peer_sends_that_is_no_page_is_asked_for_again() {
    for bytes in unsound() {
        let mut ground = Ground::new();
        let asked: Rc<RefCell<Option<Asked>>> = Rc::default();
        let tell = Rc::clone(&asked);
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            let asked = line.hear_asked().await;
            tell.replace(Some(asked));
            let again = executor.within(SECOND_NS, line.hear_asked()).await;
            assert!(again == Some(asked), "it is asked for again, soon and in the same words");
            let (copy, _) = asked;
            line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
            while line.hear().await.is_some() {}
        });
        ground.send_from_stranger(&asked, bytes, MILLISECOND_NS);
        let found = ground.run(async move |executor, at, own| {
            let client = join(&executor, at, own).await?;
            let mut transaction = client.begin().await;
            transaction.read(PAGE, length).await
        });
        assert_eq!(found, Ok((PAGE_SIZE, false)));
    }
}

#[test]
fn a_page_that_was_offered_is_given_up_if_it_is_called_back_before_or_when_it_comes() {
    for is_called_first in [true, false] {
        let mut ground = Ground::new();
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            // One after the other: the first one is over when it was given up.
            for _ in 0..3 {
                line.say(&Answer::Offer { page: PAGE }).await;
                let copy = line.hear_accept().await;
                let page = Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped };
                let called = Answer::CallBack { copy };
                line.say_all(&if is_called_first { [called, page] } else { [page, called] }).await;
                assert_eq!(line.hear().await, Some(Request::CalledBack { copy }));
            }
            let copy = line.hear_read().await;
            line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
            while line.hear().await.is_some() {}
        });
        let found = ground.run(async move |executor, at, own| {
            let client = join(&executor, at, own).await?;
            executor.sleep_ns(SECOND_NS).await;
            let mut transaction = client.begin().await;
            transaction.read(PAGE, length).await
        });
        assert_eq!(found, Ok((PAGE_SIZE, false)), "called back first: {is_called_first}");
    }
}

#[test]
fn an_offer_that_has_to_wait_is_answered_when_the_page_before_it_has_come_or_comes_no_more() {
    for end in 0..3 {
        let mut ground = Ground::new();
        let is_answered = Rc::new(Cell::new(false));
        let answered = Rc::clone(&is_answered);
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            line.say(&Answer::Offer { page: PAGE }).await;
            let copy = line.hear_accept().await;
            line.say(&Answer::Offer { page: OTHER }).await;
            assert_eq!(executor.within(100 * MILLISECOND_NS, line.hear()).await, None, "its frames are few");
            line.say(&match end {
                0 => Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped },
                1 => Answer::Failed { copy, is_denied: false, is_full: false, reason: "it is gone".to_owned() },
                // No transaction waits for it.
                _ => Answer::AskAgain { copies: vec![copy] },
            })
            .await;
            if end > 0 {
                assert_eq!(line.hear().await, Some(Request::CalledBack { copy }));
            }
            assert_eq!(line.hear_accept().await.page, OTHER);
            answered.set(true);
            while line.hear().await.is_some() {}
        });
        let copies = ground.run(async move |executor, at, own| {
            let client = join(&executor, at, own).await.expect("the server listens");
            executor.sleep_ns(SECOND_NS).await;
            client.copies()
        });
        assert_eq!((copies, is_answered.get()), (usize::from(end == 0), true), "{end}");
    }
}

#[test]
fn a_page_that_another_client_was_to_send_is_asked_for_again_only_while_it_has_not_come() {
    let mut ground = Ground::new();
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    ground.play(async move |acceptor, executor| {
        const SOON_NS: u64 = 100 * MILLISECOND_NS;
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        let asked = line.hear_asked().await;
        let (copy, _) = asked;
        let again = Answer::AskAgain { copies: vec![Copy { number: 77, ..copy }, Copy { page: OTHER, ..copy }] };
        line.say(&again).await;
        assert_eq!(executor.within(SOON_NS, line.hear()).await, None, "it waits for none of these");
        let again = Answer::AskAgain { copies: vec![copy] };
        line.say(&again).await;
        assert!(executor.within(SOON_NS, line.hear_asked()).await == Some(asked), "it is asked for in the same words");
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        line.say(&again).await;
        assert_eq!(executor.within(SOON_NS, line.hear()).await, None, "it has come");
        over.set(true);
        while line.hear().await.is_some() {}
    });
    let found = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await?;
        let mut transaction = client.begin().await;
        let found = transaction.read(PAGE, length).await;
        executor.sleep_ns(SECOND_NS).await;
        found
    });
    assert_eq!((found, is_over.get()), (Ok((PAGE_SIZE, false)), true));
}

fn forward(copy: Copy, wanted: u64, address: SocketAddr) -> Answer {
    Answer::Forward {
        copy,
        wanted,
        to: ClientId(7),
        address,
        name: None,
        secret: Secret(3),
        fate: LeavingFate::Dropped,
    }
}

#[test]
fn a_page_of_a_stranger_is_not_taken_though_it_names_session_and_copy() {
    let mut ground = Ground::new();
    let asked: Rc<RefCell<Option<Asked>>> = Rc::default();
    let tell = Rc::clone(&asked);
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        // The page that it was asked for before came from there.
        let (other, told) = line.hear_asked().await;
        line.say(&Answer::Page { copy: other, bytes: sound(OTHER), fate: LeavingFate::Dropped }).await;
        let (copy, secret) = line.hear_asked().await;
        assert_ne!(told, secret, "each copy has its own");
        tell.replace(Some((copy, told)));
        executor.sleep_ns(500 * MILLISECOND_NS).await;
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        while line.hear().await.is_some() {}
    });
    let mut forged = sound(PAGE);
    forged[500] = 1;
    header::seal(&mut forged);
    // Also with what the server has told it of its own session, and of a page that it was to send before.
    for shown in [Some(Secret(0)), Some(SECRET), None] {
        ground.send_with(shown, &asked, forged.clone(), MILLISECOND_NS);
    }
    let found = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await?;
        let mut transaction = client.begin().await;
        transaction.read(OTHER, length).await?;
        transaction.read(PAGE, |bytes| bytes[500]).await
    });
    assert_eq!(found, Ok((0, false)));
}

#[test]
fn a_server_of_an_earlier_epoch_knows_nothing_of_a_commit_and_that_is_said() {
    let mut ground = Ground::new();
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 5, false, LEASE_NS).await;
        let copy = line.hear_read().await;
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        let Some(Request::Write { transaction, .. }) = line.hear().await else { panic!("it wants to write") };
        line.say(&Answer::Granted { copy, transaction }).await;
        assert!(matches!(line.hear().await, Some(Request::Commit { .. })));
        drop(line);
        // Names of clients begin anew, and so may epochs if a backup was restored.
        for client in [4, 3] {
            let line = admit(&*acceptor, &executor, client, false, LEASE_NS).await;
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            drop(line);
        }
        let mut line = admit(&*acceptor, &executor, 2, false, LEASE_NS).await;
        while line.hear().await.is_some() {}
    });
    let committed = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await?;
        let mut transaction = client.begin().await;
        transaction.read(PAGE, length).await?;
        transaction.write(PAGE, 40, &[1]).await?;
        transaction.commit().await
    });
    let words = committed.expect_err("it is not known").to_string();
    assert!(words.contains("not known whether"), "{words}");
}

#[test]
fn what_a_server_sends_that_is_no_page_fails_its_read_and_no_other() {
    for bytes in unsound() {
        let mut ground = Ground::new();
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
            let copy = line.hear_read().await;
            line.say(&Answer::Page { copy, bytes, fate: LeavingFate::Dropped }).await;
            assert_eq!(line.hear().await, Some(Request::CalledBack { copy }), "it has no copy");
            let copy = line.hear_read().await;
            line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
            while line.hear().await.is_some() {}
        });
        let found = ground.run(async move |executor, at, own| {
            let client = join(&executor, at, own).await?;
            let mut transaction = client.begin().await;
            let failed = transaction.read(PAGE, length).await.expect_err("it is no page");
            assert!(failed.to_string().contains(&PAGE.to_string()), "{failed}");
            transaction.read(PAGE, length).await
        });
        assert_eq!(found, Ok((PAGE_SIZE, false)));
    }
}

#[test]
fn peers_that_are_gone_leave_nothing_at_a_client() {
    let mut ground = Ground::new();
    let address = ground.machines.address(2);
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        let copy = line.hear_read().await;
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        // The page is wanted by many clients, one after the other, which are soon gone; and by some that are not there at all.
        for port in 8000..8040 {
            let address = SocketAddr::new(address.ip(), port);
            line.say(&forward(copy, 0, address)).await;
        }
        while line.hear().await.is_some() {}
    });
    let received = Rc::new(Cell::new(0));
    for port in 8000..8020 {
        let (executor, at, received) =
            (ground.executors[2].clone(), SocketAddr::new(address.ip(), port), Rc::clone(&received));
        executor.clone().spawn(async move {
            let acceptor = Plain(executor.for_users()).listen(at).await.expect("the port is free");
            let mut line = Line::new(acceptor.accept().await.expect("it is open"), &executor);
            let page: Option<ToPeer> = line.incoming.next().await.expect("it is a message");
            received.set(received.get() + u32::from(page.is_some()));
            executor.sleep_ns(2 * SECOND_NS).await;
        });
    }
    let peers = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await.expect("the server listens");
        let mut transaction = client.begin().await;
        transaction.read(PAGE, length).await.expect("it comes");
        executor.sleep_ns(SECOND_NS).await;
        let before = client.peers();
        executor.sleep_ns(5 * SECOND_NS).await;
        (before, client.peers())
    });
    assert_eq!((peers, received.get()), ((20, 0), 20));
}

#[test]
fn pages_for_a_peer_that_cannot_be_reached_do_not_pile_up() {
    let cut = Partition { machines: vec![2], from: Instant::START, until: Instant::from_ns(u64::MAX) };
    let mut ground = Ground::with(NetworkFaults { partitions: vec![cut], ..NetworkFaults::default() });
    let refused = Rc::new(Cell::new(0));
    let (refusals, address) = (Rc::clone(&refused), ground.machines.address(2));
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        let copy = line.hear_read().await;
        line.say(&Answer::Page { copy, bytes: sound(PAGE), fate: LeavingFate::Dropped }).await;
        for wanted in 0..2_000 {
            line.say(&forward(copy, wanted, address)).await;
        }
        while let Some(said) = line.hear().await {
            refusals.set(refusals.get() + u32::from(matches!(said, Request::Refused { .. })));
        }
    });
    let soon = Rc::clone(&refused);
    let refused_soon = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await.expect("the server listens");
        let mut transaction = client.begin().await;
        transaction.read(PAGE, length).await.expect("it comes");
        executor.sleep_ns(SECOND_NS).await;
        let refused_soon = soon.get();
        executor.sleep_ns(9 * SECOND_NS).await;
        refused_soon
    });
    assert!(refused_soon > 1_900, "pages wait for a connection: {refused_soon} do not");
    assert_eq!(refused.get(), 2_000, "each is refused in the end");
}

#[test]
fn a_lease_of_no_useful_length_is_refused() {
    for lease_ns in [1, 1_000, u64::MAX / 2, u64::MAX] {
        let mut ground = Ground::new();
        ground.play(async move |acceptor, executor| {
            let mut line = admit(&*acceptor, &executor, 0, false, lease_ns).await;
            while line.hear().await.is_some() {}
        });
        let joined = ground.run(async move |executor, at, own| join(&executor, at, own).await.map(drop));
        let refused = joined.expect_err("it is not believed").to_string();
        assert!(refused.contains("lease"), "{refused}");
    }
}

#[test]
fn a_lease_does_not_count_from_a_moment_that_is_still_to_come() {
    let mut ground = Ground::new();
    ground.play(async move |acceptor, executor| {
        let mut line = admit(&*acceptor, &executor, 0, false, LEASE_NS).await;
        line.say(&Answer::Renewed { sent: u64::MAX - 1 }).await;
        // It hears and says nothing more.
        executor.sleep_ns(60 * SECOND_NS).await;
        line.hear().await;
    });
    let has_lease = ground.run(async move |executor, at, own| {
        let client = join(&executor, at, own).await.expect("the server listens");
        executor.sleep_ns(LEASE_NS + LEASE_NS / 2).await;
        client.has_lease()
    });
    assert!(!has_lease, "the server has not answered what was said later");
}

#[test]
fn a_client_hangs_up_on_a_server_that_does_not_let_it_join() {
    for is_silent in [true, false] {
        let mut ground = Ground::new();
        let has_ended = Rc::new(Cell::new(false));
        let ended = Rc::clone(&has_ended);
        ground.play(async move |acceptor, executor| {
            let mut line = Line::new(acceptor.accept().await.expect("it is open"), &executor);
            line.hear().await;
            if !is_silent {
                line.say(&Answer::Renewed { sent: 1 }).await;
            }
            while line.hear().await.is_some() {}
            ended.set(true);
        });
        let joined = ground.run(async move |executor, at, own| {
            let joined = join(&executor, at, own).await.map(drop);
            executor.sleep_ns(12 * SECOND_NS).await;
            joined
        });
        joined.expect_err("it is not let in");
        assert!(has_ended.get(), "the connection is there still, {is_silent}");
    }
}
