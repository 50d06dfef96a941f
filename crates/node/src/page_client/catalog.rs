//! What partitions the server's database has. A client asks once in each session: the server may have been started again.

use super::{ClientNode, PageClient, PageTransaction, ServerState};
use crate::message::{Described, Request, Secret, Session, ToServer};
use base::PartitionId;
use driver::{Fault, FaultKind};
use engine::catalog::{Organization, Schema};
use engine::{Error, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is known of partitions.
#[derive(Default)]
pub(super) struct KnownCatalog {
    /// In which session it was asked for, and in which it has come.
    asked: Option<Session>,
    came: Option<Session>,
    partitions: BTreeMap<PartitionId, Rc<Described>>,
    /// What records of those consist of that have a type, or why that cannot be used.
    schemas: BTreeMap<PartitionId, std::result::Result<Rc<Schema>, String>>,
    /// The secret of the session in which it has come the last time, whose lower half says of which database it is.
    of: Secret,
    /// Whether this is another database than at first: what a partition is does not change. Its name may, of the same database, while that is
    /// not served.
    is_another: bool,
}

impl KnownCatalog {
    /// How the records of a partition are found, if it is known.
    pub fn organization(&self, partition: PartitionId) -> Option<Organization> {
        self.partitions.get(&partition).map(|found| found.organization)
    }
}

impl PageClient {
    /// The partitions of the server's database, by number.
    ///
    /// # Errors
    /// [`Error::Input`] if the server is lost, or serves another database than before.
    pub async fn partitions(&self) -> Result<Vec<Rc<Described>>> {
        self.0.await_catalog().await?;
        Ok(self.0.catalog.borrow().partitions.values().cloned().collect())
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and as [`PageClient::partitions`].
    pub async fn partition(&self, name: &str) -> Result<Rc<Described>> {
        self.0.partition(|partition| partition.name == name, || name.to_owned()).await
    }
}

impl PageTransaction {
    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and as [`PageTransaction::read`].
    pub async fn partition(&self, name: &str) -> Result<Rc<Described>> {
        self.client.partition(|partition| partition.name == name, || name.to_owned()).await
    }
}

impl ClientNode {
    pub(super) async fn described(&self, partition: PartitionId) -> Result<Rc<Described>> {
        self.partition(|found| found.id() == partition, || format!("number {}", partition.0)).await
    }

    /// What the partition is, if it is a b-tree of users' records.
    pub(super) async fn tree(&self, partition: PartitionId) -> Result<Rc<Described>> {
        let found = self.described(partition).await?;
        found.refuse_set()?;
        match (found.organization, found.index_of) {
            (Organization::BTree, None) => Ok(found),
            (Organization::BTree, Some(_)) => {
                Err(found.wrong_organization("it is a secondary index; use the partition that it is one of"))
            }
            _ => Err(found.wrong_organization("its records have no keys")),
        }
    }

    /// The partition that is meant. If it is not known the server is asked once more: it may be new.
    pub(super) async fn partition(
        &self,
        is_meant: impl Fn(&Described) -> bool,
        words: impl FnOnce() -> String,
    ) -> Result<Rc<Described>> {
        self.await_catalog().await?;
        let find = || self.catalog.borrow().partitions.values().find(|found| is_meant(found)).cloned();
        if let Some(found) = find() {
            return Ok(found);
        }
        (self.catalog.borrow_mut().asked, self.catalog.borrow_mut().came) = (None, None);
        self.await_catalog().await?;
        find().ok_or_else(|| Error::NoPartition(words()))
    }

    /// The name of a partition, as far as it is known.
    pub(super) fn known_name(&self, partition: PartitionId) -> String {
        self.catalog.borrow().partitions.get(&partition).map_or_else(String::new, |found| found.name.clone())
    }

    /// What the records of a partition consist of, if they have a type.
    pub(super) fn schema(&self, found: &Described) -> Result<Option<Rc<Schema>>> {
        match self.catalog.borrow().schemas.get(&found.id()) {
            None => Ok(None),
            Some(Ok(schema)) => Ok(Some(Rc::clone(schema))),
            Some(Err(why)) => Err(found.wrong_organization(why)),
        }
    }

    /// Waits until it is known what partitions there are in this session.
    async fn await_catalog(&self) -> Result<()> {
        loop {
            if let ServerState::Lost(cause) | ServerState::GivenUp(cause) = &*self.standing.borrow() {
                return Err(Fault::new(FaultKind::Reset, cause.clone()).into());
            }
            let present = self.protocol.borrow().session();
            if self.catalog.borrow().is_another {
                let words = format!("the server at {} serves another database than before: join it anew", self.server);
                return Err(Fault::new(FaultKind::Denied, words).into());
            }
            if self.catalog.borrow().came == present {
                return Ok(());
            }
            if self.catalog.borrow().asked != present {
                self.catalog.borrow_mut().asked = present;
                self.say(&ToServer { drops: Vec::new(), body: Request::Catalog });
            }
            self.bell.wait(&self.executor).await;
        }
    }

    /// It has come.
    pub(super) fn take_catalog(self: &Rc<Self>, partitions: Vec<Described>) {
        let mut catalog = self.catalog.borrow_mut();
        let new: BTreeMap<_, _> = partitions.into_iter().map(|found| (found.id(), Rc::new(found))).collect();
        let secret = self.protocol.borrow().secret();
        let may_be_renamed = secret.is_of(catalog.of.0 as u64);
        let is_same =
            |was: &Described, found: &Described| was.is_same(found) && (may_be_renamed || was.name == found.name);
        catalog.is_another |=
            new.iter().any(|(id, found)| catalog.partitions.get(id).is_some_and(|was| !is_same(was, found)));
        (catalog.came, catalog.of) = (self.protocol.borrow().session(), secret);
        let schema =
            |found: &Described| found.schema.as_ref().map(|schema| schema.schema(!found.has_pages()).map(Rc::new));
        catalog.schemas = new.iter().filter_map(|(id, found)| Some((*id, schema(found)?))).collect();
        catalog.partitions = new;
        for (id, found) in &catalog.partitions {
            if found.has_pages() && !self.buffer.is_attached(*id) {
                self.attach(*id);
            }
        }
        drop(catalog);
        self.bell.wake_all(&self.executor);
    }
}
