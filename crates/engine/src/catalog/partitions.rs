//! The partitions that transactions may use, by number and by name.

use super::{Organization, Partition};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
#[cfg(test)]
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use structures::canary::{self, Canary};

/// The partitions of an open database. Numbers of those that were dropped, or never came to be, lead to nothing.
#[derive(Clone, Default)]
pub(crate) struct Partitions {
    numbered: Vec<Option<Rc<Partition>>>,
    names: BTreeMap<String, PartitionId>,
    /// What the files of all of them are named after, of those included that are being dropped.
    stems: BTreeSet<String>,
    /// Those that are being dropped: transactions under way may still have changes in them.
    hidden: Vec<Rc<Partition>>,
    /// Those that are shown from a position of the log on, the first one last.
    later: Vec<(Lsn, Rc<Partition>)>,
    /// Greater than every number that was given.
    next: u32,
    /// How often [`Partitions::find`] was called.
    #[cfg(test)]
    pub found: Cell<usize>,
}

impl Partitions {
    /// These partitions, and the number after all that were ever given.
    pub fn new(all: impl IntoIterator<Item = Rc<Partition>>, next: u32) -> Partitions {
        let mut partitions = Partitions { next, ..Partitions::default() };
        all.into_iter().for_each(|partition| partitions.insert(partition));
        partitions
    }

    /// The partitions that there were at `moment`; `since` says from where on there was each of them.
    pub fn until(mut self, moment: Lsn, since: impl Fn(u16) -> Lsn) -> Partitions {
        for place in &mut self.numbered {
            if let Some(partition) = place.take_if(|partition| since(partition.id) > moment) {
                self.names.remove(&partition.name);
                self.later.push((since(partition.id), partition));
            }
        }
        self.later.sort_by_key(|(since, partition)| std::cmp::Reverse((*since, partition.id)));
        self
    }

    /// Shows those that there were at a later `moment`.
    pub fn go_on_to(&mut self, moment: Lsn) {
        while let Some((_, partition)) = self.later.pop_if(|(since, _)| *since <= moment) {
            self.insert(partition);
        }
    }

    /// A number that no partition ever had.
    ///
    /// # Errors
    /// [`Error::PartitionLimit`] if there is none left.
    pub fn give_number(&mut self) -> Result<u16> {
        if canary::is_planted(Canary::ReusedNumber) {
            self.next = self.iter().last().map_or(0, |last| u32::from(last.id) + 1);
        }
        let given = u16::try_from(self.next).map_err(|_| Error::PartitionLimit)?;
        self.next += 1;
        Ok(given)
    }

    /// What the files of a new partition are to be named after: itself, unless another one has such files.
    pub fn stem_for(&self, name: &str, id: u16) -> String {
        // No partition has such a name.
        if self.stems.contains(name) { format!("{name}~{id}") } else { name.to_owned() }
    }

    /// Whether the number was given to a partition at some time.
    pub fn was_given(&self, id: PartitionId) -> bool {
        u32::from(id.0) < self.next
    }

    /// The partition of this number.
    #[inline]
    pub fn get(&self, id: PartitionId) -> Option<&Rc<Partition>> {
        self.numbered.get(usize::from(id.0))?.as_ref()
    }

    /// The same, or the error that names its number.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    #[inline]
    pub fn find(&self, id: PartitionId) -> Result<&Rc<Partition>> {
        #[cfg(test)]
        self.found.set(self.found.get() + 1);
        self.get(id).ok_or_else(|| Error::no_partition(id))
    }

    /// The number of the partition of this name.
    pub fn named(&self, name: &str) -> Option<PartitionId> {
        self.names.get(name).copied().filter(|id| self.get(*id).is_some())
    }

