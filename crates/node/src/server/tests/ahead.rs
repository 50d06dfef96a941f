//! Pages that are asked for ahead, for no transaction.

use super::*;

fn ahead(copy: Copy, writes: bool) -> Request {
    let Request::Read { copy, secret, leaving, waited, .. } = read(copy, 0, None) else { unreachable!("it is one") };
    Request::Read { copy, secret, transaction: Transaction::NONE, writes, leaving, waited }
}

fn would_block(actions: &[Action], client: ClientId, copy: Copy) -> bool {
    actions == [Action::Send(client, Answer::WouldBlock { copy })]
}

/// It comes if it is free, with no more than its read lock, and is otherwise neither waited for nor entered.
#[test]
fn who_asks_ahead_waits_for_none_and_keeps_none_waiting() {
    for name in ["cbl", "ps-aa"] {
        let mut ground = Ground::new(name);
        let (scanner, writer, other) = (ground.join(), ground.join(), ground.join());
        let sent = ground.say(scanner, ahead(copy(0, 0), true)).expect("it is honest");
        assert!(matches!(sent[..], [Action::SendPage { .. }]), "{sent:?}");
        assert_eq!(ground.server.writer(page(0)), None);
        // What has come so is in the way of a write until it is given up, as any copy is.
        ground.say(writer, read(copy(0, 0), 1, None)).expect("it is honest");
        let asked = ground.say(writer, write(copy(0, 0), 1)).expect("it is honest");
        assert!(!granted(&asked, writer));
        // Behind a write that waits.
        let refused = ground.say(other, ahead(copy(0, 0), false)).expect("it is honest");
        assert!(would_block(&refused, other, copy(0, 0)), "{refused:?}");
        let asked = ground.say(scanner, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
        assert!(granted(&asked, writer));
        // Behind one that has the lock.
        let refused = ground.say(scanner, ahead(copy(0, 1), true)).expect("it is honest");
        assert!(would_block(&refused, scanner, copy(0, 1)), "{refused:?}");
        assert_eq!((ground.server.waiting(), ground.server.copies(page(0)).len()), (0, 1));
        // Said again, for it has not come: that is late.
        assert_eq!(ground.say(scanner, ahead(copy(0, 1), false)), Ok(Vec::new()));
        assert_eq!(ground.say(scanner, read(copy(0, 1), 7, None)), Ok(Vec::new()));
        // A transaction asks anew, and waits.
        ground.say(scanner, read(copy(0, 2), 7, None)).expect("it is honest");
        assert_eq!(ground.server.waiting(), 1);
        let counts = ground.server.counts();
        assert_eq!((counts.ahead, counts.would_block, counts.victims), (1, 2, 0));
    }
}
