//! `[upper_cache]`, `[cache]`, `[write_buffer]`: the tiers between main memory and the partitions' own devices.

use super::error::Problem;
use super::interpret::Context;
use super::section::Section;
use super::wear;
use devices::CacheSize;
use engine::second_level::{DESIGNS, Design, Parameter, Parameters, WriteBudget};
use std::str::FromStr;

/// Bytes of a page of the log.
const LOG_PAGE: u64 = 4096;
const SIZE: &str = "a number of pages such as \"1,000 pages\", or a size such as \"4 MiB\"";

/// `[cache]`: the second-level cache (Rahm 1991, section 3.2); or `[upper_cache]`, between main memory and that.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// `device`: the device that holds it.
    pub device: String,
    /// `size`: how many pages of the buffer's size it holds; written as such or in bytes.
    pub pages: u32,
    /// `design`: which pages enter it.
    pub design: Design,
    /// `fill_threshold`, `dirty_max`, `group_pages`, `throttle`: numbers that some designs go by.
    pub parameters: Parameters,
    /// `volatile`: whether it loses its contents with the power; `None`: as its device does.
    pub volatile: Option<bool>,
    /// `write_budget`, `write_burst`: how much may be written to it; `None`: as much as the design likes.
    pub write_budget: Option<WriteBudget>,
    /// `rated_writes`: how many bytes its device is rated to be written with in its life; `None`: that is not known.
    pub rated_bytes: Option<u64>,
}

/// `[write_buffer]`: where page and log writes are durable before they reach their own devices.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteBuffer {
    /// `device`: the device that holds it.
    pub device: String,
    /// `size`: how many pages of the buffer's size it holds; written as such or in bytes.
    pub pages: u32,
    /// How many bytes of log it holds if `[log]` uses it: as many log pages, or the same size.
    pub log_bytes: u64,
    /// `pages`: whether pages of partitions use it, unless they say otherwise.
    pub takes_pages: bool,
    /// `volatile`: whether it loses its contents with the power, which is refused; `None`: as its device does.
    pub volatile: Option<bool>,
}

/// The device and the size that make a tier; neither goes without the other, and no other key without both.
fn place(section: &mut Section<'_>, context: &Context, others: &[&str]) -> Option<(String, CacheSize)> {
    let size: Option<CacheSize> = section.parsed("size", SIZE);
    let device = section.has("device").then(|| context.device(section));
    if device.is_none() {
        let conflict = || Problem::Conflict("it needs a device".to_owned());
        let present = ["size"].iter().chain(others).find(|key| section.has(key));
        present.inspect(|key| section.conflict(key, conflict(), "this key beside device = \"NAME\""));
    } else if !section.has("size") {
        let conflict = Problem::Conflict("it needs a size".to_owned());
        section.conflict("device", conflict, "device beside size, such as size = \"1,000 pages\"");
    }
    device.zip(size)
}

/// How many pages of `page_size` bytes that are; at most as many as slots have numbers.
fn pages(section: &Section<'_>, size: CacheSize, page_size: u64) -> u32 {
    let pages = match size {
        CacheSize::Pages(pages) => pages,
        CacheSize::Bytes(bytes) => bytes / page_size,
    };
    match u32::try_from(pages) {
        Ok(pages) if (1..1 << 31).contains(&pages) => pages,
        _ => {
            let conflict = Problem::Conflict(format!("that is {pages} pages of {page_size} bytes"));
            section.conflict("size", conflict, "1 to 2,147,483,647 pages");
            1
        }
    }
}

