//! A client by itself: what it does with copies of which a commit is under way.

use base::{PageId, PartitionId};
use engine::lock::Mode;
use entresol_node::client::{Client, Failure, Granule, PageLock, RecordAccess, WriteLock};
use entresol_node::message::{
    ClientId, Copy, Leaving, LeavingFate, RecordLock, Request, Secret, Session, ToServer, Transaction, WaitsFor,
};

const PAGE: PageId = PageId::new(PartitionId(1), 7);

fn begin(client: &mut Client, mode: Mode) -> Transaction {
    let transaction = client.begin();
    assert_eq!(client.lock(transaction, PAGE, mode), PageLock::Held);
    transaction
}

/// Asks for the page on behalf of a transaction, with its write lock or without.
fn ask(client: &mut Client, transaction: Transaction, writes: bool) -> Copy {
    match client.request((PAGE, SECRET), transaction, writes).0.body {
        Request::Read { copy, .. } => copy,
        other => panic!("it asks by {other:?}"),
    }
}

/// A client with a copy that it may write, and the transaction of which that lock is.
fn writing() -> (Client, Copy, Transaction) {
    let mut client = Client::default();
    let transaction = begin(&mut client, Mode::Exclusive);
    let copy = ask(&mut client, transaction, true);
    assert!(client.granted(copy, transaction) && client.arrived(copy, LeavingFate::Dropped).is_some());
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
    client.send_commit(Vec::new(), Default::default(), Vec::new());
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
    client.send_commit(Vec::new(), Default::default(), Vec::new());
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
    let arrival = client.arrived(copy, LeavingFate::Dropped).expect("it was asked for");
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
    client.send_commit(Vec::new(), Default::default(), Vec::new());
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

/// Whether a copy is asked for on behalf of this transaction.
fn asks<'a>(said: impl IntoIterator<Item = &'a ToServer>, copy: Copy, by: Transaction) -> bool {
    said.into_iter().any(|message| matches!(message.body, Request::Read { copy: of, transaction, .. } if (of, transaction) == (copy, by)))
}

/// What was asked for by one that has ended is asked for on behalf of another one that waits for it, or not at all.
#[test]
fn a_request_does_not_outlive_its_transaction() {
    let end: [fn(&mut Client, Transaction); 3] = [
        |client, ended| drop(client.aborted(ended, &Default::default())),
        Client::committed_unchanged,
        |client, ended| client.join_commit(ended, []),
    ];
    for end in end {
        let mut client = Client::default();
        let first = begin(&mut client, Mode::Shared);
        let copy = ask(&mut client, first, false);
        let second = begin(&mut client, Mode::Shared);
        client.awaits(second, Some(PAGE));
        end(&mut client, first);
        let due = client.take_due();
        assert!(asks(&due.messages, copy, second) && due.unwanted.is_empty(), "{due:?}");
        end(&mut client, second);
        let due = client.take_due();
        assert!(gives_up(&due.messages, copy), "{due:?}");
        assert_eq!(due.unwanted, [(copy, None)]);
        // It may be on its way: that is late.
        assert_eq!(client.arrived(copy, LeavingFate::Dropped), None);
        let third = begin(&mut client, Mode::Shared);
        assert_ne!(ask(&mut client, third, false), copy);
    }
}

const SESSION: Session = Session { epoch: 1, client: ClientId(0) };
const SECRET: Secret = Secret(9);

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(1), number)
}

/// A client without transactions in whose memory these pages are, and their copies.
fn holding(pages: std::ops::Range<u32>) -> (Client, Vec<Copy>) {
    let mut client = Client::default();
    client.join(SESSION, Secret(8));
    let copies = pages.map(|number| fetch(&mut client, page(number), LeavingFate::Dropped).copy).collect();
    (client, copies)
}

