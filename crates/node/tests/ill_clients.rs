//! A server among clients that commit what no honest one does.

use crate::counting::{PAGE_SIZE, counters, read_of, serve, settings};
use crate::machines::Machines;
use base::{Lsn, PageId, PartitionId, Random, TransactionId};
use engine::log::record::{self, Body, Record};
use engine::page::{Change, Edit, PageKind, header};
use engine::undo::Undo;
use engine::{Database, PartitionSpec, UNNUMBERED};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::{Channel, Incoming, Plain, Transport};
use entresol_node::grants::Grants;
use entresol_node::message::{
    self, Answer, Copy, Image, Leaving, LeavingFate, RecordLock, Request, ToServer, Transaction,
};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

/// A client that says what it is told to.
pub struct Script {
    channel: Rc<dyn Channel>,
    pub incoming: Incoming,
    /// How many copies it has named.
    copies: u64,
}

impl Script {
    /// A name for the next copy of a page.
    pub fn copy(&mut self, partition: PartitionId, number: u32) -> Copy {
        self.copies += 1;
        Copy { page: PageId::new(partition, number), number: self.copies }
    }

    pub async fn say(&self, body: Request) {
        let mut frame = Vec::new();
        message::encode(&ToServer { drops: Vec::new(), body }, 0, &mut frame);
        self.channel.send(&frame).await.expect("it is sent");
    }

    async fn hear(&mut self) -> Answer {
        self.incoming.next().await.expect("it is a message").expect("the server is there")
    }

    /// What is said next, or nothing if the server has hung up.
    async fn hear_if_there(&mut self) -> Option<Answer> {
        self.incoming.next().await.ok().flatten()
    }

    pub async fn ask(&mut self, body: Request) -> Answer {
        self.say(body).await;
        self.hear().await
    }

    pub async fn join(executor: &Executor, at: SocketAddr, own: SocketAddr) -> Script {
        let channel = Plain(executor.for_users()).connect(at, None).await.expect("it listens");
        let mut script = Script { incoming: Incoming::new(&channel, executor), channel, copies: 0 };
        let hello = Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None };
        assert!(matches!(script.ask(hello).await, Answer::Joined { .. }));
        script
    }

    pub async fn read(&mut self, copy: Copy) -> Vec<u8> {
        self.read_instead(copy, None).await
    }

    async fn read_instead(&mut self, copy: Copy, leaving: Option<Copy>) -> Vec<u8> {
        let leaving = leaving.map(|copy| Leaving { copy, unused_ns: 0, was_used: true });
        match self.ask(read_of(copy, leaving)).await {
            Answer::Page { bytes, fate, .. } => {
                assert_eq!(fate == LeavingFate::Returned, leaving.is_some());
                bytes
            }
            other => panic!("the server says {other:?}"),
        }
    }

    async fn read_all(&mut self, partition: PartitionId, numbers: Range<u32>) {
        for number in numbers {
            let copy = self.copy(partition, number);
            self.read(copy).await;
        }
    }

    /// Commits a change of one byte of a page, as one that follows this number of changes. The page is sent, or the record is to be redone.
    async fn commit(&mut self, copy: Copy, transaction: Transaction, page: Option<Vec<u8>>, before: u64) -> Answer {
        let granted = self.ask(Request::Write { copy, transaction }).await;
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let records = change_of(copy.page, before, 0);
        let (mut pages, mut redone) = (Vec::new(), Vec::new());
        match page {
            Some(mut bytes) => {
                header::set_sequence(&mut bytes, before);
                CHANGE.apply(&mut bytes, Lsn::ZERO);
                header::seal(&mut bytes);
                pages.push(Image { page: copy.page, bytes });
            }
            None => redone.push(copy.page),
        }
        let others = Vec::new();
        self.ask(Request::Commit { transaction, others, keeps: false, records, pages, redone, sets: Vec::new() }).await
    }
}

const CHANGE: Change<'static> = Change::Patch { offset: 32, bytes: &[7] };

/// The log record of that change of a page, as one of this byte that follows this number of changes.
fn change_of(page: PageId, before: u64, old: u8) -> Vec<u8> {
    numbered_change_of(page, before + 1, old)
}

