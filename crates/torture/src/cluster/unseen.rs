//! Pages that a transaction of a node has locked before it looks at them, perhaps as another one has left them that is not answered: it has asked
//! for them ahead, or has given up the call that waited for them.

use super::ClusterStep;
use super::actor::NodeActor;
use base::{PageId, Random};
use engine::Result;
use engine::organization::b_tree::ROOT;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Whether transactions of a seed do this now and then.
pub(super) fn is_of(seed: u64) -> bool {
    Random::stream(seed, "cluster unseen").chance(0.25)
}

/// How they do.
#[derive(Clone, Copy)]
pub(super) enum LockedUnseen {
    Ahead,
    GivenUp,
}

impl LockedUnseen {
    /// How an operation does, if it does.
    pub fn draw(random: &mut Random, is_of_seed: bool) -> Option<LockedUnseen> {
        match is_of_seed.then(|| random.below(20))? {
            0 | 1 => Some(LockedUnseen::Ahead),
            2 => Some(LockedUnseen::GivenUp),
            _ => None,
        }
    }
}

impl NodeActor {
    pub async fn look_at_locked(&mut self, how: LockedUnseen, number: u64) -> Result<()> {
        match how {
            LockedUnseen::Ahead => self.look_ahead(number).await,
            LockedUnseen::GivenUp => self.look_again(number).await,
        }
    }

    /// Asks for pages of records ahead, and then looks at records.
    async fn look_ahead(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Read);
        let (tree, log) = (self.tables.tree, self.tables.log);
        // The first page of the log is what all look at that add to it.
        let pages = [PageId::new(tree, ROOT), PageId::new(log, 0), PageId::new(log, 1)];
        self.tx.read_ahead(pages).await?;
        self.get(number).await?;
        if number.is_multiple_of(2) { self.scan_appended().await } else { Ok(()) }
    }

    /// Gives up looking for a record, if that has to wait, in the moment in which another transaction of its node has begun to commit, which
    /// may be the one that it waits for; and looks for it again.
    async fn look_again(&mut self, number: u64) -> Result<()> {
        let (course, node) = (Rc::clone(&self.course), self.begun.node);
        let before = course.commits_begun(node);
        let looked = {
            let mut looking = pin!(self.get(number));
            poll_fn(|context| match course.commits_begun(node) == before {
                true => looking.as_mut().poll(context).map(Some),
                false => Poll::Ready(None),
            })
            .await
        };
        match looked {
            Some(looked) => looked,
            None => self.get(number).await,
        }
    }
}
