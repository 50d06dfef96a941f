use crate::MissingDirectories;
use crate::described::Model;
use crate::mapped::{MapMode, Mapping};
use crate::medium::Medium;
use crate::place::Place;
use crate::station::Station;
use driver::{DeviceId, FileId};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// A device: a directory, what it is like and what it does.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) medium: Medium,
    pub(crate) station: Station,
    /// How its files are mapped, if they are.
    pub(crate) mapped: Option<MapMode>,
    /// The description that it behaves by, if there is one.
    pub(crate) model: Option<Model>,
    /// What attaching it has created of its directory and of those above.
    pub(crate) created: MissingDirectories,
}

impl Device {
    /// How its files are accessed, and by which description it behaves, in words.
    pub(crate) fn mode(&self) -> String {
        let mut words = match (&self.mapped, &self.medium.buffered) {
            (Some(mode), _) => mode.describe(self.medium.memory),
            (None, None) => "direct".to_owned(),
            (None, Some(why)) => format!("buffered: {why}"),
        };
        if self.mapped.is_none() && !self.medium.memory {
            words += ", ";
            words += &self.medium.tearing();
        }
        if self.model.is_some() {
            words += ", with the delays of its description";
        }
        words
    }
}

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    pub(crate) device: DeviceId,
    pub(crate) name: String,
    /// The file's place in the ring's table, if it is there.
    pub(crate) registered: Option<u32>,
    /// Its mapping, if its device's files are mapped.
    pub(crate) mapping: Option<Mapping>,
    in_flight: u32,
    removed: bool,
    /// How often it was opened and not let go.
    openings: u32,
    /// Whether its name leads to another file by now: its directory was moved away, perhaps, and another one made in its place.
    displaced: bool,
}