impl Cache {
    pub(super) fn read(section: &mut Section<'_>, context: &Context, page_size: u32) -> Option<Cache> {
        let names: Vec<&str> = DESIGNS.iter().map(|design| design.name()).collect();
        let design = section.word("design", &names).and_then(Design::named);
        let volatile = section.flag("volatile");
        // What is wrong with the design is said there.
        let named = design.or_else(|| (!section.has("design")).then(Design::default));
        let parameters = parameters(section, named);
        let design = design.unwrap_or_default();
        section.set_page_size(page_size);
        let wear = wear::read(section);
        let others = [&["design", "volatile"], &PARAMETERS.map(|(key, _)| key)[..], &wear::KEYS].concat();
        let (device, size) = place(section, context, &others)?;
        let pages = pages(section, size, page_size.into());
        let write_budget = wear.budget(section, pages, page_size);
        Some(Cache { device, pages, design, parameters, volatile, write_budget, rated_bytes: wear.rated })
    }

    /// `[upper_cache]`: it stands above a cache, and begins empty.
    pub(super) fn read_upper(
        section: &mut Section<'_>,
        context: &Context,
        (page_size, has_cache): (u32, bool),
    ) -> Option<Cache> {
        let upper = Cache::read(section, context, page_size);
        if upper.is_some() && !has_cache {
            let conflict = Problem::Conflict("an upper cache stands above [cache], and there is none".to_owned());
            section.conflict("device", conflict, "this section beside [cache], or [cache] in its place");
        }
        if section.flag("volatile") == Some(false) {
            let conflict = "an upper cache begins empty at each opening, whatever its device keeps".to_owned();
            section.conflict("volatile", Problem::Conflict(conflict), "true; the section without this key");
        }
        upper
    }
}

const PARAMETERS: [(&str, Parameter); 4] = [
    ("fill_threshold", Parameter::FillThreshold),
    ("dirty_max", Parameter::DirtyMax),
    ("group_pages", Parameter::GroupPages),
    ("throttle", Parameter::Throttle),
];

/// A share in whole percent.
struct Share(u8);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
        match number {
            Some(percent @ 0..=100) => Ok(Share(percent)),
            _ => Err(format!("'{text}' is not a share of the cache")),
        }
    }
}

/// The numbers that the design goes by; a key for one that it does not know has no effect, and is refused.
fn parameters(section: &mut Section<'_>, design: Option<Design>) -> Parameters {
    const SHARE: &str = "a share of the cache from \"0%\" to \"100%\" in whole percent";
    let defaults = Parameters::default();
    let fill_threshold = section.parsed("fill_threshold", SHARE);
    let dirty_max = section.parsed("dirty_max", SHARE);
    let group_pages = section.number("group_pages", 1..=256);
    let throttle = section.number("throttle", 0..=65_536);
    for (key, parameter) in PARAMETERS {
        if let Some(design) = design.filter(|design| !design.uses(parameter)) {
            let conflict = format!("'{key}' has no effect with the design \"{}\"", design.name());
            let others = DESIGNS.iter().filter(|design| design.uses(parameter)).map(|design| design.name());
            let allowed = format!("the section without this key, or one of these designs: {}", quoted(others));
            section.conflict(key, Problem::Conflict(conflict), &allowed);
        }
    }
    Parameters {
        fill_threshold_percent: fill_threshold.map_or(defaults.fill_threshold_percent, |Share(percent)| percent),
        dirty_max_percent: dirty_max.map_or(defaults.dirty_max_percent, |Share(percent)| percent),
        group_pages: group_pages.map_or(defaults.group_pages, |pages| pages as u32),
        throttle: throttle.map_or(defaults.throttle, |operations| operations as u32),
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

impl WriteBuffer {
    pub(super) fn read(section: &mut Section<'_>, context: &Context, page_size: u32) -> Option<WriteBuffer> {
        let takes_pages = section.flag("pages").unwrap_or(true);
        let volatile = section.flag("volatile");
        let (device, size) = place(section, context, &["pages", "volatile"])?;
        let log_bytes = match size {
            CacheSize::Pages(pages) => pages.saturating_mul(LOG_PAGE),
            CacheSize::Bytes(bytes) => (bytes - bytes % LOG_PAGE).max(LOG_PAGE),
        };
        Some(WriteBuffer { device, pages: pages(section, size, page_size.into()), log_bytes, takes_pages, volatile })
    }
}
