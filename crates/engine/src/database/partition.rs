//! Creating partitions.

use super::Database;
use super::log_room::{complete_logged, length_of, wait_for_log_beside};
use crate::buffer::PageSpace;
use crate::catalog::{IndexSpec, IndexTree, Locking, Organization, Partition, Partitions, Schema};
use crate::checkpoint::{enter_partitions, state_catalog};
use crate::page_store::DataFile;
use crate::second_level::Placement;
use crate::superblock::{self, CatalogChange, Superblock, SuperblockFile};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use driver::Op;
use executor::Executor;
use std::collections::BTreeMap;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::organization::{allocator, append, b_tree};
use structures::page::{Edit, PageKind};
use structures::set::RecordType;

/// More than the record of a new partition's first pages takes, in bytes.
pub(super) const FIRST_PAGES_SIZE: u64 = 512;

/// A partition to be created.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # use entresol_engine::catalog::{Locking, Organization};
/// # with_database(async |database| {
/// let tree = PartitionSpec { device: "flash".into(), ..PartitionSpec::b_tree("customers") };
/// let customers = database.create_partition(tree).await?;
/// let history = database.create_partition(PartitionSpec::append("history")).await?;
/// // A thousand counters of 8 bytes, a hundred on a page, which transactions lock page by page.
/// let organization = Organization::Direct { objects: 1_000, blocking_factor: 100, record_size: 8 };
/// let counters = database.create_partition(PartitionSpec::new("counters", organization, Locking::Page)).await?;
/// assert_eq!(database.partition("history")?, history);
/// assert_eq!(database.describe(customers)?.device, "flash");
/// # assert_ne!(counters, customers);
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    /// Its name.
    pub name: String,
    /// Its organization.
    pub organization: Organization,
    /// What is locked.
    pub locking: Locking,
    /// The device that holds it.
    pub device: String,
    /// Whether its pages count as written from the start; see [`Partition::assumed`].
    pub assumed: bool,
    /// What the records of a b-tree or a set consist of.
    pub record: Option<RecordType>,
    /// The ordered secondary indexes of a b-tree or a set.
    pub secondaries: Vec<IndexSpec>,
}

