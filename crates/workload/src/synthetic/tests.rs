use super::*;
use crate::Unwatched;
use crate::ground;
use crate::run::{self, Length, Load, Measured, Plan};
use base::Random;
use engine::PartitionSpec;

fn contention() -> Model {
    Model::parse(Model::RAHM_1991_CONTENTION, "contention").unwrap()
}

/// Transactions drawn by the model's laws.
fn drawn(model: &Model, count: usize, seed: u64) -> Vec<Input> {
    let laws = draw::Laws::of(model);
    let mut random = Random::stream(seed, "draw");
    (0..count).map(|_| laws.transaction(model, &mut random)).collect()
}

/// Pearson's statistic against equal or given expectations, over its degrees of freedom; far above 1 if the law is another.
fn chi_square(observed: &[u64], shares: &[f64]) -> f64 {
    let total: u64 = observed.iter().sum();
    let sum: f64 = shares.iter().sum();
    let terms = observed.iter().zip(shares).map(|(seen, share)| {
        let expected = total as f64 * share / sum;
        (*seen as f64 - expected).powi(2) / expected
    });
    terms.sum::<f64>() / (observed.len() - 1) as f64
}

#[test]
fn the_examples_say_what_the_paper_says() {
    let model = contention();
    assert_eq!(model.partitions.iter().map(|partition| partition.objects).collect::<Vec<_>>(), [100_000, 10_000]);
    assert!(model.partitions.iter().all(|partition| partition.locks == Some(Locking::Page)));
    let kind = &model.types[0];
    assert_eq!((kind.size, kind.variable_size, kind.write_probability), (10.0, true, 1.0));
    assert_eq!(kind.references, [0.2, 0.8]);
    let Instructions { begin_transaction, object_reference, end_transaction } = kind.instructions;
    let each = [begin_transaction, object_reference, end_transaction].map(|price| price.unwrap());
    assert_eq!(each[0] + 10 * each[1] + each[2], 250_000);
}

#[test]
fn types_partitions_and_subpartitions_have_their_shares() {
    let model = Model::parse(Model::REFERENCE, "reference").unwrap();
    let inputs = drawn(&model, 60_000, 3);
    let count = |kind| inputs.iter().filter(|input| input.kind == kind).count() as u64;
    assert!(chi_square(&[count(0), count(1)], &[80.0, 20.0]) < 8.0);
    let references = || inputs.iter().filter(|input| input.kind == 1).flat_map(|input| &input.references);
    let to = |partition| references().filter(|reference| reference.partition == partition).count() as u64;
    assert!(chi_square(&[to(0), to(1)], &[0.3, 0.7]) < 8.0);
    let writes = references().filter(|reference| reference.write).count() as u64;
    assert!(chi_square(&[writes, references().count() as u64 - writes], &[0.25, 0.75]) < 8.0);
    // The nested 90/10 rule, and uniformity within a subpartition.
    let bounds = [8_100, 9_000, 10_000];
    let mut parts = [0; 3];
    let mut within = [0; 20];
    for reference in references().filter(|reference| reference.partition == 0) {
        let part = bounds.iter().position(|bound| reference.object < *bound).expect("within the partition");
        parts[part] += 1;
        if part == 2 {
            within[(reference.object - 9_000) as usize / 50] += 1;
        }
    }
    assert!(chi_square(&parts, &[1.0, 9.0, 90.0]) < 5.0, "{parts:?}");
    assert!(chi_square(&within, &[1.0; 20]) < 2.2, "{within:?}");
}

#[test]
fn variable_sizes_are_geometric_and_fixed_ones_fixed() {
    let model = contention();
    let inputs = drawn(&model, 50_000, 4);
    let mut sizes = [0_u64; 61];
    for input in &inputs {
        sizes[input.references.len().min(61) - 1] += 1;
    }
    let mut shares: Vec<f64> = (0..61).map(|size| 0.1 * 0.9_f64.powi(size)).collect();
    shares[60] = 0.9_f64.powi(60);
    assert!(chi_square(&sizes, &shares) < 1.7, "{sizes:?}");
    let mean = inputs.iter().map(|input| input.references.len()).sum::<usize>() as f64 / 50_000.0;
    assert!((mean - 10.0).abs() < 0.15, "{mean}");
    let fixed = Model::parse(&Model::RAHM_1991_CONTENTION.replace("variable_size = true", ""), "fixed").unwrap();
    assert!(drawn(&fixed, 100, 1).iter().all(|input| input.references.len() == 10));
}

