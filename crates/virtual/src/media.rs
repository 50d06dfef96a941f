use crate::file::File;
use base::Random;
use devices::Device;
use driver::{Fault, FaultKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The contents of described devices. A handle: clones refer to the same contents, which outlive every driver that used
/// them, so that a database can be opened again after its machine stopped.
///
/// Files are sparse: bytes never written read as zeros and take no memory.
///
/// ```
/// use base::Random;
/// use driver::{Access, Driver, Op, Output, Token};
/// use entresol_virtual::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};
///
/// let media = Media::new();
/// // Even a plan without faults keeps track of what a power cut would undo.
/// let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
/// let mut driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
/// let device = driver.device("disk").expect("the ideal machine has a disk");
/// let mut perform = |op| {
///     let mut done = Vec::new();
///     driver.submit(Token(0), op);
///     driver.park(None, &mut done).expect("the machine goes on");
///     done.remove(0).result.expect("the operation succeeds")
/// };
/// let Output::Opened { file, .. } = perform(Op::Open { device, name: "log".into(), create: true }) else { panic!() };
/// perform(Op::Resize { file, length: 4096, prewrite: true });
/// let mut buffer = driver::Frame::allocate(1, 4096).remove(0);
/// buffer.fill(7);
/// perform(Op::Write { file, offset: 0, length: 4096, buffer, durable: false, access: Access::Asynchronous });
///
/// drop(driver);
/// let survival = media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
/// assert_eq!(survival.lost, 1);
/// let mut byte = [7];
/// media.read("disk", "log", 0, &mut byte)?;
/// assert_eq!(byte, [0], "it was written and not made durable");
/// # Ok::<(), driver::Fault>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Media(pub(crate) Rc<RefCell<Contents>>);

/// How likely a power cut loses or tears a write that was not durable; otherwise the write is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerCut {
    /// The probability, 0 to 1, that nothing of the write survives.
    pub lost: f64,
    /// The probability, 0 to 1, that each of its sectors survives or not by itself. A write that its device never tears is
    /// lost or kept instead.
    pub torn: f64,
}

impl Default for PowerCut {
    /// A third of the writes each is lost, torn, kept.
    fn default() -> PowerCut {
        PowerCut { lost: 1.0 / 3.0, torn: 1.0 / 3.0 }
    }
}

/// What became of the writes that were not durable at a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// Survived whole.
    pub kept: u64,
    /// Vanished.
    pub lost: u64,
    /// Survived in part.
    pub torn: u64,
}

/// What was done to a file that it should not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaDamage {
    /// Its number: later ones of the same contents have larger numbers.
    pub number: u64,
    /// The bytes that are not what they should be: of a misdirected write those that it should have changed, and those that it
    /// has changed.
    pub places: Vec<Range<u64>>,
    /// Whether a driver has read any of that while it was damaged, and whether the read failed or not.
    pub is_met: bool,
    /// Whether any of it shows, or would if the power went now and took back what was written over it. What a power cut would have taken
    /// back in any case counts no more behind one.
    pub is_present: bool,
    /// Whether the file was removed.
    pub is_removed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) files: Vec<File>,
    devices: BTreeMap<String, Directory>,
    /// Changes of names and lengths that were under way when the power went.
    pub(crate) interrupted: Vec<Interrupted>,
    /// How many numbers of damages are taken.
    damages: u64,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    names: BTreeMap<String, usize>,
    /// The lengths of all files together.
    used: u64,
    volatile: bool,
    /// Whether no file may become longer.
    full: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Interrupted {
    Create { device: String, name: String, description: Box<Device> },
    Resize { device: String, file: usize, length: u64 },
    Remove { device: String, name: String },
}

impl Media {
    /// Empty devices.
    pub fn new() -> Media {
        Media::default()
    }

