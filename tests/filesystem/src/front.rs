use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use crate::service::Message;

/// A request of the kernel, with the way to answer it. Inodes are as the kernel knows them.
pub(crate) enum Call {
    Lookup { parent: u64, name: String, reply: ReplyEntry },
    Attributes { inode: u64, reply: ReplyAttr },
    Resize { inode: u64, length: u64, reply: ReplyAttr },
    MakeDirectory { parent: u64, name: String, reply: ReplyEntry },
    Create { parent: u64, name: String, reply: ReplyCreate },
    Remove { parent: u64, name: String, reply: ReplyEmpty },
    Rename { parent: u64, name: String, new: String, reply: ReplyEmpty },
    Open { inode: u64, reply: ReplyOpen },
    Release { inode: u64, reply: ReplyEmpty },
    Read { inode: u64, offset: u64, size: u64, reply: ReplyData },
    Write { inode: u64, offset: u64, data: Vec<u8>, durable: bool, reply: ReplyWrite },
    Reserve { inode: u64, end: u64, reply: ReplyEmpty },
    Sync { inode: u64, reply: ReplyEmpty },
    SyncDirectory { inode: u64, reply: ReplyEmpty },
    List { inode: u64, offset: u64, reply: ReplyDirectory },
    Room { reply: ReplyStatfs },
}

/// The end of the connection to the kernel: hands every request to the thread that has the volume.
pub(crate) struct Front(pub(crate) Sender<Message>);

/// How many requests the kernel may have under way on behalf of asynchronous callers.
const BACKGROUND_MAX: u16 = 128;

impl Front {
    fn pass(&self, call: Call) {
        // When the server has ended, dropping the request answers it with EIO.
        let _ = self.0.send(Message::Call(call));
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Direct transfers of a ring are under way together, as on a device.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, INodeNo(parent): INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.pass(Call::Lookup { parent, name: text(name), reply });
    }

    fn getattr(&self, _: &Request, INodeNo(inode): INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.pass(Call::Attributes { inode, reply });
    }

    fn setattr(
        &self,
        _: &Request,
        INodeNo(inode): INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.pass(match size {
            Some(length) => Call::Resize { inode, length, reply },
            None => Call::Attributes { inode, reply },
        });
    }

    fn mkdir(&self, _: &Request, INodeNo(parent): INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.pass(Call::MakeDirectory { parent, name: text(name), reply });
    }

    fn create(&self, _: &Request, INodeNo(parent): INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.pass(Call::Create { parent, name: text(name), reply });
    }

    fn unlink(&self, _: &Request, INodeNo(parent): INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.pass(Call::Remove { parent, name: text(name), reply });
    }

    fn rmdir(&self, _: &Request, INodeNo(parent): INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.pass(Call::Remove { parent, name: text(name), reply });
    }

    fn rename(
        &self,
        _: &Request,
        INodeNo(parent): INodeNo,
        name: &OsStr,
        INodeNo(new_parent): INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        match parent == new_parent {
            true => self.pass(Call::Rename { parent, name: text(name), new: text(new), reply }),
            false => reply.error(fuser::Errno::EXDEV),
        }
    }

    fn open(&self, _: &Request, INodeNo(inode): INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.pass(Call::Open { inode, reply });
    }

    fn release(
        &self,
        _: &Request,
        INodeNo(inode): INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.pass(Call::Release { inode, reply });
    }

    fn read(
        &self,
        _: &Request,
        INodeNo(inode): INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.pass(Call::Read { inode, offset, size: u64::from(size), reply });
    }

    fn write(
        &self,
        _: &Request,
        INodeNo(inode): INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        OpenFlags(flags): OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel says so for each write: RWF_DSYNC and O_DSYNC alike, and sends no fsync after it.
        let durable = flags & libc::O_DSYNC != 0;
        self.pass(Call::Write { inode, offset, data: data.to_vec(), durable, reply });
    }

    fn fallocate(
        &self,
        _: &Request,
        INodeNo(inode): INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match mode {
            0 => self.pass(Call::Reserve { inode, end: offset + length, reply }),
            _ => reply.error(fuser::Errno::EOPNOTSUPP),
        }
    }

    fn fsync(&self, _: &Request, INodeNo(inode): INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.pass(Call::Sync { inode, reply });
    }

    fn fsyncdir(&self, _: &Request, INodeNo(inode): INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.pass(Call::SyncDirectory { inode, reply });
    }

    fn readdir(&self, _: &Request, INodeNo(inode): INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.pass(Call::List { inode, offset, reply });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.pass(Call::Room { reply });
    }
}

/// How files are opened: past the kernel's cache, so that nothing hides what the volume does, and written by several at once.
pub(crate) const OPEN_FLAGS: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES).union(FopenFlags::FOPEN_NOFLUSH);
