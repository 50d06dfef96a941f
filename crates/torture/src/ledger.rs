//! What Debit-Credit clients were told, and the comparison with what is found.

use std::collections::BTreeMap;

/// What a client knows about the outcome of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferOutcome {
    /// Never asked to commit, or rolled back: it must not be there.
    Undone,
    /// Asked to commit and not answered: it may be there whole or not at all.
    InDoubt,
    /// The client was told that it is committed: it must be there.
    Acknowledged,
}

/// One transaction of Debit-Credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which account,
    pub account: u64,
    /// teller
    pub teller: u64,
    /// and branch changed,
    pub branch: u64,
    /// by how much.
    pub delta: i64,
}

impl Transfer {
    /// The length of its stored form in bytes.
    pub const LENGTH: usize = 40;

    /// Its history record, `length` bytes long.
    pub fn encode(&self, id: u64, length: usize) -> Vec<u8> {
        let words = [id, self.account, self.teller, self.branch, self.delta as u64];
        let mut record: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        record.resize(length.max(Transfer::LENGTH), id as u8);
        record
    }

    /// The record that a transaction of this number inserts into the accounts' set, or deletes if it is there: the record
    /// exists after an odd number of such transactions. Few transactions have one.
    pub fn guest(id: u64) -> Option<u64> {
        id.is_multiple_of(3).then_some(id / 3 % Transfer::GUESTS)
    }

    /// How many such records there are.
    pub const GUESTS: u64 = 7;

    /// Reads a history record: the transaction's number, and what it did.
    pub fn decode(record: &[u8]) -> Option<(u64, Transfer)> {
        let word = |index: usize| Some(u64::from_le_bytes(*record.get(8 * index..)?.first_chunk()?));
        let (id, delta) = (word(0)?, word(4)? as i64);
        let sound = record[Transfer::LENGTH..].iter().all(|byte| *byte == id as u8);
        let transfer = Transfer { account: word(1)?, teller: word(2)?, branch: word(3)?, delta };
        sound.then_some((id, transfer))
    }
}

/// Every transaction that a client began and that may be there.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    next: u64,
    transfers: BTreeMap<u64, (Transfer, TransferOutcome)>,
}

/// The balances of one kind of row, by number.
pub type Balances = BTreeMap<u64, i64>;

/// The partitions of the rows, by kind.
pub const KINDS: [&str; 3] = ["account", "teller", "branch"];

/// Something that is wrong, and the partitions that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Their names.
    pub partitions: Vec<&'static str>,
    /// What it is.
    pub what: String,
}

/// What was found in the database.
#[derive(Debug, Default)]
pub struct FoundTransfers {
    /// History records in their order.
    pub history: Vec<Vec<u8>>,
    /// Balances that are not zero: accounts, tellers, branches.
    pub balances: [Balances; 3],
}

impl Ledger {
    /// Enters a transaction that begins; gives its number.
    pub fn begin(&mut self, transfer: Transfer) -> u64 {
        self.next += 1;
        self.transfers.insert(self.next, (transfer, TransferOutcome::Undone));
        self.next
    }

    /// Enters a transaction of a client that numbers its own.
    pub fn enter(&mut self, id: u64, transfer: Transfer, outcome: TransferOutcome) {
        self.transfers.insert(id, (transfer, outcome));
    }

    /// Notes what the client knows now.
    pub fn note(&mut self, id: u64, outcome: TransferOutcome) {
        if let Some((_, known)) = self.transfers.get_mut(&id) {
            *known = outcome;
        }
    }

    /// Every transaction that may be there, by number, with what is known of it.
    pub fn outcomes(&self) -> impl Iterator<Item = (u64, TransferOutcome)> {
        self.transfers.iter().map(|(id, (_, outcome))| (*id, *outcome))
    }

    /// The same transactions with other outcomes.
    pub fn with(&self, outcome: impl Fn(u64, TransferOutcome) -> TransferOutcome) -> Ledger {
        let transfers = self.transfers.iter().map(|(id, (transfer, known))| (*id, (*transfer, outcome(*id, *known))));
        Ledger { next: self.next, transfers: transfers.collect() }
    }

    /// Compares what is found with what is known; then what is there is known to be.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn reconcile(&mut self, found: &FoundTransfers) -> Result<(), Vec<Wrong>> {
        let mut wrong = Vec::new();
        let present = self.compare_history(&found.history, &mut wrong);
        for (kind, name) in KINDS.into_iter().enumerate() {
            let expected = balances(present.values(), kind);
            compare(name, &expected, &found.balances[kind], &mut wrong);
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        self.transfers.retain(|id, _| present.contains_key(id));
        self.transfers.values_mut().for_each(|(_, outcome)| *outcome = TransferOutcome::Acknowledged);
        Ok(())
    }

