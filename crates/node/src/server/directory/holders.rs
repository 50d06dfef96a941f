//! Copies of a page by their clients. A page has few: they stand one beside the other, in the order of their clients.

use super::RegisteredCopy;
use crate::message::ClientId;
use std::ops::Index;

#[derive(Default)]
pub struct Holders(Vec<(ClientId, RegisteredCopy)>);

impl Holders {
    fn place(&self, client: ClientId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&client, |(other, _)| *other)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, client: &ClientId) -> Option<&RegisteredCopy> {
        self.place(*client).ok().map(|place| &self.0[place].1)
    }

    pub fn get_mut(&mut self, client: &ClientId) -> Option<&mut RegisteredCopy> {
        self.place(*client).ok().map(|place| &mut self.0[place].1)
    }

    pub fn contains_key(&self, client: &ClientId) -> bool {
        self.place(*client).is_ok()
    }

    pub fn insert(&mut self, client: ClientId, held: RegisteredCopy) -> Option<RegisteredCopy> {
        match self.place(client) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, held)),
            Err(place) => {
                if self.0.is_empty() {
                    // Most pages have one.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (client, held));
                None
            }
        }
    }

    pub fn remove(&mut self, client: &ClientId) -> Option<RegisteredCopy> {
        self.place(*client).ok().map(|place| self.0.remove(place).1)
    }

    pub fn first_key_value(&self) -> Option<(&ClientId, &RegisteredCopy)> {
        self.iter().next()
    }

    pub fn keys(&self) -> impl Iterator<Item = &ClientId> {
        self.0.iter().map(|(client, _)| client)
    }

    pub fn values(&self) -> impl Iterator<Item = &RegisteredCopy> {
        self.0.iter().map(|(_, held)| held)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut RegisteredCopy> {
        self.0.iter_mut().map(|(_, held)| held)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ClientId, &RegisteredCopy)> {
        self.0.iter().map(|(client, held)| (client, held))
    }
}

impl Index<&ClientId> for Holders {
    type Output = RegisteredCopy;

    fn index(&self, client: &ClientId) -> &RegisteredCopy {
        self.get(client).expect("it has a copy")
    }
}
