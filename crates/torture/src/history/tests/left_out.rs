use crate::history::{History, Key, Level, Version};

/// Two transactions that both read a record of each of two stores and replace it.
fn lost_updates() -> History {
    let mut history = History::default();
    let keys = ["tree", "set"].map(|store| Key { store, number: 1 });
    let transactions = [(); 2].map(|()| history.begin(Level::Snapshot));
    transactions.iter().for_each(|transaction| history.started(*transaction));
    for transaction in transactions {
        for key in keys {
            history.read(transaction, key, Some(Version::INITIAL));
            let version = history.new_version(transaction, key);
            history.wrote(transaction, version, Some(1));
        }
        // What was written behind a savepoint is the same whatever was left out before it.
        let savepoint = history.savepoint(transaction);
        let version = history.new_version(transaction, keys[1]);
        history.wrote(transaction, version, Some(1));
        history.rolled_back_to(transaction, savepoint);
        history.asks(transaction);
        history.committed(transaction);
    }
    history
}

#[test]
fn what_is_left_out_of_a_history_explains_nothing_and_hides_nothing() {
    let told = |history: &History| {
        let text: String = history.anomalies().iter().map(ToString::to_string).collect();
        ["lost update", "tree 1", "set 1"].map(|word| text.contains(word))
    };
    let history = lost_updates();
    assert!(!history.anomalies().is_empty());
    assert_eq!(told(&history.without(|store| store == "tree")), [true, false, true]);
    assert_eq!(told(&history.without(|store| store == "set")), [true, true, false]);
    assert_eq!(history.without(|_| true).anomalies(), []);
}
