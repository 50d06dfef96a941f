//! Slotted pages.

/// Inserts.
pub fn insert(_page: &mut [u8], _slot: u16, _key: &[u8], _value: &[u8]) {
    unimplemented!()
}
/// Removes.
pub fn remove(_page: &mut [u8], _slot: u16) {
    unimplemented!()
}
/// Replaces.
pub fn replace(_page: &mut [u8], _slot: u16, _value: &[u8]) {
    unimplemented!()
}
/// The value.
pub fn value_mut(_page: &mut [u8], _slot: u16) -> &mut [u8] {
    unimplemented!()
}