impl PartitionSpec {
    /// A b-tree with record locks on the device `disk`.
    ///
    /// A key has an eighth of a page less six bytes at most, a value 16 MiB. A value of less than about a sixth of a page stands beside its key,
    /// where it can be changed in place ([`Transaction::modify`](crate::Transaction::modify)).
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let files = database.create_partition(PartitionSpec::b_tree("files")).await?; // Pages of 8 KiB.
    /// let mut tx = database.begin().await?;
    /// tx.put(files, &[b'k'; 1_018], &vec![7; 16 << 20]).await?;
    /// let long_key = tx.put(files, &[b'k'; 1_019], b"").await;
    /// assert!(matches!(long_key, Err(Error::TooLarge { found: 1_019, limit: 1_018, partition, .. }) if partition == "files"));
    /// let long_value = tx.put(files, b"picture", &vec![7; (16 << 20) + 1]).await;
    /// assert!(matches!(long_value, Err(Error::TooLarge { limit: 16_777_216, .. })));
    ///
    /// tx.put(files, b"note", &[7; 1_900]).await?;
    /// let in_place = tx.modify(files, b"note", |note| note[0] = 8).await;
    /// assert!(matches!(in_place, Err(Error::TooLarge { found: 1_900, limit: 1_400..1_527, .. })));
    /// # Ok(())
    /// # });
    /// ```
    pub fn b_tree(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::BTree, Locking::Record)
    }

    /// Records in order of arrival, as many on a page as fit, without locks, on the device `disk`. A record fits a page, whose head takes some
    /// of it.
    pub fn append(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::Append { blocking_factor: 0 }, Locking::None)
    }

    /// A memory-resident set of records with keys and record locks, its backup on the device `disk`. A key has 65,535 bytes at most, and a
    /// record with its key fits a segment, which has 256 KiB and a head of some bytes.
    pub fn set(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::set(false), Locking::Record)
    }

    /// A partition on the device `disk`.
    pub fn new(name: &str, organization: Organization, locking: Locking) -> PartitionSpec {
        let (name, device) = (name.to_owned(), "disk".to_owned());
        PartitionSpec { name, organization, locking, device, assumed: false, record: None, secondaries: Vec::new() }
    }

    /// With records of this type: those of a b-tree or a set. Whatever writes a record, its value is of the type.
    pub fn record(self, record: RecordType) -> PartitionSpec {
        PartitionSpec { record: Some(record), ..self }
    }

    /// With one more ordered secondary index: over these fields, the first before the second and so on.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::Direction;
    /// use entresol_engine::set::{FieldType, FieldValue, RecordType};
    /// # with_database(async |database| {
    /// let fields = [("customer", FieldType::U32), ("amount", FieldType::I64), ("note", FieldType::Text)];
    /// let order = RecordType::new(fields).expect("different names");
    /// let spec = PartitionSpec::b_tree("orders").record(order).secondary("by_customer", &["customer", "amount"]);
    /// let orders = database.create_partition(spec).await?;
    /// let (amount, by_customer) = (database.field(orders, "amount")?, database.secondary(orders, "by_customer")?);
    /// database
    ///     .transaction(async |tx| {
    ///         for (number, customer) in [(1_u32, 7), (2, 9), (3, 7)] {
    ///             let record = [FieldValue::U32(customer), FieldValue::I64(20), FieldValue::Text("pens")];
    ///             tx.insert_record(orders, &number.to_be_bytes(), &record).await?;
    ///         }
    ///         tx.add_to_field(orders, &1_u32.to_be_bytes(), amount, 5).await?;
    ///         // The orders of customer 7, the smaller one first.
    ///         let mut found = Vec::new();
    ///         let customer = std::ops::Bound::Included(&[FieldValue::U32(7)][..]);
    ///         let show = |key: &[u8], _record: &[u8]| {
    ///             found.push(key[3]);
    ///             true
    ///         };
    ///         tx.range(orders, by_customer, (customer, customer), Direction::Forward, show).await?;
    ///         assert_eq!(found, [3, 1]);
    ///         Ok::<_, entresol_engine::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn secondary(self, name: &str, fields: &[&str]) -> PartitionSpec {
        self.index(IndexSpec::new(name, fields))
    }

    /// With one more ordered secondary index.
    pub fn index(mut self, index: IndexSpec) -> PartitionSpec {
        self.secondaries.push(index);
        self
    }

    /// What its records consist of, if it says so.
    fn schema(&self) -> Result<Option<Schema>> {
        let fail = |why: String| Error::Setting(format!("partition '{}': {why}", self.name));
        let Some(record) = &self.record else {
            let without = "a secondary index is over fields; give the partition a record type";
            return if self.secondaries.is_empty() { Ok(None) } else { Err(fail(without.to_owned())) };
        };
        let schema = Schema::new(record.clone(), &self.secondaries).map_err(|error| fail(error.to_string()))?;
        let is_set = matches!(self.organization, Organization::Set { .. });
        Ok(Some(if is_set { schema.of_new_set() } else { schema }))
    }
}

