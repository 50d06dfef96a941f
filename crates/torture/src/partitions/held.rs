//! A snapshot that is held while partitions are created, loaded and changed.

use super::client::Client;
use super::known::difference;
use super::read::{find, read, with_known};
use super::shape::{RecordsByNumber, Shape};
use crate::context::After;
use base::PartitionId;
use engine::{Result, Snapshot};
use std::rc::Rc;

/// A snapshot, and what it must show.
pub struct Held {
    snapshot: Snapshot,
    then: Vec<Then>,
}

/// A partition at the moment of a snapshot, unless it was absent.
struct Then {
    name: String,
    present: Option<(PartitionId, Rc<Shape>)>,
}

impl Held {
    /// Whether it shows the partition of this number.
    pub(super) fn shows(&self, id: PartitionId) -> bool {
        self.then.iter().any(|then| then.present.as_ref().is_some_and(|(present, _)| *present == id))
    }

    /// Names are those of the present: it shows what it has shown of a partition under its new one.
    pub(super) fn rename(&mut self, name: &str, other: &str) {
        self.forget(other);
        self.then.iter_mut().filter(|then| then.name == name).for_each(|then| then.name = other.to_owned());
    }

    /// Looks at this name no more.
    pub(super) fn forget(&mut self, name: &str) {
        self.then.retain(|then| then.name != name);
    }
}

impl Client {
    /// Looks at what is held, and takes a new snapshot now and then.
    pub(super) async fn look_back(&mut self) -> After {
        let result = match self.held.take() {
            Some(held) => self.compare_held(held).await,
            None => self.hold().await,
        };
        result.map_or_else(|error| self.context.judge(&error, "reading the past of a partition"), |()| After::Retry)
    }

    async fn hold(&mut self) -> Result<()> {
        let snapshot = self.database.snapshot().await?;
        let mut then = Vec::new();
        for name in self.usable_names() {
            match with_known(&self.context, &name, |known| known.state().cloned()) {
                Some(Some(shape)) => {
                    let Some(partition) = find(&self.database, &name) else { continue };
                    then.push(Then { name, present: Some((partition.id(), shape)) });
                }
                Some(None) => then.push(Then { name, present: None }),
                None => {}
            }
        }
        self.held = Some(Held { snapshot, then });
        Ok(())
    }

    async fn compare_held(&mut self, held: Held) -> Result<()> {
        let Held { mut snapshot, then } = held;
        for Then { name, present } in &then {
            let Some(partition) = find(&self.database, name) else { continue };
            // A snapshot sees no partition that was created after it.
            let expected = match present {
                Some((id, shape)) if *id == partition.id() => shape.contents.clone(),
                _ => RecordsByNumber::new(),
            };
            let found = read(&self.context, &mut snapshot, &partition).await?;
            if found != expected {
                let what = difference(&expected, &found);
                self.context
                    .differs(&[name], format!("a snapshot of '{name}' at {} moves: it {what}", snapshot.moment()));
            }
        }
        if self.random.chance(0.7) {
            self.held = Some(Held { snapshot, then });
        }
        Ok(())
    }
}
