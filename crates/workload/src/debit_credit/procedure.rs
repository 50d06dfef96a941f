use super::{Parameters, Scale, Tables};
use engine::{Error, Prefetcher, Procedures, Transaction};
use std::cell::OnceCell;
use std::rc::Rc;

/// The name of the procedure.
pub const PROCEDURE: &str = "debit-credit";

/// Registers Debit-Credit as a procedure for callers on other threads and for transaction servers: it takes
/// [`Parameters::to_bytes`] and answers with the account's new balance, eight bytes with the least first. It finds its
/// partitions when it is first called, and tells of its account beforehand.
///
/// Calls fail with [`Error::Argument`] if the parameters are not 32 bytes long; else as [`Tables::of`] and [`Tables::run`].
pub fn register(procedures: &mut Procedures, scale: &Scale) {
    let known = Rc::new(OnceCell::new());
    let (scale, tables) = (scale.clone(), Rc::clone(&known));
    let body = async move |tx: &mut Transaction, bytes: &[u8]| {
        let parameters = Parameters::from_bytes(bytes)
            .ok_or_else(|| Error::Argument(format!("procedure '{PROCEDURE}' takes 32 bytes, not {}", bytes.len())))?;
        let tables: &Tables = match tables.get() {
            Some(tables) => tables,
            None => {
                let found = Tables::of(tx.catalog(), &scale)?;
                tables.get_or_init(|| found)
            }
        };
        Ok(tables.run(tx, &parameters).await?.to_le_bytes().to_vec())
    };
    let hint = move |memory: &Prefetcher<'_>, bytes: &[u8]| {
        if let (Some(tables), Some(parameters)) = (known.get(), Parameters::from_bytes(bytes)) {
            tables.prefetch(memory, &parameters);
        }
    };
    procedures.register(PROCEDURE, body).prefetch(hint);
}
