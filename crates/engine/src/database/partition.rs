//! Creating partitions.

use super::Database;
use crate::buffer::DataFile;
use crate::catalog::{Locking, Organization, Partition, Schema};
use crate::hierarchy::Placement;
use crate::organization::{allocator, append, b_tree};
use crate::page::{Edit, PageKind};
use crate::set::RecordType;
use crate::{Error, Result};
use base::PartitionId;
use driver::Op;
use executor::Executor;

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
/// assert_eq!(database.partitions()[usize::from(customers.0)].device, "flash");
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
    /// What the records of a set consist of.
    pub record: Option<RecordType>,
    /// A set's ordered secondary indexes: names, and the names of the fields that they order by.
    pub secondaries: Vec<(String, Vec<String>)>,
}

impl PartitionSpec {
    /// A b-tree with record locks on the device `disk`.
    pub fn b_tree(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::BTree, Locking::Record)
    }

    /// Records in order of arrival, as many on a page as fit, without locks, on the device `disk`.
    pub fn append(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::Append { blocking_factor: 0 }, Locking::None)
    }

    /// A memory-resident set of records with keys and record locks, its backup on the device `disk`.
    pub fn set(name: &str) -> PartitionSpec {
        PartitionSpec::new(name, Organization::set(false), Locking::Record)
    }

    /// A partition on the device `disk`.
    pub fn new(name: &str, organization: Organization, locking: Locking) -> PartitionSpec {
        let (name, device) = (name.to_owned(), "disk".to_owned());
        PartitionSpec { name, organization, locking, device, assumed: false, record: None, secondaries: Vec::new() }
    }

    /// With records of this type: a set's.
    pub fn record(self, record: RecordType) -> PartitionSpec {
        PartitionSpec { record: Some(record), ..self }
    }

    /// With one more ordered secondary index: over these fields, the first before the second and so on.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::set::{FieldType, FieldValue, RecordType};
    /// # with_database(async |database| {
    /// let fields = [("customer", FieldType::U32), ("amount", FieldType::I64), ("note", FieldType::Text)];
    /// let order = RecordType::new(fields).expect("different names");
    /// let spec = PartitionSpec::set("orders").record(order).secondary("by_customer", &["customer", "amount"]);
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
    ///         tx.range(orders, by_customer, (customer, customer), show).await?;
    ///         assert_eq!(found, [3, 1]);
    ///         Ok(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn secondary(mut self, name: &str, fields: &[&str]) -> PartitionSpec {
        self.secondaries.push((name.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect()));
        self
    }

    /// What its records consist of, if it says so.
    fn schema(&self) -> Result<Option<Schema>> {
        let fail = |why: String| Error::Setting(format!("partition '{}': {why}", self.name));
        let Some(record) = &self.record else {
            let without = "a secondary index is over fields; give the partition a record type";
            return if self.secondaries.is_empty() { Ok(None) } else { Err(fail(without.to_owned())) };
        };
        Schema::new(record.clone(), &self.secondaries).map(Some).map_err(|error| fail(error.to_string()))
    }
}

impl Database {
    /// Creates a partition. It is durable when this returns; the creation goes on to its end even if nobody waits for that.
    ///
    /// # Errors
    /// [`Error::Setting`] if the name is taken or the sizes do not fit, or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// assert_eq!(database.partition("notes"), Ok(notes));
    /// let again = database.create_partition(PartitionSpec::b_tree("notes")).await;
    /// assert!(matches!(again, Err(Error::Setting(_))), "the name is taken");
    /// assert_eq!(database.partition("nots"), Err(Error::NoPartition("nots".into())));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn create_partition(&self, spec: PartitionSpec) -> Result<PartitionId> {
        self.refuse_while_repeating()?;
        let database = self.clone();
        self.0.executor.spawn(async move { database.create_partition_undisturbed(spec).await }).join().await
    }

    async fn create_partition_undisturbed(&self, spec: PartitionSpec) -> Result<PartitionId> {
        let inner = &*self.0;
        let _turn = inner.creation.take(&inner.executor).await;
        if self.partition(&spec.name).is_ok() {
            return Err(Error::Setting(format!("there is a partition '{}' already", spec.name)));
        }
        let id = u16::try_from(inner.partitions.borrow().len())
            .map_err(|_| Error::Setting("a database has at most 65,536 partitions".into()))?;
        let schema = spec.schema()?;
        let PartitionSpec { name, organization, locking, device, assumed, .. } = spec;
        let partition = Partition { name, id, organization, locking, device, assumed, schema };
        let page_size = inner.settings.buffer.page_size;
        partition.validate(page_size)?;
        if let Some(settings) = partition.set_settings() {
            inner.backup.attach(&inner.executor, &partition, true).await?;
            inner.sets.borrow_mut().attach(settings);
            self.enter(partition).await?;
            return Ok(PartitionId(id));
        }
        remove_leftover(&inner.executor, &partition).await?;
        let placement = inner.settings.hierarchy.placement(&partition.name);
        let file = open_file(&inner.executor, &partition, (page_size, placement), true).await?;
        let first_pages = match organization {
            Organization::Direct { objects, blocking_factor, .. } => objects.div_ceil(u64::from(blocking_factor)),
            Organization::Append { .. } => 1,
            Organization::BTree => 2,
            Organization::Set { .. } => unreachable!("a set has no pages"),
        };
        let pages = u32::try_from(first_pages).map_err(|_| {
            Error::Setting(format!("partition '{}' would have {first_pages} pages, over 4,294,967,295", partition.name))
        })?;
        file.reserve(&inner.executor, pages).await?;
        inner.buffer.attach(PartitionId(id), file);
        self.format(PartitionId(id), organization, page_size).await?;
        inner.log.flush(inner.log.end()).await?;
        self.enter(partition).await?;
        Ok(PartitionId(id))
    }

    /// Formats the first pages of a partition that allocates pages.
    async fn format(&self, id: PartitionId, organization: Organization, page_size: usize) -> Result<()> {
        let edits = match organization {
            Organization::Direct { .. } | Organization::Set { .. } => return Ok(()),
            Organization::Append { .. } => vec![allocator::create(id, 1, &append::NO_TAIL)],
            Organization::BTree => b_tree::create(id, page_size),
        };
        self.complete(|| {
            for edit in &edits {
                crate::page::Pages::page(&*self.0.buffer.pool().borrow(), edit.page)?;
            }
            let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
            self.change(&edits);
            Ok(())
        })
        .await
    }
}

/// Opens the partition's file.
///
/// # Errors
/// The driver's, or [`Error::Setting`] if its device does not exist.
pub(super) async fn open_file(
    executor: &Executor,
    partition: &Partition,
    (page_size, placement): (usize, Placement),
    create: bool,
) -> Result<DataFile> {
    let device = super::open::device(executor, &partition.device)?;
    let kind = match partition.organization {
        Organization::Direct { .. } => PageKind::Direct,
        _ => PageKind::Empty,
    };
    let file =
        DataFile::open(executor, device, (&partition.file_name(), partition.id()), page_size, create, kind).await?;
    file.place(placement);
    // What stays in memory would have been read before the first transaction.
    if partition.assumed && !placement.resident {
        file.assume_written();
    }
    Ok(file)
}

/// Removes the file of a creation that was cut off.
async fn remove_leftover(executor: &Executor, partition: &Partition) -> Result<()> {
    let device = super::open::device(executor, &partition.device)?;
    executor.perform(Op::Remove { device, name: partition.file_name() }).await.result?;
    Ok(())
}
