//! What the shell asks of the caches below main memory while the database runs.

use crate::Failure;
use crate::report::TierUse;
use base::units::{format_size, grouped};
use devices::CacheSize;
use engine::Internals;
use engine::second_level::{CacheSettings, DESIGNS, Design};
use entresol::{Database, Handle};

/// Which cache a request is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheLevel {
    /// `[upper_cache]`.
    Upper,
    /// `[cache]`.
    Lower,
}

/// The caches that were there last, by their levels, as far as they are turned off.
pub type CachesBefore = [Option<CacheSettings>; 2];

/// A request about a cache.
#[derive(Debug, PartialEq)]
pub enum CacheCommand {
    Show,
    /// As it was before it was turned off, or on this device and of this size.
    On(Option<(String, CacheSize)>),
    Off,
    Design(Design),
    Resize(CacheSize),
    Admit {
        partition: String,
        is_admitted: bool,
    },
}

impl CacheCommand {
    /// Reads the words behind `cache`; `None` if they have no such form.
    pub fn parse(words: &[&str]) -> Result<Option<CacheCommand>, String> {
        let size = |words: &[&str]| words.join(" ").parse::<CacheSize>();
        Ok(Some(match words {
            [] => CacheCommand::Show,
            ["on"] => CacheCommand::On(None),
            ["on", device, rest @ ..] if !rest.is_empty() => {
                CacheCommand::On(Some(((*device).to_owned(), size(rest)?)))
            }
            ["off"] => CacheCommand::Off,
            ["design", name] => {
                let names = || DESIGNS.iter().map(|design| design.name()).collect::<Vec<_>>().join(", ");
                CacheCommand::Design(
                    Design::named(name).ok_or_else(|| format!("there is no design '{name}'; there are {}", names()))?,
                )
            }
            ["resize", rest @ ..] if !rest.is_empty() => CacheCommand::Resize(size(rest)?),
            ["admit", partition, word @ ("yes" | "no")] => {
                CacheCommand::Admit { partition: (*partition).to_owned(), is_admitted: *word == "yes" }
            }
            _ => return Ok(None),
        }))
    }

    /// Does it.
    pub fn run(self, handle: &Handle, level: CacheLevel, before: &mut CachesBefore) -> Result<String, Failure> {
        let before = &mut before[level as usize];
        let present = handle.with_database(async move |database| Ok(level.cache(database))).wait()?;
        let page_size =
            handle.with_database(async |database| Ok(database.settings().buffer.page_size as u64)).wait()?;
        let there = || present.clone().ok_or_else(|| format!("there is no {0}; '{0} on' turns one on", level.word()));
        let new = match self {
            CacheCommand::Show => {
                return Ok(handle.with_database(async move |database| Ok(level.shown(database))).wait()?);
            }
            CacheCommand::Admit { partition, is_admitted } => {
                let admit = handle.with_database(async move |database| {
                    database.admit_to_cache(database.partition(&partition)?, is_admitted)
                });
                admit.wait()?;
                return Ok("done".to_owned());
            }
            CacheCommand::On(None) if present.is_some() => return Err(format!("the {} is on", level.word()).into()),
            CacheCommand::On(None) => {
                let configured = handle.with_database(async move |database| Ok(level.configured(database))).wait()?;
                let unknown = || format!("no {0} is configured; '{0} on DEVICE SIZE' makes one", level.word());
                Some(before.clone().or(configured).ok_or_else(unknown)?)
            }
            CacheCommand::On(Some((device, size))) => {
                let like = present.clone().or(before.clone());
                let pages = pages(size, page_size)?;
                let new = CacheSettings::new(device.clone(), pages);
                Some(like.map_or(new, |like| CacheSettings { device, pages, volatile: None, ..like }))
            }
            CacheCommand::Off => None,
            CacheCommand::Design(design) => Some(CacheSettings { design, ..there()? }),
            CacheCommand::Resize(size) => Some(CacheSettings { pages: pages(size, page_size)?, ..there()? }),
        };
        let changed = handle.with_database(async move |database| level.set(database, new).await).wait();
        // A change that fails may leave none.
        let is_on = handle.with_database(async move |database| Ok(level.cache(database).is_some())).wait()?;
        let was_on = present.is_some();
        *before = if is_on { None } else { present.or(before.take()) };
        changed.map_err(|error| match (was_on, is_on) {
            (true, false) => {
                let word = level.word();
                format!("{error}. The {word} is off now; '{word} on' makes the one that was there again, empty").into()
            }
            _ => Failure::from(error),
        })?;
        Ok(handle.with_database(async move |database| Ok(level.described(database))).wait()?)
    }
}

