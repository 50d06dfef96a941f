//! Nodes among each other, in one program: linking each file by itself takes longer than running it.

mod appending;
mod beside;
mod cancelled;
mod cluster;
mod copies;
mod counting;
mod falling;
mod faults;
mod granted_indexes;
mod history;
mod hostile;
mod hostile_records;
mod idle;
mod ill_clients;
mod long_values;
mod machines;
mod model;
mod real;
mod records;
mod redone;
mod revoked;
mod savepoints;
mod sets;
mod snapshots;
mod things;
mod typed_records;
