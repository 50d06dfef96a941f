//! Predicates whose matches change: many records at once.

use super::script::check;

#[test]
fn pmp_predicate_many_preceders() {
    check(
        "
        T1 where = 30   | none
        T2 insert 3 30  | ok   | ok   | waits
        T2 commit       | ok   | ok   | waits
        T1 where % 3    | 3=30 | none | none
        T1 commit       | ok   | ok   | ok, T2: ok, T2: ok
        ",
    );
}

#[test]
fn pmp_with_write_predicates() {
    check(
        "
        T1 add-to-all 10   | ok
        T2 delete-where 20 | waits
        T1 commit          | ok, T2: ok | ok, T2: conflict | ok, T2: ok
        T2 all             | 1=20 2=30  | over             | 2=30
        T2 commit          | ok         | over             | ok
        now all            | 1=20 2=30  | 1=20 2=30        | 2=30
        ",
    );
}

#[test]
fn g_single_with_predicates() {
    check(
        "
        T1 where % 5       | 1=10 2=20
        T2 set 1 12        | ok   | ok   | waits
        T2 commit          | ok   | ok   | waits
        T1 where % 3       | 1=12 | none | none
        T1 commit          | ok   | ok   | ok, T2: ok, T2: ok
        now all            | 1=12 2=20
        ",
    );
}

#[test]
fn g_single_with_a_write_predicate() {
    check(
        "
        T1 get 1           | 10
        T2 all             | 1=10 2=20
        T2 set 1 12        | ok | ok       | waits
        T2 set 2 18        | ok | ok       | waits
        T2 commit          | ok | ok       | waits
        T1 delete-where 20 | ok | conflict | deadlock, T2: ok, T2: ok, T2: ok
        T1 commit          | ok | over     | over
        now all            | 1=12 2=18
        ",
    );
}

#[test]
fn g2_anti_dependency_cycles() {
    check(
        "
        T1 where % 3       | none
        T2 where % 3       | none
        T1 insert 3 30     | ok        | ok        | waits
        T2 insert 4 42     | ok        | ok        | deadlock, T1: ok
        T1 commit          | ok
        T2 commit          | ok        | ok        | over
        now all            | 1=10 2=20 3=30 4=42 | 1=10 2=20 3=30 4=42 | 1=10 2=20 3=30
        ",
    );
}