fn numbered_change_of(page: PageId, sequence: u64, old: u8) -> Vec<u8> {
    let undo = Undo::PatchPage { page, offset: 32, bytes: &[old] }.stored();
    let (mut records, edit) = (Vec::new(), Edit { page, change: CHANGE });
    record::encode(TransactionId::SYSTEM, &Body::Update(&undo), [(sequence, &edit)], &mut records);
    records
}

/// The log would have a change that no restart could make.
#[test]
fn a_commit_that_does_not_follow_from_the_page_is_refused_though_the_page_has_left_the_server() {
    [true, false].into_iter().for_each(refuse_what_does_not_follow);
}

fn refuse_what_does_not_follow(sends_page: bool) {
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
        let first = script.copy(counters, 0);
        let bytes = script.read(first).await;
        let before = header::sequence(&bytes);
        script.read_all(counters, 1..30).await;
        let sent = || sends_page.then(|| bytes.clone());
        let refused = script.commit(first, Transaction(1), sent(), before + 5).await;
        assert!(
            matches!(&refused, Answer::NotCommitted { reason, .. } if reason.contains("changes, and its log records go on")),
            "{refused:?}"
        );
        let committed = script.commit(first, Transaction(2), sent(), before).await;
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

/// A server, what it serves pages of, and a client that has joined.
struct Ground {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 2],
    server: PageServer,
    counters: PartitionId,
    tree: PartitionId,
}

impl Ground {
    fn new(algorithm: &str, grants: Option<Grants>) -> Ground {
        let machines = Machines::new(3);
        let executors = [machines.server(), machines.client(1)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let algorithm = algorithm::named(algorithm).expect("it is one of them");
        let (executor, at) = (executors[0].clone(), machines.address(0));
        let serving = executors[0].spawn(async move {
            let database = Database::create(&executor, settings()).await.expect("the medium is empty");
            let counters = database.create_partition(counters()).await.expect("there is room");
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("there is room");
            let settings =
                ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants };
            let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), at, settings).await;
            (server.expect("the port is free"), counters, tree)
        });
        let (server, counters, tree) = cluster.run(serving).expect("they go on");
        Ground { machines, cluster, executors, server, counters, tree }
    }

    /// Has a client do what it is told to.
    fn run<T: 'static>(&mut self, work: impl AsyncFnOnce(Script) -> T + 'static) -> T {
        let (executor, at, own) = (self.executors[1].clone(), self.machines.address(0), self.machines.address(1));
        let task = self.executors[1].spawn(async move { work(Script::join(&executor, at, own).await).await });
        self.cluster.run(task).expect("they go on")
    }

    fn capacity(&self) -> u32 {
        self.server.buffer().space(self.tree).capacity()
    }
}

/// While the file grows for one page of a commit, the others stay where they can be looked at.
#[test]
fn a_commit_that_does_not_follow_is_refused_though_the_file_grows_for_it() {
    let mut ground = Ground::new("cbl", None);
    let (counters, tree, first) = (ground.counters, ground.tree, ground.capacity());
    let buffer = Rc::clone(ground.server.buffer());
    let refused = ground.run(async move |mut script| {
        let capacity = || buffer.space(tree).capacity();
        script.read_all(tree, first..first + 1).await;
        // The page is not the one behind the last before the file grows once more.
        let second = capacity();
        let added = script.copy(tree, second + (second - first));
        script.read(added).await;
        script.read_all(tree, second..second + 1).await;
        assert_eq!(capacity(), added.page.number);
        let root = script.copy(tree, 1);
        let transaction = Transaction(1);
        let mut changed = script.read(root).await;
        let granted = script.ask(Request::Write { copy: root, transaction }).await;
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let ahead = header::sequence(&changed) + 5;
        let mut records = Vec::new();
        let (patch, page) = (Change::Patch { offset: 32, bytes: &[7] }, root.page);
        let edit = Edit { page, change: patch };
        record::encode(TransactionId::SYSTEM, &Body::System, [(ahead + 1, &edit)], &mut records);
        header::set_sequence(&mut changed, ahead);
        patch.apply(&mut changed, Lsn::ZERO);
        header::seal(&mut changed);
        let mut new = vec![0; PAGE_SIZE];
        header::format(&mut new, added.page);
        let image = vec![0; PAGE_SIZE - 32];
        let format = Change::Format { kind: PageKind::Direct, level: 0, count: 0, image: &image };
        let edit = Edit { page: added.page, change: format };
        record::encode(TransactionId::SYSTEM, &Body::System, [(1, &edit)], &mut records);
        format.apply(&mut new, Lsn::ZERO);
        header::seal(&mut new);
        let granted = script.ask(Request::Write { copy: added, transaction }).await;
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let pages = vec![Image { page, bytes: changed }, Image { page: added.page, bytes: new }];
        let (others, redone) = (Vec::new(), Vec::new());
        script
            .say(Request::Commit { transaction, others, keeps: false, records, pages, redone, sets: Vec::new() })
            .await;
        for number in 0..30 {
            let copy = script.copy(counters, number);
            script.say(read_of(copy, None)).await;
        }
        loop {
            match script.hear().await {
                Answer::Page { .. } => {}
                other => break other,
            }
        }
    });
    assert!(
        matches!(&refused, Answer::NotCommitted { reason, .. } if reason.contains("changes, and its log records go on")),
        "{refused:?}"
    );
}