    /// An independent copy of the contents.
    pub fn copy(&self) -> Media {
        Media(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// Whether a write to a file is the first one in some of its range; see [`File::write_is_fresh`].
    #[inline]
    pub(crate) fn write_is_fresh(&self, file: usize, offset: u64, length: u32) -> bool {
        self.0.borrow_mut().files[file].write_is_fresh(offset..offset.saturating_add(length.into()))
    }

    /// The names of a device's files in ascending order.
    pub fn names(&self, device: &str) -> Vec<String> {
        self.0.borrow().names(device)
    }

    /// A device is replaced by an empty one.
    pub fn replace(&self, device: &str) {
        self.names(device).iter().for_each(|name| self.remove(device, name));
    }

    /// A file is gone, if there was one.
    pub fn remove(&self, device: &str, file: &str) {
        self.0.borrow_mut().remove(device, file);
    }

    /// A file's length in bytes, if there is such a file.
    pub fn length(&self, device: &str, file: &str) -> Option<u64> {
        let contents = self.0.borrow();
        Some(contents.files[contents.find(device, file)?].length())
    }

    /// Bytes of a file as a read would see them, without time passing; zeros beyond its end.
    ///
    /// # Errors
    /// [`FaultKind::NotFound`] if there is no such file, [`FaultKind::Device`] if a sector among the bytes is unreadable.
    pub fn read(&self, device: &str, file: &str, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let contents = self.0.borrow();
        let index = contents.find(device, file).ok_or_else(|| not_found(device, file))?;
        let found = &contents.files[index];
        if let Some(fault) = found.unreadable(device, offset, buffer.len() as u64) {
            return Err(fault);
        }
        found.read(offset, buffer);
        Ok(())
    }

    /// Puts bytes into a file, which is made if there is none, durably and without time passing. Bytes that are zero anyway
    /// take no memory.
    pub fn put(&self, (device, description): (&str, &Device), file: &str, offset: u64, bytes: &[u8]) {
        const PIECE: usize = 4096;
        let contents = &mut *self.0.borrow_mut();
        let index = contents.find(device, file).unwrap_or_else(|| contents.create(device, file, description));
        let end = offset + bytes.len() as u64;
        if end > contents.files[index].length() {
            contents.count_length(device, index, end);
            contents.files[index].resize(end);
        }
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                contents.files[index].write_durably(offset + (number * PIECE) as u64, piece);
            }
        }
    }

