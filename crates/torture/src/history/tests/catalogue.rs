//! One history for each anomaly, and sound ones that look alike.

use super::super::Phenomenon::{self, *};
use super::super::{Anomaly, Level};
use super::history;

/// Runs a script at read committed, snapshot and serializable, and compares what is found first.
fn assert_found(script: &str, expected: [Option<Phenomenon>; 3]) {
    for (level, expected) in [Level::ReadCommitted, Level::Snapshot, Level::Serializable].into_iter().zip(expected) {
        let anomalies = history(script, level).anomalies();
        let found = anomalies.first().map(|anomaly| anomaly.phenomenon);
        assert_eq!(found, expected, "{script} at {level:?}: {anomalies:?}");
    }
}

#[test]
fn every_anomaly_is_found_where_it_is_forbidden() {
    let everywhere = |phenomenon| [Some(phenomenon); 3];
    let not_committed = |phenomenon| [None, Some(phenomenon), Some(phenomenon)];
    let serializable = |phenomenon| [None, None, Some(phenomenon)];
    for (script, expected) in [
        ("b1 b2 w1x1 w2x2 w2y1 w1y2 c1 c2", everywhere(G0)),
        ("w1x1 r2x1 a1 c2", everywhere(G1a)),
        ("w1x1 r2x1 c2", everywhere(G1a)),
        ("w1x1 p1 w1x2 u1 c1 r2x1 c2", [None; 3]),
        ("p1 w1x1 u1 r2x1 c2 c1", everywhere(G1a)),
        ("w1x1 r2x1 w1x2 c1 c2", everywhere(G1b)),
        ("b1 b2 w1x1 w2y1 r1y1 r2x1 c1 c2", everywhere(G1c)),
        ("b1 b2 r1x- r2x- w1x1 c1 w2x2 c2", not_committed(LostUpdate)),
        ("r1x- w2x1 w2y1 c2 r1y1 c1", not_committed(GSingle)),
        ("s1 w2x1 w2y1 c2 r1y1 c1", not_committed(GSingle)),
        ("r1x- w2x1 w2y1 c2 r1x- r1y- c1", [None; 3]),
        ("b1 b2 r1x- r2y- w1y1 w2x1 c1 c2", serializable(G2Item)),
        ("b1 b2 s1 s2 w1y1 w2x1 c1 c2", serializable(G2)),
        // The read-only anomaly of Fekete, O'Neil and O'Neil (SIGMOD Record 2004).
        ("b1 r1x- r1y- w2y1 c2 r3x- r3y1 c3 w1x1 c1", serializable(G2Item)),
    ] {
        assert_found(script, expected);
    }
}

#[test]
fn what_was_shown_to_those_who_were_rolled_back_counts_too() {
    let not_committed = |phenomenon| [None, Some(phenomenon), Some(phenomenon)];
    for (script, expected) in [
        ("w1x1 r2x1 a1 a2", [Some(G1a); 3]),
        ("w1x1 r2x1 w1x2 c1 a2", [Some(G1b); 3]),
        ("r1x- w2x1 w2y1 c2 r1y1 a1", not_committed(GSingle)),
        ("r1x- w2x1 w2y1 c2 r1y- a1", [None; 3]),
        // Its writes impose no order.
        ("b1 b2 r1x- r2x- w1x1 w2x2 a2 c1", [None; 3]),
        ("b1 b2 r1x- r2y- w1y1 w2x1 c1 a2", [None; 3]),
        // A restart may lose a commit that was shown to others before it was durable and that was never acknowledged.
        ("w1x1 q1 r2x1 a2 r3x- c3", [None; 3]),
    ] {
        assert_found(script, expected);
    }
}

#[test]
fn real_time_is_kept() {
    let in_real_time = |script: &str, level| {
        let anomalies = history(script, level).anomalies();
        anomalies.first().map(|anomaly: &Anomaly| (anomaly.phenomenon, anomaly.real_time))
    };
    for level in [Level::ReadCommitted, Level::Snapshot, Level::Serializable] {
        assert_eq!(in_real_time("w1x1 c1 r2x- c2", level), Some((GSingle, true)), "{level:?}: a lost commit");
        assert_eq!(
            in_real_time("b2 w1x1 c1 r2x- c2", Level::Serializable),
            None,
            "a transaction that began before may miss it"
        );
        assert_eq!(in_real_time("w1x1 c1 d2x2 c2 r3x1 c3", level), Some((GSingle, true)), "a lost deletion");
        assert_eq!(in_real_time("w1x1 c1 d2x2 c2 r3x- c3", level), None);
        assert_eq!(in_real_time("w1x1 q1 r2x- c2 r3x- c3", level), None, "no transaction has seen the commit in doubt");
        assert_eq!(in_real_time("w1x1 c1 d2x2 q2 r3x- c3", level), None, "a deletion cannot be seen");
        assert_eq!(in_real_time("w1x1 c1 d2x2 q2 w4x3 c4 r3x- c3", level), Some((GSingle, true)), "but replaced");
        assert_eq!(in_real_time("w1x1 q1 r2x1 c2 r3x- c3", level), Some((GSingle, true)), "it was seen and is lost");
        assert_eq!(
            in_real_time("w1x1 w1y1 q1 r2x1 r2y- c2", level).is_some(),
            level != Level::ReadCommitted,
            "half of it"
        );
    }
    assert_eq!(in_real_time("b1 w2x1 c2 r1x1 c1", Level::Snapshot), Some((G1c, true)), "newer than the snapshot");
    assert_eq!(in_real_time("b1 w2x1 c2 w1x2 c1", Level::Snapshot), Some((G0, true)), "the first updater wins");
    assert_eq!(in_real_time("b1 w2x1 c2 r1x1 w1x2 c1", Level::Serializable), None);
}

#[test]
fn own_writes_are_seen_and_nothing_is_made_up() {
    for (script, expected) in [
        ("w1x1 r1x1 d1x2 r1x- w1x3 s1x3 c1", None),
        ("w1x1 r1x- c1", Some(Internal)),
        ("w1x1 c1 w2x2 r2x1 c2", Some(Internal)),
        ("p1 w1x1 u1 r1x- c1", None),
        ("p1 w1x1 u1 r1x1 c1", Some(Internal)),
        ("w1x1 s1 c1", Some(Internal)),
        ("w1x1 c1 d2x2 s2x1 c2", Some(Internal)),
        ("w1x1 c1 s2x1x1 c2", Some(Internal)),
    ] {
        assert_found(script, [expected; 3]);
    }
    let mut stray = history("w1x1 c1 b2", Level::Serializable);
    let (key, version) = (super::Key { store: "tree", number: 7 }, super::Version(1));
    stray.read(1, key, Some(version));
    stray.asks(1);
    stray.committed(1);
    assert_eq!(stray.anomalies()[0].phenomenon, Garbage, "version 1 belongs to another key");
}

#[test]
fn a_cycle_can_be_followed() {
    let anomalies = history("b1 b2 r1x- r2x- w1x1 c1 w2x2 c2", Level::Serializable).anomalies();
    assert_eq!(anomalies.len(), 1);
    let steps =
        ["T1 finds no tree 120, of which T0 wrote v1 afterwards", "T0 wrote v1 of tree 120, which T1 replaced by v2"];
    assert_eq!(anomalies[0].steps, steps);
    assert!(anomalies[0].to_string().contains("T0 (Serializable, from 1), 5 reads tree 120: none"), "{}", anomalies[0]);
}
