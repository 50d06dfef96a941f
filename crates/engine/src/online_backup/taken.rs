//! Which backups a database has taken, so that an increment builds on one of its own. A database that is restored has taken the one
//! that it comes from, and no other: what others of the same names hold is another history.

use super::manifest::BLOCK;
use super::target::BackupPlace;
use crate::Result;
use structures::checksum::checksum;

/// The file that lists them, at home.
pub(super) const TAKEN_FILE: &str = "entresol.backups";
/// How many are remembered.
const TAKEN_MAX: usize = 256;

/// The backups' numbers, the latest last. A list that is damaged is none: then only a full backup can be taken.
pub(super) async fn read(home: &BackupPlace) -> Result<Vec<u64>> {
    let Some((file, length)) = home.find(TAKEN_FILE).await? else { return Ok(Vec::new()) };
    if (length as usize) < BLOCK {
        return Ok(Vec::new());
    }
    let block = home.read(file, (0, BLOCK)).await?;
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    let count = word(8) as usize;
    let is_sound = count <= TAKEN_MAX && word(0) == u64::from(checksum(&block[8..16 + 8 * TAKEN_MAX]));
    Ok(if is_sound { (0..count).map(|number| word(16 + 8 * number)).collect() } else { Vec::new() })
}

/// Adds a backup to the list.
pub(super) async fn note(home: &BackupPlace, id: u64) -> Result<()> {
    let mut taken = read(home).await?;
    taken.push(id);
    let first = taken.len().saturating_sub(TAKEN_MAX);
    let mut block = vec![0; BLOCK];
    block[8..16].copy_from_slice(&((taken.len() - first) as u64).to_le_bytes());
    for (place, id) in block[16..].chunks_exact_mut(8).zip(&taken[first..]) {
        place.copy_from_slice(&id.to_le_bytes());
    }
    let sum = u64::from(checksum(&block[8..16 + 8 * TAKEN_MAX]));
    block[..8].copy_from_slice(&sum.to_le_bytes());
    home.write_file(TAKEN_FILE, &block).await
}