    /// Makes a device full, or no longer so: while it is, what would make a file of it longer fails with [`FaultKind::NoSpace`].
    pub fn set_full(&self, device: &str, full: bool) {
        self.0.borrow_mut().devices.entry(device.to_owned()).or_default().full = full;
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`: the medium decays.
    ///
    /// # Errors
    /// [`FaultKind::NotFound`] if there is no such file, [`FaultKind::EndOfFile`] if `offset` lies beyond its end.
    ///
    /// # Panics
    /// If `bit` is above 7.
    pub fn flip_bit(&self, device: &str, file: &str, offset: u64, bit: u8) -> Result<(), Fault> {
        assert!(bit < 8, "a byte has eight bits");
        self.inflict(device, file, (offset, 1), |file, number| file.flip(number, offset, 1 << bit))
    }

    /// Makes the sectors that hold these bytes unreadable: a read that touches one fails with [`FaultKind::Device`] until the
    /// whole sector is written again. Power cuts do not mend them; one that undoes the write which mended a sector makes it
    /// unreadable again.
    ///
    /// # Errors
    /// [`FaultKind::NotFound`] if there is no such file, [`FaultKind::EndOfFile`] if bytes lie beyond its end.
    ///
    /// ```
    /// # use driver::{Access, Driver, FaultKind, Frame, Op, Output, Token};
    /// # use entresol_virtual::{Hardware, Media, Options, VirtualDriver};
    /// # let media = Media::new();
    /// # let mut driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    /// # let device = driver.device("disk").expect("the ideal machine has a disk");
    /// # let mut perform = |op| {
    /// #     let mut done = Vec::new();
    /// #     driver.submit(Token(0), op);
    /// #     driver.park(None, &mut done).expect("the machine goes on");
    /// #     done.remove(0).result
    /// # };
    /// # let open = Op::Open { device, name: "data".into(), create: true };
    /// # let Ok(Output::Opened { file, .. }) = perform(open) else { panic!() };
    /// # perform(Op::Resize { file, length: 8192, prewrite: true }).expect("there is room");
    /// media.make_unreadable("disk", "data", 4096, 1)?;
    /// let buffer = Frame::allocate(1, 8192).remove(0);
    /// let read = perform(Op::Read { file, offset: 0, length: 8192, buffer, access: Access::Asynchronous });
    /// assert!(read.is_err_and(|fault| fault.kind == FaultKind::Device));
    /// # Ok::<(), driver::Fault>(())
    /// ```
    pub fn make_unreadable(&self, device: &str, file: &str, offset: u64, length: u64) -> Result<(), Fault> {
        self.inflict(device, file, (offset, length), |file, number| file.make_unreadable(number, offset, length))
    }

    /// Makes the bytes blank for good, as a tool does that takes them for unused and frees their sectors: they are zeros now,
    /// and can be read.
    ///
    /// # Errors
    /// [`FaultKind::NotFound`] if there is no such file, [`FaultKind::EndOfFile`] if bytes lie beyond its end.
    pub fn punch(&self, device: &str, file: &str, offset: u64, length: u64) -> Result<(), Fault> {
        let blank = vec![0; length as usize];
        self.inflict(device, file, (offset, length), |file, number| file.write_astray(number, offset, &blank, true))
    }

    fn inflict(
        &self,
        device: &str,
        file: &str,
        (offset, length): (u64, u64),
        damage: impl FnOnce(&mut File, u64),
    ) -> Result<(), Fault> {
        let mut contents = self.0.borrow_mut();
        let index = contents.find(device, file).ok_or_else(|| not_found(device, file))?;
        let number = contents.new_damage();
        let found = &mut contents.files[index];
        if offset.checked_add(length).is_none_or(|end| end > found.length()) {
            let what = format!("{length} bytes at {offset}");
            let message = format!("{what} lie beyond the end of file '{file}' on device '{device}'");
            return Err(Fault::new(FaultKind::EndOfFile, message));
        }
        damage(found, number);
        Ok(())
    }

    /// What was done to this file that it should not show, in order, be it mended since or not.
    pub fn damages(&self, device: &str, file: &str) -> Vec<MediaDamage> {
        let contents = self.0.borrow();
        contents.find(device, file).map_or_else(Vec::new, |index| contents.files[index].damages().collect())
    }

    /// What has become of the damage of this number, whichever file it was in; nothing if there was none.
    pub fn damage(&self, number: u64) -> Option<MediaDamage> {
        self.0.borrow().files.iter().find_map(|file| file.damages().find(|damage| damage.number == number))
    }

    /// Whatever is still damaged is what it should be, as if a sound copy of it had been put back: bits that have flipped,
    /// unreadable sectors, writes that never happened or happened elsewhere, reads to come that would show what was there before.
    pub fn repair(&self) {
        self.0.borrow_mut().files.iter_mut().filter(|file| !file.removed).for_each(File::repair);
    }

    /// Reads are given what the devices have: what failed syncs have left in the system's cache alone is read no more, as when files are
    /// opened anew.
    pub fn drop_caches(&self) {
        self.0.borrow_mut().files.iter_mut().for_each(File::drop_cache);
    }

    /// The program is killed and the machine goes on: written data stays, but is not durable before a sync; changes of names
    /// and lengths under way happen or not.
    pub fn process_end(&self, random: &mut Random) {
        self.0.borrow_mut().finish_interrupted(random);
    }

    /// The power goes: every write that is not durable (completed without sync, or under way) is kept, lost or torn; changes
    /// of names and lengths under way happen or not; volatile devices lose everything.
    ///
    /// Only drivers with a [`FaultPlan`](crate::FaultPlan) (an empty one will do) keep what this takes; without one every
    /// completed write survives.
    pub fn power_cut(&self, random: &mut Random, policy: &PowerCut) -> Survival {
        let mut survival = Survival::default();
        let mut contents = self.0.borrow_mut();
        for file in contents.files.iter_mut().filter(|file| !file.removed) {
            file.power_cut(random, policy, &mut survival);
        }
        contents.finish_interrupted(random);
        contents.count_names();
        survival
    }
}

impl Contents {
    /// Makes a device known and says whether a power cut empties it.
    pub(crate) fn register(&mut self, device: &str, volatile: bool) {
        self.devices.entry(device.to_owned()).or_default().volatile = volatile;
    }