impl OpenFile {
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether this is the same file. Both are open, so neither has the number of one that was removed.
    fn is(&self, other: &File) -> bool {
        let place = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
        place(&self.file).is_some_and(|own| place(other) == Some(own))
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// The open files. An id is an index and a generation, so that the id of a removed file does not reach its successor.
#[derive(Default)]
pub(crate) struct FileTable {
    entries: Vec<(u16, Option<OpenFile>)>,
    free: Vec<u16>,
}

const INDEX_BITS: u32 = 16;

pub(crate) fn index_of(id: FileId) -> usize {
    (id.0 & ((1 << INDEX_BITS) - 1)) as usize
}

fn id_of(index: usize, generation: u16) -> FileId {
    FileId(u32::from(generation) << INDEX_BITS | index as u32)
}

impl FileTable {
    /// The id of a file that is open and not removed.
    pub(crate) fn find(&self, device: DeviceId, name: &str) -> Option<FileId> {
        self.entries.iter().enumerate().find_map(|(index, (generation, file))| {
            let file = file.as_ref()?;
            let same = !file.removed && !file.displaced && file.device == device && file.name == name;
            same.then(|| id_of(index, *generation))
        })
    }

    /// The id of a file that is opened once more by its name. Nothing if none of this name is open, or only one that it no longer leads to.
    pub(crate) fn open_again(&mut self, device: DeviceId, name: &str, found: &File) -> Option<FileId> {
        let id = self.find(device, name)?;
        let known = self.get(id)?;
        if !known.is(found) {
            // Who has opened that goes on with it.
            known.displaced = true;
            return None;
        }
        known.openings += 1;
        Some(id)
    }

    /// Who has opened the file needs it no more. Returns it if nothing else does.
    pub(crate) fn let_go(&mut self, id: FileId) -> Option<OpenFile> {
        let file = self.get(id)?;
        file.openings -= 1;
        if file.openings == 0 { self.mark_removed(id) } else { None }
    }

    /// The name of the file at this place of the table, as far as it is known.
    pub(crate) fn name(&self, index: u32) -> String {
        let entry = self.entries.get(index as usize).and_then(|(_, file)| file.as_ref());
        entry.map_or_else(String::new, |file| file.name.clone())
    }

    /// Enters a file, or gives it back if the table is full.
    pub(crate) fn insert(&mut self, device: DeviceId, name: String, file: File) -> Result<FileId, Arc<File>> {
        let file = Arc::new(file);
        let index = match self.free.pop() {
            Some(index) => usize::from(index),
            None if self.entries.len() >> INDEX_BITS == 0 => {
                self.entries.push((0, None));
                self.entries.len() - 1
            }
            None => return Err(file),
        };
        let entry = &mut self.entries[index];
        entry.1 = Some(OpenFile {
            file,
            device,
            name,
            registered: None,
            mapping: None,
            in_flight: 0,
            removed: false,
            openings: 1,
            displaced: false,
        });
        Ok(id_of(index, entry.0))
    }

    /// An open file, unless it was removed.
    #[inline]
    pub(crate) fn get(&mut self, id: FileId) -> Option<&mut OpenFile> {
        self.entered(id).filter(|file| !file.removed)
    }

    /// A file that operations still use, removed or not.
    #[inline]
    pub(crate) fn entered(&mut self, id: FileId) -> Option<&mut OpenFile> {
        let (generation, file) = self.entries.get_mut(index_of(id))?;
        file.as_mut().filter(|_| u32::from(*generation) == id.0 >> INDEX_BITS)
    }

    /// An operation begins to use the file.
    #[inline]
    pub(crate) fn hold(&mut self, id: FileId) {
        self.entered(id).expect("only open files are used").in_flight += 1;
    }

    /// An operation has ended. Returns the file if it was removed and has no other operation.
    #[inline]
    pub(crate) fn release(&mut self, id: FileId) -> Option<OpenFile> {
        let file = self.entered(id).expect("a used file stays in the table");
        file.in_flight -= 1;
        if file.removed && file.in_flight == 0 { self.take(id) } else { None }
    }

    /// Forbids further use of the file. Returns it if it has no operation under way.
    pub(crate) fn mark_removed(&mut self, id: FileId) -> Option<OpenFile> {
        let file = self.get(id)?;
        file.removed = true;
        if file.in_flight == 0 { self.take(id) } else { None }
    }

    fn take(&mut self, id: FileId) -> Option<OpenFile> {
        let index = index_of(id);
        let (generation, file) = &mut self.entries[index];
        *generation = generation.wrapping_add(1);
        self.free.push(index as u16);
        file.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> File {
        std::os::fd::OwnedFd::from(std::io::pipe().expect("two descriptors").0).into()
    }

    #[test]
    fn a_name_is_of_the_file_that_it_leads_to_and_that_is_open_until_all_have_let_it_go() {
        let mut files = FileTable::default();
        let (first, second) = (nothing(), nothing());
        let same = first.try_clone().expect("a descriptor");
        let old = files.insert(DeviceId(0), "a".into(), first).expect("there is room");
        assert_eq!(files.open_again(DeviceId(0), "a", &same), Some(old));
        assert_eq!(files.open_again(DeviceId(0), "b", &same), None);
        assert_eq!(files.open_again(DeviceId(0), "a", &second), None);
        assert_eq!(files.find(DeviceId(0), "a"), None);
        let new = files.insert(DeviceId(0), "a".into(), second).expect("there is room");
        assert!(files.let_go(old).is_none() && files.get(old).is_some(), "it was opened twice");
        assert_eq!(files.find(DeviceId(0), "a"), Some(new));
        assert!(files.let_go(old).is_some() && files.get(old).is_none());
        files.hold(new);
        assert!(files.let_go(new).is_none() && files.get(new).is_none() && files.release(new).is_some());
    }

    #[test]
    fn a_removed_file_stays_while_it_is_used_and_its_id_dies_with_it() {
        let mut files = FileTable::default();
        let old = files.insert(DeviceId(0), "a".to_owned(), nothing()).expect("room");
        files.hold(old);
        assert!(files.mark_removed(old).is_none());
        assert!(files.get(old).is_none() && files.entered(old).is_some());
        assert_eq!(files.find(DeviceId(0), "a"), None);
        assert!(files.release(old).is_some());
        let new = files.insert(DeviceId(0), "a".to_owned(), nothing()).expect("room");
        assert_eq!(index_of(new), index_of(old));
        assert!(files.get(old).is_none() && files.get(new).is_some());
        assert_eq!(files.find(DeviceId(0), "a"), Some(new));
        assert_eq!(files.find(DeviceId(1), "a"), None);
    }
}
