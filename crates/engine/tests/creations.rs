//! A creation of a database that fails.

use driver::{Access, Op};
use entresol_engine::{Database, Error, Settings};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

#[test]
fn a_creation_without_room_leaves_the_devices_as_they_were_and_names_the_setting() {
    let media = Media::new();
    let mut hardware = Hardware::ideal();
    hardware.device_mut("disk").capacity = Some(3 << 20);
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let created = executor.run(async {
        let device = executor.device("disk").expect("it exists");
        let (file, _) = executor.open(device, "entresol.toml", true).await.expect("creates");
        let buffer = executor.frame(4096).expect("memory");
        let (offset, length, access) = (0, 4096, Access::Asynchronous);
        let op = Op::Write { file, offset, length, buffer, durable: true, access };
        executor.perform(op).await.result.expect("writes");
        let mut settings = Settings::default();
        settings.log.capacity = 64 << 20;
        Database::create_or_nothing(&executor, settings, &["disk".into(), "flash".into()]).await.map(drop)
    });
    executor.stop();
    let error = created.expect("the machine goes on").expect_err("the device is too small");
    assert!(matches!(&error, Error::Input(_)), "{error}");
    assert!(
        error.to_string().contains("make room for the log of 4 MiB, or give [log] size a smaller value"),
        "{error}"
    );
    assert_eq!(media.names("disk"), ["entresol.toml"]);
    assert_eq!(media.names("flash"), [""; 0]);
}

#[cfg(feature = "canary")]
#[test]
fn what_a_failed_creation_leaves_is_found() {
    use entresol_engine::canary::{Canary, plant};
    let planted = std::panic::catch_unwind(|| {
        plant(Some(Canary::KeptRemains));
        a_creation_without_room_leaves_the_devices_as_they_were_and_names_the_setting();
    });
    plant(None);
    assert!(planted.is_err());
}
