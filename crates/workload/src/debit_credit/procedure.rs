use super::{Parameters, Scale, Tables};
use engine::{Error, Result, Transaction};
use std::cell::OnceCell;

/// The name under which [`procedure`] is registered.
pub const PROCEDURE: &str = "debit-credit";

/// Debit-Credit as a procedure for callers on other threads: it takes [`Parameters::to_bytes`] and answers with the account's
/// new balance, eight bytes with the least first. It finds its partitions when it is first called.
///
/// # Errors
/// [`Error::Setting`] if the parameters are not 32 bytes long; else those of [`Tables::of`] and [`Tables::run`].
pub fn procedure(scale: Scale) -> impl AsyncFn(&mut Transaction, &[u8]) -> Result<Vec<u8>> + 'static {
    let known = OnceCell::new();
    async move |tx: &mut Transaction, bytes: &[u8]| {
        let parameters = Parameters::from_bytes(bytes)
            .ok_or_else(|| Error::Setting(format!("procedure '{PROCEDURE}' takes 32 bytes, not {}", bytes.len())))?;
        let tables: &Tables = match known.get() {
            Some(tables) => tables,
            None => {
                let tables = Tables::of(tx.database(), &scale)?;
                known.get_or_init(|| tables)
            }
        };
        Ok(tables.run(tx, &parameters).await?.to_le_bytes().to_vec())
    }
}
