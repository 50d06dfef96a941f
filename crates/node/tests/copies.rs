//! A client by itself: what it does with copies of which a commit is under way.

use base::{PageId, PartitionId};
use engine::lock::Mode;
use entresol_node::client::{Client, PageLock};
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
    client.send_commit(Vec::new(), Vec::new());
    assert!(!client.may_send(copy), "it is not committed");
    client.refused();
    assert!(client.is_resident(PAGE) && !client.may_send(copy), "it never will be");
    client.committed_unchanged(reader);
    assert!(gives_up(&client.take_due().messages, copy));
}
