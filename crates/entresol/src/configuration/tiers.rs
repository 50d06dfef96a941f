//! `[cache]`, `[write_buffer]`: the tiers between main memory and the partitions' own devices.

use super::error::Problem;
use super::interpret::Context;
use super::section::Section;
use devices::CacheSize;
use engine::second_level::{DESIGNS, Design};

/// Bytes of a page of the log.
const LOG_PAGE: u64 = 4096;
const SIZE: &str = "a number of pages such as \"1,000 pages\", or a size such as \"4 MiB\"";

/// `[cache]`: the second-level cache (Rahm 1991, section 3.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// `device`: the device that holds it.
    pub device: String,
    /// `size`: how many pages of the buffer's size it holds; written as such or in bytes.
    pub pages: u32,
    /// `design`: which pages enter it.
    pub design: Design,
    /// `volatile`: whether it loses its contents with the power; `None`: as its device does.
    pub volatile: Option<bool>,
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
        let dirty_max = section.text("dirty_max", "a share of the cache such as \"50%\"");
        // What is wrong with the design is said there.
        if dirty_max.is_some() && (design.is_some() || !section.has("design")) {
            let conflict = "'dirty_max' has no effect: with this design no page waits in the cache to be cleaned";
            section.conflict("dirty_max", Problem::Conflict(conflict.to_owned()), "the section without this key");
        }
        let design = design.unwrap_or_default();
        let (device, size) = place(section, context, &["design", "volatile"])?;
        Some(Cache { device, pages: pages(section, size, page_size.into()), design, volatile })
    }
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
