//! The Hermitage catalogue of isolation anomalies (Martin Kleppmann, github.com/ept/hermitage): each a script of two or three
//! transactions whose steps are interleaved as written, with what every step comes to at every level.
//!
//! A table begins with two records, 1 with the value 10 and 2 with the value 20. A row of a script has a step and what comes of
//! it: for all levels, or at read committed, at snapshot and serializable. A step that has to wait says `waits`; its final
//! result is in the row of the step that let it go on. A transaction that gives up is rolled back at once, and `over`.

mod anti_dependencies;
mod predicates;
mod script;
mod table;
mod writes_and_reads;
