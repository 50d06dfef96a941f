//! A server among clients that lock records of leaves of b-trees, and commit what such locks are not for.

use crate::counting::settings;
use crate::ill_clients::Script;
use crate::machines::Machines;
use base::{PageId, PartitionId, TransactionId};
use engine::log::record::{self, Body};
use engine::organization::b_tree::ROOT;
use engine::page::{Change, Edit, header, slotted};
use engine::undo::Undo;
use engine::{Database, PartitionSpec, UNNUMBERED};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::leaf_records::number_of;
use entresol_node::message::{Answer, RecordLock, Request, Transaction};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::rc::Rc;

/// Bytes of a stored value ahead of the value.
const VERSION_SIZE: u16 = 8;

struct Ground {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 2],
    server: PageServer,
    tree: PartitionId,
}

impl Ground {
    /// A server of a tree with this many records, numbered by their keys.
    fn new(records: u32) -> Ground {
        let machines = Machines::new(3);
        let executors = [machines.server(), machines.client(1)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let algorithm = algorithm::named("ps-aa").expect("it is one of them");
        let (executor, at) = (executors[0].clone(), machines.address(0));
        let serving = executors[0].spawn(async move {
            let database = Database::create(&executor, settings()).await.expect("the medium is empty");
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("there is room");
            for number in 0..records {
                let put = async |tx: &mut engine::Transaction| tx.put(tree, &key(number), &[7; 40]).await;
                database.transaction(put).await.expect("there is room");
            }
            let settings =
                ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: None };
            let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), at, settings).await;
            (server.expect("the port is free"), tree)
        });
        let (server, tree) = cluster.run(serving).expect("they go on");
        Ground { machines, cluster, executors, server, tree }
    }

    fn run<T: 'static>(&mut self, work: impl AsyncFnOnce(Script) -> T + 'static) -> T {
        let (executor, at, own) = (self.executors[1].clone(), self.machines.address(0), self.machines.address(1));
        let task = self.executors[1].spawn(async move { work(Script::join(&executor, at, own).await).await });
        self.cluster.run(task).expect("they go on")
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// What a commit is like of a change of the record of key 1, which has slot 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lie {
    locked: u32,
    writes: bool,
    is_numbered: bool,
    slot: u16,
    /// The key that its undo names.
    named: u32,
    replaces: bool,
}

const HONEST: Lie = Lie { locked: 1, writes: true, is_numbered: false, slot: 1, named: 1, replaces: false };

fn committed(lie: Lie) -> Answer {
    let mut ground = Ground::new(4);
    let tree = ground.tree;
    let answer = ground.run(async move |mut script| {
        let (copy, transaction) = (script.copy(tree, ROOT), Transaction(1));
        let bytes = script.read(copy).await;
        assert_eq!(slotted::search(&bytes, &key(1)), Ok(1));
        script.say(Request::CalledBack { copy }).await;
        let (page, slot) = (copy.page, number_of(&key(lie.locked)));
        let lock = RecordLock { slot, transaction, writes: lie.writes };
        let locked = script.ask(Request::Record { page, lock }).await;
        assert!(matches!(locked, Answer::Record { .. }), "{locked:?}");
        let old = slotted::value(&bytes, lie.slot).to_vec();
        let (key, new) = (key(lie.named), [&old[..8], &[8; 40]].concat());
        let (undo, change) = if lie.replaces {
            let undo = Undo::Replace { partition: tree, key: &key, value: &old };
            (undo, Change::ReplaceValue { slot: lie.slot, value: &new })
        } else {
            let undo = Undo::PatchValue { partition: tree, key: &key, offset: VERSION_SIZE, bytes: &[7] };
            (undo, Change::PatchValue { slot: lie.slot, offset: VERSION_SIZE, bytes: &[9] })
        };
        let sequence = if lie.is_numbered { header::sequence(&bytes) + 1 } else { UNNUMBERED };
        let (mut records, edit) = (Vec::new(), Edit { page, change });
        record::encode(TransactionId::SYSTEM, &Body::Update(&undo.stored()), [(sequence, &edit)], &mut records);
        let (others, pages, redone, sets) = (Vec::new(), Vec::new(), vec![page], Vec::new());
        script.ask(Request::Commit { transaction, others, keeps: false, records, pages, redone, sets }).await
    });
    ground.server.protocol().check().expect("the directory is right");
    answer
}

#[test]
fn with_the_lock_of_a_record_nothing_is_changed_but_its_value_in_place() {
    let answer = committed(HONEST);
    assert!(matches!(answer, Answer::Committed { .. }), "{answer:?}");
    let lies = [
        Lie { locked: 2, ..HONEST },
        Lie { is_numbered: true, ..HONEST },
        Lie { replaces: true, ..HONEST },
        Lie { replaces: true, is_numbered: true, ..HONEST },
        // Of a record that it has not locked, under the name of one that it has.
        Lie { slot: 2, ..HONEST },
        Lie { slot: 2, named: 2, ..HONEST },
    ];
    for lie in lies {
        let answer = committed(lie);
        assert!(matches!(answer, Answer::NotCommitted { .. }), "{lie:?}: {answer:?}");
    }
}

#[test]
fn a_page_of_a_tree_that_is_no_leaf_has_no_records() {
    let mut ground = Ground::new(60);
    let tree = ground.tree;
    ground.run(async move |mut script| {
        let transaction = Transaction(1);
        let lock = RecordLock { slot: number_of(&key(1)), transaction, writes: true };
        let answer = script.ask(Request::Record { page: PageId::new(tree, ROOT), lock }).await;
        assert_eq!(answer, Answer::NoLeaf { page: PageId::new(tree, ROOT), lock });
        script.say(Request::Abort { transaction }).await;
        let root = script.copy(tree, ROOT);
        let bytes = script.read(root).await;
        assert!(slotted::level(&bytes) > 0, "it has leaves below it");
        let leaf = PageId::new(tree, engine::organization::b_tree::child(&bytes, 0));
        let of_leaf = script.ask(Request::Record { page: leaf, lock }).await;
        let Answer::Record { bytes, .. } = of_leaf else { panic!("{of_leaf:?}") };
        assert!(bytes.windows(40).any(|part| part == [7; 40]), "{bytes:?}");
        let absent = RecordLock { slot: number_of(b"none"), ..lock };
        let answer = script.ask(Request::Record { page: leaf, lock: absent }).await;
        assert!(matches!(&answer, Answer::Record { bytes, .. } if bytes.is_empty()), "{answer:?}");
    });
    ground.server.protocol().check().expect("the directory is right");
}
