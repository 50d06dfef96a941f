//! What a transaction may still do once something has gone wrong for it, and when its answers may leave.

mod aborted;
mod answers;
mod combined;
mod cursors;
mod each;
mod insert_each;
mod looks;
mod lost_updates;
mod moments;
mod own_checkpoint;
mod own_errors;
mod own_log;
mod panics;
mod ranges;
mod savepoints;
mod streams;
mod waits;