    /// Whether a partition has this name, be it one that is being dropped.
    pub fn is_taken(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Adds a partition.
    ///
    /// # Panics
    /// If its number or its name is another's.
    pub fn insert(&mut self, partition: Rc<Partition>) {
        let number = usize::from(partition.id);
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, None);
        }
        let named = self.names.insert(partition.name.clone(), partition.id());
        assert!(named.is_none(), "a name is that of one partition");
        self.stems.insert(partition.stem().to_owned());
        let numbered = self.numbered[number].replace(partition);
        assert!(numbered.is_none(), "a number is that of one partition");
    }

    /// The same, also while it is being dropped.
    #[inline]
    pub fn get_or_hidden(&self, id: PartitionId) -> Option<&Rc<Partition>> {
        self.get(id).or_else(|| self.hidden(id))
    }

    /// Whether one is a b-tree, also while it is being dropped.
    pub fn is_tree(&self, id: PartitionId) -> bool {
        self.get_or_hidden(id).is_some_and(|found| found.organization == Organization::BTree)
    }

    #[cold]
    fn hidden(&self, id: PartitionId) -> Option<&Rc<Partition>> {
        self.hidden.iter().find(|hidden| hidden.id() == id)
    }

    /// Keeps new users from a partition. Its name stays taken.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn hide(&mut self, id: PartitionId) -> Result<Rc<Partition>> {
        let found = self.find(id)?.clone();
        self.numbered[usize::from(id.0)] = None;
        self.hidden.push(Rc::clone(&found));
        Ok(found)
    }

    /// Has another description of a partition that is there.
    pub fn replace(&mut self, partition: Rc<Partition>) {
        let place = self.numbered.get_mut(usize::from(partition.id)).and_then(Option::as_mut);
        *place.expect("the partition is there") = partition;
    }

    /// Gives a partition that is there another name.
    ///
    /// # Panics
    /// If that is another's.
    pub fn rename(&mut self, renamed: Rc<Partition>) {
        let before = self.get(renamed.id()).expect("the partition is there").name.clone();
        self.names.remove(&before);
        let named = self.names.insert(renamed.name.clone(), renamed.id());
        assert!(named.is_none(), "a name is that of one partition");
        self.replace(renamed);
    }

    /// Adds a partition that has the name of a hidden one from now on.
    ///
    /// # Panics
    /// If there is no such one.
    pub fn insert_successor(&mut self, partition: Rc<Partition>) {
        let before = self.names.remove(&partition.name).expect("a partition has this name");
        assert!(self.hidden(before).is_some(), "the one that has had the name is hidden");
        self.insert(partition);
    }

    /// Adds a partition that new users do not find.
    ///
    /// # Panics
    /// If its name is another's.
    pub fn insert_hidden(&mut self, partition: Rc<Partition>) {
        let number = usize::from(partition.id);
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, None);
        }
        let named = self.names.insert(partition.name.clone(), partition.id());
        assert!(named.is_none(), "a name is that of one partition");
        self.stems.insert(partition.stem().to_owned());
        self.hidden.push(partition);
    }

    /// Shows a hidden partition again.
    pub fn show(&mut self, partition: &Rc<Partition>) {
        self.hidden.retain(|hidden| hidden.id != partition.id);
        self.numbered[usize::from(partition.id)] = Some(Rc::clone(partition));
    }

    /// Forgets a hidden partition but for its name.
    pub fn forget(&mut self, partition: &Partition) {
        self.hidden.retain(|hidden| hidden.id != partition.id);
    }

    /// The name of a partition that was forgotten may be given again: its files are gone.
    pub fn free_name(&mut self, partition: &Partition) {
        self.stems.remove(partition.stem());
        if self.names.get(&partition.name) == Some(&partition.id()) {
            self.names.remove(&partition.name);
        }
    }

    /// Greater than the number of every partition that there is or will be shown.
    pub fn numbers(&self) -> usize {
        self.numbered.len()
    }

    /// Every partition, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<Partition>> {
        self.numbered.iter().flatten()
    }

    /// Every partition, by number, those included that are being dropped: they are kept as if they were not, until they are.
    pub fn kept(&self) -> Vec<Rc<Partition>> {
        let mut kept: Vec<_> = self.iter().chain(&self.hidden).cloned().collect();
        kept.sort_by_key(|partition| partition.id);
        kept
    }
}
