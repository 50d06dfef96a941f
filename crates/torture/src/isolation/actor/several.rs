//! Calls on several records at a time, which are what one call after the other would be.

use super::{Actor, New, partition};
use crate::isolation::store::{Store, stored_key};
use engine::{Error, Result};

impl Actor<'_> {
    /// Reads these records.
    pub async fn read_each(&mut self, store: Store, numbers: &[u64]) -> Result<()> {
        let (partition, keys) = (partition(&self.tx, store)?, stored_keys(numbers));
        let mut shown = Vec::new();
        let look = |position: usize, value: Option<&[u8]>| {
            shown.push((position, value.map(|value| store.version(value))));
        };
        let read = self.tx.get_each_with(partition, &keys, look).await;
        let mut history = self.history();
        for (position, version) in shown {
            history.read(self.number, store.key(numbers[position]), version);
        }
        read
    }

    /// Gives these records, one after the other, other values of the same length. Ends at one that is not there.
    pub async fn modify_each(&mut self, store: Store, numbers: &[u64], place: u64) -> Result<()> {
        let (partition, keys) = (partition(&self.tx, store)?, stored_keys(numbers));
        let versions: Vec<_> = numbers.iter().map(|number| self.new_version(store, *number)).collect();
        let mut shown = Vec::new();
        let change = |position: usize, value: &mut [u8]| {
            shown.push((position, store.version(value)));
            let new = store.changed(versions[position], place, value);
            if new.len() == value.len() {
                value.copy_from_slice(&new);
            }
        };
        let modified = self.tx.modify_each(partition, &keys, change).await;
        let next = shown.len();
        let mut history = self.history();
        for (position, old) in shown {
            history.read(self.number, store.key(numbers[position]), Some(old));
            history.wrote(
                self.number,
                versions[position],
                Some(if store.is_indexed() { place } else { numbers[position] }),
            );
        }
        match modified {
            Err(Error::NoRecord(_)) => {
                history.read(self.number, store.key(numbers[next]), None);
                Ok(())
            }
            // Long values are not changed in place.
            Err(Error::TooLarge { .. }) => Ok(()),
            modified => modified,
        }
    }

    /// Inserts these records, which differ from each other, one after the other. Ends at one that is there.
    pub async fn insert_each(&mut self, store: Store, numbers: &[u64], new: New) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        let place = |number: u64| if store.is_indexed() { new.place } else { number };
        let versions: Vec<_> = numbers.iter().map(|number| self.new_version(store, *number)).collect();
        let values =
            numbers.iter().zip(&versions).map(|(number, version)| store.value(*version, place(*number), new.length));
        let records: Vec<_> = stored_keys(numbers).into_iter().zip(values).collect();
        let is_refused = match self.tx.insert_each(partition, &records).await {
            Err(Error::Duplicate(_)) => true,
            inserted => {
                inserted?;
                false
            }
        };
        for (number, version) in numbers.iter().zip(versions) {
            let found = match is_refused {
                true => {
                    self.tx.get(partition, &stored_key(*number)).await?.as_deref().map(|value| store.version(value))
                }
                false => Some(version),
            };
            let mut history = self.history();
            if found == Some(version) {
                history.read(self.number, store.key(*number), None);
                history.wrote(self.number, version, Some(place(*number)));
            } else {
                history.read(self.number, store.key(*number), found);
            }
        }
        Ok(())
    }
}

fn stored_keys(numbers: &[u64]) -> Vec<[u8; 8]> {
    numbers.iter().map(|number| stored_key(*number)).collect()
}
