//! Sorts against `Vec::sort`, joins against nested loops; what failures, full space and dropped operations leave.

mod ground;
mod growth;
mod joins;
mod sorts;
