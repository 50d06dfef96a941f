//! Pages that the server offers to a node that has nothing to do: they come into its buffer as if a transaction had asked for them.

use super::ClientNode;
use super::transaction::FRAMES_EACH;
use crate::message::Copy;
use base::PageId;
use engine::Need;
use engine::buffer::Pins;
use engine::second_level::design::Pattern;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// The most pages that are on their way here because they were offered.
const COMING_MAX: usize = 16;

impl ClientNode {
    /// A page is offered. It is taken if no transaction runs. While as many are on their way as may be, it has to wait: transactions that
    /// begin meanwhile find frames.
    pub(super) fn consider(self: &Rc<Self>, page: PageId) {
        let coming_max = (self.settings.buffer.frames / (2 * FRAMES_EACH)).clamp(1, COMING_MAX);
        if self.accepting.borrow().len() + self.reads.accepted() >= coming_max {
            // The server makes one offer at a time.
            return self.deferred.set(Some(page));
        }
        let is_free = self.protocol.borrow().is_free_for(page)
            && self.buffer.is_attached(page.partition)
            && self.buffer.pool().borrow().frame_of(page).is_none()
            && self.has_lease();
        if !is_free {
            let declined = self.protocol.borrow_mut().decline(page);
            return self.say(&declined);
        }
        self.accepting.borrow_mut().insert(page);
        let (client, buffer) = (Rc::downgrade(self), Rc::clone(&self.buffer));
        self.executor.spawn(async move {
            let is_open = || client.upgrade().is_some_and(|client| client.accepting.borrow().contains(&page));
            let mut pins = Pins::new(&buffer);
            {
                let mut coming = pin!(buffer.resolve(Need::Page(page), Pattern::Random, &mut pins));
                // Until it is asked for, and no longer: a page is pinned for those who wait when it comes, and this one may be called
                // back in the same breath.
                poll_fn(|context| {
                    let is_over = !is_open() || coming.as_mut().poll(context).is_ready() || !is_open();
                    if is_over { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
            drop(pins);
            if let Some(client) = client.upgrade() {
                client.decline_if_open(page);
                client.consider_deferred();
            }
        });
    }

    /// A page comes no more that was offered, or has come: the one that had to wait may be taken.
    pub(super) fn consider_deferred(self: &Rc<Self>) {
        self.deferred.take().into_iter().for_each(|next| self.consider(next));
    }

    /// Declines an offer that was to be accepted, if that was not done: there was no frame for it, or a transaction has come first.
    pub(super) fn decline_if_open(&self, page: PageId) {
        if self.accepting.borrow_mut().remove(&page) {
            let declined = self.protocol.borrow_mut().decline(page);
            self.say(&declined);
        }
    }

    /// A copy was sent to another client.
    pub(super) fn note_sent(&self, copy: Copy) {
        let forgotten = self.protocol.borrow_mut().sent(copy);
        self.forget(forgotten);
        let pool = &mut *self.buffer.pool().borrow_mut();
        if let (true, Some(frame)) = (self.protocol.borrow().is_for_others(copy.page), pool.frame_of(copy.page)) {
            // There are two of it now, so this one is the first to leave.
            pool.hate(frame);
        }
    }

    /// A copy that was passed on is the last one again.
    pub(super) fn note_last(&self, copy: Copy) {
        if self.protocol.borrow_mut().is_last(copy) {
            let pool = self.buffer.pool().borrow();
            pool.frame_of(copy.page).into_iter().for_each(|frame| pool.touch(frame));
        }
    }
}