/// A page that was read: its copy, what had to make room for it, what is to be forgotten, and what was said to be dropped.
struct Fetched {
    copy: Copy,
    leaving: Option<Leaving>,
    forgets: Option<Copy>,
    drops: Vec<Copy>,
}

/// A transaction reads a page, and ends.
fn fetch(client: &mut Client, page: PageId, fate: LeavingFate) -> Fetched {
    let transaction = client.begin();
    assert_eq!(client.lock(transaction, page, Mode::Shared), PageLock::Held);
    let ToServer { drops, body } = client.request((page, SECRET), transaction, false).0;
    let Request::Read { copy, leaving, .. } = body else { panic!("it asks by {body:?}") };
    let forgets = client.arrived(copy, fate).expect("it was asked for").forgets;
    client.committed_unchanged(transaction);
    Fetched { copy, leaving, forgets, drops }
}

#[test]
fn a_copy_that_others_are_offered_is_kept_until_it_was_sent_or_is_called_back_or_wanted_here() {
    for end in 0..3 {
        let (mut client, copies) = holding(0..1);
        let kept = copies[0];
        assert_eq!(client.left(page(0)), (Some(kept), None));
        let leaving = fetch(&mut client, page(1), LeavingFate::Offered).leaving;
        assert_eq!(leaving.map(|leaving| (leaving.copy, leaving.was_used)), Some((kept, true)));
        assert!(client.may_send(kept));
        let said = match end {
            0 => {
                assert_eq!(client.sent(kept), Some(kept));
                client.decline(page(7))
            }
            1 => {
                let called = client.call_back(kept);
                assert_eq!(called.forgets, Some(kept));
                called.answer.expect("it is here")
            }
            _ => {
                let transaction = begin(&mut client, Mode::Shared);
                let (said, forgotten) = client.request((page(0), SECRET), transaction, false);
                assert_eq!(forgotten, Some(kept));
                said
            }
        };
        assert!(gives_up(&[said], kept) && !client.may_send(kept), "{end}");
    }
}

#[test]
fn few_copies_are_kept_that_no_one_takes() {
    let (mut client, copies) = holding(0..100);
    let (mut forgotten, mut said) = (Vec::new(), Vec::new());
    for number in 0..100 {
        client.left(page(number));
        let fetched = fetch(&mut client, page(1_000 + number), LeavingFate::Offered);
        forgotten.extend(fetched.forgets);
        said.extend(fetched.drops);
    }
    let kept = copies.iter().filter(|copy| client.may_send(**copy)).count();
    assert!((1..=16).contains(&kept), "{kept}");
    assert_eq!(forgotten, copies[..100 - kept]);
    said.extend(client.decline(page(0)).drops);
    assert_eq!(said, forgotten, "the server is told");
}

#[test]
fn what_is_offered_is_taken_by_one_without_transactions_and_is_unused_until_one_uses_it() {
    let (mut client, copies) = holding(0..1);
    assert!(client.is_free_for(page(1)) && !client.is_free_for(page(0)), "it has that");
    let busy = client.begin();
    assert!(!client.is_free_for(page(1)));
    client.committed_unchanged(busy);
    for is_used in [false, true] {
        let accepted = client.accept((page(1), SECRET)).0.body;
        let Request::Accept { copy, leaving: None, .. } = accepted else { panic!("it takes it by {accepted:?}") };
        assert!(client.arrived_from_peer((SESSION, SECRET), copy, LeavingFate::Dropped).is_some());
        assert!(client.is_for_others(page(1)) && !client.is_for_others(page(0)));
        if is_used {
            let reader = client.begin();
            assert_eq!(client.lock(reader, page(1), Mode::Shared), PageLock::Held);
            client.committed_unchanged(reader);
        }
        assert_eq!((client.is_for_others(page(1)), client.is_last(copy)), (!is_used, !is_used));
        client.left(page(1));
        let leaving = fetch(&mut client, page(2 + u32::from(is_used)), LeavingFate::Dropped).leaving;
        assert_eq!(leaving.map(|leaving| (leaving.copy, leaving.was_used)), Some((copy, is_used)));
    }
    assert!(!client.is_last(copies[0]), "its own transactions have used it");
}

