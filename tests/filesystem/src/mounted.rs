use crate::front::Front;
use crate::plan::{End, Plan};
use crate::service::{Injected, Message, Service};
use crate::volume::Volume;
use fuser::{BackgroundSession, Config, MountOption};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// A [volume](crate::Volume) as a file system of this machine, in a directory of its own. Unmounted when it is dropped.
pub struct Mounted {
    directory: TempDir,
    messages: Sender<Message>,
    session: Option<BackgroundSession>,
    service: Option<JoinHandle<()>>,
}

impl Mounted {
    /// Mounts an empty volume.
    ///
    /// # Errors
    /// The system's, if there is no `/dev/fuse` or this user may not mount.
    pub fn new(seed: u64) -> io::Result<Mounted> {
        Mounted::with(move || Volume::new(seed), seed)
    }

    /// Mounts the volume that is made so, on the thread that will have it.
    ///
    /// # Errors
    /// As [`Mounted::new`].
    #[allow(clippy::disallowed_methods, reason = "the volume has a thread of its own")]
    pub fn with(make: impl FnOnce() -> Volume + Send + 'static, seed: u64) -> io::Result<Mounted> {
        let directory = tempfile::tempdir()?;
        let (messages, received) = channel();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("entresol-torture".into())];
        let session = fuser::spawn_mount(Front(messages.clone()), directory.path(), &config)?;
        let service = std::thread::spawn(move || Service::new(make(), seed).run(&received));
        Ok(Mounted { directory, messages, session: Some(session), service: Some(service) })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Has a process begin under this plan. The receiver hears when its end has come: from then on nothing is answered.
    pub fn begin(&self, plan: Plan) -> Receiver<()> {
        let (told, over) = channel();
        self.send(Message::Begin(plan, told));
        over
    }

    /// Answers nothing any more.
    pub fn halt(&self) {
        self.send(Message::Halt);
    }

    /// The process has been killed: lets what was under way land, or cuts the power; tells what was done to it.
    pub fn end(&self, end: End) -> Injected {
        let (told, done) = channel();
        self.send(Message::End(end, told));
        done.recv().expect("the volume is served")
    }

    fn send(&self, message: Message) {
        self.messages.send(message).expect("the volume is served");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.directory.path());
        // Drop this end of the connection first; the volume's thread ends when it has no sender left.
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
        self.messages = channel().0;
        if let Some(service) = self.service.take() {
            let _ = service.join();
        }
    }
}

/// Takes the file system away at once; it ends when the last process that had files there has let go of them.
#[allow(
    clippy::disallowed_methods,
    reason = "processes that were killed let go of their files on this machine's clock"
)]
fn unmount(path: &Path) {
    for _ in 0..200 {
        if nix::mount::umount(path).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH);
}
