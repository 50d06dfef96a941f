//! Who is told of faults is the program's code.

use entresol_executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

#[test]
fn a_panic_of_who_is_told_of_a_fault_ends_nothing() {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    executor.on_fault(|_| panic!("on purpose"));
    let device = executor.device("disk").expect("the ideal machine has a disk");
    let opened = executor.run(async { executor.open(device, "nothing", false).await });
    assert!(opened.expect("the machine goes on").is_err(), "there is no such file");
    assert!(executor.run(async { executor.open(device, "nothing", true).await }).expect("it goes on").is_ok());
    executor.stop();
}