#[test]
fn an_offer_that_comes_to_nothing_leaves_nothing_and_a_transaction_asks_by_itself() {
    let (mut client, _) = holding(0..0);
    let Request::Accept { copy, .. } = client.accept((page(1), SECRET)).0.body else { panic!("it is taken") };
    let reader = client.begin();
    assert_eq!(client.lock(reader, page(1), Mode::Shared), PageLock::Held);
    assert_eq!(client.enter(reader, page(1)), [], "it comes soon or never");
    let failure = client.failed(copy);
    assert!(failure.was_waited_for && failure.was_speculative);
    assert!(failure.answer.is_some_and(|answer| gives_up(&[answer], copy)));
    let asked = client.request((page(1), SECRET), reader, false).0.body;
    assert!(matches!(asked, Request::Read { copy: next, .. } if next != copy), "{asked:?}");
}

#[test]
fn a_page_that_was_offered_and_has_come_is_asked_for_as_any_other() {
    let (mut client, _) = holding(0..0);
    let Request::Accept { copy, .. } = client.accept((page(1), SECRET)).0.body else { panic!("it is taken") };
    assert!(client.is_speculative(page(1)) && client.arrived(copy, LeavingFate::Dropped).is_some());
    let reader = client.begin();
    assert_eq!(client.lock(reader, page(1), Mode::Shared), PageLock::Held);
    client.left(page(1));
    assert!(matches!(client.request((page(1), SECRET), reader, false).0.body, Request::Read { .. }));
    assert!(!client.is_speculative(page(1)) && !client.failed(copy).was_speculative, "a transaction waits for it");
}

#[test]
fn what_another_client_says_of_a_copy_that_leaves_is_not_believed_to_be_what_the_server_knows() {
    let (mut client, copies) = holding(0..1);
    client.left(page(0));
    let reader = client.begin();
    assert_eq!(client.lock(reader, page(1), Mode::Shared), PageLock::Held);
    let Request::Read { copy, .. } = client.request((page(1), SECRET), reader, false).0.body else {
        panic!("it is asked for")
    };
    assert!(client.arrived_from_peer((SESSION, SECRET), copy, LeavingFate::Dropped).is_some());
    // The server may have had it offered, and knows of it until it is told.
    assert!(gives_up(&[client.decline(page(7))], copies[0]));
}

/// A transaction that comes to records of a page, here, by way of that.
fn reading_a_record() -> (Client, Copy, Transaction) {
    let mut client = Client::default();
    let reader = client.begin();
    assert_eq!(client.granule(reader, PAGE), Granule::Page);
    assert_eq!(client.lock(reader, PAGE, Mode::Shared), PageLock::Held);
    let copy = ask(&mut client, reader, false);
    assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
    client.note_record(reader, PAGE, (3, false));
    (client, copy, reader)
}

#[test]
fn a_transaction_that_waits_behind_a_copy_which_falls_waits_no_more() {
    let (mut client, copy, reader) = reading_a_record();
    client.awaits(reader, Some(PAGE));
    client.fall(copy);
    let late = client.begin();
    assert_eq!(client.granule(late, PAGE), Granule::Page);
    assert_eq!(client.lock(late, PAGE, Mode::Shared), PageLock::Wait);
    client.awaits(reader, None);
    let due = client.take_due();
    assert!(due.falls.len() == 1 && due.wakes, "{due:?}");
    assert!(!client.waits(late), "its lock is granted");
}