#[test]
fn sequential_transactions_go_on_in_one_partition_and_wrap() {
    let mut model = Model::parse(Model::REFERENCE, "reference").unwrap();
    model.partitions[0].objects = 40;
    model.types.truncate(1);
    let mut wrapped = 0;
    for input in drawn(&model, 2_000, 5) {
        assert!(input.references.iter().all(|reference| reference.partition == 0 && reference.object < 40));
        for pair in input.references.windows(2) {
            assert_eq!(pair[1].object, (pair[0].object + 1) % 40);
            wrapped += u32::from(pair[1].object == 0);
        }
    }
    assert!(wrapped > 100, "{wrapped}");
}

#[test]
fn the_same_seed_draws_the_same_transactions() {
    let model = contention();
    assert_eq!(drawn(&model, 500, 9), drawn(&model, 500, 9));
    assert_ne!(drawn(&model, 500, 9), drawn(&model, 500, 10));
}

#[test]
fn errors_name_the_line_and_what_is_allowed() {
    let good = Model::RAHM_1991_CONTENTION;
    let cases = [
        ("objects = 10_000\n", "objects = 0\n", 8, "1 to"),
        ("objects = 10_000\n", "objects = \"many\"\n", 8, "u64"),
        ("objects = 10_000\n", "", 7, "missing field `objects`"),
        ("blocking_factor = 10\n", "blocking_factor = 0\n", 9, "65,535"),
        ("blocking_factor = 10\n", "blocking-factor = 10\n", 9, "expected one of `objects`, `blocking_factor`"),
        ("locks = \"page\"", "locks = \"row\"", 10, "`page`, `object`, `none`"),
        ("locks = \"page\"", "record_size = \"ten\"", 10, "KiB"),
        ("locks = \"page\"", "subpartitions = []", 10, "add up"),
        ("locks = \"page\"", "subpartitions = [{ size = 0, access = 1 }, { size = 1, access = 1 }]", 10, "none of the"),
        ("locks = \"page\"", "subpartitions = [{ size = -1, access = 1 }]", 10, "from 0 on"),
        ("[partition.small]", "[partition.\"a b\"]", 7, "a-z"),
        ("arrival_rate = 100.0", "arrival_rate = -1", 18, "0 to 1e9"),
        ("arrival_rate = 100.0", "arrival_rate = 0", 18, "ever arrives"),
        ("size = 10\n", "size = 0.5\n", 19, "1 to 1,000,000"),
        ("variable_size = true", "variable_size = 2", 20, "boolean"),
        ("write_probability = 1.0", "write_probability = 1.5", 21, "0 to 1"),
        ("large = 0.2", "larg = 0.2", 22, "no partition 'larg'; known are large, small"),
        ("small = 0.8, large = 0.2", "", 22, "more than 0"),
        ("[type.update]", "[types.update]", 17, "`partition` or `type`"),
        ("object_reference = 16_000", "reference = 16_000", 23, "object_reference"),
    ];
    for (from, to, line, what) in cases {
        assert!(good.contains(from), "{from}");
        let error = Model::parse(&good.replacen(from, to, 1), "w.toml").expect_err(to);
        assert_eq!(error.line, Some(line), "{to}: {error}");
        assert!(error.problem.contains(what), "{to}: {error}");
        assert!(error.to_string().starts_with(&format!("w.toml:{line}: ")), "{error}");
    }
    assert!(Model::parse("", "w.toml").unwrap_err().to_string().contains("[partition.NAME]"));
    assert!(Model::parse("[partition.p]\nobjects = 1", "w.toml").unwrap_err().to_string().contains("[type.NAME]"));
}

/// Runs a model on four described CPUs of 50 MIPS and devices that answer soon.
fn measured(model: &Model, load: Load, prices: [u64; 3]) -> Measured {
    batches(model, load, prices, 1).pop().expect("one batch")
}

