use crate::description::{EXTRA_RECORDS, NOTES};
use crate::service::Injected;
use std::collections::{BTreeMap, BTreeSet};
use torture::ledger::{FoundTransfers, Ledger, Transfer, TransferOutcome};

/// What the processes of one database said, and what must hold after them.
#[derive(Default)]
pub(crate) struct Judgement {
    ledger: Ledger,
    /// Whether a process said that the database was open.
    pub(crate) created: bool,
    pub(crate) acknowledged: u64,
    /// How often everything was compared.
    pub(crate) looks: u64,
    /// Whether its creation was cut off and has been refused since: files that it left on another device might belong to
    /// another database.
    pub(crate) refused: bool,
    /// Partitions that were created by the way.
    extras: BTreeMap<String, Extra>,
}

/// What is known of a partition: the later ones are known to be there, and the last to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extra {
    Creating,
    Created,
    Filling,
    Filled,
}

/// What one process said.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) opened: bool,
    pub(crate) looked: bool,
    pub(crate) closed: bool,
    pub(crate) errors: BTreeSet<String>,
    pub(crate) wrong: Vec<String>,
}

impl Judgement {
    /// Takes in what a process said that these faults were done to.
    pub(crate) fn hear(&mut self, lines: &[String], injected: &Injected) -> Said {
        let mut said = Said::default();
        let mut found = FoundTransfers::default();
        let mut notes = BTreeMap::new();
        let mut extras = BTreeMap::new();
        let mut log_failed = None;
        let mut tried_later = BTreeSet::new();
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let numbers: Vec<i64> = rest.split(' ').map_while(|word| word.parse().ok()).collect();
            match (word, &numbers[..]) {
                ("opened", _) => (said.opened, self.created) = (true, true),
                ("history", _) => found.history.push(bytes(rest)),
                ("row", [kind, number, balance]) => {
                    found.balances[*kind as usize].insert(*number as u64, *balance);
                }
                ("note", [id]) => {
                    notes.insert(*id as u64 % NOTES, (*id as u64, rest.ends_with("true")));
                }
                ("finding", _) if !is_unread(rest, injected) => {
                    said.wrong.push(format!("check: {rest}; injected: {injected:?}"))
                }
                ("finding", _) => {}
                ("looked", _) => {
                    said.looked = true;
                    self.looks += 1;
                    self.reconcile(&found, &notes, &mut said.wrong);
                    self.reconcile_extras(&extras, &mut said.wrong);
                }
                ("try", [id, account, teller, branch, delta]) => {
                    let [id, account, teller, branch] = [*id, *account, *teller, *branch].map(|word| word as u64);
                    self.ledger.enter(
                        id,
                        Transfer { account, teller, branch, delta: *delta },
                        TransferOutcome::InDoubt,
                    );
                    if log_failed.is_some() {
                        tried_later.insert(id);
                    }
                }
                ("done", [id]) => {
                    self.ledger.note(*id as u64, TransferOutcome::Acknowledged);
                    self.acknowledged += 1;
                    if tried_later.contains(&(*id as u64)) {
                        said.wrong.push(format!("transfer {id} commits though the log has failed: {log_failed:?}"));
                    }
                }
                ("failed", _) => {
                    let (_, error) = rest.split_once(' ').unwrap_or_default();
                    if error.starts_with("LogFailed") {
                        log_failed.get_or_insert_with(|| rest.to_owned());
                    }
                    judge(error, injected, &mut said);
                }
                ("unopened", _) if !self.created && rest.ends_with("give it an empty directory") => self.refused = true,
                ("error" | "unopened", _) => judge(rest, injected, &mut said),
                ("extra", _) => {
                    let (name, whole) = rest.rsplit_once(' ').unwrap_or_default();
                    extras.insert(name.to_owned(), whole.parse().unwrap_or(u64::MAX));
                }
                ("creating", _) => self.know(rest, Extra::Creating),
                ("created", _) => self.know(rest, Extra::Created),
                ("filling", _) => self.know(rest, Extra::Filling),
                ("filled", _) => self.know(rest, Extra::Filled),
                ("loaded", _) => {}
                ("closed", _) => said.closed = true,
                _ => said.wrong.push(format!("it says '{line}'")),
            }
        }
        said
    }

    fn know(&mut self, extra: &str, what: Extra) {
        self.extras.insert(extra.to_owned(), what);
    }

    /// Compares the partitions that were created by the way; then what is there is known to be.
    fn reconcile_extras(&mut self, found: &BTreeMap<String, u64>, wrong: &mut Vec<String>) {
        for name in found.keys().filter(|name| !self.extras.contains_key(*name)) {
            wrong.push(format!("partition '{name}' is there and was never created"));
        }
        for (name, known) in &mut self.extras {
            let is_sound = match (found.get(name), *known) {
                (None, known) => known == Extra::Creating,
                (Some(0), known) => known < Extra::Filled,
                (Some(whole), known) => *whole == EXTRA_RECORDS && known >= Extra::Filling,
            };
            if !is_sound {
                wrong.push(format!("partition '{name}': {known:?}, and its whole records are {:?}", found.get(name)));
            }
            *known = if found.get(name) == Some(&EXTRA_RECORDS) { Extra::Filled } else { Extra::Created };
        }
        self.extras.retain(|name, _| found.contains_key(name));
    }

    fn reconcile(&mut self, found: &FoundTransfers, notes: &BTreeMap<u64, (u64, bool)>, wrong: &mut Vec<String>) {
        let differences = self.ledger.reconcile(found).err().unwrap_or_default();
        wrong.extend(differences.into_iter().map(|difference| difference.what));
        // Of two transactions that change a note the later one comes later in the history: it waits for the other's lock.
        let mut expected = BTreeMap::new();
        for (id, _) in found.history.iter().filter_map(|record| Transfer::decode(record)) {
            match id % 5 {
                0 => expected.remove(&(id % NOTES)),
                _ => expected.insert(id % NOTES, (id, true)),
            };
        }
        if expected != *notes {
            wrong.push(format!("the notes are {notes:?}, should be {expected:?}"));
        }
    }
}

/// Whether a process may meet this error, which begins with its sort.
fn judge(error: &str, injected: &Injected, said: &mut Said) {
    let sort = error.split(' ').next().unwrap_or_default();
    said.errors.insert(sort.to_owned());
    let of_input = ["Device", "LogFailed", "LogNotRelieved/Device", "LogCopyMissing", "BufferExhausted"];
    let of_room = ["NoSpace", "LogNotGrown", "LogNotRelieved/NoSpace", "TempFull", "BufferExhausted"];
    let is_excused = injected.errors() > 0 && of_input.contains(&sort)
        || injected.no_space > 0 && of_room.contains(&sort)
        || sort.starts_with("Damaged") && injected.unread().any(|file| error.contains(&format!("'{file}'")));
    if !is_excused {
        said.wrong.push(format!("{error}; injected: {injected:?}"));
    }
}

/// Whether what a check has found is in a file of which a read has failed on purpose.
fn is_unread(finding: &str, injected: &Injected) -> bool {
    let names = |file: &str| {
        let partition = file.strip_suffix(".pages").unwrap_or(file);
        finding.contains(&format!("'{file}'")) || finding.contains(&format!("partition '{partition}'"))
    };
    injected.unread().any(names)
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map_or(0, |digit| digit as u8);
    hexadecimal.as_bytes().as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}