#[test]
fn a_page_that_is_needed_as_a_whole_is_waited_for_though_its_records_are_locked() {
    let mut client = Client::default();
    let (reader, other) = (client.begin(), client.begin());
    assert_eq!(client.granule(reader, PAGE), Granule::Page);
    assert!(matches!(client.access_record(other, PAGE, (1, false)), RecordAccess::Ask(_)));
    client.record_granted(PAGE, RecordLock { slot: 1, transaction: other, writes: false }, false);
    assert!(!client.use_page(other, PAGE), "it has locks of its records");
    assert_eq!(client.granule(reader, PAGE), Granule::Page);
    assert_eq!(client.lock(reader, PAGE, Mode::Shared), PageLock::Held);
    let copy = ask(&mut client, reader, false);
    assert_eq!(client.by_records(copy), (false, None, None));
    assert!(client.is_coming(PAGE));
}

/// A client that has a copy which a transaction of it reads.
fn reading() -> (Client, Copy, Transaction) {
    let mut client = Client::default();
    let reader = begin(&mut client, Mode::Shared);
    let copy = ask(&mut client, reader, false);
    assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
    (client, copy, reader)
}

#[test]
fn a_page_that_was_called_back_and_is_asked_for_no_more_can_be_locked_again() {
    let (mut client, copy, reader) = reading();
    assert!(client.call_back(copy).answer.is_some(), "it is in use");
    client.left(PAGE);
    assert_eq!(ask(&mut client, reader, false), copy);
    client.committed_unchanged(reader);
    assert!(gives_up(&client.take_due().messages, copy));
    let other = begin(&mut client, Mode::Shared);
    assert_ne!(ask(&mut client, other, false), copy);
}

/// What another node changes of a page that a committing transaction has looked at is to be committed behind it.
#[test]
fn what_a_committing_transaction_has_looked_at_stays_until_the_answer() {
    // It is there, changed by another one that is rolled back, or on its way again.
    let between: [fn(&mut Client, Copy); 2] = [
        |client, copy| {
            let writer = begin(client, Mode::Exclusive);
            assert!(matches!(client.write(writer, PAGE), WriteLock::Ask(_)) && client.granted(copy, writer));
            client.aborted(writer, &[PAGE].into());
            assert_eq!(client.take_due().discards, [PAGE]);
        },
        |client, copy| {
            let other = begin(client, Mode::Shared);
            client.left(PAGE);
            assert_eq!(ask(client, other, false), copy);
            client.committed_unchanged(other);
            assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
        },
    ];
    for (between, is_away) in between.into_iter().flat_map(|between| [(between, false), (between, true)]) {
        let (mut client, copy, reader) = reading();
        if is_away {
            client.left(PAGE);
            assert_eq!(ask(&mut client, reader, false), copy);
        }
        client.join_commit(reader, []);
        client.send_commit(Vec::new(), Default::default(), Vec::new());
        if is_away {
            assert!(client.take_due().unwanted.is_empty());
            assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
        }
        between(&mut client, copy);
        assert_eq!(client.call_back(copy).answer, None);
        assert!(!gives_up(&client.take_due().messages, copy), "the server would let others change it");
        client.committed();
        let due = client.take_due();
        assert!(gives_up(&due.messages, copy) || gives_up(&[client.decline(page(9))], copy), "{due:?}");
    }
}

/// At the server a request is one transaction's, which waits by it for who has the page. One that has locked the page in the node and does not
/// wait for it, for its call is over, is in the way of none of them by that.
#[test]
fn no_request_is_made_in_the_name_of_a_transaction_that_does_not_wait_for_it() {
    for is_waited_for in [true, false] {
        let mut client = Client::default();
        let [first, given_up, waiting] = [(); 3].map(|()| begin(&mut client, Mode::Shared));
        client.awaits(first, Some(PAGE));
        let copy = ask(&mut client, first, false);
        client.awaits(given_up, Some(PAGE));
        client.awaits(given_up, None);
        client.awaits(waiting, Some(if is_waited_for { PAGE } else { page(9) }));
        client.aborted(first, &Default::default());
        let due = client.take_due();
        assert!(!asks(&due.messages, copy, given_up), "{due:?}");
        assert_eq!(asks(&due.messages, copy, waiting), is_waited_for, "{due:?}");
        assert_eq!(gives_up(&due.messages, copy), !is_waited_for, "{due:?}");
        assert_eq!(due.unwanted.is_empty(), is_waited_for, "{due:?}");
    }
}

