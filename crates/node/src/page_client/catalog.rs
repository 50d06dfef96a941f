//! What partitions the server's database has. A client asks once in each session: the server may have been started again.

use super::{ClientNode, PageClient, PageTransaction, ServerState};
use crate::message::{Described, Request, Session, ToServer};
use base::PartitionId;
use driver::{Fault, FaultKind};
use engine::catalog::Organization;
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
    /// Whether this is another database than at first: what a partition is does not change.
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
        self.0.partition(|partition| partition.name == name, || format!("'{name}'")).await
    }
}

impl PageTransaction {
    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and as [`PageTransaction::read`].
    pub async fn partition(&self, name: &str) -> Result<Rc<Described>> {
        self.client.partition(|partition| partition.name == name, || format!("'{name}'")).await
    }
}

impl ClientNode {
    pub(super) async fn described(&self, partition: PartitionId) -> Result<Rc<Described>> {
        self.partition(|found| found.id() == partition, || partition.0.to_string()).await
    }

    /// The partition that is meant. If it is not known the server is asked once more: it may be new.
    async fn partition(
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
        catalog.is_another |= new.iter().any(|(id, found)| catalog.partitions.get(id).is_some_and(|was| was != found));
        catalog.came = self.protocol.borrow().session();
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

impl Described {
    /// Its number.
    pub fn id(&self) -> PartitionId {
        PartitionId(self.id)
    }

    /// Whether its records are on pages, which clients may have copies of.
    pub fn has_pages(&self) -> bool {
        !matches!(self.organization, Organization::Set { .. })
    }

    /// The error of a call that does not suit it.
    pub(super) fn wrong_organization(&self, detail: &str) -> Error {
        let (partition, organization) = (self.name.clone(), self.organization.name());
        Error::WrongOrganization { partition, organization, detail: detail.to_owned() }
    }
}