/// The same in a given number of batches.
fn batches(model: &Model, load: Load, prices: [u64; 3], batches: u32) -> Vec<Measured> {
    let mut hardware = devices::Hardware::named("rahm-1991").unwrap();
    hardware.devices = devices::Hardware::ideal().devices;
    let free = devices::Instructions { exponential: true, ..devices::Instructions::default() };
    hardware.cpu.as_mut().unwrap().instructions = free;
    let model = model.clone();
    ground::on(hardware, 256, async move |database| {
        let spec = |partition: &Partition| {
            let locking = partition.locks.unwrap_or(Locking::Record);
            let spec = PartitionSpec::new(&partition.name, partition.organization(1024), locking);
            Ok(PartitionSpec { assumed: true, ..spec })
        };
        let workload = Synthetic::prepare(&database, model, spec).await?.priced(prices);
        let plan = Plan { load, warm_up: Length::Transactions(200), measure: Length::Transactions(3_000), seed: 1 };
        run::run_in_batches(&database, workload, &plan, batches, &mut Unwatched, |measured| measured).await
    })
}

#[test]
fn types_are_measured_one_by_one_and_cost_their_own_instructions() {
    let mut model = Model::parse(Model::REFERENCE, "reference").unwrap();
    // Of fixed sizes, one of which gives no prices: 12 references of 8,000 instructions.
    model.types[0].variable_size = false;
    model.types[0].size = 12.0;
    let measured = measured(&model, Load::Open { rate_per_s: 1.0 }, [20_000, 8_000, 10_000]);
    assert_eq!(measured.types.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>(), ["browse", "order"]);
    let counts = [0, 1].map(|kind| measured.types[kind].response.count());
    assert_eq!(counts[0] + counts[1], measured.transactions);
    assert!(chi_square(&counts, &[80.0, 20.0]) < 8.0, "{counts:?}");
    // Alone on a CPU of 50 MIPS and with devices that take no time, the response is the instructions: 126,000 and 218,000.
    for (kind, instructions) in [(0, 126_000.0), (1, 218_000.0)] {
        let mean = measured.types[kind].response.mean_ns() / 20.0;
        assert!((mean / instructions - 1.0).abs() < 0.06, "{mean} {instructions}");
    }
}

#[test]
fn a_run_repeats_itself_and_survives_contention() {
    let mut model = contention();
    for partition in &mut model.partitions {
        partition.objects = 200;
    }
    let run = || {
        let measured = measured(&model, Load::Closed { clients: 8 }, [0; 3]);
        (measured.elapsed_ns, measured.response.mean_ns().to_bits(), measured.types[0].response.count())
    };
    assert_eq!(run(), run());
}

#[test]
fn batches_add_up_to_the_run() {
    let load = Load::Open { rate_per_s: 500.0 };
    let (whole, parts) = (measured(&contention(), load, [40_000, 16_000, 50_000]), |number| {
        batches(&contention(), load, [40_000, 16_000, 50_000], number)
    });
    let ten = parts(10);
    assert_eq!(ten.len(), 10);
    assert!(ten.iter().all(|batch| batch.transactions >= 300 && batch.saturated.is_none()));
    assert_eq!(ten.iter().map(|batch| batch.elapsed_ns).sum::<u64>(), whole.elapsed_ns);
    assert_eq!(ten.iter().map(|batch| batch.types[0].response.count()).sum::<u64>(), whole.transactions);
    let mean = ten.iter().map(|batch| batch.response.mean_ns()).sum::<f64>() / 10.0;
    assert!((mean / whole.response.mean_ns() - 1.0).abs() < 0.01, "{mean} {}", whole.response.mean_ns());
    // More batches than transactions: each has one.
    assert_eq!(parts(10_000).len(), 3_000);
}

#[test]
fn a_saturated_run_says_so_in_its_last_batch() {
    let mut model = contention();
    for partition in &mut model.partitions {
        partition.locks = Some(Locking::None);
    }
    // 250,000 instructions on 200 MIPS: 800 a second.
    let batches = batches(&model, Load::Open { rate_per_s: 1_200.0 }, [40_000, 16_000, 50_000], 10);
    let (last, others) = batches.split_last().expect("there is one at least");
    assert_eq!(last.saturated.as_ref().map(|saturated| saturated.station.as_str()), Some("cpu"));
    assert!(others.iter().all(|batch| batch.saturated.is_none()));
}

#[test]
fn a_write_counts() {
    let mut object = [255, 255, 0];
    transaction::touch(&mut object);
    assert_eq!(object, [0, 0, 1]);
    assert_eq!(transaction::record_size(10, 256), 8);
    assert_eq!(transaction::record_size(100, 256), 2);
}
