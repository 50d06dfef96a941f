//! What the shell shows of nodes: those that have joined, their copies and locks, callbacks, messages.

use crate::Failure;
use crate::table::table;
use base::units::{format_duration_ns, grouped};
use node::message::ClientId;
use node::survey::{PageState, Survey};

pub const SERVES_NONE: &str =
    "this database is served to no nodes; 'entresol shell --server ADDRESS' shows those of one that is";

/// What is asked about nodes.
#[derive(Debug, PartialEq)]
pub enum NodesQuestion {
    Nodes,
    Copies,
    Callbacks,
    Messages,
    /// Of a partition's page.
    Holders(String, u32),
}

impl NodesQuestion {
    /// The page that the server is asked about.
    pub fn page(&self) -> Option<(String, u32)> {
        match self {
            NodesQuestion::Holders(partition, number) => Some((partition.clone(), *number)),
            _ => None,
        }
    }

    /// The answer, as JSON in one line if that is wanted.
    pub fn answer(&self, survey: &Survey, json: bool) -> Result<String, Failure> {
        Ok(match self {
            NodesQuestion::Nodes if json => serde_json::to_string(&survey.nodes)?,
            NodesQuestion::Copies if json => serde_json::to_string(&survey.held)?,
            NodesQuestion::Callbacks if json => serde_json::to_string(&survey.callbacks)?,
            NodesQuestion::Messages if json => {
                serde_json::to_string(&serde_json::json!({ "received": survey.received, "sent": survey.sent }))?
            }
            NodesQuestion::Holders(..) if json => serde_json::to_string(&survey.page)?,
            NodesQuestion::Nodes => nodes(survey),
            NodesQuestion::Copies => copies(survey) + &left_off(survey),
            NodesQuestion::Callbacks => callbacks(survey) + &left_off(survey),
            NodesQuestion::Messages => messages(survey),
            NodesQuestion::Holders(..) => survey.page.as_ref().map_or_else(String::new, |page| holders(survey, page)),
        })
    }
}

/// A node's number, and the name that it has proven.
fn named(survey: &Survey, client: ClientId) -> String {
    let found = survey.nodes.iter().find(|node| node.client == client);
    match found.and_then(|node| node.name.as_deref()) {
        Some(name) => format!("{} {name}", client.0),
        None => client.0.to_string(),
    }
}

/// What is said of entries that an answer has no room for.
fn left_off(survey: &Survey) -> String {
    match survey.left_off {
        0 => String::new(),
        more => format!("\n{} more copies or callbacks are left off", grouped(more)),
    }
}

fn time(ns: u64) -> String {
    format_duration_ns(ns as f64)
}

fn nodes(survey: &Survey) -> String {
    let joined = survey.nodes.iter().filter(|node| !node.is_gone).count();
    let noun = if joined == 1 { "node" } else { "nodes" };
    let mut text = format!("{joined} {noun}, served for {}; {}", time(survey.served_ns), survey.algorithm);
    if survey.is_gathering {
        text += "; no write lock is granted while nodes of the server before may have leases";
    }
    if survey.nodes.is_empty() {
        return text;
    }
    let rows = survey.nodes.iter().map(|node| {
        let held = || survey.held.iter().filter(|held| held.client == node.client);
        let lease = match node.lease_left_ns {
            _ if node.is_gone => "gone, but for commits".to_owned(),
            _ if node.is_revoked => "lost a grant".to_owned(),
            Some(left) => time(left),
            None => "without end".to_owned(),
        };
        let (copies, locks) = held().fold((0, 0), |sum, held| (sum.0 + held.copies, sum.1 + held.locks));
        vec![
            named(survey, node.client),
            node.address.to_string(),
            time(node.joined_ns),
            lease,
            grouped(copies),
            grouped(locks),
            grouped(node.waiting),
        ]
    });
    format!(
        "{text}\n{}",
        table(&["node", "address", "joined for", "lease left", "copies", "locks", "waiting"], 2, rows)
    )
}

