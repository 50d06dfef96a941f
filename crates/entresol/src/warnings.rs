//! Settings that are allowed and pointless, each with the reason.

use crate::configuration::{Configuration, Residence};
use devices::{CacheKind, Device};

impl Configuration {
    /// Settings that work and gain nothing, in words that say why (combinations: Rahm 1991, section 3.3, note 4).
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, partition) in &self.partitions {
            let cached = self.cache.as_ref().filter(|_| partition.cache);
            // A volatile cache takes no page that its device lacks.
            let takes_writes = cached.is_some_and(|cache| cache.volatile != Some(true));
            let buffered = self.write_buffer.as_ref().filter(|buffer| buffer.takes_pages && partition.write_buffer);
            let mut warn = |what: String| warnings.push(format!("partition '{name}': {what}"));
            if partition.residence == Residence::Memory {
                if cached.is_some() {
                    warn(
                        "its pages never leave main memory, so the cache will hold none of them; \
                          say cache = false"
                            .to_owned(),
                    );
                }
                continue;
            }
            if takes_writes && buffered.is_some() {
                warn("the cache takes modified pages already, so the write buffer gets little to do".to_owned());
            }
            let upper = self.upper_cache.as_ref().filter(|_| partition.cache);
            for (tier, device) in [
                ("upper cache", upper.map(|upper| &upper.device)),
                ("cache", cached.map(|cache| &cache.device)),
                ("write buffer", buffered.map(|buffer| &buffer.device)),
            ] {
                if device == Some(&partition.device) {
                    warn(format!("its {tier} is on its own device '{}', which is no faster", partition.device));
                }
            }
            let Some(kind) = self.disk_cache(&partition.device) else { continue };
            match kind {
                CacheKind::NonVolatile | CacheKind::WriteBuffer if buffered.is_some() => {
                    warn(format!(
                        "it has two write buffers, one in front of device '{}' and one in it",
                        partition.device
                    ));
                }
                CacheKind::NonVolatile | CacheKind::WriteBuffer if takes_writes => warn(format!(
                    "writes end in the second-level cache, so those that device '{}' buffers gain nothing",
                    partition.device
                )),
                CacheKind::Volatile | CacheKind::NonVolatile if cached.is_some() => warn(format!(
                    "the cache of device '{}' will mostly hold pages that the second-level cache holds, too",
                    partition.device
                )),
                _ => {}
            }
        }
        if let Some(cache) = &self.cache {
            let device = &cache.device;
            if *device == self.partition("").device && self.partitions.is_empty() {
                warnings
                    .push(format!("the cache is on device '{device}', where the partitions are, which is no faster"));
            }
            if self.hardware.is_none() && *device == self.log.device {
                warnings.push(format!(
                    "the cache is on the log's device '{device}': commits wait for its reads and writes"
                ));
            }
        }
        if let (Some(upper), Some(cache)) = (&self.upper_cache, &self.cache)
            && upper.device == cache.device
        {
            warnings.push(format!("the upper cache is on the cache's device '{}', which is no faster", cache.device));
        }
        if self.log.write_buffer {
            let device = &self.log.device;
            if self.write_buffer.as_ref().is_some_and(|buffer| buffer.device == *device) {
                warnings.push(format!("the log's write buffer is on its own device '{device}', which is no faster"));
            }
            if matches!(self.disk_cache(device), Some(CacheKind::NonVolatile | CacheKind::WriteBuffer)) {
                warnings
                    .push(format!("the log has two write buffers, one in front of device '{device}' and one in it"));
            }
        }
        warnings
    }

    /// The cache in the controller of a described device.
    fn disk_cache(&self, device: &str) -> Option<CacheKind> {
        let described: Option<&Device> = match &self.hardware {
            Some(hardware) => hardware.devices.get(device),
            None => self.devices.get(device)?.described.as_ref(),
        };
        Some(described?.cache.as_ref()?.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        Configuration::parse(&format!("hardware = \"rahm-1991\"\n{text}")).expect(text).warnings()
    }

    #[test]
    fn what_gains_something_is_not_warned_of() {
        assert_eq!(warnings(""), Vec::<String>::new());
        let cache = "[cache]\ndevice = \"nvem\"\nsize = \"100 pages\"\n";
        assert_eq!(warnings(&format!("{cache}[partition.a]\ndevice = \"disk\"")), Vec::<String>::new());
        let buffer = "[write_buffer]\ndevice = \"nvem\"\nsize = \"100 pages\"\n[log]\nwrite_buffer = true\n";
        assert_eq!(warnings(&format!("{buffer}[partition.a]\ndevice = \"disk\"")), Vec::<String>::new());
        let disk = "[device.disk]\ncache = \"write-buffer\"\ncache_size = \"100 pages\"\n";
        let beside =
            |volatile: bool| warnings(&format!("{cache}volatile = {volatile}\n{disk}[partition.a]\ndevice = \"disk\""));
        assert_eq!(beside(true), Vec::<String>::new(), "changed pages go to the disk");
        assert!(beside(false)[0].contains("gain nothing"), "{:?}", beside(false));
    }

    #[test]
    fn a_cache_on_the_device_that_it_is_to_relieve_is_told_of() {
        let cache = |device: &str, more: &str| {
            let flash = "[device.flash]\npath = \"flash\"\n";
            let text = format!("[cache]\ndevice = \"{device}\"\nsize = \"100 pages\"\n{flash}{more}");
            Configuration::parse(&text).expect(&text).warnings()
        };
        assert!(cache("disk", "").iter().any(|found| found.contains("where the partitions are")));
        assert_eq!(cache("flash", ""), Vec::<String>::new());
        let beside = cache("flash", "[log]\ndevice = \"flash\"\n");
        assert!(beside.iter().any(|found| found.contains("on the log's device 'flash'")), "{beside:?}");
    }

    #[test]
    fn pointless_combinations_are_named_with_the_reason() {
        let both = "[cache]\ndevice = \"nvem\"\nsize = \"100 pages\"\n[write_buffer]\ndevice = \"nvem\"\nsize = \"100 pages\"\n";
        for (partition, reason) in [
            ("residence = \"memory\"", "never leave main memory"),
            ("device = \"disk\"", "write buffer gets little to do"),
            ("device = \"nvem\"\nwrite_buffer = false", "its cache is on its own device 'nvem'"),
        ] {
            let found = warnings(&format!("{both}[partition.a]\n{partition}"));
            assert!(found.iter().any(|warning| warning.contains(reason)), "{found:?}");
        }
        let disk = "[device.disk]\ncache = \"non-volatile\"\ncache_size = \"100 pages\"\n";
        let buffer = "[write_buffer]\ndevice = \"nvem\"\nsize = \"100 pages\"\n";
        let found = warnings(&format!("{disk}{buffer}[log]\ndevice = \"disk\"\nwrite_buffer = true\n[partition.a]"));
        assert_eq!(found.iter().filter(|warning| warning.contains("two write buffers")).count(), 2, "{found:?}");
    }
}
