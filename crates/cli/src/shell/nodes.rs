//! What the shell shows of nodes: those that have joined, their copies and locks, callbacks, messages.

use crate::Failure;
use crate::table::table;
use base::units::{format_duration_ns, grouped};
use node::message::{ClientId, Transaction};
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
    let mut text = format!("{} nodes, served for {}; {}", survey.nodes.len(), time(survey.served_ns), survey.algorithm);
    if survey.is_gathering {
        text += "; no write lock is granted while nodes of the server before may have leases";
    }
    if survey.nodes.is_empty() {
        return text;
    }
    let rows = survey.nodes.iter().map(|node| {
        let held = || survey.held.iter().filter(|held| held.client == node.client);
        let lease = match node.lease_left_ns {
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
        let of = match waiter.transaction {
            // The one that has asked has ended, or ends, and another one may wait.
            Transaction::NONE => String::new(),
            Transaction(number) => format!(", transaction {number}"),
        };
        rows.push(vec![named(survey, waiter.client), format!("waits {what}{of}")]);
    }
    if rows.is_empty() {
        return format!("no node has a copy of page {} of '{}'", grouped(u64::from(page.page)), page.partition);
    }
    table(&["node", ""], 2, rows)
}
