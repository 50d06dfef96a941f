//! What the server knows of its nodes, with what only it knows: leases, messages, names of partitions.

use super::{PageServer, ServerNode};
use crate::grants::{Access, Right};
use crate::message::{Answer, ClientId};
use crate::outbox::{Kinds, Outbox};
use crate::survey::{KindAmount, Survey};
use base::time::MILLISECOND_NS;
use base::{PageId, PartitionId};
use engine::Result;
use std::collections::BTreeMap;

/// How long a survey waits before it is made, in nanoseconds, and others wait for it: a stranger that asks again and again takes no more
/// of the processor than that leaves it.
const PAUSE_NS: u64 = 20 * MILLISECOND_NS;

impl PageServer {
    /// What is known of the nodes now, and of a page of a partition.
    ///
    /// # Errors
    /// [`engine::Error::NoPartition`].
    pub fn survey(&self, page: Option<(&str, u32)>) -> Result<Survey> {
        self.0.survey(page)
    }
}

impl ServerNode {
    fn survey(&self, page: Option<(&str, u32)>) -> Result<Survey> {
        let asked = match page {
            Some((name, number)) => Some((name, PageId::new(self.database.partition(name)?, number))),
            None => None,
        };
        let now = self.executor().now();
        let partitions = self.database.partitions();
        let names: BTreeMap<PartitionId, &str> =
            partitions.iter().map(|found| (PartitionId(found.id), found.name.as_str())).collect();
        let name = |id: PartitionId| names.get(&id).map_or_else(|| id.0.to_string(), |name| (*name).to_owned());
        let protocol = self.protocol.borrow();
        let mut survey = protocol.survey(now, &name);
        survey.served_ns = now.since_ns(self.since);
        for node in &mut survey.nodes {
            node.lease_left_ns = self.lease_left_ns(node.client);
        }
        survey.received = amounts(&self.received.borrow());
        survey.sent = amounts(&self.traffic.kinds.borrow());
        survey.page = asked.map(|(name, page)| protocol.page_state(page, name.to_owned(), now));
        Ok(survey)
    }

    fn lease_left_ns(&self, client: ClientId) -> Option<u64> {
        let terms = self.terms.borrow();
        terms.get(&client).map(|term| term.end().since_ns(self.executor().now()))
    }

    /// Tells a peer that only looks what is known, or why not.
    pub(super) async fn tell_survey(&self, name: Option<&str>, page: Option<(String, u32)>, outbox: &Outbox) {
        let _mine = self.survey_turn.take(self.executor()).await;
        self.executor().sleep_ns(PAUSE_NS).await;
        let asked = page.as_ref().map(|(partition, number)| (partition.as_str(), *number));
        outbox.push(&match self.may_look(name) {
            false => Answer::Refusal {
                reason: format!(
                    "node '{}' may not look at other nodes: the server's grants would have to let it read all partitions",
                    name.unwrap_or_default()
                ),
            },
            true => match self.survey(asked) {
                Ok(survey) => Answer::Surveyed(Box::new(survey)),
                Err(error) => Answer::Refusal { reason: error.to_string() },
            },
        });
    }

    /// Who may read every page may know who else does.
    fn may_look(&self, name: Option<&str>) -> bool {
        match self.access(name) {
            Access::All => true,
            access => self.database.partitions().iter().all(|found| access.allows(PartitionId(found.id), Right::Read)),
        }
    }
}

fn amounts(kinds: &Kinds) -> Vec<KindAmount> {
    kinds.iter().map(|(kind, amount)| KindAmount { kind: kind.to_owned(), amount }).collect()
}
