//! A backup with the log that an archive has behind it, up to a target: what a backup would have been that ended there.
//!
//! The log is looked through before anything is made. It says what became of partitions behind the backup, and which changes it does not
//! have: where these belong to what is restored, that is refused.

use super::LOG_FILE;
use super::archive::{ArchiveReader, CatalogSaid, LogSurvey, RestoreTarget, SurveyFlaw};
use super::manifest::Manifest;
use super::restore::{RestoreArchive, damaged, read_log};
use super::target::BackupPlace;
use crate::catalog::Partition;
use crate::error::BackupError;
use crate::superblock::{self, CatalogChange, CurrentBackup};
use crate::{Error, Result};
use base::calendar::format_unix_ns;
use base::{Lsn, PartitionId};
use driver::Frame;
use std::collections::BTreeMap;
use structures::canary::{self, Canary};

/// Bytes of log that are looked through at once.
const PIECE: usize = 1 << 20;
/// About what it costs on described hardware to look through 64 bytes, in instructions.
const SURVEY_INSTRUCTIONS: u64 = 200;

/// Where a database ends that is made from a backup and an archive.
pub(super) struct ArchivedEnd {
    pub reader: ArchiveReader,
    pub end: Lsn,
    /// When the last commit was made that is behind the backup, in nanoseconds since 1970.
    pub committed_ns: Option<u64>,
}

/// Finds the target in the log behind a backup, and has the backup's manifest say what there is then. It still says where the backup
/// itself ends.
///
/// # Errors
/// [`BackupError`], or the driver's.
pub(super) async fn go_on(
    manifest: &mut Manifest,
    source: &BackupPlace,
    wanted: &RestoreArchive,
) -> Result<ArchivedEnd> {
    let history = manifest.history.ok_or_else(|| BackupError::NotArchived { place: source.name.clone() })?;
    check_target(manifest, source, wanted.target)?;
    let page_size = manifest.log_page_size as usize;
    let from = Lsn(manifest.end.next_multiple_of(page_size as u64));
    let place = BackupPlace::of(&source.executor, &wanted.archive)?;
    let mut reader = ArchiveReader::find(place, &source.name, (history, from), page_size).await?;
    let sets_begin = manifest.sets.as_ref().map_or(manifest.end, |sets| sets.begin);
    let mut survey = LogSurvey::new(wanted.target, (Lsn(sets_begin), Lsn(manifest.end)));
    survey = survey_backup(survey, manifest, source).await?;
    let per_read = (PIECE / page_size).max(1) * page_size;
    let mut at = from;
    while at < reader.end && !survey.is_reached {
        let (frame, length) = reader.read(at, per_read).await?;
        let surveyed = look_through(source, survey, frame, (at, length, page_size)).await?;
        survey = surveyed.map_err(|(position, detail)| reader.damaged_at(position, detail))?;
        at = Lsn(at.0 + length as u64);
    }
    if !survey.is_reached {
        check_reached(&reader, &survey, wanted.target)?;
    }
    let (end, committed_ns) = (survey.end, survey.committed_ns);
    follow(manifest, survey, &reader)?;
    Ok(ArchivedEnd { reader, end, committed_ns })
}

/// Words for a target.
fn words(target: RestoreTarget) -> String {
    match target {
        RestoreTarget::End => "its end".to_owned(),
        RestoreTarget::Position(position) => position.to_string(),
        RestoreTarget::Time { unix_ns } => format_unix_ns(unix_ns),
    }
}

/// Refuses a target before the end of the backup.
fn check_target(manifest: &Manifest, source: &BackupPlace, target: RestoreTarget) -> Result<()> {
    let is_before = match target {
        RestoreTarget::End => false,
        RestoreTarget::Position(position) => position.0 < manifest.end,
        RestoreTarget::Time { unix_ns } => unix_ns < manifest.ended_unix_ns,
    };
    if !is_before {
        return Ok(());
    }
    let (place, time) = (source.name.clone(), format_unix_ns(manifest.ended_unix_ns));
    Err(BackupError::TargetBeforeBackup { place, end: Lsn(manifest.end), time, target: words(target) }.into())
}

