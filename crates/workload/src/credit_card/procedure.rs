use super::{Kind, Parameters, Tables};
use engine::{Error, Procedures, Result, Transaction};
use std::cell::OnceCell;
use std::rc::Rc;

/// The eight types as registered procedures, by [`Kind::name`]: each takes [`Parameters::to_bytes`] and answers as
/// [`Tables::run`] does. They find the sets when one of them is first called.
pub fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    register(&mut procedures);
    procedures
}

/// The same, beside others.
pub fn register(procedures: &mut Procedures) {
    let known = Rc::new(OnceCell::new());
    for kind in Kind::ALL {
        let known: Rc<OnceCell<Tables>> = Rc::clone(&known);
        procedures.register(kind.name(), async move |tx: &mut Transaction, bytes: &[u8]| -> Result<Vec<u8>> {
            let wrong = || Error::Argument(format!("procedure '{}' does not take {} bytes", kind.name(), bytes.len()));
            let parameters = Parameters::from_bytes(kind, bytes).ok_or_else(wrong)?;
            let tables = match known.get() {
                Some(tables) => tables,
                None => {
                    let tables = Tables::of(tx.catalog(), |set| tx.set_records(set))?;
                    known.get_or_init(|| tables)
                }
            };
            tables.run(tx, &parameters).await
        });
    }
}
