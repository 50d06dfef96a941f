use super::load::{TODAY, address, hot_card};
use super::{ACCOUNT, CUSTOMER, HOT_CARD, Kind, Parameters, STORE, Scale};
use base::PartitionId;
use engine::set::{FieldValue, RecordType};
use engine::{Catalog, Error, Result, Transaction};

/// A set, and the type of its records.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub partition: PartitionId,
    pub record: RecordType,
}

impl Table {
    fn of(catalog: &Catalog, name: &str) -> Result<Table> {
        let partition = catalog.partition(name)?;
        let record = catalog.describe(partition)?.typed()?.record.clone();
        Ok(Table { partition, record })
    }

    /// The position of a field.
    fn field(&self, name: &str) -> Result<usize> {
        self.record.field(name).map_err(|error| Error::Unsuitable(format!("the credit-card workload: {error}")))
    }

    /// A number in a record of this set.
    pub fn number(&self, value: &[u8], field: usize) -> i64 {
        match self.record.decode(value, field) {
            Ok(FieldValue::I64(number)) => number,
            Ok(FieldValue::U64(number)) => number as i64,
            Ok(FieldValue::U32(number)) => i64::from(number),
            other => panic!("a set holds records of its type, with a number, not {other:?}"),
        }
    }
}

/// The four sets, ready for transactions.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(super) scale: Scale,
    pub(super) account: Table,
    pub(super) customer: Table,
    pub(super) hot_card: Table,
    pub(super) store: Table,
    limit: usize,
    pub(super) used: usize,
    pub(super) paid: usize,
    expires: usize,
    name: usize,
    address: usize,
    attempts: usize,
    card_checks: usize,
    limit_checks: usize,
    pub(super) sold: usize,
}

impl Tables {
    /// Finds the sets and their fields. `records` says how many records a set has.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`] for one whose records have no type, [`Error::Unsuitable`] for one
    /// without the fields.
    pub fn of(catalog: &Catalog, records: impl Fn(PartitionId) -> Option<u64>) -> Result<Tables> {
        let table = |name| Table::of(catalog, name);
        let (account, customer, hot_card, store) = (table(ACCOUNT)?, table(CUSTOMER)?, table(HOT_CARD)?, table(STORE)?);
        Ok(Tables {
            scale: Scale { accounts: records(account.partition).unwrap_or(0) },
            limit: account.field("limit")?,
            used: account.field("used")?,
            paid: account.field("paid")?,
            expires: account.field("expires")?,
            name: customer.field("name")?,
            address: customer.field("address")?,
            attempts: hot_card.field("attempts")?,
            card_checks: store.field("card_checks")?,
            limit_checks: store.field("limit_checks")?,
            sold: store.field("sold")?,
            account,
            customer,
            hot_card,
            store,
        })
    }

    /// The size of the database.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Runs one transaction. The answer is what its type asks: the balance and the name, whether the card is valid or
    /// credit suffices, the used credit after a purchase or a payment, whether anything changed.
    ///
    /// # Errors
    /// The engine's.
    pub async fn run(&self, tx: &mut Transaction, parameters: &Parameters) -> Result<Vec<u8>> {
        let (account, store) = (parameters.account.to_be_bytes(), parameters.store.to_be_bytes());
        let amount = i64::from(parameters.amount);
        match parameters.kind {
            Kind::Balance => self.balance(tx, &account).await,
            Kind::CardCheck => self.card_check(tx, &account, &store).await,
            Kind::LimitCheck => {
                let [limit, used] = self.numbers(tx, &account, [self.limit, self.used]).await?;
                tx.add_to_field(self.store.partition, &store, self.limit_checks, 1).await?;
                Ok(vec![u8::from(limit - used >= amount)])
            }
            Kind::Debit => {
                let used = tx.add_to_field(self.account.partition, &account, self.used, amount).await?;
                tx.add_to_field(self.store.partition, &store, self.sold, amount).await?;
                Ok(bytes(used))
            }
            Kind::Payment => {
                let used = tx.add_to_field(self.account.partition, &account, self.used, -amount).await?;
                tx.add_to_field(self.account.partition, &account, self.paid, amount).await?;
                Ok(bytes(used))
            }
            Kind::Change => {
                let new = address(parameters.account, parameters.amount);
                let new = FieldValue::Text(&new);
                tx.set_field(self.customer.partition, &account, self.address, new).await.map(|()| vec![1])
            }
            Kind::Lost => {
                let done = tx.insert_record(self.hot_card.partition, &account, &hot_card(parameters.amount)).await;
                match done {
                    Ok(()) => Ok(vec![1]),
                    Err(Error::Duplicate(_)) => Ok(vec![0]),
                    Err(error) => Err(error),
                }
            }
            Kind::Found => tx.delete(self.hot_card.partition, &account).await.map(|found| vec![u8::from(found)]),
        }
    }

    /// Numbers of an account's record.
    async fn numbers<const N: usize>(
        &self,
        tx: &mut Transaction,
        account: &[u8],
        fields: [usize; N],
    ) -> Result<[i64; N]> {
        let copy = |value: Option<&[u8]>| value.map(|value| fields.map(|field| self.account.number(value, field)));
        let found = tx.get_with(self.account.partition, account, copy).await?;
        found.ok_or_else(|| Error::NoRecord(ACCOUNT.to_owned()))
    }

    async fn balance(&self, tx: &mut Transaction, account: &[u8]) -> Result<Vec<u8>> {
        let [used] = self.numbers(tx, account, [self.used]).await?;
        let (mut name, mut answer) = (Vec::new(), used.to_le_bytes().to_vec());
        tx.get_field(self.customer.partition, account, self.name, &mut name).await?;
        answer.extend_from_slice(&name);
        Ok(answer)
    }

    async fn card_check(&self, tx: &mut Transaction, account: &[u8], store: &[u8]) -> Result<Vec<u8>> {
        let [expires] = self.numbers(tx, account, [self.expires]).await?;
        let hot = tx.get_with(self.hot_card.partition, account, |card| card.is_some()).await?;
        if hot {
            tx.add_to_field(self.hot_card.partition, account, self.attempts, 1).await?;
        }
        tx.add_to_field(self.store.partition, store, self.card_checks, 1).await?;
        Ok(vec![u8::from(!hot && expires >= i64::from(TODAY))])
    }
}

/// A sum, for an answer.
fn bytes(sum: FieldValue<'_>) -> Vec<u8> {
    match sum {
        FieldValue::I64(sum) => sum.to_le_bytes().to_vec(),
        other => panic!("balances are signed, not {other:?}"),
    }
}
