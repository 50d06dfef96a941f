//! What comes from outside may be wrong in any way: the program says what and where, ends with 1 and alters nothing.

#![allow(clippy::disallowed_methods, reason = "the tests damage files, as users and disks do")]

mod arguments;
mod damage;
mod directory;
mod ground;
mod machine;
