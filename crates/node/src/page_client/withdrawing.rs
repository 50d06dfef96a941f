//! Pages that were asked for and do not come, though nothing is wrong with them: a transaction that waits for one asks for it.

use super::ClientNode;
use crate::message::Copy;
use driver::{Fault, FaultKind};
use std::rc::Rc;

impl ClientNode {
    /// The client is gone that was to send a page, which may have come.
    pub(super) fn ask_elsewhere(self: &Rc<Self>, copy: Copy) {
        let (is_lacking, is_speculative) = {
            let protocol = self.protocol.borrow();
            (protocol.lacks(copy), protocol.is_speculative(copy.page))
        };
        if is_lacking && is_speculative {
            self.fail(copy, Fault::new(FaultKind::Cancelled, "the node is gone that was to send the page"));
        } else if is_lacking {
            self.ask_again(copy.page);
        }
    }

    /// A deadlock's victim gets a page no more that it has asked for.
    pub(super) fn withdraw(self: &Rc<Self>, copy: Copy) {
        let withdrawn = self.protocol.borrow_mut().request_withdrawn(copy);
        self.end_read(copy, withdrawn, "a deadlock's victim has asked for the page");
    }

    /// A page that was asked for ahead does not come.
    pub(super) fn do_without(self: &Rc<Self>, copy: Copy) {
        let withdrawn = self.protocol.borrow_mut().would_block(copy);
        self.end_read(copy, withdrawn, "the page was asked for ahead, and others have it");
    }

    fn end_read(self: &Rc<Self>, copy: Copy, (was_waited_for, forgotten): (bool, Option<Copy>), why: &str) {
        self.forget(forgotten);
        if was_waited_for {
            self.reads.fail(copy.page, Fault::new(FaultKind::Cancelled, why));
        }
        self.advance();
        self.consider_deferred();
    }
}
