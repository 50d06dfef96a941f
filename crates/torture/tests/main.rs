//! Torture itself, in one program: linking each file by itself takes longer than running it.

mod backups;
mod cache_canaries;
mod canaries;
mod cluster;
mod isolation;
mod kill;
mod seeds;