impl Database {
    /// Creates a partition. It is durable when this returns; the creation is completed even if its future is dropped. One that
    /// fails or is cut off leaves nothing behind but its number, which no other partition gets.
    ///
    /// # Errors
    /// [`Error::PartitionExists`] if the name is taken, [`Error::Setting`] if the sizes do not fit, [`Error::PartitionLimit`];
    /// [`Error::LogCrowded`] if for ten seconds transactions, one of the caller's own among them perhaps, keep the room in the
    /// log that the partition needs; [`Error::LogNotRelieved`], [`Error::RollbackStalled`], [`Error::LogFailed`]; or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// assert_eq!(database.partition("notes"), Ok(notes));
    /// let again = database.create_partition(PartitionSpec::b_tree("notes")).await;
    /// assert!(matches!(again, Err(Error::PartitionExists(_))), "the name is taken");
    /// assert_eq!(database.partition("nots"), Err(Error::NoPartition("nots".into())));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn create_partition(&self, spec: PartitionSpec) -> Result<PartitionId> {
        let database = self.clone();
        self.0.engine.core.executor.spawn(async move { database.create_partition_undisturbed(spec).await }).join().await
    }

    async fn create_partition_undisturbed(&self, spec: PartitionSpec) -> Result<PartitionId> {
        let engine = &self.0.engine;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        if engine.catalog.partitions.borrow().is_taken(&spec.name) {
            return Err(Error::PartitionExists(spec.name));
        }
        let schema = spec.schema()?;
        let PartitionSpec { name, organization, locking, device, assumed, .. } = spec;
        let mut partition =
            Partition { name, id: 0, organization, locking, device, assumed, schema, index_of: None, files: None };
        partition.validate(self.0.settings.buffer.page_size)?;
        crate::io::device(&engine.core.executor, &partition.device)?;
        let pages = partition.first_pages()?;
        if matches!(organization, Organization::Append { .. } | Organization::BTree) {
            // Before anything is made.
            wait_for_log_beside(engine, FIRST_PAGES_SIZE).await?;
        }
        number(&mut engine.catalog.partitions.borrow_mut(), &mut partition)?;
        let mut made = vec![Rc::new(partition)];
        let built = async {
            self.begin_partition(&made[0]).await?;
            self.build(&made[0], pages).await?;
            self.build_first_indexes(&mut made).await
        };
        if let Err(error) = built.await {
            self.take_back(&made).await;
            return Err(error);
        }
        let change = self.begin_catalog_change();
        let since = change.since();
        let mut changes = Vec::new();
        for partition in &made {
            changes.extend([CatalogChange::Enter(partition.id), CatalogChange::Since(partition.id, since.0)]);
        }
        changes.extend(superblock::stored_indexes(&made[0]));
        if let Err(error) = enter_partitions(engine, made.clone(), changes).await {
            for partition in &made {
                self.detach(partition).await;
            }
            // The next opening may still find it entered, unless this succeeds: until then its files stay.
            let dropped = made.iter().map(|partition| CatalogChange::Drop(partition.id)).collect();
            if state_catalog(&self.0.engine, dropped).await.is_ok() {
                for partition in &made {
                    self.remove_files(partition).await;
                }
            } else {
                change.leave_undecided();
            }
            return Err(error);
        }
        Ok(made[0].id())
    }

    /// Makes the b-trees of the indexes of a new b-tree, which is the first of those that were `made`.
    pub(super) async fn build_first_indexes(&self, made: &mut Vec<Rc<Partition>>) -> Result<()> {
        let base = Rc::clone(&made[0]);
        let Some(schema) = base.schema.as_ref().filter(|_| base.organization == Organization::BTree) else {
            return Ok(());
        };
        let mut secondaries = schema.secondaries.clone();
        for index in &mut secondaries {
            let partition = self.plan_index(&base, &index.name)?;
            made.push(Rc::clone(&partition));
            self.begin_partition(&partition).await?;
            self.build(&partition, partition.first_pages()?).await?;
            index.tree = Some(IndexTree { id: partition.id(), since: Some(Lsn::ZERO) });
        }
        made[0] = Rc::new(base.with_indexes(&schema.record, secondaries));
        Ok(())
    }

    /// The partition that will have an index of this name.
    ///
    /// # Errors
    /// [`Error::PartitionExists`], [`Error::Setting`], [`Error::PartitionLimit`].
    pub(super) fn plan_index(&self, base: &Partition, index: &str) -> Result<Rc<Partition>> {
        let mut planned = Partition { name: index.to_owned(), schema: None, assumed: false, ..base.clone() };
        // Names of indexes are made as those of partitions are.
        planned.validate(self.0.settings.buffer.page_size)?;
        planned.name = base.index_name(index);
        planned.index_of = Some(base.id());
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        if partitions.is_taken(&planned.name) {
            return Err(Error::PartitionExists(planned.name));
        }
        number(&mut partitions, &mut planned)?;
        Ok(Rc::new(planned))
    }

    /// Makes the pages of an index that was planned.
    pub(super) async fn build_index(&self, partition: &Partition) -> Result<()> {
        wait_for_log_beside(&self.0.engine, FIRST_PAGES_SIZE).await?;
        self.begin_partition(partition).await?;
        self.build(partition, partition.first_pages()?).await
    }

    /// Leaves nothing of partitions that were not entered.
    pub(super) async fn take_back(&self, made: &[Rc<Partition>]) {
        for partition in made {
            self.detach(partition).await;
            self.remove_files(partition).await;
        }
    }

    /// States that the partition's number is given, before anything of it is made.
    pub(super) async fn begin_partition(&self, partition: &Partition) -> Result<()> {
        let changes = superblock::begin(partition);
        if canary::is_planted(Canary::ReusedNumber) {
            self.0.engine.catalog.note_change(changes);
            return Ok(());
        }
        state_catalog(&self.0.engine, changes).await
    }

    /// Makes a partition's files, and its first pages.
    pub(super) async fn build(&self, partition: &Partition, pages: u32) -> Result<()> {
        let engine = &self.0.engine;
        if let Some(settings) = partition.set_settings() {
            engine.sets.backup.attach(&engine.core.executor, partition, true).await?;
            engine.sets.sets.borrow_mut().attach(settings);
            return Ok(());
        }
        let page_size = self.0.settings.buffer.page_size;
        remove_files(&engine.core.executor, partition, |_| false).await?;
        let placement = self.0.settings.hierarchy.placement(&partition.name);
        let space = open_space(&engine.core.executor, partition, (page_size, placement), true).await?;
        space.reserve(&engine.core.executor, pages).await?;
        engine.core.buffer.attach(partition.id(), space);
        self.format(partition.id(), partition.organization, page_size).await?;
        engine.core.log.flush(engine.core.log.end()).await
    }

    /// Takes a partition without users out of memory.
    pub(super) async fn detach(&self, partition: &Partition) {
        let id = partition.id();
        if partition.set_settings().is_some() {
            self.0.engine.sets.sets.borrow_mut().detach(id);
            self.0.engine.sets.backup.detach(id);
        } else {
            self.0.engine.core.buffer.detach(id).await;
        }
    }

    /// Removes the files of a partition that no opening will look for. What cannot be removed is by the next opening.
    pub(super) async fn remove_files(&self, partition: &Partition) {
        if remove_files(&self.0.engine.core.executor, partition, |_| false).await.is_ok() {
            self.0.engine.catalog.note_change([CatalogChange::Gone(partition.id)]);
        }
    }

    /// Formats the first pages of a partition that allocates pages.
    async fn format(&self, id: PartitionId, organization: Organization, page_size: usize) -> Result<()> {
        let edits = match organization {
            Organization::Direct { .. } | Organization::Set { .. } => return Ok(()),
            Organization::Append { .. } => vec![allocator::create(id, 1, &append::NO_TAIL)],
            Organization::BTree => b_tree::create(id, page_size),
        };
        let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
        let (core, length) = (&self.0.engine.core, length_of(&edits));
        debug_assert!(length < FIRST_PAGES_SIZE);
        let log = || {
            for edit in &edits {
                structures::page::Pages::page(&*core.buffer.pool().borrow(), edit.page)?;
            }
            core.change(&edits)
        };
        complete_logged(&self.0.engine, length, log).await
    }
}

