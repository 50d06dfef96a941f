//! Entresol: a transactional storage engine for every floor of the storage hierarchy.

pub mod configuration;