fn copies(survey: &Survey) -> String {
    if survey.held.is_empty() {
        return "no node has a copy".to_owned();
    }
    let rows = survey.held.iter().map(|held| {
        vec![named(survey, held.client), held.partition.clone(), grouped(held.copies), grouped(held.locks)]
    });
    table(&["node", "partition", "copies", "write locks"], 2, rows)
}

fn callbacks(survey: &Survey) -> String {
    if survey.callbacks.is_empty() {
        return "no copy is called back".to_owned();
    }
    let rows = survey.callbacks.iter().map(|callback| {
        vec![
            callback.partition.clone(),
            named(survey, callback.holder),
            named(survey, callback.writer),
            grouped(u64::from(callback.page)),
            time(callback.age_ns),
            grouped(callback.users),
        ]
    });
    table(&["partition", "of node", "for node", "page", "for", "users"], 3, rows)
}

fn messages(survey: &Survey) -> String {
    let received = survey.received.iter().map(|kind| ("received", kind));
    let all = received.chain(survey.sent.iter().map(|kind| ("sent", kind)));
    let rows = all.map(|(way, of)| {
        let amount = of.amount;
        vec![way.to_owned(), of.kind.clone(), grouped(amount.messages), grouped(amount.bytes)]
    });
    table(&["", "kind", "messages", "bytes"], 2, rows)
}

fn holders(survey: &Survey, page: &PageState) -> String {
    let mut rows = Vec::new();
    for holder in &page.holders {
        let mut how = vec![match page.writer {
            Some((writer, transaction)) if writer == holder.client => format!("writes, transaction {}", transaction.0),
            _ => "reads".to_owned(),
        }];
        how.extend(holder.called_ns.map(|ns| format!("called back {} ago", time(ns))));
        how.extend((holder.users > 0).then(|| format!("used by {} transactions that it has named", holder.users)));
        rows.push(vec![named(survey, holder.client), how.join("; ")]);
    }
    for waiter in &page.waiting {
        let what = if waiter.is_write { "to write" } else { "to read" };
        // One that has asked may have ended, or end.
        let of = waiter.transaction.map_or_else(String::new, |of| format!(", transaction {}", of.0));
        rows.push(vec![named(survey, waiter.client), format!("waits {what}{of}")]);
    }
    if rows.is_empty() {
        return format!("no node has a copy of page {} of '{}'", grouped(u64::from(page.page)), page.partition);
    }
    table(&["node", ""], 2, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::message::Transaction;
    use node::survey::{NodeState, Waiter};

    fn node(client: u32, is_gone: bool) -> NodeState {
        NodeState {
            client: ClientId(client),
            name: None,
            address: "10.0.0.2:7000".parse().expect("an address"),
            joined_ns: 1,
            lease_left_ns: None,
            is_revoked: false,
            is_gone,
            waiting: 0,
        }
    }

    #[test]
    fn a_node_that_is_gone_and_a_request_of_no_transaction_are_shown_as_that() {
        let waiter = |transaction| Waiter { client: ClientId(4), transaction, is_write: false };
        let page = PageState {
            partition: "account".to_owned(),
            page: 0,
            writer: Some((ClientId(3), Transaction(8))),
            holders: Vec::new(),
            waiting: vec![waiter(None), waiter(Some(Transaction(9)))],
        };
        let survey = Survey { nodes: vec![node(3, true), node(4, false)], page: Some(page), ..Survey::default() };
        let answer = |question: NodesQuestion, json| question.answer(&survey, json).expect("it can be shown");
        let nodes = answer(NodesQuestion::Nodes, false);
        assert!(nodes.starts_with("1 node,") && nodes.contains("gone") && nodes.contains("without end"), "{nodes}");
        let holders = || NodesQuestion::Holders("account".to_owned(), 0);
        let shown = answer(holders(), true);
        assert!(shown.contains("\"transaction\":null") && shown.contains("\"transaction\":9"), "{shown}");
        let shown = answer(holders(), false);
        assert!(shown.contains("waits to read, transaction 9"), "{shown}");
        assert!(shown.lines().any(|line| line.trim_end().ends_with("waits to read")), "{shown}");
    }
}
