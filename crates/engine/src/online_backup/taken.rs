//! Which backups a database has taken, so that an increment builds on one of its own. A database that is restored has taken the one
//! that it comes from, and no other: what others of the same names hold is another history. So is what the database does after it has lost the
//! end of its log, seen from a backup that had that.

use super::manifest::BLOCK;
use super::target::BackupPlace;
use crate::Result;
use base::Lsn;
use driver::Op;
use executor::Executor;
use structures::checksum::checksum;

/// The file that lists them, at home.
pub(super) const TAKEN_FILE: &str = "entresol.backups";
/// How many are remembered.
const TAKEN_MAX: usize = 255;
/// Bytes of one.
const ENTRY: usize = 16;

/// A backup that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackupTaken {
    /// Its number.
    pub id: u64,
    /// It shows what was committed up to this position of the log.
    pub end: Lsn,
}

/// The backups, the latest last. A list that is damaged is none: then only a full backup can be taken.
pub(super) async fn read(home: &BackupPlace) -> Result<Vec<BackupTaken>> {
    let Some((file, length)) = home.find(TAKEN_FILE).await? else { return Ok(Vec::new()) };
    if (length as usize) < BLOCK {
        return Ok(Vec::new());
    }
    let block = home.read(&file, (0, BLOCK)).await?;
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    let count = word(8) as usize;
    let is_sound = count <= TAKEN_MAX && word(0) == u64::from(checksum(&block[8..]));
    let entry = |at: usize| BackupTaken { id: word(at), end: Lsn(word(at + 8)) };
    Ok(if is_sound { (0..count).map(|number| entry(16 + ENTRY * number)).collect() } else { Vec::new() })
}

/// Adds a backup to the list.
pub(super) async fn note(home: &BackupPlace, new: BackupTaken) -> Result<()> {
    let mut taken = read(home).await?;
    taken.push(new);
    write(home, &taken).await
}

/// The database is opened, and its log goes on from here: backups that end later are none of its own any more.
///
/// # Errors
/// The driver's, if a list that cannot be read cannot be removed either.
pub(crate) async fn forget_beyond(executor: &Executor, home: &str, end: Lsn) -> Result<()> {
    let home = &BackupPlace::of(executor, home)?;
    match read(home).await {
        Ok(taken) if taken.iter().all(|backup| backup.end <= end) => Ok(()),
        Ok(mut taken) => {
            taken.retain(|backup| backup.end <= end);
            write(home, &taken).await
        }
        Err(_) => {
            let op = Op::Remove { device: home.device, name: TAKEN_FILE.to_owned() };
            home.executor.perform(op).await.result?;
            Ok(())
        }
    }
}

async fn write(home: &BackupPlace, taken: &[BackupTaken]) -> Result<()> {
    let first = taken.len().saturating_sub(TAKEN_MAX);
    let mut block = vec![0; BLOCK];
    block[8..16].copy_from_slice(&((taken.len() - first) as u64).to_le_bytes());
    for (place, BackupTaken { id, end }) in block[16..].chunks_exact_mut(ENTRY).zip(&taken[first..]) {
        place[..8].copy_from_slice(&id.to_le_bytes());
        place[8..].copy_from_slice(&end.0.to_le_bytes());
    }
    let sum = u64::from(checksum(&block[8..]));
    block[..8].copy_from_slice(&sum.to_le_bytes());
    home.write_file(TAKEN_FILE, &block).await
}
