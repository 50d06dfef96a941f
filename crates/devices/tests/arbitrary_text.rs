//! A description of hardware is refused with a line number, or a machine of it can be built and used.

use base::Instant;
use base::Random;
use entresol_devices::{Direction, Hardware, Machine, Transfer, Wires};

const CACHED: &str = "[device.disk]\nmedium.service = \"15 ms\"\n[device.disk.cache]\nkind = \"non-volatile\"\n\
                      size = \"3 pages\"\npage_size = \"4 KiB\"\nread_misses = false\n";

/// Builds a machine and lets every device work.
fn use_it(hardware: &Hardware) {
    let mut machine = Machine::new(hardware, 1, true);
    for device in 0..hardware.devices.len() as u16 {
        for direction in [Direction::Read, Direction::Write { durable: true }, Direction::Sync] {
            machine.transfer(device, Transfer { direction, file: 1, offset: 4096, length: 4096, fresh: false });
        }
    }
    for _ in 0..200 {
        if machine.next().is_none() {
            break;
        }
        machine.step();
    }
    for (name, network) in &hardware.networks {
        let mut wires = Wires::new(name, network, 1, true);
        let (packet, mut hop) = wires.send(Instant::START, (0, 1), network.packet);
        while let Some(next) = wires.hop(hop, packet) {
            assert!(next >= hop);
            hop = next;
        }
    }
}

#[test]
fn mutated_descriptions_are_refused_or_make_machines() {
    let words =
        ["0", "-1", "1e308", "\"0 us\"", "\"1e99 s\"", "[]", "true", "\"\"", "nan", "inf", "\"-5 us\"", "65536"];
    let mut random = Random::stream(6, "descriptions");
    let (mut usable, mut refused) = (0, 0);
    for name in Hardware::names().chain(["cached"]) {
        let text = embedded(name);
        for _ in 0..400 {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = random.below(lines.len() as u64) as usize;
            match random.below(4) {
                0 => drop(lines.remove(at)),
                1 => lines.swap(at, text.lines().count() / 2),
                _ => {
                    let word = *random.choose(&words).expect("there are some");
                    let key = lines[at].split('=').next().unwrap_or_default().to_owned();
                    lines[at] = format!("{key}= {word}");
                }
            }
            match Hardware::parse(&lines.join("\n"), "mutated") {
                Ok(hardware) => {
                    use_it(&hardware);
                    usable += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("mutated"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(usable > 50 && refused > 200, "{usable} usable and {refused} refused prove little");
}

fn embedded(name: &str) -> &'static str {
    if name == "cached" { CACHED } else { Hardware::text(name).expect("the description is embedded") }
}