/// Opens the place of the partition's pages.
///
/// # Errors
/// The driver's, or [`Error::NoDevice`].
pub(super) async fn open_space(
    executor: &Executor,
    partition: &Partition,
    (page_size, placement): (usize, Placement),
    create: bool,
) -> Result<PageSpace> {
    let device = crate::io::device(executor, &partition.device)?;
    let kind = match partition.organization {
        Organization::Direct { .. } => PageKind::Direct,
        _ => PageKind::Empty,
    };
    let store = DataFile::open(executor, device, &partition.file_name(), page_size, create).await?;
    let space = PageSpace::new(Rc::new(store), partition.id(), create, kind);
    space.place(placement);
    if kind == PageKind::Direct {
        space.limit_growth(partition.first_pages()?);
    }
    // What stays in memory would have been read before the first transaction.
    if partition.assumed && !placement.resident {
        space.assume_written();
    }
    Ok(space)
}

/// Gives a new partition its number, and names its files.
pub(super) fn number(partitions: &mut Partitions, partition: &mut Partition) -> Result<()> {
    partition.id = partitions.give_number()?;
    let stem = partitions.stem_for(&partition.name, partition.id);
    partition.files = (stem != partition.name).then_some(stem);
    Ok(())
}

/// Removes a partition's files but for those that `is_other` claims.
async fn remove_files(executor: &Executor, partition: &Partition, is_other: impl Fn(&str) -> bool) -> Result<()> {
    let device = crate::io::device(executor, &partition.device)?;
    for name in partition.file_names().into_iter().filter(|name| !is_other(name)) {
        executor.perform(Op::Remove { device, name }).await.result?;
    }
    Ok(())
}

/// Removes what creations that were cut off, and drops, have left, once both copies of the superblock file say so. What cannot be
/// removed now is by a later opening.
pub(super) async fn remove_leftovers(
    executor: &Executor,
    (superblock_file, superblock): (&mut SuperblockFile, &Superblock),
    partitions: &Partitions,
) -> Result<()> {
    let leftovers = superblock_file.leftovers();
    if leftovers.is_empty() {
        return Ok(());
    }
    superblock_file.write(executor, superblock).await?;
    // Whatever device they name: two may be one directory.
    let used: BTreeMap<String, &str> = partitions
        .iter()
        .flat_map(|found| found.file_names().into_iter().map(|name| (name, &found.device[..])))
        .collect();
    for leftover in leftovers {
        let is_other = |name: &str| used.contains_key(name);
        let removed = remove_files(executor, &leftover, is_other).await;
        // On another device its file may be left, until the name is free.
        let may_be_left = |name: &String| used.get(name).is_some_and(|device| *device != leftover.device);
        if removed.is_ok() && !leftover.file_names().iter().any(may_be_left) {
            superblock_file.change([CatalogChange::Gone(leftover.id)]);
        }
    }
    Ok(())
}