impl CacheLevel {
    /// What requests call it.
    fn word(self) -> &'static str {
        match self {
            CacheLevel::Upper => "upper-cache",
            CacheLevel::Lower => "cache",
        }
    }

    fn cache(self, database: &Database) -> Option<CacheSettings> {
        match self {
            CacheLevel::Upper => database.upper_cache(),
            CacheLevel::Lower => database.cache(),
        }
    }

    fn configured(self, database: &Database) -> Option<CacheSettings> {
        let hierarchy = &database.settings().hierarchy;
        let cache = match self {
            CacheLevel::Upper => &hierarchy.upper_cache,
            CacheLevel::Lower => &hierarchy.cache,
        };
        cache.clone()
    }

    async fn set(self, database: &Database, cache: Option<CacheSettings>) -> Result<(), engine::Error> {
        match self {
            CacheLevel::Upper => database.set_upper_cache(cache).await,
            CacheLevel::Lower => database.set_cache(cache).await,
        }
    }

    /// The cache, for people.
    fn described(self, database: &Database) -> String {
        let Some(cache) = self.cache(database) else { return format!("there is no {}", self.word()) };
        let size = u64::from(cache.pages) * database.settings().buffer.page_size as u64;
        let budget = cache.write_budget.map_or_else(String::new, |budget| {
            format!(", at most {} a day are written", format_size(budget.bytes_per_day))
        });
        let pages = grouped(cache.pages.into());
        format!("{} on device '{}': {pages} pages, {}{budget}", cache.design.name(), cache.device, format_size(size))
    }

    /// The same, with what it holds, whether it fails, and what may not enter it.
    fn shown(self, database: &Database) -> String {
        let mut lines = vec![self.described(database)];
        if self.cache(database).is_none() {
            return lines.remove(0);
        }
        let (label, contents) = match self {
            CacheLevel::Upper => ("upper-cache", None),
            CacheLevel::Lower => ("cache", database.cache_contents()),
        };
        lines.extend(contents.map(|contents| {
            let [used, dirty, slots] = [contents.used, contents.dirty, contents.slots].map(grouped);
            format!("{used} of {slots} slots are in use; {dirty} pages are newer than on their own devices")
        }));
        for tier in database.tiers().into_iter().filter(|tier| tier.name == label) {
            if tier.declined > 0 {
                lines.push(format!(
                    "{} pages went past it because the budget of writes was spent",
                    grouped(tier.declined)
                ));
            }
            lines.extend(tier.lost.map(|lost| format!("it is failing: {lost}")));
        }
        let paged = database.partitions().into_iter().filter(|partition| partition.set_settings().is_none());
        let kept_out: Vec<String> = paged
            .filter(|partition| {
                let space = database.buffer().space(partition.id());
                !space.admission().cache && !space.placement().resident
            })
            .map(|partition| format!("'{}'", partition.name))
            .collect();
        if !kept_out.is_empty() {
            lines.push(format!("pages of {} may not enter it", kept_out.join(", ")));
        }
        lines.join("\n")
    }
}

fn pages(size: CacheSize, page_size: u64) -> Result<u32, String> {
    let pages = match size {
        CacheSize::Pages(pages) => pages,
        CacheSize::Bytes(bytes) => bytes / page_size,
    };
    let wrong = || format!("that is {} pages of {page_size} bytes; a cache has 1 to 2,147,483,647", grouped(pages));
    u32::try_from(pages).ok().filter(|pages| (1..1 << 31).contains(pages)).ok_or_else(wrong)
}

/// What the database has counted since it was opened, for people.
pub fn statistics(database: &Database) -> String {
    let statistics = database.statistics();
    let (commits, rollbacks) = (statistics.commits.get(), statistics.rollbacks.get());
    let mut parts = vec![format!("{} commits, {} rollbacks", grouped(commits), grouped(rollbacks))];
    let seconds = database.executor().now().seconds().max(1e-9);
    let tiers: Vec<TierUse> =
        database.tiers().into_iter().map(|tier| TierUse::new(tier, commits.max(1) as f64, seconds)).collect();
    if !tiers.is_empty() {
        parts.extend(TierUse::tables(&tiers));
    }
    parts.extend(database.unanswered(base::time::SECOND_NS).iter().map(ToString::to_string));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_about_the_cache_are_read() {
        let parse = |line: &str| CacheCommand::parse(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Some(CacheCommand::Show)));
        assert_eq!(parse("resize 2GiB"), Ok(Some(CacheCommand::Resize(CacheSize::Bytes(2 << 30)))));
        assert_eq!(parse("resize 1,000 pages"), Ok(Some(CacheCommand::Resize(CacheSize::Pages(1_000)))));
        let on = Some(("flash".to_owned(), CacheSize::Bytes(4 << 20)));
        assert_eq!(parse("on flash 4 MiB"), Ok(Some(CacheCommand::On(on))));
        let admit = CacheCommand::Admit { partition: "account".to_owned(), is_admitted: false };
        assert_eq!(parse("admit account no"), Ok(Some(admit)));
        for wrong in ["of", "on flash", "resize", "admit account", "admit account perhaps"] {
            assert_eq!(parse(wrong), Ok(None), "{wrong}");
        }
        for wrong in ["resize much", "resize 0", "design magic"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