    /// The transfers that are in the history; what is wrong with it goes to `wrongs`.
    fn compare_history(&self, history: &[Vec<u8>], wrongs: &mut Vec<Wrong>) -> BTreeMap<u64, Transfer> {
        let mut wrong = Vec::new();
        let mut present = BTreeMap::new();
        for record in history {
            match Transfer::decode(record) {
                None => wrong.push(format!("a history record of {} bytes is garbage", record.len())),
                Some((id, transfer)) => {
                    if present.insert(id, transfer).is_some() {
                        wrong.push(format!("transfer {id} is in the history twice"));
                    }
                }
            }
        }
        for (id, transfer) in &present {
            match self.transfers.get(id) {
                Some((known, TransferOutcome::InDoubt | TransferOutcome::Acknowledged)) if known == transfer => {}
                Some((known, TransferOutcome::Undone)) => {
                    wrong.push(format!("transfer {id} is there though undone: {known:?}"))
                }
                Some((known, _)) => wrong.push(format!("transfer {id} is {transfer:?}, should be {known:?}")),
                None => wrong.push(format!("transfer {id} is there and was never made")),
            }
        }
        for (id, (transfer, outcome)) in &self.transfers {
            if *outcome == TransferOutcome::Acknowledged && !present.contains_key(id) {
                wrong.push(format!("acknowledged transfer {id} is lost: {transfer:?}"));
            }
        }
        wrongs.extend(wrong.into_iter().map(|what| Wrong { partitions: vec!["history"], what }));
        present
    }
}

/// What the rows of one kind should hold after these transfers.
fn balances<'a>(transfers: impl Iterator<Item = &'a Transfer>, kind: usize) -> Balances {
    let mut sums = Balances::new();
    for transfer in transfers {
        let row = [transfer.account, transfer.teller, transfer.branch][kind];
        *sums.entry(row).or_default() += transfer.delta;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn compare(name: &'static str, expected: &Balances, found: &Balances, wrong: &mut Vec<Wrong>) {
    let rows: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for row in rows {
        let (expected, found) = (expected.get(row).unwrap_or(&0), found.get(row).unwrap_or(&0));
        if expected != found {
            let what = format!("{name} {row} holds {found}, its history gives {expected}");
            wrong.push(Wrong { partitions: vec![name, "history"], what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(delta: i64) -> Transfer {
        Transfer { account: 1, teller: 2, branch: 3, delta }
    }

    fn found(ids: &[u64], balance: i64) -> FoundTransfers {
        let history = ids.iter().map(|id| transfer(5).encode(*id, 50)).collect();
        let row = |number| Balances::from_iter((balance != 0).then_some((number, balance)));
        FoundTransfers { history, balances: [row(1), row(2), row(3)] }
    }

    #[test]
    fn the_lost_the_undone_the_doubled_and_the_halved_are_found() {
        let ledger = |outcome| {
            let mut ledger = Ledger::default();
            let id = ledger.begin(transfer(5));
            ledger.note(id, outcome);
            ledger
        };
        let told = |outcome, found| ledger(outcome).reconcile(&found).map_err(|wrong| wrong[0].what.clone());
        assert_eq!(told(TransferOutcome::Acknowledged, found(&[1], 5)), Ok(()));
        assert_eq!(told(TransferOutcome::InDoubt, found(&[1], 5)), Ok(()));
        assert_eq!(told(TransferOutcome::InDoubt, found(&[], 0)), Ok(()));
        assert_eq!(told(TransferOutcome::Undone, found(&[], 0)), Ok(()));
        assert!(told(TransferOutcome::Acknowledged, found(&[], 0)).is_err_and(|what| what.contains("lost")));
        assert!(told(TransferOutcome::Undone, found(&[1], 5)).is_err_and(|what| what.contains("undone")));
        assert!(told(TransferOutcome::Acknowledged, found(&[1, 1], 5)).is_err_and(|what| what.contains("twice")));
        assert!(told(TransferOutcome::Acknowledged, found(&[1, 9], 5)).is_err_and(|what| what.contains("never made")));
        assert!(told(TransferOutcome::InDoubt, found(&[1], 4)).is_err_and(|what| what.contains("holds 4")));
        assert!(told(TransferOutcome::InDoubt, found(&[], 5)).is_err_and(|what| what.contains("holds 5")));
    }
}
