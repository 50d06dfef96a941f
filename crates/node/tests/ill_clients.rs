//! A server among clients that commit what no honest one does.

#[allow(dead_code, reason = "other tests count")]
mod counting;
mod machines;

use base::{Lsn, PageId, Random, TransactionId};
use counting::{PAGE_SIZE, serve, settings};
use engine::Database;
use engine::log::record::{self, Body};
use engine::page::{Change, Edit, header};
use engine::undo::Undo;
use entresol_node::algorithm;
use entresol_node::channel::{Channel, Incoming, Plain, Transport};
use entresol_node::message::{self, Answer, Copy, Image, Request, ToServer, Transaction};
use executor::{Cluster, Executor};
use machines::Machines;
use std::net::SocketAddr;
use std::rc::Rc;

/// A client that says what it is told to.
struct Script {
    channel: Rc<dyn Channel>,
    incoming: Incoming,
}

impl Script {
    async fn ask(&mut self, body: Request) -> Answer {
        let mut frame = Vec::new();
        message::encode(&ToServer { drops: Vec::new(), body }, 0, &mut frame);
        self.channel.send(&frame).await.expect("it is sent");
        self.incoming.next().await.expect("it is a message").expect("the server is there")
    }

    async fn join(executor: &Executor, at: SocketAddr, own: SocketAddr) -> Script {
        let channel = Plain(executor.clone()).connect(at, None).await.expect("it listens");
        let mut script = Script { incoming: Incoming::new(&channel, executor), channel };
        let hello = Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None };
        assert!(matches!(script.ask(hello).await, Answer::Joined { .. }));
        script
    }

    async fn read(&mut self, copy: Copy) -> Vec<u8> {
        match self.ask(Request::Read { copy, transaction: Transaction(0), leaving: None }).await {
            Answer::Page { bytes, .. } => bytes,
            other => panic!("the server says {other:?}"),
        }
    }

    /// Commits a change of one byte of a page, as one that follows this number of changes.
    async fn commit(&mut self, copy: Copy, transaction: Transaction, mut bytes: Vec<u8>, before: u64) -> Answer {
        let granted = self.ask(Request::Write { copy, transaction }).await;
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let (page, change) = (copy.page, Change::Patch { offset: 32, bytes: &[7] });
        let undo = Undo::PatchPage { page, offset: 32, bytes: &[0] }.stored();
        let mut records = Vec::new();
        let edit = Edit { page, change };
        record::encode(TransactionId::SYSTEM, &Body::Update(&undo), [(before + 1, &edit)], &mut records);
        header::set_sequence(&mut bytes, before);
        change.apply(&mut bytes, Lsn::ZERO);
        header::seal(&mut bytes);
        self.ask(Request::Commit { transaction, records, pages: vec![Image { page, bytes }] }).await
    }
}

/// The log would have a change that no restart could make.
#[test]
fn a_commit_that_does_not_follow_from_the_page_is_refused_though_the_page_has_left_the_server() {
    let machines = Machines::new(3);
    let executors = [machines.server(), machines.client(1)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, own) = (machines.address(0), machines.address(1));
    let algorithm = algorithm::named("cbl").expect("it is one of them");
    let serving = executors[0].spawn(serve(executors[0].clone(), at, algorithm));
    let (server, counters) = cluster.run(serving).expect("they go on");
    let executor = executors[1].clone();
    let task = executors[1].spawn(async move {
        let mut script = Script::join(&executor, at, own).await;
        let copy = |number: u32| Copy { page: PageId::new(counters, number), number: number.into() };
        let bytes = script.read(copy(0)).await;
        let before = header::sequence(&bytes);
        for number in 1..30 {
            script.read(copy(number)).await;
        }
        let refused = script.commit(copy(0), Transaction(1), bytes.clone(), before + 5).await;
        assert!(
            matches!(&refused, Answer::NotCommitted { reason, .. } if reason.contains("changes, and its log records go on")),
            "{refused:?}"
        );
        let committed = script.commit(copy(0), Transaction(2), bytes, before).await;
        assert!(matches!(committed, Answer::Committed { .. }), "{committed:?}");
    });
    cluster.run(task).expect("they go on");
    drop(server);
    executors.iter().for_each(Executor::stop);
    machines.cut_power(&mut Random::stream(3, "cut"));
    let again = machines.server();
    let found = again.run(async {
        let database = Database::open(&again, settings(), "counters").await?;
        let value = |bytes: &[u8]| bytes[0];
        database.transaction(async |tx| tx.read_object(counters, 0, value).await).await
    });
    again.stop();
    assert_eq!(found.expect("it goes on"), Ok(7));
}
