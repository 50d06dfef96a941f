//! What read committed forbids already: dirty writes, dirty reads, and what follows from them.

use super::script::check;

#[test]
fn g0_write_cycles() {
    check(
        "
        T1 set 1 11    | ok
        T2 set 1 12    | waits
        T1 set 2 21    | ok
        T1 commit      | ok, T2: ok   | ok, T2: conflict | ok, T2: ok
        T2 set 2 22    | ok           | over             | ok
        T2 commit      | ok           | over             | ok
        now all        | 1=12 2=22    | 1=11 2=21        | 1=12 2=22
        ",
    );
}

#[test]
fn g1a_aborted_reads() {
    check(
        "
        T1 set 1 101   | ok
        T2 all         | 1=10 2=20 | 1=10 2=20 | waits
        T1 abort       | ok        | ok        | ok, T2: 1=10 2=20
        T2 all         | 1=10 2=20
        T2 commit      | ok
        ",
    );
}

#[test]
fn g1b_intermediate_reads() {
    check(
        "
        T1 set 1 101   | ok
        T2 all         | 1=10 2=20 | 1=10 2=20 | waits
        T1 set 1 11    | ok
        T1 commit      | ok        | ok        | ok, T2: 1=11 2=20
        T2 all         | 1=11 2=20 | 1=10 2=20 | 1=11 2=20
        T2 commit      | ok
        ",
    );
}

#[test]
fn g1c_circular_information_flow() {
    check(
        "
        T1 set 1 11    | ok
        T2 set 2 22    | ok
        T1 get 2       | 20        | 20        | waits
        T2 get 1       | 10        | 10        | deadlock, T1: 20
        T1 commit      | ok
        T2 commit      | ok        | ok        | over
        now all        | 1=11 2=22 | 1=11 2=22 | 1=11 2=20
        ",
    );
}

#[test]
fn otv_observed_transaction_vanishes() {
    check(
        "
        T1 set 1 11    | ok
        T1 set 2 19    | ok
        T2 set 1 12    | waits
        T1 commit      | ok, T2: ok | ok, T2: conflict | ok, T2: ok
        T3 get 1       | 11         | 11               | waits
        T2 set 2 18    | ok         | over             | ok
        T2 commit      | ok         | over             | ok, T3: 12
        T3 get 2       | 18         | 19               | 18
        T3 get 1       | 12         | 11               | 12
        T3 commit      | ok
        now all        | 1=12 2=18  | 1=11 2=19        | 1=12 2=18
        ",
    );
}