#[test]
fn a_client_that_may_only_read_does_not_have_files_grow() {
    let grants = serde_json::from_str(r#"{ "node": { "": { "read": ["*"] } } }"#).expect("a table");
    let mut ground = Ground::new("cbl", Some(grants));
    let (tree, capacity) = (ground.tree, ground.capacity());
    ground.run(async move |mut script| {
        for number in capacity..capacity + 3 {
            let copy = script.copy(tree, number);
            script.ask(read_of(copy, None)).await;
        }
    });
    assert_eq!(ground.capacity(), capacity);
}

#[test]
fn a_page_that_comes_back_is_taken_only_as_it_was() {
    let mut ground = Ground::new("fwd-s", None);
    let counters = ground.counters;
    let buffer = Rc::clone(ground.server.buffer());
    ground.run(async move |mut script| {
        let page = PageId::new(counters, 0);
        let is_here = || buffer.pool().borrow().frame_of(page).is_some();
        let first = script.copy(counters, 0);
        let sound = script.read(first).await;
        let mut forged = sound.clone();
        header::set_sequence(&mut forged, 1000);
        header::seal(&mut forged);
        let mut copy = first;
        for (from, bytes, is_taken) in [(1, forged, false), (17, sound.clone(), true)] {
            script.read_all(counters, from..from + 13).await;
            assert!(!is_here());
            let other = script.copy(counters, from + 13);
            script.read_instead(other, Some(copy)).await;
            script.say(Request::Returned { copy, bytes }).await;
            // What was said before has been heard.
            script.read_all(counters, from + 14..from + 15).await;
            assert_eq!(is_here(), is_taken);
            copy = script.copy(counters, 0);
            assert_eq!(script.read(copy).await, sound);
        }
    });
}

/// Records that are damaged, at each of their bytes, are committed only if they say something else that follows; others then see that.
#[test]
fn no_log_records_that_are_to_be_redone_do_harm() {
    let mut ground = Ground::new("cbl", None);
    let counters = ground.counters;
    let (committed, refused) = ground.run(async move |mut script| {
        let copy = script.copy(counters, 0);
        let mut page = script.read(copy).await;
        let (mut committed, mut refused, mut number) = (0, 0, 0);
        for at in 0..change_of(copy.page, 0, 0).len() {
            for mask in [1, 0x80, 0xff] {
                let mut records = change_of(copy.page, committed, page[32]);
                records[at] ^= mask;
                number += 1;
                let transaction = Transaction(number);
                let granted = script.ask(Request::Write { copy, transaction }).await;
                assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
                let (others, pages, redone) = (Vec::new(), Vec::new(), vec![copy.page]);
                let kept = records.clone();
                let commit =
                    Request::Commit { transaction, others, keeps: false, records, pages, redone, sets: Vec::new() };
                match script.ask(commit).await {
                    Answer::Committed { .. } => {
                        committed += 1;
                        let record = Record::decode(&kept).expect("it is committed");
                        record.edits().for_each(|(_, edit)| edit.change.apply(&mut page, Lsn::ZERO));
                    }
                    Answer::NotCommitted { .. } => refused += 1,
                    other => panic!("byte {at}: {other:?}"),
                }
            }
        }
        (committed, refused)
    });
    assert!(committed > 0 && refused > 50, "{committed} {refused}");
    assert_eq!(ground.server.counts().redone, committed, "pages of commits alone are counted");
    let found = ground.run(async move |mut script| {
        let copy = script.copy(counters, 0);
        header::sequence(&script.read(copy).await)
    });
    assert_eq!(found, committed, "each is there, and no other");
    ground.server.protocol().check().expect("the directory is right");
}

/// What comes of a commit of one change of a page by a node that has read it, given it up, and has locked its record.
fn changed_by_record(grants: Option<&str>, writes: bool, sends_page: bool, is_numbered: bool) -> Option<Answer> {
    let mut ground =
        Ground::new("ps-aa", grants.map(|grants| serde_json::from_str(grants).expect("a table of grants")));
    let counters = ground.counters;
    let answer = ground.run(async move |mut script| {
        let (copy, transaction) = (script.copy(counters, 0), Transaction(1));
        let mut bytes = script.read(copy).await;
        let before = header::sequence(&bytes);
        script.say(Request::CalledBack { copy }).await;
        let lock = RecordLock { slot: 0, transaction, writes };
        let locked = script.ask(Request::Record { page: copy.page, lock }).await;
        assert!(matches!(locked, Answer::Record { .. }), "{locked:?}");
        let records = numbered_change_of(copy.page, if is_numbered { before + 1 } else { UNNUMBERED }, 0);
        let (mut pages, mut redone, others) = (Vec::new(), Vec::new(), Vec::new());
        if sends_page {
            CHANGE.apply(&mut bytes, Lsn::ZERO);
            header::set_sequence(&mut bytes, before + 1);
            header::seal(&mut bytes);
            pages.push(Image { page: copy.page, bytes });
        } else {
            redone.push(copy.page);
        }
        script
            .say(Request::Commit { transaction, others, keeps: false, records, pages, redone, sets: Vec::new() })
            .await;
        script.hear_if_there().await
    });
    ground.server.protocol().check().expect("the directory is right");
    answer
}

#[test]
fn a_lock_of_a_record_is_none_of_its_page() {
    let read_alone = Some(r#"{ "node": { "": { "read": ["*"] } } }"#);
    for (grants, writes) in [(read_alone, false), (None, false), (None, true)] {
        for (sends_page, is_numbered) in [(true, true), (false, true), (false, false)] {
            let answer = changed_by_record(grants, writes, sends_page, is_numbered);
            let told = format!("{writes} {sends_page} {is_numbered}: {answer:?}");
            match answer {
                None => assert!(!writes || sends_page, "{told}"),
                Some(Answer::NotCommitted { .. }) => assert!(writes && is_numbered, "{told}"),
                Some(Answer::Committed { .. }) => assert!(writes && !is_numbered, "{told}"),
                _ => panic!("{told}"),
            }
        }
    }
}

#[test]
fn nothing_is_locked_that_no_partition_has_as_a_record_with_a_number() {
    let mut ground = Ground::new("ps-aa", None);
    let (counters, tree) = (ground.counters, ground.tree);
    let is_hung_up = ground.run(async move |mut script| {
        let transaction = Transaction(1);
        for (page, slot) in [(PageId::new(tree, 0), 0), (PageId::new(counters, 0), 1)] {
            let lock = RecordLock { slot, transaction, writes: false };
            let answer = script.ask(Request::Record { page, lock }).await;
            assert!(matches!(answer, Answer::NoRecord { is_denied: false, .. }), "{answer:?}");
        }
        // The server has heard of none.
        let copy = script.copy(tree, 0);
        script.read(copy).await;
        let granted = script.ask(Request::Write { copy, transaction: Transaction(2) }).await;
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let locks = vec![RecordLock { slot: 0, transaction, writes: true }];
        script.say(Request::Fell { copy, locks }).await;
        script.hear_if_there().await.is_none()
    });
    assert!(is_hung_up);
    ground.server.protocol().check().expect("the directory is right");
}
