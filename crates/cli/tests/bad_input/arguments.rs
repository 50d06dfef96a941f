//! Configurations and arguments.

use crate::ground::{assert_unaltered, refusal, run, scratch, text};
use std::collections::BTreeMap;
use std::fs;

#[test]
fn a_wrong_configuration_is_shown_where_it_is_wrong() {
    let cases = [
        ("[buffer]\nsise = \"1 GiB\"\n", 2, "sise = \"1 GiB\"", "did you mean 'size'?"),
        ("[buffer]\nreplacement = \"magic\"\n", 2, "replacement = \"magic\"", "\"lru\""),
        ("[buffer]\ncleaner = 7\n", 2, "cleaner = 7", "true, false"),
        ("mpl = 4\n[log]\ndevice = \"flush\"\n", 3, "device = \"flush\"", "[device.NAME]"),
        ("[log]\nsize = \"a lot\"\n", 2, "size = \"a lot\"", "KiB"),
        ("[log]\nsize = \"4 parsecs\"\n", 2, "size = \"4 parsecs\"", "a size from"),
        ("[checkpoint]\ninterval = \"soon\"\n", 2, "interval = \"soon\"", "a duration from"),
        ("[buffers]\n", 1, "[buffers]", "did you mean 'buffer'?"),
        ("[partition.account]\norganization = \"heap\"\n", 2, "organization = \"heap\"", "\"b-tree\""),
        ("hardware = \"rahm-1881\"\n", 1, "hardware = \"rahm-1881\"", "did you mean 'rahm-1991'?"),
        ("[buffer\n", 1, "[buffer", "not TOML"),
    ];
    let directory = scratch();
    let (file, data) = (directory.path().join("c.toml"), directory.path().join("data"));
    for (configuration, line, shown, allowed) in cases {
        fs::write(&file, configuration).expect("writes");
        let words = ["bench", "debit-credit", "--data", text(&data), "--config", text(&file)];
        let said = refusal(&run(&words.map(str::to_owned)));
        assert!(said.contains(&format!("{}:{line}:", file.display())), "{said}");
        assert!(said.contains(shown) && said.contains(allowed), "{said}");
        assert!(!data.exists(), "nothing is created for {configuration:?}");
    }
}

#[test]
fn a_configuration_in_the_directory_counts_as_much() {
    let directory = scratch();
    fs::write(directory.path().join("entresol.toml"), "[buffer]\nsise = 1\n").expect("writes");
    let data = text(directory.path());
    for words in [vec!["check", data], vec!["bench", "debit-credit", "--data", data]] {
        let said = refusal(&run(&words.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        assert!(said.contains("entresol.toml:2:") && said.contains("did you mean 'size'?"), "{said}");
    }
}

#[test]
fn wrong_arguments_name_what_there_is() {
    let directory = scratch();
    let data = text(directory.path());
    let absent = directory.path().join("absent.toml");
    for (option, value, expected) in [
        ("--hardware", "rahm-1881", "did you mean 'rahm-1991'?"),
        ("--config", text(&absent), "absent.toml"),
        ("--config", data, data),
    ] {
        let words = ["bench", "debit-credit", "--data", data, option, value];
        let said = refusal(&run(&words.map(str::to_owned)));
        assert!(said.contains(expected), "{said}");
        assert_unaltered(directory.path(), &BTreeMap::new());
    }
}
