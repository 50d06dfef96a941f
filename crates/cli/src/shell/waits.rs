//! `waits`: transactions that wait, and which others are in their way, in this process or another one.

use crate::opening::left_to_undo;
use base::units::{format_duration_ns, grouped};
use entresol::{Database, LockWait, WaitsElsewhere};

/// A line for each wait, the longest first, and how many tasks wait to begin a transaction.
pub fn list(database: &Database) -> String {
    let (locks, beginning) = (database.waits(), database.waiting_to_begin() as u64);
    let waits = to_text(&WaitsElsewhere { locks, left_out: 0, beginning });
    left_to_undo(database.undoing()).into_iter().fold(waits, |waits, left| format!("{waits}\n{left}"))
}

/// The same, of what another process says.
pub fn to_text(waits: &WaitsElsewhere) -> String {
    let mut lines: Vec<String> = waits.locks.iter().map(line).collect();
    if waits.left_out > 0 {
        lines.push(format!("and {} more", grouped(waits.left_out)));
    }
    if waits.beginning > 0 {
        lines.push(format!("{} wait to begin, until fewer transactions are active", grouped(waits.beginning)));
    }
    if lines.is_empty() { "nothing waits for a lock".to_owned() } else { lines.join("\n") }
}

fn line(wait: &LockWait) -> String {
    let holders: Vec<String> = wait.holders.iter().map(|holder| holder.0.to_string()).collect();
    let waited = format_duration_ns(wait.waited_ns as f64);
    let (number, mode) = (wait.transaction.0, wait.mode);
    format!(
        "transaction {number} has waited {waited} for {} ({mode:?}); before it: {}",
        wait.resource,
        holders.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol::configuration::Configuration;
    use entresol::{Opening, PartitionSpec};

    #[test]
    fn a_wait_is_shown_with_who_is_in_its_way() {
        let configuration = Configuration::parse("hardware = \"nvme-2026\"").expect("right");
        let store = Opening::new("described", configuration).open().expect("creates");
        let shown = store.run(async |database| {
            let spec = PartitionSpec { device: "nvme".into(), ..PartitionSpec::b_tree("notes") };
            let notes = database.create_partition(spec).await?;
            assert_eq!(list(database), "nothing waits for a lock");
            let mut holder = database.begin().await?;
            holder.put(notes, b"milk", b"two litres").await?;
            let other = database.clone();
            let waiting = database
                .executor()
                .spawn(async move { other.transaction(async |tx| tx.put(notes, b"milk", b"none").await).await });
            database.executor().sleep_ns(5_000_000).await;
            let shown = (holder.id(), list(database));
            holder.commit().await?;
            waiting.join().await?;
            Ok(shown)
        });
        let (holder, shown) = shown.expect("commits");
        let end = format!("of 'notes' (Exclusive); before it: {}", holder.0);
        assert!(shown.starts_with("transaction ") && shown.ends_with(&end), "{shown}");
    }
}
