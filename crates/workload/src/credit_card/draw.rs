use super::Scale;
use base::{Random, varint};

/// A type of transactions (System M, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// BAL, balance check: the account's balance and its customer's name.
    Balance,
    /// CCCK, credit card check: whether the card is valid; counted at the store and, if it is hot, there.
    CardCheck,
    /// CLCK, credit limit check: whether credit suffices for a purchase; counted at the store.
    LimitCheck,
    /// DEBIT: a purchase on the account, added up at the store.
    Debit,
    /// PAY: a payment on the account.
    Payment,
    /// A customer's address changes.
    Change,
    /// A card is reported as lost.
    Lost,
    /// A lost card is found.
    Found,
}

impl Kind {
    /// Every type, in the order of declaration.
    pub const ALL: [Kind; 8] = [
        Kind::Balance,
        Kind::CardCheck,
        Kind::LimitCheck,
        Kind::Debit,
        Kind::Payment,
        Kind::Change,
        Kind::Lost,
        Kind::Found,
    ];

    /// The share of all transactions, in percent. The paper gives the five frequent types; the other three percent are
    /// shared equally by the rest, which "change the customer description and handle lost cards".
    pub fn share_percent(self) -> u64 {
        match self {
            Kind::Balance => 17,
            Kind::CardCheck | Kind::LimitCheck | Kind::Debit | Kind::Payment => 20,
            Kind::Change | Kind::Lost | Kind::Found => 1,
        }
    }

    /// The type's name in reports, and that of its registered procedure.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Balance => "BAL",
            Kind::CardCheck => "CCCK",
            Kind::LimitCheck => "CLCK",
            Kind::Debit => "DEBIT",
            Kind::Payment => "PAY",
            Kind::Change => "CHANGE",
            Kind::Lost => "LOST",
            Kind::Found => "FOUND",
        }
    }
}

/// What one transaction is about. Types use what they need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The type.
    pub kind: Kind,
    /// The account's number.
    pub account: u64,
    /// The store's number.
    pub store: u64,
    /// The amount in cents, or the date, or a number that a new address is made of.
    pub amount: u32,
}

/// Amounts are up to this, in cents.
const AMOUNT_MAX: u64 = 20_000;

impl Parameters {
    /// Draws a transaction by the paper's mix: account and store uniformly, a lost or found card among the careless owners'.
    pub fn draw(scale: Scale, random: &mut Random) -> Parameters {
        let mut percent = random.below(100);
        let drawn = Kind::ALL.into_iter().find(|kind| {
            let found = percent < kind.share_percent();
            percent = percent.wrapping_sub(kind.share_percent());
            found
        });
        let kind = drawn.expect("the shares are 100 percent");
        let account = match kind {
            Kind::Lost | Kind::Found => scale.careless(random.below(2 * scale.hot_cards())),
            _ => random.below(scale.accounts),
        };
        Parameters { kind, account, store: random.below(scale.stores()), amount: random.between(1, AMOUNT_MAX) as u32 }
    }

    /// The parameters as bytes, for the type's registered procedure: only those that it uses, seven bits in a byte.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12);
        varint::put(self.account, &mut bytes);
        if self.has_store() {
            varint::put(self.store, &mut bytes);
        }
        if self.has_amount() {
            varint::put(self.amount.into(), &mut bytes);
        }
        bytes
    }

    /// The inverse of [`Parameters::to_bytes`]; `None` if these bytes are none of that.
    pub fn from_bytes(kind: Kind, mut bytes: &[u8]) -> Option<Parameters> {
        let mut parameters = Parameters { kind, account: varint::take(&mut bytes)?, store: 0, amount: 0 };
        if parameters.has_store() {
            parameters.store = varint::take(&mut bytes)?;
        }
        if parameters.has_amount() {
            parameters.amount = varint::take(&mut bytes)?.try_into().ok()?;
        }
        bytes.is_empty().then_some(parameters)
    }

    fn has_store(self) -> bool {
        matches!(self.kind, Kind::CardCheck | Kind::LimitCheck | Kind::Debit)
    }

    fn has_amount(self) -> bool {
        !matches!(self.kind, Kind::Balance | Kind::CardCheck | Kind::Found)
    }
}
