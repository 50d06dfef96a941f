//! The upper cache while the database runs. What only it has is written below before it is turned off or becomes another one. No opening
//! looks for it, so nothing is written for it to the superblock.

use super::Database;
use super::cache::close;
use crate::Result;
use crate::io::device;
use crate::recovery::{NewCache, are_same_slots, begin_upper_cache};
use crate::second_level::CacheSettings;
use crate::tier_file::Kind;
use executor::WholeExecutor;

impl Database {
    /// The upper cache as it is, be it that it was changed since the database was opened; `None` if there is none.
    pub fn upper_cache(&self) -> Option<CacheSettings> {
        self.0.upper_cache.borrow().clone()
    }

    /// Changes the upper cache while the database runs, as [`Database::set_cache`] does the cache below it; `None` turns it off. What only
    /// it has goes to what is below it first. It stays as it is when the cache below is changed or turned off.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::second_level::CacheSettings;
    /// # with_database(async |database| {
    ///
    /// database.set_cache(Some(CacheSettings::new("disk", 200))).await?;
    /// database.set_upper_cache(Some(CacheSettings::new("disk", 50))).await?;
    /// assert_eq!(database.tiers().iter().map(|tier| tier.name).collect::<Vec<_>>(), ["upper-cache", "cache"]);
    /// database.set_upper_cache(None).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) or [`Error::NoDevice`](crate::Error::NoDevice) if there cannot be such a cache;
    /// what [`Database::set_cache`] says of a cache whose pages cannot be written below, or which does not come to rest, and stays as
    /// it was; [`Error::Closed`](crate::Error::Closed). The driver's if its file cannot be had: then there is no upper cache.
    pub async fn set_upper_cache(&self, upper: Option<CacheSettings>) -> Result<()> {
        if let Some(upper) = &upper {
            device(self.executor().whole(), &upper.device)?;
            upper.check_upper(self.settings().buffer.page_size)?;
        }
        let (this, upper) = (self.clone(), upper.map(CacheSettings::upper));
        self.0.engine.core.executor.spawn(async move { this.change_upper_cache(upper).await }).join().await
    }

    async fn change_upper_cache(&self, upper: Option<CacheSettings>) -> Result<()> {
        let _change = self.0.changes.turn.take(self.executor().whole()).await;
        let core = &self.0.engine.core;
        core.check_open()?;
        let before = core.buffer.upper_cache();
        close(before.as_ref()).await?;
        if let (Some(tiers), Some(wanted), Some(present)) = (&before, &upper, self.upper_cache())
            && are_same_slots(self.executor().whole(), &present, wanted)
            && !tiers.is_lost()
        {
            tiers.redesign(wanted, self.settings().force);
            tiers.reopen();
            self.0.upper_cache.replace(upper);
            return Ok(());
        }
        core.buffer.set_upper_cache(None);
        self.0.upper_cache.replace(None);
        let Some(upper) = upper else { return Ok(()) };
        let NewCache { file, .. } = self.create_cache(Kind::UpperCache, &upper).await?;
        core.buffer.set_upper_cache(Some(begin_upper_cache(&core.buffer, &upper, self.settings().force, file)));
        self.0.upper_cache.replace(Some(upper));
        Ok(())
    }
}
