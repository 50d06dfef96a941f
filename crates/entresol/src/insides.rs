//! What users of the library cannot call: the engine's insides.
//!
//! ```
//! fn of_users(database: &entresol::Database) {
//!     database.figures();
//!     database.waits();
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn log(database: &entresol::Database) {
//!     database.log();
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn buffer(database: &entresol::Database) {
//!     database.buffer();
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn locks(database: &entresol::Database) {
//!     database.locks();
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn serve_nodes(database: &entresol::Database) {
//!     database.serve_nodes();
//! }
//! ```
//!
//! ```compile_fail,E0624
//! async fn keep_versions(database: &entresol::Database) {
//!     database.keep_versions().await;
//! }
//! ```
