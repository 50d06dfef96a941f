use super::*;

/// A step that ends after the next opening has made the file longer would cut it.
#[test]
fn a_step_that_is_under_way_is_waited_for() {
    let site = Site::default();
    let machine = site.machine();
    let settings = Settings { page_size: 512, capacity: 1 << 20, first_extent: 0, ..Settings::default() };
    machine.run(async {
        let log = machine.create(&settings).await;
        let length = || site.media.length(DEVICE, "log");
        assert_eq!(length(), Some(8192), "16 pages");
        log.begin_step();
        machine.executor.yield_now().await;
        assert_eq!(length(), Some(8192), "it is under way");
        log.finish_step().await;
        assert_eq!(length(), Some(16_384));
        log.finish_step().await;
        assert_eq!(length(), Some(16_384), "there is none");
    });
}
