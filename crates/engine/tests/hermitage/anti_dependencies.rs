//! Cycles with anti-dependencies: what was read is overwritten.

use super::script::{check, check_kept};
use super::table::Kept;

#[test]
fn p4_lost_update() {
    check(
        "
        T1 get 1       | 10
        T2 get 1       | 10
        T1 set 1 11    | ok         | ok               | waits
        T2 set 1 12    | waits      | waits            | deadlock, T1: ok
        T1 commit      | ok, T2: ok | ok, T2: conflict | ok
        T2 commit      | ok         | over             | over
        now all        | 1=12 2=20  | 1=11 2=20        | 1=11 2=20
        ",
    );
}

#[test]
fn g_single_read_skew() {
    check(
        "
        T1 get 1       | 10
        T2 get 1       | 10
        T2 get 2       | 20
        T2 set 1 12    | ok | ok | waits
        T1 get 2       | 20 
        T2 set 2 18    | ok | ok | waits
        T2 commit      | ok | ok | waits
        T1 get 2       | 18 | 20 | 20
        T1 commit      | ok | ok | ok, T2: ok, T2: ok, T2: ok
        now all        | 1=12 2=18
        ",
    );
}

#[test]
fn g2_item_write_skew() {
    check(
        "
        T1 all         | 1=10 2=20
        T2 all         | 1=10 2=20
        T1 set 1 11    | ok        | ok        | waits
        T2 set 2 21    | ok        | ok        | deadlock, T1: ok
        T1 commit      | ok
        T2 commit      | ok        | ok        | over
        now all        | 1=11 2=21 | 1=11 2=21 | 1=11 2=20
        ",
    );
}

#[test]
fn g2_with_two_anti_dependencies_and_a_reader() {
    let script = |serializable: [&str; 2]| {
        let [write, after] = serializable;
        format!(
            "
            T1 all         | 1=10 2=20
            T2 add 2 5     | ok        | ok        | waits
            T2 commit      | ok        | ok        | waits
            T3 all         | 1=10 2=25 | 1=10 2=25 | waits
            T3 commit      | ok        | ok        | waits
            T1 set 1 0     | ok        | ok        | {write}
            T1 commit      | ok        | ok        | over
            now all        | 1=0 2=25  | 1=0 2=25  | {after}
            "
        )
    };
    // The reader has locked the first record and waits for the second, behind the writer.
    check_kept(Kept::Tree, &script(["deadlock, T2: ok, T2: ok, T3: 1=10 2=25, T3: ok", "1=10 2=25"]));
    // Besides, the reader has locked a gap that the writer's new entry of the index is to fall into.
    check_kept(Kept::Set, &script(["deadlock, T2: deadlock, T2: over, T3: 1=10 2=20, T3: ok", "1=10 2=20"]));
}
