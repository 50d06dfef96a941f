//! Keys: the columns of a primary key, each with its greatest byte first, so that their order is the columns'.

/// Joins parts of fixed lengths.
fn join<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut at = 0;
    for part in parts {
        key[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    debug_assert_eq!(at, N, "a key is filled");
    key
}

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct District {
    /// The warehouse's number, from 1.
    pub warehouse: u32,
    /// The district's number in the warehouse, from 1.
    pub number: u8,
}

impl District {
    /// The key of the district's row.
    pub fn key(self) -> [u8; 5] {
        join(&[&self.warehouse.to_be_bytes(), &[self.number]])
    }

    /// The district of a key that begins with one.
    ///
    /// # Panics
    /// If the key is shorter than five bytes.
    pub fn of(key: &[u8]) -> District {
        District { warehouse: number(key, 0), number: key[4] }
    }

    /// The key of an order of the district, or of its customer with this number, or where they begin.
    pub fn member(self, number: u32) -> [u8; 9] {
        join(&[&self.key(), &number.to_be_bytes()])
    }

    /// The key of a line of an order.
    pub fn line(self, order: u32, line: u8) -> [u8; 10] {
        join(&[&self.member(order), &[line]])
    }

    /// The key that finds an order by its customer.
    pub fn customer_order(self, customer: u32, order: u32) -> [u8; 13] {
        join(&[&self.member(customer), &order.to_be_bytes()])
    }

    /// The key that finds a customer by name.
    pub fn name(self, last: &[u8; 16], first: &[u8; 16], customer: u32) -> [u8; 41] {
        join(&[&self.key(), last, first, &customer.to_be_bytes()])
    }
}

/// The key of a warehouse or of an item.
pub fn single(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// The key of an item's stock in a warehouse.
pub fn stock(warehouse: u32, item: u32) -> [u8; 8] {
    join(&[&warehouse.to_be_bytes(), &item.to_be_bytes()])
}

/// The number at this place of a key.
///
/// # Panics
/// If there are no four bytes.
pub fn number(key: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*key[at..].first_chunk().expect("a number of four bytes"))
}
