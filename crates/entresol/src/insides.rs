//! What users of the library can name, which is what they get from it; and what they cannot call: the engine's insides.
//!
//! ```
//! use entresol::{Database, FieldError, RecordType, Sorted, Store};
//!
//! fn what_the_past_costs(database: &Database) -> entresol::VersionReport {
//!     database.versions()
//! }
//! fn what_the_tiers_did(database: &Database) -> Vec<entresol::TierReport> {
//!     database.tiers()
//! }
//! fn what_sorts_wrote(database: &Database, sorted: &Sorted) -> (entresol::TempStatistics, entresol::SortReport) {
//!     (database.temp_statistics(), sorted.report())
//! }
//! fn fields(record: &RecordType) -> &[entresol::Field] {
//!     record.fields()
//! }
//! fn who_has_the_same(error: FieldError) -> Option<Box<entresol::NotUnique>> {
//!     if let FieldError::NotUnique(found) = error { Some(found) } else { None }
//! }
//! fn server(store: &Store) -> Result<Option<entresol::TransactionServer>, entresol::OpenError> {
//!     store.transaction_server()
//! }
//! ```
//!
//! ```
//! fn of_users(database: &entresol::Database) {
//!     database.figures();
//!     database.waits();
//! }
//!
//! async fn tasks_of_users(executor: &entresol::Executor) -> Result<entresol::Instant, entresol::Fault> {
//!     let task: entresol::JoinHandle<u8> = executor.spawn(async { 1 });
//!     executor.sleep_ns(1_000).await;
//!     executor.yield_now().await;
//!     executor.within(1_000, task.join()).await;
//!     executor.compute(1_000, || 2).await?;
//!     executor.sleep_until(executor.now().plus_ns(executor.unix_ns() % 1_000)).await;
//!     Ok(executor.now())
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn rank(executor: &entresol::Executor) {
//!     executor.set_rank(255);
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn requests(executor: &entresol::Executor) {
//!     executor.whole().frames(1, 4096);
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
//! async fn portion(snapshot: &mut entresol::Snapshot, partition: entresol::PartitionId) {
//!     snapshot.portion_of_set(partition, 0).await;
//! }
//! ```
//!
//! ```compile_fail,E0624
//! async fn keep_versions(database: &entresol::Database) {
//!     database.keep_versions().await;
//! }
//! ```
