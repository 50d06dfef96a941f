//! A client by itself: what it does with copies of which a commit is under way.

use base::{PageId, PartitionId};
use engine::lock::Mode;
use entresol_node::client::{Client, Failure, PageLock};
use entresol_node::message::{Copy, Request, ToServer, Transaction};

const PAGE: PageId = PageId::new(PartitionId(1), 7);

fn begin(client: &mut Client, mode: Mode) -> Transaction {
    let transaction = client.begin();
    assert_eq!(client.lock(transaction, PAGE, mode), PageLock::Held);
    transaction
}

/// Asks for the page on behalf of a transaction, with its write lock or without.
fn ask(client: &mut Client, transaction: Transaction, writes: bool) -> Copy {
    match client.request(PAGE, transaction, writes).0.body {
        Request::Read { copy, .. } => copy,
        other => panic!("it asks by {other:?}"),
    }
}

/// A client with a copy that it may write, and the transaction of which that lock is.
fn writing() -> (Client, Copy, Transaction) {
    let mut client = Client::default();
    let transaction = begin(&mut client, Mode::Exclusive);
    let copy = ask(&mut client, transaction, true);
    assert!(client.granted(copy, transaction) && client.arrived(copy, false).is_some());
    (client, copy, transaction)
}

fn gives_up(said: &[ToServer], copy: Copy) -> bool {
    said.iter().any(|message| message.drops.contains(&copy) || message.body == Request::CalledBack { copy })
}

#[test]
fn no_copy_is_sent_to_others_whose_commit_was_refused() {
    let (mut client, copy, writer) = writing();
    client.join_commit(writer, [PAGE]);
    let reader = begin(&mut client, Mode::Shared);
    client.send_commit(Vec::new(), Vec::new(), Vec::new());
    assert!(!client.may_send(copy), "it is not committed");
    client.refused();
    assert!(client.is_resident(PAGE) && !client.may_send(copy), "it never will be");
    client.committed_unchanged(reader);
    assert!(gives_up(&client.take_due().messages, copy));
}

/// A client that commits a transaction which has the write lock of a page that it has not changed.
fn committing_locked() -> (Client, Copy) {
    let (mut client, copy, writer) = writing();
    client.join_commit(writer, []);
    client.send_commit(Vec::new(), Vec::new(), Vec::new());
    client.left(PAGE);
    (client, copy)
}

#[test]
fn a_copy_with_a_write_lock_in_a_commit_stays_until_the_answer() {
    let (mut client, copy) = committing_locked();
    let reader = begin(&mut client, Mode::Shared);
    assert_eq!(ask(&mut client, reader, false), copy);
    client.committed_unchanged(reader);
    client.call_back(copy);
    let arrival = client.arrived(copy, false).expect("it was asked for");
    assert!(!arrival.is_called, "the server would not let it go");
    assert!(client.take_due().messages.is_empty());
    client.committed();
    assert!(gives_up(&client.take_due().messages, copy));
}

/// A client that commits a transaction which has given up waiting for a page and its write lock.
fn committing_unseen(is_granted: bool) -> (Client, Copy) {
    let mut client = Client::default();
    let writer = begin(&mut client, Mode::Exclusive);
    let copy = ask(&mut client, writer, true);
    assert!(!is_granted || client.granted(copy, writer));
    client.join_commit(writer, []);
    client.send_commit(Vec::new(), Vec::new(), Vec::new());
    (client, copy)
}

#[test]
fn a_copy_that_could_not_be_read_stays_while_a_commit_has_its_write_lock() {
    let (mut left, copy) = committing_locked();
    let reader = begin(&mut left, Mode::Shared);
    ask(&mut left, reader, false);
    left.committed_unchanged(reader);
    for (mut client, copy) in [(left, copy), committing_unseen(true)] {
        client.call_back(copy);
        let failure = client.failed(copy);
        assert_eq!(failure, Failure { was_waited_for: true, ..Failure::default() });
        assert!(client.take_due().messages.is_empty());
        client.committed();
        assert!(gives_up(&client.take_due().messages, copy));
    }
    // The server may have refused to have it read at all: it is asked for anew.
    let (mut client, copy) = committing_unseen(false);
    let failure = client.failed(copy);
    assert!(failure.answer.is_some_and(|answer| gives_up(&[answer], copy)));
    let reader = begin(&mut client, Mode::Shared);
    assert_ne!(ask(&mut client, reader, false), copy);
}