/// Refuses a target behind the end of the archive.
fn check_reached(reader: &ArchiveReader, survey: &LogSurvey, target: RestoreTarget) -> Result<()> {
    match (target, &reader.stop) {
        (RestoreTarget::Position(position), _) if position <= reader.end => Ok(()),
        (_, Some(stop)) => Err(stop.clone()),
        (RestoreTarget::End, None) => Ok(()),
        (_, None) => {
            let time = survey.said_ns().map_or("with no commit behind the backup".to_owned(), format_unix_ns);
            let (archive, target) = (reader.name().to_owned(), words(target));
            Err(BackupError::TargetBehindArchive { archive, end: reader.end, time, target }.into())
        }
    }
}

/// Looks through the backup's own log.
async fn survey_backup(mut survey: LogSurvey, manifest: &Manifest, source: &BackupPlace) -> Result<LogSurvey> {
    let page_size = manifest.log_page_size as usize;
    let (from, to) = (Lsn(manifest.log_from), manifest.end.next_multiple_of(page_size as u64));
    let Some((file, found)) = source.find(LOG_FILE).await? else {
        return Err(damaged(source, LOG_FILE, 0, "it is not there"));
    };
    if found < to - from.0 {
        let detail = format!("it ends here and should have {} bytes", to - from.0);
        return Err(damaged(source, LOG_FILE, found, &detail));
    }
    let per_read = (PIECE / page_size).max(1) * page_size;
    let mut at = from;
    while at.0 < to && !survey.is_reached {
        let length = (to - at.0).min(per_read as u64) as usize;
        let frame = read_log(source, &file, (from, at, length), page_size).await?;
        let surveyed = look_through(source, survey, frame, (at, length, page_size)).await?;
        survey = surveyed.map_err(|(position, detail)| damaged(source, LOG_FILE, position.0 - from.0, detail))?;
        at = Lsn(at.0 + length as u64);
    }
    Ok(survey)
}

/// Looks through pages beside the engine's thread.
async fn look_through(
    place: &BackupPlace,
    mut survey: LogSurvey,
    frame: Frame,
    (at, length, page_size): (Lsn, usize, usize),
) -> Result<Result<LogSurvey, SurveyFlaw>> {
    let looking = move || survey.add(&frame[..length], at, page_size).map(|()| survey);
    Ok(place.executor.compute(length as u64 / 64 * SURVEY_INSTRUCTIONS, looking).await?)
}

/// Has the manifest say what there is where the survey ends.
fn follow(manifest: &mut Manifest, survey: LogSurvey, reader: &ArchiveReader) -> Result<()> {
    let mut said = Vec::new();
    for CatalogSaid { at, is_whole, changes, call } in &survey.catalog {
        let changes = superblock::read_changes(changes);
        let changes = changes.ok_or_else(|| reader.damaged_at(*at, "what it says of partitions makes no sense"))?;
        if let Some(call) = call.filter(|_| !is_whole && changes.iter().any(is_found_by_calls)) {
            return Err(BackupError::CallBeforeChange { call, position: *at }.into());
        }
        said.push((*is_whole, changes));
    }
    let (partitions, catalog) = superblock::followed(&manifest.catalog, said);
    let named = |id: PartitionId| partitions.iter().find(|partition| partition.id() == id);
    let lost = survey.loads.iter().find_map(|(at, _, id)| Some((*at, named(*id)?)));
    if let Some((position, partition)) = lost.filter(|_| !canary::is_planted(Canary::UnnoticedLoad)) {
        return Err(BackupError::LoadNotLogged { partition: partition.name.clone(), position }.into());
    }
    let before: BTreeMap<u16, u32> =
        manifest.partitions.iter().map(|(partition, pages)| (partition.id, *pages)).collect();
    let pages = |partition: &Partition| -> Result<u32> {
        let first = before.get(&partition.id).copied().map_or_else(|| partition.first_pages(), Ok)?;
        Ok(first.max(survey.pages.get(&partition.id()).copied().unwrap_or(0)))
    };
    let counted = partitions.iter().map(|partition| Ok::<_, Error>(((**partition).clone(), pages(partition)?)));
    manifest.partitions = counted.collect::<Result<_>>()?;
    manifest.catalog = catalog;
    if manifest.sets.is_none() && partitions.iter().any(|partition| partition.set_settings().is_some()) {
        manifest.sets = Some(CurrentBackup::empty(Lsn(manifest.end)));
    }
    Ok(())
}

/// Whether a call of a procedure that was logged before such a change may find something else after it.
fn is_found_by_calls(change: &CatalogChange) -> bool {
    use CatalogChange::{Drop, Index, Rename, SetIndex, SetIndexGone, Type};
    matches!(change, Drop(_) | Index(..) | Rename(..) | SetIndex(..) | SetIndexGone(..) | Type(..))
}
