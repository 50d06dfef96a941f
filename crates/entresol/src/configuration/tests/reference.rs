use super::*;

#[test]
fn reference_is_the_default_and_complete() {
    let reference = Configuration::reference();
    let mut expected = Configuration::default();
    expected.asked = engine::Asked {
        page_size: Some(expected.buffer.page_size as usize),
        log_page_size: Some(expected.log.page_size as usize),
        log_device: Some(expected.log.device.clone()),
        log_size: Some(expected.log.size),
    };
    assert_eq!(Configuration::parse(&reference), Ok(expected));
    // What the lists of policies and designs name stands in it.
    assert!(reference.contains("# Which page makes room for another: \"lru\", \"clock\" or \"lru-2\".\n"));
    let designs = engine::second_level::DESIGNS.iter().map(|design| format!("\"{}\"", design.name()));
    let line = reference.lines().find(|line| line.starts_with("# Which pages enter it")).unwrap();
    assert!(designs.into_iter().all(|name| line.contains(&name)), "{line}");
    // Every key that a section allows stands in the reference.
    let sections =
        "device.disk buffer cache log undo temp commit checkpoint locks server nodes driver partition.account";
    for section in sections.split(' ') {
        let allowed = findings(&format!("[{section}]\nnonsense = 1")).remove(0).allowed;
        for key in allowed.split(", ") {
            assert!(reference.contains(&format!("{key} = ")), "{key} of [{section}]");
        }
    }
    // What stands there behind a '#' is allowed too.
    let uncommented: String = reference
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.starts_with('[') || key.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                key
            }
            _ => line,
        })
        // Some keys have an effect beside others only.
        .map(|line| line.replace("group_commit = \"paced\"", "group_commit = \"size\"") + "\n")
        .map(|line| line.replace("design = \"migrate-all\"", "design = \"lazy-cleaning\""))
        .collect();
    let configuration = Configuration::parse(&uncommented).unwrap();
    assert_eq!(
        configuration.partition("account"),
        Partition { named: configuration.partition("account").named, page_size: Some(8192), ..Partition::default() }
    );
    assert_eq!(configuration.log.group_commit, GroupCommit::Size { transactions: 8, delay_ns_max: 1_000_000 });
    assert_eq!(configuration.nodes.split_keys["customer"], crate::KeyRanges::split_at(["n"]));
    assert_eq!(configuration.nodes.split_keys["account"], crate::KeyRanges::of_numbers(0..1_000_000, 4));
    assert_eq!(configuration.server, Some(engine::server::Settings::default()));
}