    /// A number for what may become damage.
    pub(crate) fn new_damage(&mut self) -> u64 {
        self.damages += 1;
        self.damages
    }

    pub(crate) fn names(&self, device: &str) -> Vec<String> {
        self.devices.get(device).map_or_else(Vec::new, |directory| directory.names.keys().cloned().collect())
    }

    pub(crate) fn find(&self, device: &str, name: &str) -> Option<usize> {
        self.devices.get(device)?.names.get(name).copied()
    }

    pub(crate) fn create(&mut self, device: &str, name: &str, description: &Device) -> usize {
        let index = self.files.len();
        let mut file = File::new(name.to_owned(), description.alignment, description.atomic_write);
        if description.fresh_write.is_some() {
            file.track_fresh();
        }
        self.files.push(file);
        self.devices.entry(device.to_owned()).or_default().names.insert(name.to_owned(), index);
        index
    }

    pub(crate) fn remove(&mut self, device: &str, name: &str) {
        let Some(directory) = self.devices.get_mut(device) else { return };
        if let Some(index) = directory.names.remove(name) {
            directory.used -= self.files[index].length();
            self.files[index].remove();
        }
    }

    /// Makes sure that the device has room for the file at this length, and counts it.
    pub(crate) fn reserve(
        &mut self,
        device: &str,
        file: usize,
        length: u64,
        capacity: Option<u64>,
    ) -> Result<(), Fault> {
        let Some(directory) = self.devices.get(device) else { unreachable!("a file's device is known") };
        let found = &self.files[file];
        let used = directory.used - found.length() + length;
        let is_refused = directory.full || capacity.is_some_and(|capacity| used > capacity);
        if length > found.length() && is_refused {
            let message = format!("device '{device}' has no room for file '{}' of {length} bytes", found.name);
            return Err(Fault::new(FaultKind::NoSpace, message));
        }
        self.count_length(device, file, length);
        Ok(())
    }

    /// Counts the file at this length.
    fn count_length(&mut self, device: &str, file: usize, length: u64) {
        let Some(directory) = self.devices.get_mut(device) else { unreachable!("a file's device is known") };
        directory.used = directory.used - self.files[file].length() + length;
    }

    fn finish_interrupted(&mut self, random: &mut Random) {
        // What was being written has perhaps made files longer.
        self.count_room();
        for change in std::mem::take(&mut self.interrupted) {
            if random.chance(0.5) {
                self.finish(change);
            }
        }
    }

    fn finish(&mut self, change: Interrupted) {
        match change {
            Interrupted::Create { device, name, description } => {
                if self.find(&device, &name).is_none() {
                    self.create(&device, &name, &description);
                }
            }
            Interrupted::Remove { device, name } => self.remove(&device, &name),
            Interrupted::Resize { device, file, length } => {
                if !self.files[file].removed {
                    self.count_length(&device, file, length);
                    self.files[file].resize(length);
                }
            }
        }
    }

    fn count_names(&mut self) {
        let Contents { files, devices, .. } = self;
        for directory in devices.values_mut() {
            if directory.volatile {
                std::mem::take(&mut directory.names).into_values().for_each(|index| files[index].remove());
            }
        }
        self.count_room();
    }

    /// Counts the room that files take.
    fn count_room(&mut self) {
        let Contents { files, devices, .. } = self;
        for directory in devices.values_mut() {
            directory.used = directory.names.values().map(|index| files[*index].length()).sum();
        }
    }
}

pub(crate) fn not_found(device: &str, file: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("device '{device}' has no file '{file}'"))
}