/// It may have given up waiting while another one has begun to: that waits for who has the page, and not for it.
#[test]
fn a_request_is_the_transactions_that_waits_for_it_when_the_one_that_has_asked_does_no_more() {
    let (mut client, mut others) = (Client::default(), Vec::new());
    let first = begin(&mut client, Mode::Shared);
    client.awaits(first, Some(PAGE));
    let copy = ask(&mut client, first, false);
    // One that waits already, and one that comes when it has.
    for is_late in [false, true] {
        let other = begin(&mut client, Mode::Shared);
        if !is_late {
            assert_eq!(client.enter(other, PAGE), [], "the one that has asked waits");
            client.awaits(other, Some(PAGE));
        }
        let before = others.last().copied().unwrap_or(first);
        let again = client.awaits(before, None);
        assert_eq!(asks(&again, copy, other), !is_late, "{again:?}");
        if is_late {
            let again = client.enter(other, PAGE);
            assert!(asks(&again, copy, other), "{again:?}");
            client.awaits(other, Some(PAGE));
        }
        assert_eq!(client.tell_waits(), None, "none waits for another one of the node");
        let again = client.ask_again(PAGE);
        assert!(asks(&again, copy, other), "{again:?}");
        others.push(other);
    }
}

/// As above, if the write lock is to come with the page: that is its transaction's, which finds it when it comes to the page again.
#[test]
fn a_request_for_a_write_lock_stays_its_transactions() {
    let mut client = Client::default();
    let [reader, writer] = [Mode::Shared, Mode::Update].map(|mode| begin(&mut client, mode));
    client.awaits(writer, Some(PAGE));
    let copy = ask(&mut client, writer, true);
    client.awaits(reader, Some(PAGE));
    assert_eq!(client.awaits(writer, None), []);
    assert_eq!(client.enter(reader, PAGE), []);
    let again = client.ask_again(PAGE);
    assert!(asks(&again, copy, writer), "{again:?}");
    assert!(client.granted(copy, writer) && client.arrived(copy, LeavingFate::Dropped).is_some());
}

/// Its bytes have left the memory and were asked for by another one, which has ended: it keeps the read lock.
#[test]
fn who_has_seen_a_page_keeps_it_when_a_transaction_ends_that_has_asked_for_it_again() {
    let (mut client, copy, reader) = reading();
    client.left(PAGE);
    let other = begin(&mut client, Mode::Shared);
    client.awaits(other, Some(PAGE));
    assert_eq!(ask(&mut client, other, false), copy);
    client.aborted(other, &Default::default());
    let due = client.take_due();
    assert!(!gives_up(&due.messages, copy) && due.unwanted.is_empty(), "{due:?}");
    assert!(!asks(&due.messages, copy, reader), "the server sends it without a wait");
    // Should it not come, it is asked for again.
    assert!(client.ask_again(PAGE).is_some());
    let late = begin(&mut client, Mode::Shared);
    assert_eq!(client.enter(late, PAGE), []);
    client.awaits(late, Some(PAGE));
    assert_eq!(client.tell_waits(), None, "it waits for no one");
    assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
}

