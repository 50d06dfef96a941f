//! Where the columns of a row are (clause 1.3). Amounts of money are in cents, rates in ten-thousandths, times in nanoseconds of
//! the engine's clock; a carrier or a time of delivery of zero stands for null.

#![expect(missing_docs, reason = "the columns are those of the clause")]

/// A count or a number, of four bytes.
#[derive(Clone, Copy)]
pub struct Count(usize);

/// An amount or a time, of eight bytes.
#[derive(Clone, Copy)]
pub struct Amount(usize);

/// A text of a fixed length, filled up with zeros.
#[derive(Clone, Copy)]
pub struct Text(usize, usize);

impl Count {
    pub fn get(self, row: &[u8]) -> u32 {
        u32::from_le_bytes(*row[self.0..].first_chunk().expect("a column of four bytes"))
    }

    pub fn set(self, row: &mut [u8], value: u32) {
        row[self.0..self.0 + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Adds one; returns what was there.
    pub fn increment(self, row: &mut [u8]) -> u32 {
        let before = self.get(row);
        self.set(row, before + 1);
        before
    }
}

impl Amount {
    pub fn get(self, row: &[u8]) -> i64 {
        i64::from_le_bytes(*row[self.0..].first_chunk().expect("a column of eight bytes"))
    }

    pub fn set(self, row: &mut [u8], value: i64) {
        row[self.0..self.0 + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub fn add(self, row: &mut [u8], value: i64) {
        self.set(row, self.get(row) + value);
    }
}

impl Text {
    pub fn get(self, row: &[u8]) -> &[u8] {
        &row[self.0..self.0 + self.1]
    }

    pub fn set(self, row: &mut [u8], text: &[u8]) {
        row[self.0..self.0 + text.len()].copy_from_slice(text);
    }

    pub fn get_mut(self, row: &mut [u8]) -> &mut [u8] {
        &mut row[self.0..self.0 + self.1]
    }
}

/// Of a warehouse and, without its own columns, a district: name, two streets, city, state and zip.
pub mod place {
    use super::{Amount, Count, Text};

    pub const NAME: Text = Text(0, 10);
    /// Two streets and the city.
    pub const ADDRESS: Text = Text(10, 60);
    pub const STATE: Text = Text(70, 2);
    pub const ZIP: Text = Text(72, 9);
    pub const TAX: Count = Count(81);
    pub const YTD: Amount = Amount(85);
    pub const WAREHOUSE_SIZE: usize = 93;
    /// Of a district only.
    pub const NEXT_ORDER: Count = Count(93);
    pub const DISTRICT_SIZE: usize = 97;
}

pub mod customer {
    use super::{Amount, Count, Text};

    pub const FIRST: Text = Text(0, 16);
    pub const MIDDLE: Text = Text(16, 2);
    pub const LAST: Text = Text(18, 16);
    /// Two streets and the city.
    pub const ADDRESS: Text = Text(34, 60);
    pub const STATE: Text = Text(94, 2);
    pub const ZIP: Text = Text(96, 9);
    pub const PHONE: Text = Text(105, 16);
    pub const SINCE: Amount = Amount(121);
    pub const CREDIT: Text = Text(129, 2);
    pub const CREDIT_LIMIT: Amount = Amount(131);
    pub const DISCOUNT: Count = Count(139);
    pub const BALANCE: Amount = Amount(143);
    pub const YTD_PAYMENT: Amount = Amount(151);
    pub const PAYMENTS: Count = Count(159);
    pub const DELIVERIES: Count = Count(163);
    pub const DATA: Text = Text(167, 500);
    pub const SIZE: usize = 667;
}

pub mod order {
    use super::{Amount, Count};

    pub const CUSTOMER: Count = Count(0);
    pub const ENTERED: Amount = Amount(4);
    pub const CARRIER: Count = Count(12);
    pub const LINES: Count = Count(16);
    pub const ALL_LOCAL: Count = Count(20);
    pub const SIZE: usize = 24;
}

pub mod order_line {
    use super::{Amount, Count, Text};

    pub const ITEM: Count = Count(0);
    pub const SUPPLY_WAREHOUSE: Count = Count(4);
    pub const DELIVERED: Amount = Amount(8);
    pub const QUANTITY: Count = Count(16);
    pub const AMOUNT: Amount = Amount(20);
    pub const DISTRICT_INFO: Text = Text(28, 24);
    pub const SIZE: usize = 52;
}

pub mod item {
    use super::{Amount, Count, Text};

    pub const IMAGE: Count = Count(0);
    pub const NAME: Text = Text(4, 24);
    pub const PRICE: Amount = Amount(28);
    pub const DATA: Text = Text(36, 50);
    pub const SIZE: usize = 86;
}

pub mod stock {
    use super::{Amount, Count, Text};

    // What an order changes stands together: it is logged as one piece, from the first byte that changes to the last.
    pub const QUANTITY: Count = Count(0);
    pub const YTD: Amount = Amount(4);
    pub const ORDERS: Count = Count(12);
    pub const REMOTE_ORDERS: Count = Count(16);
    /// Of the district with this number, from 1 to 10.
    pub fn district_info(district: u8) -> Text {
        Text(20 + 24 * (usize::from(district) - 1), 24)
    }
    pub const DATA: Text = Text(260, 50);
    pub const SIZE: usize = 310;
}

pub mod history {
    use super::{Amount, Count, Text};

    pub const CUSTOMER: Count = Count(0);
    pub const CUSTOMER_DISTRICT: Count = Count(4);
    pub const CUSTOMER_WAREHOUSE: Count = Count(8);
    pub const DISTRICT: Count = Count(12);
    pub const WAREHOUSE: Count = Count(16);
    pub const DATE: Amount = Amount(20);
    pub const AMOUNT: Amount = Amount(28);
    pub const DATA: Text = Text(36, 24);
    pub const SIZE: usize = 60;
}
