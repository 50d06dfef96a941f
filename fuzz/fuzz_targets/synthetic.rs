//! A synthetic workload is refused, or transactions can be drawn from it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::synthetic::Model;

fuzz_target!(|text: &str| {
    let Ok(model) = Model::parse(text, "fuzz.toml") else { return };
    let mut random = base::Random::stream(1, "fuzz");
    for input in (0..20).map(|_| model.draw(&mut random)) {
        for reference in input.references.iter().take(1_000) {
            assert!(reference.object < model.partitions[reference.partition].objects);
        }
    }
});