/// It has not come to that yet, and does in its next step: the request keeps its place at the server.
#[test]
fn a_request_is_handed_to_one_that_was_granted_the_page_in_the_node() {
    for is_given_up in [false, true] {
        let mut client = Client::default();
        let first = begin(&mut client, Mode::Exclusive);
        client.awaits(first, Some(PAGE));
        let copy = ask(&mut client, first, false);
        let next = client.begin();
        assert_eq!(client.lock(next, PAGE, Mode::Shared), PageLock::Wait);
        client.aborted(first, &Default::default());
        let due = client.take_due();
        assert!(asks(&due.messages, copy, next) && due.unwanted.is_empty(), "{due:?}");
        client.wait_no_more(next);
        if is_given_up {
            let last = begin(&mut client, Mode::Shared);
            let again = client.enter(last, PAGE);
            assert!(asks(&again, copy, last), "{again:?}");
        } else {
            assert_eq!(client.enter(next, PAGE), []);
        }
    }
}

/// What the server believes of waits within the node is true when a request has become another transaction's.
#[test]
fn a_request_that_becomes_another_transactions_leaves_no_wait_for_the_one_that_had_asked() {
    for ends in [false, true] {
        let mut client = Client::default();
        let [first, next, last] = [(); 3].map(|()| begin(&mut client, Mode::Shared));
        client.awaits(first, Some(PAGE));
        let copy = ask(&mut client, first, false);
        [next, last].into_iter().for_each(|other| drop(client.awaits(other, Some(PAGE))));
        let of = |transaction, other| WaitsFor { transaction, other };
        let told = client.tell_waits().expect("two wait for the first");
        assert_eq!(told.body, Request::Waits { pairs: vec![of(next, first), of(last, first)] });
        let said: Vec<ToServer> = if ends {
            client.committed_unchanged(first);
            client.take_due().messages
        } else {
            client.awaits(first, None)
        };
        assert_eq!(said.first().map(|said| &said.body), Some(&Request::Waits { pairs: vec![of(next, last)] }));
        assert!(asks(&said, copy, last), "{said:?}");
    }
}

/// A client one of whose transactions commits that has given up waiting for a page and its write lock, which another one waits for if it is so.
fn committing_given_up(is_awaited: bool) -> (Client, Copy, Transaction) {
    let mut client = Client::default();
    let [reader, writer] = [Mode::Shared, Mode::Update].map(|mode| begin(&mut client, mode));
    client.awaits(writer, Some(PAGE));
    let copy = ask(&mut client, writer, true);
    client.awaits(reader, is_awaited.then_some(PAGE));
    client.awaits(writer, None);
    client.join_commit(writer, []);
    let due = client.take_due();
    let by = if is_awaited { reader } else { Transaction::NONE };
    assert!(asks(&due.messages, copy, by) && due.unwanted.is_empty(), "{due:?}");
    (client, copy, reader)
}

/// Whether the one that has the page waits for another page of the transaction that waits for it now is to be found while the commit is on its
/// way. The write lock may be on its way, too: that is the commit's.
#[test]
fn a_request_of_a_transaction_that_commits_is_another_ones_that_waits_for_it() {
    let (mut client, copy, reader) = committing_given_up(true);
    client.send_commit(Vec::new(), Default::default(), Vec::new());
    assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
    client.committed();
    client.call_back(copy);
    client.committed_unchanged(reader);
    assert!(gives_up(&client.take_due().messages, copy));
}

/// None that has ended is taken for one that waits for who has the page.
#[test]
fn a_request_that_outlives_its_transaction_for_a_commit_is_no_transactions() {
    for is_awaited in [false, true] {
        let (mut client, copy, reader) = committing_given_up(is_awaited);
        client.aborted(reader, &Default::default());
        let due = client.take_due();
        assert_eq!(asks(&due.messages, copy, Transaction::NONE), is_awaited, "{due:?}");
        client.send_commit(Vec::new(), Default::default(), Vec::new());
        let late = begin(&mut client, Mode::Shared);
        let again = client.enter(late, PAGE);
        assert!(asks(&again, copy, late), "{again:?}");
        client.awaits(late, Some(PAGE));
        client.committed();
        assert_eq!(client.take_due().messages, []);
        client.aborted(late, &Default::default());
        assert!(gives_up(&client.take_due().messages, copy));
    }
}
